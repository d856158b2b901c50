"""What must stand in a file: a text, as a patch leaves it, or a digest. For program files, not for weights."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from agent.core.seen import Need
from agent.privileged.files import open_file, readable, unmet
from agent.privileged.known import Known

READ_BYTES = 64 << 20
"""More is not read: a look has seconds, and to digest this much takes a quarter of one. Weights are told by size."""


def lacks(path: Path, text: str, known: Known) -> Need | None:
    """The text stands in the file."""
    if (need := readable(path)) is not None:
        return need
    wanted = text.encode()
    there = known.of(str(path), f"text {hashlib.sha256(wanted).hexdigest()[:16]}", partial(_holds, path, wanted))
    if there:
        return None
    remedy = "Apply the patch again (an upgrade may have taken it away), or correct needs.contains."
    said = f"{path} does not contain the text that needs.contains names: {text[:60]!r}"
    return unmet("patch", "patch_missing", said, remedy, subject=str(path))


def differs(path: Path, digest: str, known: Known) -> Need | None:
    """The file has this SHA-256."""
    if (need := readable(path)) is not None:
        return need
    found = known.of(str(path), "sha256", partial(_digest, path))
    if found == digest.lower():
        return None
    remedy = "Put the right file there, or correct needs.sha256 (sha256sum FILE)."
    said = f"has the SHA-256 {found}" if found else f"is a folder, or has more than {READ_BYTES >> 20} MiB: not hashed"
    return unmet("digest", "file_changed", f"{path} {said}; needs.sha256 says {digest}", remedy, subject=str(path))


def _read(path: Path) -> bytes | None:
    """None: it is too large, or no file."""
    if not path.is_file():
        return None
    with open_file(path) as file:
        data = file.read(READ_BYTES + 1)
    return data if len(data) <= READ_BYTES else None


def _holds(path: Path, wanted: bytes) -> bool:
    data = _read(path)
    return data is not None and wanted in data


def _digest(path: Path) -> str | None:
    data = _read(path)
    return None if data is None else hashlib.sha256(data).hexdigest()
