"""The privileged helper: a few closed verbs over a unix socket, one request at a time, each judged by the root-owned
configuration alone. Started by systemd when somebody connects; ends when nobody does.

SOCK_SEQPACKET: a request is one packet, a JSON object of at most 4096 bytes; its reply is one of at most 64 KiB.
"""

from __future__ import annotations

import json
import os
import pwd
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.launch_spec import digest
from agent.privileged import policy, records
from agent.privileged.bucket import Bucket
from agent.privileged.hold_files import HoldError
from agent.privileged.holds import Holds
from agent.privileged.logs import INVOCATION
from agent.privileged.policy import NAME, PolicyError
from agent.privileged.units import SystemdError, SystemdLateError, Units

CORE = "gpuagent"
REQUEST_BYTES = 4096
IDLE_S = 60.0
CALLERS = 32  # connections at once
BURST, PER_S = 600.0, 20.0  # requests: far more than an agent makes, far fewer than would keep root busy
NOISE_BURST, NOISE_PER_S = 60.0, 1.0
"""Lines on what was not even looked at. The journal takes some 10,000 in 30 s and drops what comes then: the acts."""
LINE_LENGTH = 2000  # the journal parts one beyond 48 KiB, and the rest would pass for a line of its own
WHY_LENGTH = 8000  # JSON writes at most six bytes for each
PIDS = 100  # named in a reply
ENDING_S = 0.5
"""For a unit's last processes, which write down how it ended: a tenth of a second in health. Others wait behind it."""
POLL_S = 0.01
LISTEN_FD = 3  # systemd's first one
QUIET = ("ping", "check")  # change nothing, and are asked once a second
UCRED = struct.Struct("3i")  # pid, uid, gid

Request = Mapping[str, Any]
Reply = dict[str, Any]


class RefusalError(Exception):
    """Why a request is not carried out."""

    def __init__(self, slug: str, why: str, **more: object) -> None:
        super().__init__(why)
        self.reply: Reply = {"ok": False, "slug": slug, "why": why, **more}


class Verbs:
    """What may be asked."""

    def __init__(
        self, units: Units, config: Path = policy.CONFIG, folder: Path = records.FOLDER, holds: Holds | None = None
    ) -> None:
        self._units = units
        self._holds = holds or Holds()
        self._config = config
        self._folder = folder
        self._verbs: Mapping[str, tuple[frozenset[str], Callable[[Request], None]]] = {
            "ping": (frozenset(), lambda _: None),
            "start": (frozenset({"name", "digest", "invocation"}), self._start),
            "terminate": (frozenset({"name", "whole", "launch"}), self._terminate),
            "kill": (frozenset({"name", "launch"}), self._kill),
            "check": (frozenset({"name", "digest"}), self._check),
            "relieve": (frozenset({"name"}), self._relieve),
            "hold": (frozenset({"units"}), self._hold),
            "release": (frozenset({"units"}), lambda request: self._holds.release(request["units"])),
        }

    def answer(self, packet: bytes) -> tuple[Reply, str]:
        """The reply, and what was asked, for the audit. Nothing that is asked raises."""
        asked = "?"
        try:
            request = _parsed(packet)
            asked = f"{request.get('verb')!s:.20} {request.get('name', '')!s:.40}{_units_of(request)}".strip()
            self._carry_out(request)
        except RefusalError as error:
            return error.reply, asked
        except (PolicyError, HoldError) as error:
            return {"ok": False, "slug": error.slug, "why": str(error)[:WHY_LENGTH]}, asked
        except SystemdError as error:
            return {"ok": False, "slug": "systemd_failed", "why": str(error)}, asked
        except OSError as error:
            return {"ok": False, "slug": "systemd_failed", "why": f"{error.filename or ''}: {error.strerror}"}, asked
        return {"ok": True}, asked

    def _carry_out(self, request: Request) -> None:
        verb = request.get("verb")
        if not isinstance(verb, str) or verb not in self._verbs:
            raise RefusalError("bad_request", f"no such verb: {verb!s:.40}")
        keys, act = self._verbs[verb]
        if request.keys() - {"verb"} != keys:
            raise RefusalError("bad_request", f"{verb} takes {sorted(keys)}")
        if "whole" in keys and not isinstance(request["whole"], bool):
            raise RefusalError("bad_request", "whole is true or false")
        if "units" in keys and not _is_texts(request["units"]):
            raise RefusalError("bad_request", "units is a list of texts, each there once")
        if not all(isinstance(request[key], str) for key in keys - {"whole", "units"}):
            raise RefusalError("bad_request", "name, digest, invocation and launch are texts")
        if "name" in keys and not NAME.fullmatch(request["name"]):
            raise RefusalError("no_such_server", "that is no server's name")
        act(request)

    def _allowed(self, request: Request) -> str:
        """The server's name, if the configuration has it and, where a digest is given, has it as the agent has."""
        name: str = request["name"]
        of = digest(policy.load(self._config).spec(name))
        if request.get("digest", of) != of:
            why = f"the definition of {name} in {self._config} is another one; run: gpuagent reload"
            raise RefusalError("digest_differs", why)
        return name

    def _start(self, request: Request) -> None:
        name, invocation = self._allowed(request), request["invocation"]
        if not INVOCATION.fullmatch(invocation):
            raise RefusalError("bad_request", "that is no invocation")
        self._refuse_beside(name)
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        order = {"invocation": invocation, "digest": request["digest"], "at": at}
        records.write(name, "order", order, 0o600, self._folder)
        try:
            self._units.start(name)
        except SystemdLateError:
            raise  # it may begin yet, and is ours then
        except SystemdError:
            records.take(name, "order", self._folder)  # an administrator's start must not pass for this one
            raise

    def _refuse_beside(self, name: str) -> None:
        """Nothing is started beside a process. The last of a unit that ends are systemd's own: waited for, shortly."""
        until = time.monotonic() + ENDING_S
        while pids := self._units.pids(name):
            state = self._units.state(name)
            if state in ("active", "activating", "reloading"):
                raise RefusalError("already_runs", f"gpuagent-server@{name}.service is {state}", pids=pids[:PIDS])
            ending = state == "deactivating"
            if not ending and not (pids := self._units.pids(name)):  # they went while systemd was asked
                return
            if not ending or time.monotonic() > until:
                slug, whose = "left_overs", "left-over processes"
                if ending:
                    slug, whose = "still_ending", "its unit is ending"
                why = f"{whose}: pid {', '.join(map(str, pids[:10]))} in its control group"
                raise RefusalError(slug, why, pids=pids[:PIDS])
            time.sleep(POLL_S)

    def _terminate(self, request: Request) -> None:
        """SIGTERM. What systemd ends itself is left to it: its own last process writes how the end came about."""
        name = self._launched(request)
        launch = self._meant(name, request)
        if not request["whole"]:
            self._units.signal(name, tuple(pid for pid in [launch.get("pid")] if isinstance(pid, int)), signal.SIGTERM)
        elif (pids := self._units.pids(name)) and self._units.state(name) not in ("activating", "deactivating"):
            self._units.signal(name, pids, signal.SIGTERM)

    def _kill(self, request: Request) -> None:
        name = self._launched(request)
        self._meant(name, request)
        self._units.kill(name)

    def _launched(self, request: Request) -> str:
        """As `allowed`, and the name of one that was taken out of the configuration while it ran: it may be ended."""
        try:
            return self._allowed(request)
        except PolicyError as error:
            name: str = request["name"]
            if error.slug != "no_such_server" or records.read(name, "launch", self._folder) is None:
                raise
            return name

    def _meant(self, name: str, request: Request) -> Mapping[str, Any]:
        """The record of the last launch, if it is the one that is meant ("": any): what somebody has started since
        the request was made is another one's, and not to be ended for it."""
        launch = records.read(name, "launch", self._folder) or {}
        if request["launch"] not in ("", launch.get("unit_invocation")):
            raise RefusalError("another_start", f"gpuagent-server@{name}.service has been started anew meanwhile")
        return launch

    def _check(self, request: Request) -> None:
        self._units.check(self._allowed(request))

    def _relieve(self, request: Request) -> None:
        name = request["name"]
        unit = policy.load(self._config).relief(name)
        if unit is None:
            raise RefusalError("not_allowed", f"{self._config} names no servers.{name}.disk.start_unit")
        self._units.begin(unit)

    def _hold(self, request: Request) -> None:
        self._holds.hold(request["units"], policy.load(self._config).rivals())


def _is_texts(said: object) -> bool:
    return isinstance(said, list) and all(isinstance(each, str) for each in said) and len(set(said)) == len(said)


def _units_of(request: Request) -> str:
    """For the audit."""
    units = request.get("units")
    return " ".join(units)[:400] if isinstance(units, list) and _is_texts(units) else ""


def _parsed(packet: bytes) -> Request:
    if len(packet) > REQUEST_BYTES:
        raise RefusalError("bad_request", f"a request has at most {REQUEST_BYTES} bytes")
    try:
        request = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise RefusalError("bad_request", "a request is a JSON object") from error
    if not isinstance(request, dict):
        raise RefusalError("bad_request", "a request is a JSON object")
    return request


class Limits:
    """How much may be asked, and how much is said of what was refused unread."""

    def __init__(self) -> None:
        self.requests = Bucket(BURST, PER_S)
        self._noise = Bucket(NOISE_BURST, NOISE_PER_S)

    def audit_refused(self, uid: int, asked: str) -> None:
        """As `audit`, as long as it does not crowd out the other lines."""
        if self._noise.take():
            audit(uid, asked, "refused")


def serve(listener: socket.socket, verbs: Verbs, uids: frozenset[int], idle_s: float = IDLE_S) -> None:
    """Answer until nobody has asked for `idle_s`. `uids`: who may ask; others are shown the door."""
    limits = Limits()
    with selectors.DefaultSelector() as selector:
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        while ready := selector.select(idle_s):  # the callers that are left end with the process
            for key, _ in ready:
                if key.fileobj is listener:
                    _accept(listener, selector, uids, limits)
                else:
                    _converse(key.fileobj, selector, verbs, limits)  # type: ignore[arg-type]  # all others are sockets


def _accept(listener: socket.socket, selector: selectors.BaseSelector, uids: frozenset[int], limits: Limits) -> None:
    try:
        caller, _ = listener.accept()
    except OSError:  # gone already
        return
    _, uid, _ = UCRED.unpack(caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
    if uid not in uids or len(selector.get_map()) > CALLERS:
        limits.audit_refused(uid, "connect")
        caller.close()
        return
    caller.setblocking(False)
    selector.register(caller, selectors.EVENT_READ, uid)


def _converse(caller: socket.socket, selector: selectors.BaseSelector, verbs: Verbs, limits: Limits) -> None:
    """One request, one reply. A caller that does not take its reply loses it."""
    uid = selector.get_key(caller).data
    try:
        packet = caller.recv(REQUEST_BYTES + 1)
        if packet:
            if limits.requests.take():
                reply, asked = verbs.answer(packet)
                if not (reply["ok"] and asked.startswith(QUIET)):
                    audit(uid, asked, "done" if reply["ok"] else f"{reply['slug']}: {reply['why']}")
            else:
                reply = {"ok": False, "slug": "too_many", "why": "too many requests; wait a second"}
                limits.audit_refused(uid, "too many requests")
            caller.send(json.dumps(reply).encode())
            return
    except OSError:
        pass
    selector.unregister(caller)
    caller.close()


def audit(uid: int, asked: str, result: str) -> None:
    """One line for the journal: who, what, with what result. Nothing that was sent can pass for a line of its own."""
    line = f"uid={uid} asked={asked!r} result={result!r}".encode("ascii", "backslashreplace").decode()
    with suppress(OSError):  # no journal: the servers must be cared for all the same
        print(line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH]}...", file=sys.stderr, flush=True)


def main() -> None:
    """As gpuagent-helper.service, with its socket from systemd."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        sys.exit("gpuagent-helper: systemd starts it, with its socket: systemctl start gpuagent-helper.socket")
    listener = socket.socket(fileno=LISTEN_FD)
    serve(listener, Verbs(Units()), frozenset({0, pwd.getpwnam(CORE).pw_uid}))


if __name__ == "__main__":
    main()
