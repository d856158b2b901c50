"""What is shown of a State, and to whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from agent.core.model import Cause, Need, Retry, Saved, Seen, Stage, State, Want
from agent.families.cause import CATALOG
from agent.view import OPEN, Face, StartPages, show

CANARY = "/srv/customer-x/secret.gguf"
FACE = Face(url="http://127.0.0.1:1", log=None, tail=(f"loading {CANARY}",), starts=StartPages(), expected=None)


def cause(slug: str) -> Cause:
    """A cause that names a file of the command."""
    return Cause(slug=slug, text=f"cannot read {CANARY}", remedy=f"chmod {CANARY}", retry=Retry.NO, line=3)


def public_of(state: State) -> bytes:
    """What anybody sees over TCP."""
    return show("demo", state, FACE, lambda at: at).page.public


@pytest.mark.parametrize("slug", sorted(CATALOG.keys() - OPEN))
@pytest.mark.parametrize("blocked", [False, True])
def test_no_cause_tells_a_stranger_of_the_log_or_the_command(slug: str, blocked: bool) -> None:
    why = f"cannot read {CANARY}" if blocked else f"{slug}: exited with 1"
    state = State(stage=Stage.FAILED, cause=cause(slug), blocked=blocked, why=why, saved=Saved(want=Want.UP))
    assert CANARY.encode() not in public_of(state)
    assert slug.encode() in public_of(state)
    assert CANARY.encode() in show("demo", state, FACE, lambda at: at).page.full


def test_a_need_that_is_waited_for_is_told_to_a_stranger_by_its_name_alone() -> None:
    need = Need(name="mount", cause=cause("not_mounted"), heals=True, subject=CANARY)
    state = State(stage=Stage.WAITING, deadline=1.0, seen=Seen(needs=(need,)), why=need.cause.text)
    assert CANARY.encode() not in public_of(state)
    assert b"waiting for mount" in public_of(state)
    assert b'"needs":[{"name":"mount","slug":"not_mounted","subject":"",' in public_of(state)


def test_what_is_ours_and_names_no_file_is_told_to_anybody() -> None:
    taken = Cause(slug="port_taken", text="Port 8000 is taken by pid 7 (nc)", remedy="End it", retry=Retry.WAIT)
    assert b"taken by pid 7 (nc)" in public_of(State(stage=Stage.FAILED, cause=taken, why="x"))


def slugs_in(source: str) -> set[str]:
    """Every slug that a source gives to a Cause, an EdgeError or a Need."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        given = [each.value for each in node.keywords if each.arg == "slug"]
        name = getattr(node.func, "id", "")
        given += node.args[3:4] if name == "EdgeError" else node.args[1:2] if name == "_need" else []
        found |= {each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return found - {""}


def test_every_cause_that_is_made_outside_the_families_has_general_words_for_a_stranger() -> None:
    agent = Path(__file__).parent.parent / "agent"
    sources = [path for folder in ("core", "edges") for path in (agent / folder).glob("*.py")] + list(
        agent.glob("*.py")
    )
    slugs = set[str]().union(*(slugs_in(path.read_text()) for path in sources))
    assert "port_taken" in slugs  # else it found none
    assert slugs - CATALOG.keys() - OPEN - {"locked"} == set()  # a lock is the agent's own, never a server's
