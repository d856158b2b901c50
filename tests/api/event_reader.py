"""A reader of /events on a bare socket: it reads when it is told to, and not before."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

from tests.api.api_house import House


@dataclass(frozen=True)
class Event:
    """One event, as it came."""

    kind: str
    id: str | None
    data: bytes

    @property
    def document(self) -> dict[str, Any]:
        """Its data."""
        document: dict[str, Any] = json.loads(self.data)
        return document

    @property
    def stage(self) -> str:
        """The stage of the server that it is about."""
        return str(self.document["stage"])


class Reader:
    """Connected, and the head of the answer is read. HTTP/1.0, so that the stream comes without chunks around it."""

    def __init__(self, house: House, *headers: str, query: str = "", tcp: bool = False) -> None:
        if tcp:
            self.socket = socket.create_connection(("127.0.0.1", house.thread.port or 0), timeout=60)
        else:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.settimeout(60)
            self.socket.connect(str(house.socket))
        head = "".join(f"{line}\r\n" for line in (f"GET /events{query} HTTP/1.0", "Host: localhost", *headers))
        self.socket.sendall(f"{head}\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value
        self.heartbeats = 0
        self.id: str | None = None

    def next(self) -> Event | None:
        """The next event; None: the stream has ended."""
        fields: dict[str, bytes] = {}
        while line := self.file.readline():
            if line.startswith(b":"):
                self.heartbeats += 1
            elif line != b"\n":
                name, _, value = line.rstrip(b"\n").partition(b": ")
                fields[name.decode()] = value
            elif "data" in fields:
                own_id = fields["id"].decode() if "id" in fields else None
                self.id = own_id or self.id
                return Event(fields["event"].decode(), own_id, fields["data"])
        return None

    def take(self, number: int) -> list[Event]:
        """The next `number` events."""
        events = [self.next() for _ in range(number)]
        assert None not in events, f"it ended after {events}"
        return [event for event in events if event is not None]

    def until(self, mark: str) -> list[Event]:
        """All up to the event about a server whose `why` is `mark`."""
        events = self.take(1)
        while events[-1].document.get("why") != mark:
            events += self.take(1)
        return events

    def rest(self) -> list[Event]:
        """All until it ends."""
        events = []
        while (event := self.next()) is not None:
            events.append(event)
        return events

    def close(self) -> None:
        """Leave."""
        self.file.close()
        self.socket.close()
