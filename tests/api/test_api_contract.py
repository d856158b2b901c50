"""/openapi.json is honest: schemathesis asks what it allows and what it does not, and checks what comes back."""

from __future__ import annotations

import copy
import itertools
import json
from concurrent.futures import Future
from pathlib import Path

import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import unsupported_method

from agent.api.app import build
from agent.api.guard import Peer, with_peer
from agent.board import Board, Snapshot
from agent.core.model import Ask, Stage
from tests.api.api_house import hold, page, rival, status
from tests.cli.fake_agent import gpu, gpus, holder

EXAMPLES = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None)
REFUSALS = itertools.cycle([None, "its state could not be saved"])
UNIT = "vllm@a\\x2db.service"
GPUS = gpus(gpu(holders=[holder()]), gpu(1, holders=None))
LOG = Path(__file__)  # any text


def app(closed: bool) -> FastAPI:
    """An app with a server in each stage, none of which is waited for; changes are made and refused in turn."""
    pages = tuple(
        page(f"is-{stage}", stage, wanted=stage is not Stage.DOWN, dead=stage is not Stage.READY, log=LOG)
        for stage in Stage
    )
    board = Board()
    shown = {"full": status(pages, True), "public": status(pages, False)}
    shown["rivals"] = json.dumps({"rivals": [rival(UNIT)], "warnings": ["a warning"]}).encode()
    shown["holds"] = json.dumps({"holds": [hold(UNIT)]}).encode()
    shown["gpus"] = json.dumps(GPUS).encode()
    board.publish(Snapshot(version=1, servers={each.name: each for each in pages}, **shown))
    board.beat(float("inf"))
    if closed:
        board.close()

    def ask(name: str, ask: Ask, gpu_check: bool) -> Future[str | None]:
        future: Future[str | None] = Future()
        future.set_result(next(REFUSALS))
        return future

    def keep_off(unit: str, keep_off: bool) -> Future[str | None]:
        return ask(unit, Ask.STOP, keep_off)

    return build(board, ask, "0.1.0", Path("/run/api.sock"), hold=keep_off)


def contract(api: FastAPI, over_socket: bool) -> schemathesis.BaseSchema:
    """Its own OpenAPI document, with the names of the servers that there are: made-up names are only ever 404."""
    document = copy.deepcopy(api.openapi())
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] == "name":
                    parameter["schema"]["enum"] = [f"is-{stage}" for stage in Stage] + ["nobody"]
                if parameter["name"] == "unit":
                    parameter["schema"]["enum"] = [UNIT, "nobody.timer"]
    loaded = schemathesis.openapi.from_dict(document)
    loaded.app = with_peer(api, Peer(pid=1, uid=0, gid=0)) if over_socket else api
    return loaded


def check(case: schemathesis.Case, *excluded: schemathesis.CheckFunction) -> None:
    """The answer is one that the document announces: status, content type, headers, body."""
    # 503 and 504 are answers here, not failures; a bug is a 500.
    answer = case.call_and_validate(headers={"Host": "localhost"}, excluded_checks=[not_a_server_error, *excluded])
    assert answer.status_code != 500


# An open board would follow a log, and the events, for ever.
at_work = contract(app(closed=False), over_socket=True).exclude(path_regex="/log$|/events$")
ending = contract(app(closed=True), over_socket=True)
from_outside = contract(app(closed=False), over_socket=False).exclude(path_regex="/events$")


@at_work.parametrize()
@EXAMPLES
def test_over_the_socket_every_answer_is_as_announced(case: schemathesis.Case) -> None:
    check(case)


@ending.parametrize()
@EXAMPLES
def test_while_the_agent_ends_every_answer_is_as_announced(case: schemathesis.Case) -> None:
    check(case)


@from_outside.parametrize()
@EXAMPLES
def test_over_tcp_every_answer_is_as_announced(case: schemathesis.Case) -> None:
    check(case, unsupported_method)  # over TCP another method is 403, even where the socket would say 405


def test_the_document_names_every_route_and_needs_nothing_from_elsewhere() -> None:
    api = app(closed=False)
    assert set(api.openapi()["paths"]) == {
        "/status",
        "/live",
        "/ready",
        "/events",
        "/reload",
        "/switch",
        "/rivals",
        "/holds",
        "/gpus",
        *(f"/holds/{{unit}}/{each}" for each in ("hold", "release")),
        "/servers/{name}",
        *(f"/servers/{{name}}/{each}" for each in ("stage", "ready", "wait", "log", "starts")),
        *(f"/servers/{{name}}/{each}" for each in ("start", "stop", "restart")),
    }
    problems = [
        content
        for path in api.openapi()["paths"].values()
        for operation in path.values()
        for status, answer in operation["responses"].items()
        for content in answer["content"]
        if status not in ("200", "503")
    ]
    assert set(problems) == {"application/problem+json"}
