"""A stand-in for the NVIDIA driver: its library, built from nvml.c, and the script that says what it answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml.c")
VERSION = "580.159.03"
TOTAL_MIB = 143771
RESERVED_MIB = 615


def build(folder: Path, *without: str, version: str = VERSION) -> Path:
    """The library's folder, with the file named as the driver names it. `without`: NO_V2, NO_V3, as old drivers are.

    Skips where there is no C compiler, and fails there in CI.
    """
    if shutil.which("cc") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no C compiler: install gcc and libc6-dev")
        pytest.skip("needs a C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"libnvidia-ml.so.{version}"
    flags = ["-O1", "-shared", "-fPIC", "-pthread", "-Wl,-soname,libnvidia-ml.so.1", *(f"-D{each}" for each in without)]
    subprocess.run(["cc", *flags, "-o", file, SOURCE], check=True)
    install(folder, version)
    return folder


def install(folder: Path, version: str) -> None:
    """Have `folder` lead to the library of that version, in one step, as a package does."""
    link = folder / "new"
    link.symlink_to(f"libnvidia-ml.so.{version}")
    link.rename(folder / "libnvidia-ml.so.1")


@dataclass
class Gpu:
    """One, well and empty. `also`: further lines of the script for it; see nvml.c."""

    uuid: str
    used: str = "0"
    processes: list[tuple[int, int | None, str]] = field(default_factory=list)  # pid, MiB, list
    also: list[str] = field(default_factory=list)
    name: bytes = b"NVIDIA H200"

    def lines(self) -> list[bytes]:
        """Of the script."""
        said = [f"gpu {self.uuid}", f"total {TOTAL_MIB}", f"reserved {RESERVED_MIB}", f"used {self.used}"]
        said += ["busy 7", "celsius 41", "milliwatts 112500", "ecc 3 0", "rows 1 2 0 0", "persistent 1", "fabric 3 0"]
        said += [f"process {pid} {'na' if mib is None else mib} {kind}" for pid, mib, kind in self.processes]
        return [line.encode() for line in (*said, *self.also)] + [b"name " + self.name]


class Driver:
    """What the library in `library` says, of whoever has `environment`."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._script = folder / "nvml.script"
        self._new = folder / "nvml.script.new"
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(self._script)}
        self.gpus = [Gpu("GPU-0"), Gpu("GPU-1")]
        self.rules: list[str] = []  # for all: "fail FUNCTION CODE", "hang FUNCTION", ...
        self.version = VERSION
        self.say()

    def say(self, *rules: str) -> None:
        """Put it all into force, with these rules."""
        self.rules = list(rules)
        lines = [f"driver {self.version}".encode(), *(rule.encode() for rule in rules)]
        lines += [line for gpu in self.gpus for line in gpu.lines()]
        self._new.write_bytes(b"\n".join(lines) + b"\n")
        self._new.rename(self._script)  # never seen half
