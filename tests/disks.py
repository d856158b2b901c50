"""Disks for tests: an ext4 file system in a file, on a loop device, which can be mounted, taken away and frozen.

Whoever takes one gives it back: a file system that stays frozen hangs whoever touches it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CALL_S = 60.0
HOLD = (
    "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private",
    "sh", "-c", "echo begun; exec sleep infinity",
)  # fmt: skip


class Disk:
    """One. `device`: its block device at present; `kept`: where it stays mounted all the while.

    `apart`: among mounts of its own, so that no machine that boots meanwhile takes it along, and keeps it.
    """

    def __init__(self, folder: Path, apart: bool) -> None:
        self.image = folder / "disk.img"
        self._place = folder / "kept"
        self._place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(16 << 20)
        _call("mkfs.ext4", "-q", str(self.image))
        self.uuid = _call("blkid", "-s", "UUID", "-o", "value", str(self.image)).strip()
        self._holder = subprocess.Popen(HOLD, stdout=subprocess.PIPE) if apart else None
        self._enter: tuple[str, ...] = ()
        self.kept = self._place
        if self._holder is not None:
            assert self._holder.stdout is not None
            self._holder.stdout.readline()
            self._enter = ("nsenter", "--target", str(self._holder.pid), "--mount", "--")
            self.kept = Path(f"/proc/{self._holder.pid}/root", *self._place.parts[1:])
        self.device = ""
        self.frozen = False

    def close(self) -> None:
        """Whatever has become of it."""
        self.detach()
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate(timeout=CALL_S)

    def attach(self, other_than: str = "") -> None:
        """To a device that is free, and not this one."""
        taken: list[str] = []
        try:
            while (device := _call("losetup", "--find", "--show", str(self.image)).strip()) == other_than:
                taken.append(device)
            self.device = device
        finally:
            for each in taken:
                _call("losetup", "--detach", each)
        _call(*self._enter, "mount", self.device, str(self._place))
        self.kept.chmod(0o755)

    def detach(self) -> None:
        """Nobody new can mount it; who has it mounted still, keeps it."""
        self.thaw()
        if self.device:
            self._unmount()
            _call("losetup", "--detach", self.device)
            self.device = ""

    def _unmount(self) -> None:
        """Who has been killed while it was frozen ends only now, and keeps it busy until then."""
        until = time.monotonic() + CALL_S
        while True:
            try:
                _call(*self._enter, "umount", str(self._place))
            except AssertionError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return

    def take_away(self) -> None:
        """As `detach`, until nobody has it: else it would be written to from two sides."""
        self.detach()
        until = time.monotonic() + CALL_S  # a machine that has ended lets go of its mounts a moment later
        while _call("losetup", "--associated", str(self.image)):
            assert time.monotonic() < until, "somebody has it mounted still"
            time.sleep(0.02)

    def freeze(self) -> None:
        """Wherever it is mounted: whoever writes waits, until it thaws."""
        _call("fsfreeze", "--freeze", str(self.kept))
        self.frozen = True

    def thaw(self) -> None:
        """Whoever waits goes on."""
        if self.frozen:
            _call("fsfreeze", "--unfreeze", str(self.kept))
            self.frozen = False

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor of its device."""
        device = os.stat(self.device).st_rdev
        return os.major(device), os.minor(device)


@contextmanager
def disk(folder: Path, *, apart: bool = False) -> Iterator[Disk]:
    """One, mounted. Skips where there can be none, and fails there in CI."""
    reason = _why_not()
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    made = Disk(folder, apart)
    try:
        made.attach()
        yield made
    finally:
        made.close()


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "disks need root"
    missing = [each for each in ("mkfs.ext4", "losetup", "fsfreeze", "blkid") if shutil.which(each) is None]
    return (
        f"install {missing[0]}" if missing else None if Path("/dev/loop-control").exists() else "no loop devices here"
    )


def _call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout
