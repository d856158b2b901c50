"""What several routes share: the present page, or the problem that there is none; who asks; JSON as it is."""

from __future__ import annotations

from fastapi import Request, Response

from agent.api.guard import Peer, peer_of
from agent.api.problem import Problem
from agent.board import Board, ServerPage, Snapshot


def current(board: Board) -> Snapshot:
    """The snapshot, or a Problem while there is none."""
    snapshot = board.read()
    if snapshot.version == 0:
        raise Problem(503, "the agent has just started and has not looked around yet")
    return snapshot


def page_of(board: Board, name: str) -> ServerPage:
    """The server's page, or a Problem that says which servers there are."""
    servers = current(board).servers
    if name not in servers:
        known = sorted(servers)
        raise Problem(404, f"no server {name!r}; there are: {', '.join(known) or 'none'}", more={"known": known})
    return servers[name]


def refuse_when_closed(board: Board) -> None:
    """Nothing that takes time begins while the agent ends."""
    if board.closed:
        raise Problem(503, "the agent is ending")


def as_json(content: bytes) -> Response:
    """Already serialised: the same bytes for every reader of one snapshot."""
    return Response(content, media_type="application/json")


def bytes_for(request: Request, shown: Snapshot | ServerPage) -> bytes:
    """All of it over the socket; over TCP what may be public."""
    return shown.full if peer_of(request.scope) else shown.public


def socket_peer(request: Request, why: str) -> Peer:
    """Who asks over the socket, or a Problem."""
    peer = peer_of(request.scope)
    if peer is None:
        raise Problem(403, why)
    return peer
