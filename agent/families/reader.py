"""Bytes of a log, as they come, into lines, steps, progress, facts and findings. Pure, incremental, bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent.core.model import Step
from agent.core.redact import redact
from agent.families.evidence import Evidence, Finding
from agent.families.family import Family
from agent.families.lines import behind_prefixes, cleaned, decoded, shown, stamp, without_prefix
from agent.families.rules import Kind, Rule, rules_of

LINE_BYTES = 8_192  # of one line (or one frame of a progress bar); the rest is skipped
KEPT_BYTES = 262_144  # of the latest lines, at least
_PIECE_BYTES = 65_536  # fed at once, so that memory is bounded however much comes
_MOST_FACTS = 64


@dataclass(frozen=True, slots=True)
class News:
    """What one feed brought. `progress` belongs to the latest step, 0..1; `ready`: a line claims so."""

    lines: int = 0  # lines that were completed
    step: Step | None = None  # the last new one
    progress: float | None = None
    ready: bool = False


@dataclass(frozen=True, slots=True)
class SeenStep:
    """A step when it was new: the line that said so, and that line's own time stamp."""

    step: Step
    line: int
    at: str | None


class Reader:
    """Reads one log. Lines are counted from 1, as an editor does; frames parted by carriage returns share a line."""

    def __init__(self, family: Family, secrets: Sequence[str] = ()) -> None:
        """`secrets`: texts that no tail and no finding may show."""
        self.family = family
        self.secrets = tuple(secrets)
        self.steps: list[SeenStep] = []
        self.facts: dict[str, float | str] = {}
        self.outcome: str | None = None  # the last that a line claimed: "ready" or "stopped"
        self.evidence = Evidence()
        self._rules = rules_of(family)
        self._progress_of = {step: behind_prefixes(pattern) for step, pattern in family.progress.items()}
        self._looked_for: re.Pattern[bytes] | None = None  # of the last step: lines that may show progress
        self._lines = 0
        self._pending = bytearray()  # the line that is not complete, at most LINE_BYTES of it
        self._torn = False  # the line that comes lost its beginning: see skip
        self._kept: list[bytearray] = []  # few and large: see _keep
        self._kept_bytes = 0
        self._dots = 0
        self._progress: float | None = None  # of the last step
        self._ready = False  # a line of this feed claims it

    @property
    def lines(self) -> int:
        """The lines read until now."""
        return self._lines

    def feed(self, data: bytes) -> News:
        """The next bytes of the log, cut anywhere."""
        before, known, told = self._lines, len(self.steps), self._progress
        self._ready = False
        for at in range(0, len(data), _PIECE_BYTES):
            self._take(data[at : at + _PIECE_BYTES])
        return self._told(before, known, told)

    def skip(self, data: bytes) -> None:
        """Bytes that nobody has the time to read: their lines are counted, no more. A line that they cut is dropped."""
        if not data:
            return
        self._lines += data.count(b"\n")
        self._torn = not data.endswith(b"\n")
        self._pending.clear()
        self._end_line()  # else the frames before share a line of the tail with what comes

    def close(self) -> News:
        """The log has ended: what came after its last newline is a line too."""
        before, known, told = self._lines, len(self.steps), self._progress
        self._ready = False
        if self._pending:
            last, self._pending = bytes(self._pending), bytearray()
            self._read(last + b"\n", ended=False)
        elif self._end_line() or self._torn:
            self._lines, self._torn = self._lines + 1, False
        return self._told(before, known, told)

    def tail(self, n: int = 20) -> tuple[str, ...]:
        """The last `n` lines that are not blank, without colours and secrets; of a progress bar, its last frame."""
        lines: list[str] = []
        for raw in self._backwards():
            frames = [text for frame in raw.split(b"\r") if (text := shown(decoded(frame)))]
            if frames:
                lines.append(redact(frames[-1], self.secrets))
            if len(lines) >= n:
                break
        return tuple(reversed(lines[:n]))

    def _told(self, before: int, known: int, told: float | None) -> News:
        step = self.steps[-1].step if len(self.steps) > known else None
        progress = self._progress if step is not None or self._progress != told else None
        return News(self._lines - before, step, progress, self._ready)

    def _take(self, piece: bytes) -> None:
        if self._torn:
            _, newline, piece = piece.partition(b"\n")
            if not newline:
                return
            self._lines, self._torn = self._lines + 1, False
        ends = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        if ends:
            block, self._pending = bytes(self._pending) + piece[:ends], bytearray()
            self._read(block)
        room = LINE_BYTES - len(self._pending)
        if room > 0 and ends < len(piece):
            self._pending += piece[ends : ends + room]
            if self._looked_for is not None:
                self._look_at_progress(without_prefix(decoded(cleaned(bytes(self._pending)))), ended=False)

    def _read(self, block: bytes, ended: bool = True) -> None:
        """Whole lines or frames; `block` ends with a newline or a carriage return."""
        block = cleaned(_cut(block))
        self._keep(block)
        flat = b"\n" + block.replace(b"\r", b"\n")  # so that a newline stands before each line
        counted, line = 0, self._lines + 1
        for start, places in self._worth_hearing(flat):
            line += block.count(b"\n", counted, start - 1)
            counted = start - 1
            self._hear(flat[start : flat.index(b"\n", start)], line, sorted(places), ended)
        self._lines += block.count(b"\n")

    def _worth_hearing(self, flat: bytes) -> Iterator[tuple[int, frozenset[int]]]:
        """Where the lines begin that can change anything, and the rules that may match them. What is asked next depends
        on what was heard until then."""
        hits = self._rules.find(flat)
        starts, end = iter(hits), len(flat)
        said, shows, looked_for, at = 0, 0, None, 1  # of the next line: that a rule may match, that may show progress
        while True:
            if said < at:
                said = next((start for start in starts if start >= at and self._matters(hits[start])), end)
            if shows < at or looked_for is not self._looked_for:
                looked_for = self._looked_for
                match = looked_for.search(flat, at - 1) if looked_for else None
                shows = match.start() + 1 if match else end
            at = min(said, shows)
            if at == end:
                return
            yield at, hits.get(at, frozenset())
            at += 1

    def _matters(self, places: frozenset[int]) -> bool:
        """Whether a line that these rules may match can change anything."""
        return not (self.evidence.empty and places <= self._rules.quiet)

    def _hear(self, raw: bytes, line: int, places: Iterable[int], ended: bool) -> None:
        text = decoded(raw)
        bare = without_prefix(text)
        if self.family.children is not None and self.family.children.match(bare):
            return
        said = [
            (rule, match) for rule in map(self._rules.all.__getitem__, places) if (match := rule.pattern.search(bare))
        ]
        for _, step in sorted((match.start(), Step(rule.name)) for rule, match in said if rule.kind is Kind.STEP):
            self._enter(step, line, text)
        for rule, match in said:
            if rule.kind is Kind.FACT:
                self._note(rule.name, match.groupdict().get("of"), match.groups()[-1])
        heard = [rule for rule, _ in said]
        self._weigh(heard, line, bare)
        self._look_at_progress(bare, ended)

    def _enter(self, step: Step, line: int, text: str) -> None:
        if any(seen.step is step for seen in self.steps):
            return  # a phase that repeats, for a drafter or a second rank, is no restart
        self.steps.append(SeenStep(step, line, stamp(text)))
        self.outcome = None  # what only now takes its next step was not ready: it listened before it loaded
        self.evidence.forget()
        self._progress, self._dots = None, 0
        self._looked_for = self._progress_of.get(step)

    def _weigh(self, heard: Sequence[Rule], line: int, text: str) -> None:
        """What the line means for the question why the server died, should it do so."""
        for rule in heard:
            if rule.kind is Kind.OUTCOME:
                self.outcome = rule.name
                self._ready = self._ready or rule.name == "ready"
            if rule.kind is Kind.RECOVERY or (rule.kind is Kind.OUTCOME and rule.name == "ready"):
                self.evidence.forget()
        if any(rule.kind is Kind.NOISE for rule in heard):
            return
        cause = next((rule for rule in heard if rule.kind >= Kind.SPECIFIC), None)
        if cause is None:
            return
        if cause.kind is Kind.SPECIFIC and self.evidence.specific is None:
            self.evidence.specific = self._finding(cause, line, text)
        elif cause.kind is Kind.GENERAL and self.evidence.general is None:
            self.evidence.general = self._finding(cause, line, text)
        elif cause.kind is Kind.EXCEPTION:
            self.evidence.exception = self._finding(cause, line, text)

    def _finding(self, rule: Rule, line: int, text: str) -> Finding:
        return Finding(rule.name, line, redact(shown(text), self.secrets))

    def _note(self, name: str, of: str | None, value: str) -> None:
        """The last value holds, but what belongs to a device (`of`) is summed up: it may come in several parts."""
        key = f"{name}.{of}" if of else name
        if key not in self.facts and len(self.facts) >= _MOST_FACTS:
            return
        try:
            fact = float(value) if "." in value else int(value)
        except ValueError:
            self.facts[key] = redact(shown(value), self.secrets)
            return
        known = self.facts.get(key) if of else None
        self.facts[key] = fact if known is None or isinstance(known, str) else round(known + fact, 2)

    def _look_at_progress(self, text: str, ended: bool) -> None:
        """`ended`: a newline stands behind `text`, so that dots alone are all the dots there will be."""
        pattern = self.family.progress.get(self.steps[-1].step) if self.steps else None
        match = pattern.match(text) if pattern else None
        if match is None:
            return
        found = match.groupdict()
        if found.get("percent"):
            done = int(found["percent"]) / 100
        else:
            dots = self._dots + len(found["dots"])
            done = 1.0 if ended and match.end() == len(text.rstrip()) else dots / 100
            self._dots = dots if ended else self._dots
        self._progress = min(1.0, max(done, self._progress or 0.0))

    def _keep(self, block: bytes) -> None:
        if self._kept and len(self._kept[-1]) < _PIECE_BYTES:
            self._kept[-1] += block
        else:
            self._kept.append(bytearray(block))
        self._kept_bytes += len(block)
        while self._kept_bytes - len(self._kept[0]) >= KEPT_BYTES:
            self._kept_bytes -= len(self._kept.pop(0))

    def _end_line(self) -> bool:
        """Whether frames were kept of a line that had no end; now it has."""
        if not self._kept or self._kept[-1].endswith(b"\n"):
            return False
        self._keep(b"\n")
        return True

    def _backwards(self) -> Iterable[bytes]:
        """The latest lines, the newest first, with the one that is not complete."""
        rest = cleaned(bytes(self._pending))
        for chunk in reversed(self._kept):
            lines = (bytes(chunk) + rest).split(b"\n")
            yield from reversed(lines[1:])
            rest = lines[0]
        yield rest


def _cut(block: bytes) -> bytes:
    """`block` with each line or frame cut to LINE_BYTES."""
    if len(block) <= LINE_BYTES or max(map(len, block.split(b"\n"))) <= LINE_BYTES:
        return block
    return b"\n".join(b"\r".join(frame[:LINE_BYTES] for frame in line.split(b"\r")) for line in block.split(b"\n"))
