#!/usr/bin/env python3
"""llama.cpp's own HTTP server out of the xllamacpp wheel, with llama-server's flags, log lines and exit codes.

Server, loader and log are llama.cpp's; only the reading of flags, the signals and the dots of progress are ours.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
READING_MODES = ("none", "dio")  # the file is read, not mapped: how far is known from /proc/PID/io
TEARDOWN_S = 10  # the server's destructor can hang when it is told to end within milliseconds of its start
DOTS = 100
POLL_S = 0.01


class _Flags(argparse.ArgumentParser):
    """Says what is wrong as llama-server does: one line, exit 1."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"error while handling argument: {message}\n")

    def parse_strictly(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Every flag must be known."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            self.exit(1, f"error: invalid argument: {unknown[0]}\n")
        return options


def _flags() -> _Flags:
    flags = _Flags(prog="llama_server.py", description=__doc__, allow_abbrev=False)
    flags.add_argument("-m", "--model", metavar="FILE", required=True, help="model file (GGUF)")
    flags.add_argument("-a", "--alias", help="the model's name in the API")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=8080)
    flags.add_argument("-c", "--ctx-size", type=int, default=0, help="tokens of context; 0: as the model says")
    flags.add_argument("-t", "--threads", type=int)
    flags.add_argument("-np", "--parallel", type=int, default=1, help="requests served side by side")
    flags.add_argument("--load-mode", choices=LOAD_MODES, default="auto", help="dio: read past the page cache")
    flags.add_argument("--no-mmap", action="store_const", dest="load_mode", const="none", help="as --load-mode none")
    flags.add_argument("--check-tensors", action="store_true", help="look for invalid weights while loading")
    flags.add_argument("--no-warmup", action="store_true")
    flags.add_argument("--metrics", action="store_true", help="answer /metrics")
    flags.add_argument("-lv", "--verbosity", type=int, default=3, help="4: with the loader's lines")
    return flags


def _params(xllamacpp: Any, options: argparse.Namespace) -> Any:
    """llama.cpp's parameters for our flags."""
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx_size
    params.n_parallel = options.parallel
    params.check_tensors = options.check_tensors
    params.warmup = not options.no_warmup
    params.endpoint_metrics = options.metrics
    params.verbosity = options.verbosity
    mode = {"dio": "DIRECT_IO", "mmap+mlock": "MMAP_MLOCK"}.get(options.load_mode, options.load_mode.upper())
    params.load_mode = getattr(xllamacpp.llama_load_mode, f"LLAMA_LOAD_MODE_{mode}")
    if options.alias:
        params.model_alias = {options.alias}
    if options.threads:
        params.cpuparams.n_threads = options.threads
    return params


def _read_bytes(pid: int) -> int:
    """What a process has read so far."""
    return int(Path(f"/proc/{pid}/io").read_text().split("rchar:")[1].split()[0])


def _draw_dots(server: int, size_bytes: int, loaded: int) -> None:
    """One dot to stderr for each percent of the model that `server` has read, until `loaded` closes."""
    before, drawn = _read_bytes(server), 0
    while drawn < DOTS and not select.select([loaded], [], [], POLL_S)[0]:
        percent = 100 * (_read_bytes(server) - before) // size_bytes
        # The last percent passes within one poll, and a late dot would land among the lines of the next step.
        reached = DOTS if percent >= DOTS - 1 else percent
        os.write(2, b"." * (reached - drawn))
        drawn = max(drawn, reached)
    if drawn:
        os.write(2, b"\n")


@contextmanager
def _dots(options: argparse.Namespace) -> Iterator[None]:
    """Progress as older builds print it. The present one keeps it for its router, and prints nothing while it loads.

    A process draws, no thread: the load holds Python's lock.
    """
    model = Path(options.model)
    if options.load_mode not in READING_MODES or not model.is_file():
        yield
        return
    server, (loaded, told) = os.getpid(), os.pipe()
    artist = os.fork()
    if artist == 0:
        os.close(told)  # else the end of the server would not be seen
        try:
            _draw_dots(server, model.stat().st_size, loaded)
        finally:
            os._exit(0)
    os.close(loaded)
    try:
        yield
    finally:
        os.close(told)
        os.waitpid(artist, 0)


def _serve(options: argparse.Namespace) -> int:
    """Load, serve until SIGTERM or SIGINT, end. Until the model is loaded a signal ends us at once, as llama-server."""
    try:
        import xllamacpp
    except ImportError as error:
        print(f"error: {error}. Install the wheel: pip install xllamacpp", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        with _dots(options):
            server = xllamacpp.Server(_params(xllamacpp, options))
    except RuntimeError as error:
        if "Failed to init server" not in str(error):  # of that, llama.cpp's own lines have said more
            print(f"error: {error}", file=sys.stderr)
        return 1
    told_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told_to_end.set())
    told_to_end.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # a second one ends us at once
    signal.alarm(TEARDOWN_S)
    del server
    return 0


if __name__ == "__main__":
    sys.exit(_serve(_flags().parse_strictly(None)))
