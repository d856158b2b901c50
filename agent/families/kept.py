"""The latest bytes of a log, bounded, to show its tail."""

from __future__ import annotations

from collections.abc import Iterator

KEPT_BYTES = 262_144  # of the latest lines, at least
_PIECE_BYTES = 65_536


class KeptLines:
    """Few and large pieces, given up from the oldest on."""

    def __init__(self) -> None:
        self._pieces: list[bytearray] = []
        self._bytes = 0

    def keep(self, block: bytes) -> None:
        """The next cleaned lines or frames."""
        if self._pieces and len(self._pieces[-1]) < _PIECE_BYTES:
            self._pieces[-1] += block
        else:
            self._pieces.append(bytearray(block))
        self._bytes += len(block)
        while self._bytes - len(self._pieces[0]) >= KEPT_BYTES:
            self._bytes -= len(self._pieces.pop(0))

    def end_line(self) -> bool:
        """Whether frames were kept of a line that had no end; now it has."""
        if not self._pieces or self._pieces[-1].endswith(b"\n"):
            return False
        self.keep(b"\n")
        return True

    def backwards(self, rest: bytes) -> Iterator[bytes]:
        """The latest lines, the newest first, with `rest` behind them, a line that is not complete."""
        for piece in reversed(self._pieces):
            lines = (bytes(piece) + rest).split(b"\n")
            yield from reversed(lines[1:])
            rest = lines[0]
        yield rest
