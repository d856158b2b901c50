"""A keep-alive HTTP connection that costs its owner next to nothing."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

ANSWER_S = 30.0

Address = Path | tuple[str, int]
"""A unix socket, or a TCP host and port."""


def request(method: str, path: str) -> bytes:
    """A request without a body."""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()


def whole(data: bytes | bytearray) -> int | None:
    """How many bytes of `data` are the first answer; None: it has not come whole. Only answers that say how long."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(data[:end]).lower()
    _, found, rest = head.partition(b"\r\ncontent-length:")
    length = int(rest.split(b"\r\n", 1)[0]) if found else 0
    size = end + 4 + length
    return size if len(data) >= size else None


class Connection:
    """Blocking. OSError: nobody listens, or the other end went away."""

    def __init__(self, address: Address, answer_s: float = ANSWER_S) -> None:
        kind = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
        self._socket = socket.socket(kind, socket.SOCK_STREAM)
        self._socket.settimeout(answer_s)
        try:
            self._socket.connect(str(address) if isinstance(address, Path) else address)
        except OSError:
            self._socket.close()
            raise

    def ask(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        """Status and body."""
        self._socket.sendall(request(method, path))
        data = b""
        while (size := whole(data)) is None:
            more = self._socket.recv(65_536)
            if not more:
                raise ConnectionResetError("closed before its answer was whole")
            data += more
        return int(data.split(b" ", 2)[1]), data[data.index(b"\r\n\r\n") + 4 : size]

    def document(self, path: str, method: str = "GET") -> dict[str, Any]:
        """A JSON answer, whatever its status."""
        document: dict[str, Any] = json.loads(self.ask(path, method)[1])
        return document

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
