"""Why a server died, from its log and its exit.

The last line is nearly never the cause. The earliest specific line after the last new step is, over all ranks (or the
one before that step, when the log says that the server is dying); then the earliest general one; then how the process
ended; then the last exception of whatever kind; then a line that only says that something died.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from agent.core.model import Cause, Exit, Retry
from agent.families.catalog import CATALOG
from agent.families.evidence import Evidence, Finding
from agent.families.family import Family
from agent.families.figures import sentence
from agent.families.reader import Reader

__all__ = ["CATALOG", "cause_of", "find_cause", "log_cause"]

_BESIDE_CHARS = 300  # of a line that is quoted beside a sentence on it
_SIGKILL = 9
_SHELL = 128  # a shell, and many a wrapper, exits with 128 + N when its child was ended by signal N
_FROM_OUTSIDE = "from outside"
_LAST_LINES = 50  # an exception further up was survived, as far as the log alone can tell
_FATAL = frozenset(
    {"cuda_oom", "illegal_memory", "gpu_fault", "nccl", "worker_signal", "worker_died", "watchdog", "host_oom"}
    | {"external_kill", "port_in_use", "shm_too_small", "driver", "gpu_lost"}
)
"""What a server that was ready dies of. It may well say of a request that a file is missing or an option is wrong."""


class _Signal(NamedTuple):
    name: str
    text: str  # what it says of the process
    retry: Retry | None = None  # None: as the catalog has it


_SIGNALS: Mapping[int, _Signal] = {
    1: _Signal("SIGHUP", _FROM_OUTSIDE),
    2: _Signal("SIGINT", _FROM_OUTSIDE),
    3: _Signal("SIGQUIT", _FROM_OUTSIDE),
    4: _Signal("SIGILL", "it used an instruction that this CPU does not have", Retry.NO),
    5: _Signal("SIGTRAP", "it gave itself up"),
    6: _Signal("SIGABRT", "it gave itself up"),
    7: _Signal("SIGBUS", "memory behind a file was not there (a truncated file, a full /dev/shm, a failing disk)"),
    8: _Signal("SIGFPE", "it made an arithmetic error"),
    9: _Signal("SIGKILL", _FROM_OUTSIDE),
    11: _Signal("SIGSEGV", "it accessed memory that is not its own"),
    14: _Signal("SIGALRM", "a timer of its own ran out"),
    15: _Signal("SIGTERM", _FROM_OUTSIDE),
    24: _Signal("SIGXCPU", "it used up its limit of CPU time"),
    25: _Signal("SIGXFSZ", "it wrote more than its limit of file size"),
    31: _Signal("SIGSYS", "it made a system call that its sandbox forbids"),
}


def cause_of(slug: str, text: str | None = None) -> Cause:
    """The cause with that slug, remedy and retry from the catalog; an unknown slug has those of "unknown"."""
    remedy = CATALOG.get(slug) or CATALOG["unknown"]
    return Cause(slug=slug, text=text or remedy.text, remedy=remedy.remedy, retry=remedy.retry)


def find_cause(family: Family, reader: Reader, exit: Exit | None) -> Cause:  # noqa: A002 - the word of the core
    """The root cause, always one. `reader` has read the log of `family`'s server to its end; `exit`: None if unseen."""
    if exit is not None and exit.oom:
        return cause_of("host_oom", "the kernel killed the server because memory ran out")
    evidence = reader.evidence
    found = evidence.best() or (_last_words(evidence) if reader.outcome == "crash" else None)
    if found is not None:
        return _quoted(found)
    ended = None if exit is None else _from_exit(exit, itself=-9 in family.clean_exits)
    if ended is not None and ended.slug != "worker_signal":
        return ended
    found = _last_words(evidence)  # also beside an abort: its last words say more than the signal
    if found is not None:
        return _quoted(found)
    return ended or cause_of("unknown", _said_nothing(exit))


def log_cause(reader: Reader) -> Cause | None:
    """The root cause as far as the log alone tells; None: the log tells of none."""
    evidence, outcome = reader.evidence, reader.outcome
    found = evidence.best()
    if outcome == "ready" and found is not None and found is evidence.specific and found.slug not in _FATAL:
        found = evidence.general
    if found is None and outcome == "crash":
        found = _last_words(evidence)
    if found is None and outcome is None and evidence.exception is not None:
        found = evidence.exception if evidence.exception_last > reader.lines - _LAST_LINES else None
    return None if found is None else _quoted(found)


def _last_words(evidence: Evidence) -> Finding | None:
    """The exception that no rule knows; else the line that only says that something died."""
    return evidence.exception or evidence.wrapper


def _quoted(found: Finding) -> Cause:
    remedy = CATALOG.get(found.slug) or CATALOG["unknown"]
    said = sentence(found.slug, found.text)
    line = found.text if said is None or len(found.text) <= _BESIDE_CHARS else f"{found.text[:_BESIDE_CHARS]}…"
    text = line if said is None else f"{said} ({line})"
    return Cause(slug=found.slug, text=text, remedy=remedy.remedy, retry=remedy.retry, line=found.line, quoted=True)


def _from_exit(exit: Exit, itself: bool) -> Cause | None:  # noqa: A002 - the word of the core
    """What the exit alone says; None: only that it failed. `itself`: it is of those that send SIGKILL to themselves."""
    if exit.signal is not None:
        cause = _signalled(exit.signal, exit.oom, "the server was ended by")
        return replace(cause, text=f"{cause.text}, or by itself") if exit.signal == _SIGKILL and itself else cause
    if exit.code == 0:
        return cause_of("exited_zero")
    if exit.code is not None and exit.code - _SHELL in _SIGNALS:
        return _signalled(exit.code - _SHELL, exit.oom, f"the server exited with code {exit.code}, which stands for")
    return None


def _signalled(number: int, oom: bool | None, lead: str) -> Cause:
    signal = _SIGNALS.get(number, _Signal(f"signal {number}", "what sent it is not known"))
    if signal.text != _FROM_OUTSIDE:
        cause = cause_of("worker_signal", f"{lead} {signal.name}: {signal.text}")
        remedy, retry = cause.remedy, signal.retry or cause.retry
        return Cause(slug=cause.slug, text=cause.text, remedy=remedy, retry=retry)
    doubt = ", or by the kernel for lack of memory" if number == _SIGKILL and oom is None else ""
    return cause_of("external_kill", f"{lead} {signal.name}, sent {signal.text}{doubt}")


def _said_nothing(exit: Exit | None) -> str:  # noqa: A002 - the word of the core
    if exit is None or exit.code is None:
        return "the server ended unseen, and its log says nothing of why"
    return f"exited with code {exit.code} and said nothing of why"
