"""The header of a GGUF file: its words and the places of its tensors, to tell a file that was cut short.

Format: "GGUF", version, numbers of tensors and of words, the words, the tensors' names, shapes, kinds and places; then,
aligned, their data. How long the data of a kind is belongs to llama.cpp and grows with it; so a file counts as cut
where its last tensor does not even begin.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from agent.privileged.files import open_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEADER_BYTES = 64 << 20  # words with a vocabulary of 250,000 tokens have some 10 MB
COUNT = 1 << 20  # tensors, and words, of a file that makes sense
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Kind of a value -> its bytes."""
STRING, ARRAY, UINT32 = 8, 9, 4
ALIGNMENT, ALIGN = b"general.alignment", 32
U32, U64, TWO = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<IQ")


class _UnknownError(Exception):
    """A kind of value that this code does not know."""


def fault(file: Path) -> str | None:
    """Why the file cannot be a whole model; None: nothing speaks against it. OSError."""
    with open_file(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        head = opened.read(min(size, HEADER_BYTES))
    if head[:4] != MAGIC:
        return f"{file.name} does not begin as a GGUF file does"
    try:
        least = _least_bytes(head)
    except (struct.error, IndexError):
        return f"{file.name} ends after {size} bytes, within its header" if size <= HEADER_BYTES else None
    except (_UnknownError, RecursionError, MemoryError):  # lists in lists in lists
        return None
    if size >= least:
        return None
    return f"{file.name} has {size} bytes, and its last tensor begins at {least}"


def _least_bytes(head: bytes) -> int:
    """Where the last tensor begins. IndexError, struct.error: beyond what is here."""
    version, tensors, words = struct.unpack_from("<IQQ", head, 4)
    if version not in VERSIONS or max(tensors, words) > COUNT:
        raise _UnknownError
    at, align = 24, ALIGN
    for _ in range(words):
        key, at = _text(head, at)
        (kind,) = U32.unpack_from(head, at)
        if key == ALIGNMENT and kind == UINT32:
            (align,) = U32.unpack_from(head, at + 4)
        at = _after(head, at + 4, kind)
    last = 0
    for _ in range(tensors):
        _, at = _text(head, at)
        (dimensions,) = U32.unpack_from(head, at)
        at += 4 + 8 * dimensions + 4
        last, at = max(last, U64.unpack_from(head, at)[0]), at + 8
    return at + -at % max(align, 1) + last + (1 if tensors else 0)


def _text(head: bytes, at: int) -> tuple[bytes, int]:
    (length,) = U64.unpack_from(head, at)
    end = at + 8 + length
    if end > len(head):
        raise IndexError
    return head[at + 8 : end], end


def _after(head: bytes, at: int, kind: int) -> int:
    """Where a value ends."""
    if kind in FIXED:
        return at + FIXED[kind]
    if kind == STRING:
        return _text(head, at)[1]
    if kind != ARRAY:
        raise _UnknownError
    of, count = TWO.unpack_from(head, at)
    at += TWO.size
    if of in FIXED:
        return at + int(count) * FIXED[of]
    for _ in range(count):
        at = _after(head, at, of)
    return at
