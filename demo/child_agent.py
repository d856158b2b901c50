"""The agent as a child process of the demo."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
END_S = 60.0  # the server has 30 s for SIGTERM, and then the rest of its tree is ended
TAIL_LINES = 15
_LIBC = ctypes.CDLL(None)  # loaded here: after a fork nothing should be


class AgentDiedError(Exception):
    """The agent has ended by itself; the text has its last words."""


def _end_with_the_demo() -> None:
    """In the child, before its exec: should the demo be killed outright, the agent is told to end."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class ChildAgent:
    """`gpuagent run --config CONFIGURATION`, with what it says in `log`."""

    def __init__(self, configuration: Path, log: Path) -> None:
        self.log = log
        self._command = [str(Path(sys.executable).with_name("gpuagent")), "run", "--config", str(configuration)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """In a session of its own: Ctrl-C in the terminal reaches the demo alone, which then ends the agent."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_the_demo,  # no thread runs yet that a fork could cut off
            )

    def check(self) -> None:
        """AgentDiedError: it does not run any more."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            raise AgentDiedError(f"the agent has ended with {_exit_words(code)}. Its last words:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of its log, indented."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join(f"  {line}" for line in lines) or "  (none)"

    def end(self) -> str:
        """End it, and its server with it; what was done, for a person."""
        if self._process is None:
            return "Nothing was started."
        if self._process.poll() is not None:
            return f"The agent has ended ({_exit_words(self._process.returncode)})."
        print("Ending the agent and its server ...", flush=True)
        self._process.terminate()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"The agent (pid {self._process.pid}) did not end within {END_S:g} s and was killed. See {self.log}"
        return f"The agent has ended ({_exit_words(code)}), and its server with it."


def _exit_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
