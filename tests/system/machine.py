"""A booted container: real systemd on a root of its own, which may lose its power and boot again.

Its files are layers: a Debian root, perhaps what an earlier machine left, and its own. It has no network but its own
loopback. When the tests end or are killed, nothing of it runs and nothing stays mounted.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.real.real_house import Document, Reply, ask, until

BOOT_S = 60.0
RUN_S = 60.0
SOURCE = "/src"
"""Where a machine sees the clone, read only."""

_BOOT = """
echo 0 >"$1/cgroup.procs" &&
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3/upper,workdir=$3/work" "$3/root" &&
root=$3/root && shift 3 && exec systemd-nspawn --directory="$root" "$@"
"""
"""Into a control group of its own: systemd takes the one that it finds itself in."""

_ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""It ends with the tests, however these end, with all its processes and mounts."""

API = "/run/gpuagent/api.sock"


class CommandError(Exception):
    """A command in the machine has failed; the text is its output."""


class Machine:
    """One container. `layers`: what lies below its own files, the topmost first."""

    def __init__(self, folder: Path, layers: Sequence[Path], clone: Path) -> None:
        self.folder = folder
        self.layers = [str(layer) for layer in layers]
        self.clone = clone
        self.console = folder / "console.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._group = _Group(f"test-{os.getpid()}-{folder.name}")
        self._started: list[subprocess.Popen[str]] = []
        for part in ("upper", "work", "root"):
            (folder / part).mkdir()

    # -- power ---------------------------------------------------------------------------------------

    def boot(self) -> Machine:
        """Until systemd says that it is up."""
        self.power_on()
        until(self._is_up, f"boot of {self.folder.name}:\n{self.console.read_text(errors='replace')[-4000:]}", BOOT_S)
        return self

    def power_on(self) -> None:
        """Until systemd runs."""
        assert self._process is None, "it runs"
        flags = [
            "--boot",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--private-network",
            "--console=pipe",
            "--link-journal=no",
        ]
        flags += ["--resolv-conf=off", "--timezone=off", f"--machine=test-{os.getpid()}-{self.folder.name}"]
        flags.append(f"--bind-ro={self.clone}:{SOURCE}")
        command = [
            *_ALONE,
            "sh",
            "-c",
            _BOOT,
            "sh",
            str(self._group.made()),
            ":".join(self.layers),
            str(self.folder),
            *flags,
        ]
        environment = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        with self.console.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        until(self._find_leader, f"pid 1 of {self.folder.name}", BOOT_S)

    def _find_leader(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.console.read_text(errors="replace")[-4000:]
        (nspawn, *_) = [*_children(self._process.pid), 0]
        for child in _children(nspawn):
            # Before systemd runs there, the child is nspawn's own; it has several, one after the other.
            with suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                    self._leader = child
        return self._leader != 0

    def _is_up(self) -> bool:
        return self.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded")

    def power_cut(self) -> None:
        """Everything in it ends at once; what was not yet written to its files stays unwritten."""
        os.kill(self._leader, signal.SIGKILL)
        self._ended()

    def power_off(self) -> None:
        """As an administrator does it."""
        self.run("systemctl", "poweroff", check=False)
        self._ended()

    def close(self) -> None:
        """After a test: as a power cut, if it still runs."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self._leader or self._process.pid, signal.SIGKILL)
        self._ended()

    def _ended(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(RUN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(RUN_S)
            raise
        finally:
            self._process, self._leader = None, 0
            self._group.remove()
            for each in self._started:  # they ended with it
                each.communicate(timeout=RUN_S)
            self._started.clear()

    # -- inside --------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """Its files as they are there now, its /run and /tmp included. No symlink may lie on the way."""
        return Path(f"/proc/{self._leader}/root")

    def path(self, inside: str) -> Path:
        """`inside`, an absolute path there, as we reach it."""
        return self.root / inside.removeprefix("/")

    def command(self, *words: str, user: str | None = None) -> list[str]:
        """What runs `words` there, as `user` (default: root)."""
        enter = ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C", "--", "env", "-i", "-C", "/"]
        enter += ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
        return [*enter, *(["runuser", "-u", user, "--"] if user else []), *words]

    def run(
        self, *words: str, user: str | None = None, text: str = "", check: bool = True, deadline_s: float = RUN_S
    ) -> str:
        """Output and errors of a command there; `text` is its input. CommandError: if it must succeed and does not."""
        process = self.start(*words, user=user)
        self._started.remove(process)
        try:
            output, _ = process.communicate(text, deadline_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if check and process.returncode:
            raise CommandError(f"{' '.join(words)[:500]} in {self.folder.name}: exit {process.returncode}\n{output}")
        return output

    def start(self, *words: str, user: str | None = None) -> subprocess.Popen[str]:
        """A command there. Whoever starts it may wait for it; else it ends with the machine."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self.command(*words, user=user),
            stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def python(self, program: str, *arguments: str, user: str | None = None) -> Any:
        """Runs a Python program there, which prints one JSON document."""
        return json.loads(self.run("/usr/bin/python3", "-I", "-c", program, *arguments, user=user))

    def write(self, inside: str, text: str, mode: int = 0o644) -> None:
        """A file of root's, made with its folders, or replaced."""
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text)
        part.chmod(mode)
        part.rename(path)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit, as systemd says them."""
        lines = self.run("systemctl", "show", unit, f"--property={','.join(names)}").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def log(self, unit: str) -> str:
        """What a unit has said in this boot."""
        return self.run("journalctl", "--no-pager", "--boot", "--output=cat", f"--unit={unit}", check=False)

    def journal_end(self) -> str:
        """The last that everything there has said."""
        return self.run("journalctl", "--no-pager", "--boot", "--output=short-precise", "--lines=60", check=False)

    # -- the agent there -----------------------------------------------------------------------------

    def ask(self, method: str, path: str) -> Reply:
        """One question to the agent's API. OSError: nobody answers."""
        return ask(_Connection(str(self.path(API))), method, path)

    def until_answers(self) -> None:
        """Until the agent's API answers."""

        def answers() -> bool:
            with suppress(OSError, http.client.HTTPException):
                return self.ask("GET", "/status").status == 200
            return False

        until(answers, "an answer of the agent")

    def server(self, name: str) -> Document:
        """The agent's word on a server."""
        return self.ask("GET", f"/servers/{name}").document

    def until(self, met: Callable[[Document], Any], what: str, name: str, patience_s: float = RUN_S) -> Document:
        """The server's document, once it fits. The agent may be away meanwhile."""
        seen: Document = {}

        def look() -> Document | None:
            nonlocal seen
            try:
                reply = self.ask("GET", f"/servers/{name}")
            except (OSError, http.client.HTTPException):
                return None
            seen = reply.document
            return seen if reply.status == 200 and met(seen) else None

        try:
            document: Document = until(look, what, patience_s)
        except AssertionError as error:
            said = f"last seen: {json.dumps(seen, indent=1)}\n{self.journal_end()}"
            raise AssertionError(f"{name}: {error}; {said}") from error
        return document

    def until_stage(self, name: str, *stages: str) -> Document:
        """The server's document, once it is in one of these stages."""
        return self.until(lambda server: server["stage"] in stages, f"in {stages}", name)


def _children(pid: int) -> list[int]:
    """Of a process's first thread."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class _Group:
    """A control group below that of the tests."""

    def __init__(self, name: str) -> None:
        (ours,) = [line[3:] for line in Path("/proc/self/cgroup").read_text().split("\n") if line.startswith("0::")]
        mounts = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        top = next(fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2")
        self._folder = Path(top) / ours.strip("/") / name

    def made(self) -> Path:
        """Its folder, which is there and empty."""
        self._folder.mkdir()
        return self._folder

    def remove(self) -> None:
        """With whatever is left in it."""
        (self._folder / "cgroup.kill").write_text("1")
        until(self._is_empty, f"the end of all in {self._folder}")
        for folder, _, _ in os.walk(self._folder, topdown=False):
            Path(folder).rmdir()

    def _is_empty(self) -> bool:
        return "populated 0" in (self._folder / "cgroup.events").read_text()


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket that is reached by a path of ours."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=RUN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(RUN_S)
        self.sock.connect(self._path)
