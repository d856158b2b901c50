"""What runs in the GPU reader's process: `python -I -m agent.edges.nvml_reader LIFE_FD`, with the questions on stdin.

It holds NVML open and answers each line, a number, with a line of JSON; `nvml_answer` tells what that means. Any call
of it may hang for ever, which is why it is a process. Small on purpose: it imports no dataclasses.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
from typing import Any

LINE_BYTES = 1 << 16


def die_with_parent(life: int) -> None:
    """Have the kernel kill this process when nobody holds the other end of the pipe `life` any more.

    PR_SET_PDEATHSIG would do so at the end of the *thread* that has forked us, and an own thread cannot run while the
    library is being loaded.
    """
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:  # it has ended before
        os._exit(0)


def main() -> None:
    """Answer until nobody asks any more."""
    die_with_parent(int(sys.argv[1]))
    line = socket.socket(fileno=0)
    session = None
    while question := line.recv(LINE_BYTES):
        if session is None:
            session = _open()
        answer = {"n": int(question), **(session.answer() if not isinstance(session, dict) else session)}
        line.sendall(json.dumps(answer).encode() + b"\n")


def _open() -> Any:
    """A session, or the answer that says why there is none."""
    try:
        from agent.edges.nvml_session import Session, failure  # after the first question: it may hang
    except Exception as error:
        return {"fault": ["import pynvml", None, f"{type(error).__name__}: {error}"]}
    try:
        return Session()
    except Exception as error:
        return failure(error)


if __name__ == "__main__":
    main()
