"""Who may ask for what: decided before any route runs, on every request.

Over TCP nobody knows who asks: any local user, or a web page in the operator's browser. So TCP only reads, and
only what may be public. The unix socket tells who asks (SO_PEERCRED), and its file mode who may.
A request is of the socket only if the server put its peer into the scope; that `client` is None proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.api.problem import Problem

PEER = "gpuagent.peer"
READS = frozenset({"GET", "HEAD"})
BODY_BYTES = 4096  # the longest that is of use is {"gpu_check": false}
# Exact names, so that a rebound DNS name never fits; never 0.0.0.0, by which a web page reaches loopback.
# Any port: behind a tunnel (ssh -L 9000:localhost:8900) it is not ours, and it proves nothing.
OUR_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
# Headers that are decided upon here: with two of them, another reader could believe the other one.
SINGLE = (b"host", b"origin", b"sec-fetch-site", b"content-length", b"transfer-encoding")
ANSWER_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of the unix socket, as the kernel knew it when it connected."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()  # the further ones


def with_peer(app: ASGIApp, peer: Peer) -> ASGIApp:
    """`app`, for one connection over the unix socket."""

    async def asked_by_peer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {**scope.get("extensions", {}), PEER: peer}
        await app(scope, receive, send)

    return asked_by_peer


def peer_of(scope: Scope) -> Peer | None:
    """Who asks; None: somebody over TCP."""
    peer = scope.get("extensions", {}).get(PEER)
    return peer if isinstance(peer, Peer) else None


class Guard:
    """ASGI middleware. `socket`: where changes are possible, for the answer; `uid`, `gid`: who beside root may make
    them: this user and, where there is one, the members of this group."""

    def __init__(self, app: ASGIApp, socket: Path, uid: int, gid: int | None = None) -> None:
        self.app = app
        self.socket = socket
        self.uid = uid
        self.gid = gid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with the problem that it has."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *ANSWER_HEADERS]
            await send(message)

        try:
            self.check(scope)
        except Problem as problem:
            await problem.response()(scope, receive, send_marked)
        else:
            await self.app(scope, receive, send_marked)

    def check(self, scope: Scope) -> None:
        """Raise the Problem that the request has, if it has one."""
        peer = peer_of(scope)
        headers = single_headers(scope)
        if peer is None:
            check_host(headers)
        check_origin(headers)
        check_body(headers)
        if scope["method"] not in READS:
            self.check_change(peer)

    def check_change(self, peer: Peer | None) -> None:
        """Only over the socket, and only root, the agent's own user and its group of administrators."""
        if peer is None:
            raise Problem(403, f"changes only over the socket: {self.socket}")
        if peer.uid not in (0, self.uid) and self.gid not in (peer.gid, *peer.groups):
            who = f"root, uid {self.uid}" + (f" or members of group {self.gid}" if self.gid is not None else "")
            raise Problem(403, f"changes only by {who}; you are uid {peer.uid}")


def single_headers(scope: Scope) -> Callable[[bytes], str | None]:
    """A look-up of the headers that are decided upon; a Problem if one of them is there twice."""
    found: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name not in SINGLE:
            continue
        if name in found:
            raise Problem(400, f"more than one {name.decode()} header")
        found[name] = value.decode("latin-1")
    return found.get


def check_host(header: Callable[[bytes], str | None]) -> None:
    """Against DNS rebinding: a page of evil.example whose name now points at 127.0.0.1 still says evil.example."""
    if not OUR_HOST.fullmatch(header(b"host") or ""):
        raise Problem(421, "ask for localhost, 127.0.0.1 or [::1]: the Host header names something else")


def check_origin(header: Callable[[bytes], str | None]) -> None:
    """Against other sites in the operator's browser, another port of this host included ("same-site")."""
    site, origin, host = header(b"sec-fetch-site"), header(b"origin"), header(b"host")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise Problem(403, "a web page of another site may not ask")
    elif origin is not None and origin.lower() != f"http://{host}".lower():
        raise Problem(403, "a web page of another origin may not ask")


def check_body(header: Callable[[bytes], str | None]) -> None:
    """A body must say how long it is, and be short."""
    if header(b"transfer-encoding") is not None:
        raise Problem(411, "send a Content-Length, not a Transfer-Encoding")
    length = header(b"content-length") or "0"
    if not (length.isascii() and length.isdigit()):  # isascii: isdigit() knows other digits, too
        raise Problem(400, "Content-Length is not a length")
    if len(length) > 9 or int(length) > BODY_BYTES:  # 9 digits: int() of a very long number is slow
        raise Problem(413, f"a body may have {BODY_BYTES} bytes")
