"""HTTP over the agent's unix socket, with the standard library: quick to import."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from agent import socket_path
from agent.cli.event_stream import OPEN, Event, parse
from agent.cli.exits import AgentFault, Away, Fault, Refused, Unreachable, WrongUsage
from agent.cli.text import plain

Document = dict[str, Any]
"""A JSON object of the API."""

ANSWER_S = 10.0  # the agent answers reads from memory
CHANGE_S = 30.0  # a change is answered after it is saved, and a disk may be slow
SILENCE_S = 40.0  # /events beats every 12 s

# 503, 504: there is an agent, but it begins, ends or hangs. Any other status is a bug, here or there.
_FAULTS: Mapping[int, type[Fault]] = {403: Refused, 409: Refused, 507: Refused, 503: Away, 504: Unreachable}


class _UnixConnection(http.client.HTTPConnection):
    """HTTP to a socket in the file system; `localhost` is the Host that the agent expects."""

    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the agent."""

    status: int
    body: bytes

    def document(self) -> Document:
        """The body as a JSON object; Unreachable when it is none: then no agent has answered."""
        try:
            document = json.loads(self.body)
        except ValueError as error:
            raise Unreachable(f"what answers on the socket is no gpuagent: HTTP {self.status}, no JSON") from error
        if not isinstance(document, dict):
            raise Unreachable(f"what answers on the socket is no gpuagent: HTTP {self.status}, no JSON object")
        return document


class Client:
    """The agent, as a command sees it."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        self._sockets = sockets
        self.reached_at: float | None = None  # when an agent last took a connection (monotonic seconds)

    def status(self) -> Document:
        """`/status`."""
        return self._ok(self._request("GET", "/status", ANSWER_S)).document()

    def server(self, name: str) -> Document:
        """`/servers/NAME`."""
        return self._ok(self._request("GET", _path(name), ANSWER_S), name).document()

    def stage(self, name: str) -> str:
        """`/servers/NAME/stage`: one word."""
        return plain(self._ok(self._request("GET", _path(name, "stage"), ANSWER_S), name).body.decode(errors="replace"))

    def change(self, name: str, verb: str, body: Document) -> Document:
        """POST start, stop or restart. The server's document; Refused when the agent says no."""
        return self._ok(self._request("POST", _path(name, verb), CHANGE_S, body), name).document()

    def switch(self, name: str, back: bool) -> Document:
        """POST /switch. The document of the server that is wanted from now on; Refused when the agent says no."""
        return self._ok(self._request("POST", "/switch", CHANGE_S, {"to": name, "back": back}), name).document()

    def gpus(self) -> Document:
        """`/gpus`."""
        return self._ok(self._request("GET", "/gpus", ANSWER_S)).document()

    def rivals(self) -> Document:
        """`/rivals`."""
        return self._ok(self._request("GET", "/rivals", ANSWER_S)).document()

    def holds(self) -> Document:
        """`/holds`."""
        return self._ok(self._request("GET", "/holds", ANSWER_S)).document()

    def hold(self, unit: str, verb: str) -> Document:
        """POST hold or release of a unit: {unit, held}. WrongUsage: it is not listed; Refused: the agent says no."""
        reply = self._request("POST", f"/holds/{quote(unit, safe='')}/{verb}", CHANGE_S)
        if reply.status == 404:
            raise WrongUsage(plain(reply.document()["detail"]))
        return self._ok(reply).document()

    def reload(self) -> Document:
        """POST /reload: what has changed. WrongUsage, with every fault: the configuration is wrong."""
        reply = self._request("POST", "/reload", CHANGE_S)
        if reply.status != 422:
            return self._ok(reply).document()
        problem = reply.document()
        faults = [f"  {plain(each['where'])}: {plain(each['what'])}" for each in problem.get("faults") or ()]
        raise WrongUsage("\n".join([plain(problem["detail"]), *faults]))

    def wait(self, name: str, goal: str, timeout_s: float) -> Reply:
        """Wait until "ready" or "down": 200 with the server's document, 409 or 504 with a problem document."""
        path = _path(name, "wait") + "?" + urlencode({"for": goal, "timeout": timeout_s})
        reply = self._request("GET", path, timeout_s + ANSWER_S)
        return reply if reply.status in (409, 504) else self._ok(reply, name)

    def log(self, name: str, lines: int, follow: bool) -> Iterator[bytes]:
        """The log's last lines and, with `follow`, what comes, in pieces as they arrive."""
        path = _path(name, "log") + "?" + urlencode({"lines": lines, **({"follow": "1"} if follow else {})})
        # A server that has nothing to say may be silent for hours; a closed connection ends the stream at once.
        with self._stream(path, None if follow else ANSWER_S, name) as response:
            while piece := response.read1(65536):
                yield piece
        if follow:
            self.stage(name)  # it says so itself if the server is not defined any more, or the agent cannot be reached
            raise Away("the agent is ending; its log ends here")

    def events(self, last_id: str) -> Iterator[Event]:
        """`/events` after the event `last_id` (empty: from the present state), first an "open". Ends with Away."""
        path = "/events?" + urlencode({"last_event_id": last_id})
        with self._stream(path, SILENCE_S) as response:
            yield OPEN
            try:
                yield from parse(response)
            except ValueError as error:
                raise Unreachable(f"what answers on the socket is no gpuagent: {error}") from error
        raise Away("the agent has ended")

    def starts(self, name: str, limit: int) -> Document:
        """`/servers/NAME/starts`."""
        path = _path(name, "starts") + "?" + urlencode({"limit": limit})
        return self._ok(self._request("GET", path, ANSWER_S), name).document()

    def only_server(self) -> str:
        """The name of the one server that is defined; a usage error when there is none, or a choice."""
        names = [plain(server["name"]) for server in self.status()["servers"]]
        if not names:
            raise WrongUsage("no server is defined: add one to the configuration, then: gpuagent reload")
        if len(names) > 1:
            raise WrongUsage(f"which server? Defined are: {', '.join(names)}. Give the name as the argument")
        return names[0]

    def _ok(self, reply: Reply, name: str | None = None) -> Reply:
        """`reply` when it is a success; else the Fault that says what the agent said."""
        if reply.status == 200:
            return reply
        problem = reply.document()
        known = problem.get("known")
        if reply.status == 404 and known is not None and name not in known:
            raise WrongUsage(f"no server is named {name!r}. Defined are: {', '.join(map(plain, known)) or 'none'}")
        said = plain(problem.get("detail") or problem.get("title") or "no reason given") + f" (HTTP {reply.status})"
        raise _FAULTS.get(reply.status, AgentFault)(said)

    @contextmanager
    def _stream(
        self, path: str, silence_s: float | None, name: str | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer that is read piece by piece, none of which may take longer than `silence_s`."""
        response, connection = self._send("GET", path, silence_s)
        try:
            if response.status != 200:
                self._ok(Reply(response.status, response.read()), name)
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise Away(f"the agent went away while its answer was read: {_reason(error)}") from error
        finally:
            connection.close()

    def _request(self, method: str, path: str, timeout_s: float, body: Document | None = None) -> Reply:
        response, connection = self._send(method, path, timeout_s, body)
        try:
            return Reply(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise Away(f"the agent went away while its answer was read: {_reason(error)}") from error
        finally:
            connection.close()

    def _send(
        self, method: str, path: str, timeout_s: float | None, body: Document | None = None
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        """Send a request and read the answer's head."""
        connection = self._connect(timeout_s)
        payload = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, payload, {} if payload is None else {"Content-Type": "application/json"})
            return connection.getresponse(), connection
        except TimeoutError as error:
            connection.close()
            raise Away(f"the agent took the request and did not answer within {timeout_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Away(f"the agent went away without an answer: {_reason(error)}") from error

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """To the first socket that lets us in."""
        faults: list[tuple[Path, OSError]] = []
        for path in self._sockets:
            connection = _UnixConnection(path, timeout_s)
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                faults.append((path, error))
            else:
                self.reached_at = time.monotonic()
                return connection
        raise Away(_nobody(faults))


def client(socket: Path | None) -> Client:
    """The agent at `socket`, or where agents are by default."""
    return Client([socket] if socket is not None else socket_path.candidates(os.environ))


def _path(name: str, *rest: str) -> str:
    return "/".join(("/servers", quote(name, safe=""), *rest))


def _nobody(faults: Sequence[tuple[Path, OSError]]) -> str:
    """Which sockets were tried, what was wrong with each, what to do."""
    tried = [f"{path}: {_reason(error)}" for path, error in faults]
    where = f" at {tried[0]}" if len(tried) == 1 else ":" + "".join(f"\n  {each}" for each in tried)
    if any(isinstance(error, PermissionError) for _, error in faults):
        advice = "Use the account that runs the agent, or ask for membership in the group of its socket."
    else:
        start = "Start it with `systemctl start gpuagent` (without systemd: `gpuagent run`)"
        advice = f"{start}, or name its socket with --socket."
    return f"no agent can be reached{where}\n{advice}"


def _reason(error: Exception) -> str:
    """What went wrong, in words for a person."""
    if isinstance(error, FileNotFoundError):
        return "no such socket"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there; the agent that made it is gone"
    if isinstance(error, PermissionError):
        return "permission denied"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return plain(text) or type(error).__name__
