#!/usr/bin/env python3
"""A stand-in for an inference server, for tests of faults. It never counts as real.

Standard library only. Told by flags how to load, answer, misbehave and end; see `--help`.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, help="none: no port is opened")
    parser.add_argument("--load-s", type=float, default=0.0, help="answer 503 for so long")
    parser.add_argument("--listen-late", action="store_true", help="open the port only when loaded")
    parser.add_argument("--status", type=int, default=200, help="what health answers once loaded")
    parser.add_argument("--body", default="ok")
    parser.add_argument("--location", help="sent with the answer, for a redirect")
    parser.add_argument("--drip", action="store_true", help="send the body one byte a tenth of a second, for ever")
    parser.add_argument("--drip-headers", action="store_true", help="the same with the headers")
    parser.add_argument("--hang", action="store_true", help="accept, and never answer")
    parser.add_argument("--garbage", action="store_true", help="answer something that is not HTTP")
    parser.add_argument("--reuseport", action="store_true", help="share the port with whoever does the same")
    parser.add_argument("--bound-only", action="store_true", help="bind with SO_REUSEADDR and never listen")
    parser.add_argument("--die-after", type=float, metavar="S", help="end by itself")
    parser.add_argument("--exit-code", type=int, default=0, help="with which code")
    parser.add_argument("--die-signal", type=int, help="or by which signal")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--orphan", action="store_true", help="double-fork a child that leaves the session")
    parser.add_argument("--bare-child", action="store_true", help="start a child with an empty environment")
    parser.add_argument("--zombie", action="store_true", help="start a child that ends and is never waited for")
    parser.add_argument("--title", help="the command name in /proc, at most 15 bytes")
    parser.add_argument("--print", dest="texts", nargs="*", default=[], metavar="TEXT", help="lines for the log")
    parser.add_argument("--lines-per-s", type=int, default=0, help="then print lines of 120 bytes, so many a second")
    return parser.parse_args()


SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def orphan() -> None:
    """A grandchild in a session of its own, whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(SLEEPER[0], SLEEPER)
        os._exit(0)
    os.wait()


class Bound(ThreadingHTTPServer):
    daemon_threads = True
    reuseport = False

    def server_bind(self) -> None:
        if ":" in str(self.server_address[0]):
            self.socket = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.reuseport:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "stand-in", self.server_address[1]


def handler(options: argparse.Namespace, loaded: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if options.hang:
                time.sleep(600)
            if options.garbage:
                self.wfile.write(b"220 mail.example ESMTP\r\n")
                return
            if self.path == "/stream":
                self.drip(b"HTTP/1.1 200 OK\r\n\r\n")
            if options.drip_headers:
                self.drip(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            body = options.body.encode() if loaded.is_set() else b"loading model"
            self.send_response(options.status if loaded.is_set() else 503)
            self.send_header("Content-Length", str(10**9 if options.drip else len(body)))
            if options.location:
                self.send_header("Location", options.location)
            self.end_headers()
            if options.drip:
                self.drip(b"")
            self.wfile.write(body)

        def drip(self, head: bytes) -> None:
            self.wfile.write(head)
            while True:
                self.wfile.write(b".")
                time.sleep(0.1)

        def log_message(self, *_: object) -> None:
            """Silent."""

    return Handler


def serve(options: argparse.Namespace, loaded: threading.Event) -> None:
    if options.bound_only:
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((options.host, options.port))
        print("bound", flush=True)
        time.sleep(600)
    if options.listen_late:
        loaded.wait()
    Bound.reuseport = options.reuseport
    Bound.address_family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    server = Bound((options.host, options.port), handler(options, loaded))
    print("listening", flush=True)
    server.serve_forever()


STORM_LINE = "0.12.345.678 I srv  log_server_r: done request: POST /v1/completions 127.0.0.1 200".ljust(119, ".") + "\n"


def storm(lines_per_s: int) -> None:
    """Write to the log for ever; what could not be written in time is made up for."""
    began, written = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * lines_per_s) - written
        os.write(1, STORM_LINE.encode() * due)
        written += due
        time.sleep(0.01)


def main() -> None:
    options = arguments()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, lambda *_: None)  # not SIG_IGN, which children would inherit
    if options.title:
        with open("/proc/self/comm", "w") as file:
            file.write(options.title)
    if options.orphan:
        orphan()
    if options.bare_child:
        subprocess.Popen(SLEEPER, env={})
    if options.zombie and os.fork() == 0:
        os._exit(0)
    for text in options.texts:
        print(text, flush=True)
    loaded = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: loaded.clear())  # it answers 503 from then on
    signal.signal(signal.SIGUSR2, lambda *_: loaded.set())  # ... and well again
    threading.Timer(options.load_s, loaded.set).start()
    if options.port is not None:
        threading.Thread(target=serve, args=(options, loaded), daemon=True).start()
    if options.lines_per_s:
        threading.Thread(target=storm, args=(options.lines_per_s,), daemon=True).start()
    print("up", flush=True)
    time.sleep(600 if options.die_after is None else options.die_after)
    if options.die_signal:
        os.kill(os.getpid(), options.die_signal)
    sys.stdout.flush()
    os._exit(options.exit_code)


if __name__ == "__main__":
    main()
