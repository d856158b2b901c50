"""Server-Sent Events, as `/events` sends them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """`kind`: "server", "status" or "missed"; "open" when the connection is made. `id` is empty where there is none."""

    kind: str
    id: str
    data: dict[str, Any]


OPEN = Event("open", "", {})


def parse(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events in a stream. One that was cut off is none. ValueError: its data are no JSON object."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode(errors="replace").rstrip("\r\n").partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif value:  # a comment: a heartbeat
            continue
        elif "data" in fields:
            data = json.loads(fields["data"])
            if not isinstance(data, dict):
                raise ValueError("no JSON object")
            yield Event(fields.get("event", ""), fields.get("id", ""), data)
            fields = {}
        else:
            fields = {}
