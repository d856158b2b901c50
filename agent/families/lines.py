"""The hygiene of log lines: colours, control characters, and what other programs put before a line."""

from __future__ import annotations

import re

SHOWN_CHARS = 2_000  # of one line, in a tail or a cause
_COLOURS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\-_]?)")
_CONTROLS = dict.fromkeys([*range(9), *range(10, 32), *range(127, 160)])
_STAMP_TEXT = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"  # ISO: docker, kubernetes, Python
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"  # syslog, journald
    r"|\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d|\d\d-\d\d \d\d:\d\d:\d\d"
    r"|\d{1,9}\.\d\d\.\d{3}\.\d{3}"  # llama.cpp: minutes, seconds, ms, us since its start
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)
_STAMP = re.compile(rf"(?<![\w.:-])(?:{_STAMP_TEXT})(?![\w:])")
_STAMP_WITHIN = 120  # characters: further on, it is no stamp of the line
_PREFIX = re.compile(
    r"[ \t]*(?:"
    r"[\w.-]{1,64} +\| ?"  # docker compose
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?: (?:stdout|stderr) [FP])?(?: |$)"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,253} [^\s:\[]{1,64}(?:\[\d{1,10}\])?: ?"
    r"|\d{1,9}\.\d\d\.\d{3}\.\d{3} [A-Z] "
    r"|\[[^\[\]]{0,40}\d\d:\d\d:\d\d[^\[\]]{0,40}\] ?"
    r"|\([A-Za-z]\w{0,40}(?: \w{1,20}=[\w.]{1,40}){1,4}\) ?"  # (EngineCore pid=12)
    r"|\[\d{4,5}\] ?"  # llama.cpp's router: the port of the child
    r")"
)
_PREFIXES = 6  # they nest, but not deeper


def without_colours(block: bytes) -> bytes:
    """`block` without escape sequences and NULs. Its line ends stay."""
    if b"\x1b" in block:
        block = _COLOURS.sub(b"", block)
    return block.replace(b"\0", b"") if b"\0" in block else block


def decoded(raw: bytes) -> str:
    """One line as text; what is no UTF-8 or no character to be seen is replaced or dropped."""
    return raw.decode("utf-8", "replace").translate(_CONTROLS)


def without_prefix(text: str) -> str:
    """`text` without what docker, journald, clocks and process names put before it."""
    at = 0
    for _ in range(_PREFIXES):
        match = _PREFIX.match(text, at)
        if match is None:
            break
        at = match.end()
    return text[at:]


def stamp(text: str) -> str | None:
    """The time stamp of a line, as it stands there."""
    match = _STAMP.search(text[:_STAMP_WITHIN])
    return match.group() if match else None


def shown(text: str) -> str:
    """`text` as a person shall see it: no longer than bearable."""
    text = text.strip()
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
