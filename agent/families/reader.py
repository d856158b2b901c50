"""Bytes of a log, as they come, into lines, steps, progress, facts and findings. Pure, incremental, bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent.core.model import Step
from agent.core.redact import redact
from agent.families.evidence import Evidence, Finding
from agent.families.facts import Facts, note
from agent.families.family import Family
from agent.families.kept import KEPT_BYTES, KeptLines
from agent.families.lines import below_error, cleaned, decoded, parted, rank, shown, stamp
from agent.families.progress import Progress
from agent.families.rules import Kind, Rule, rules_of

__all__ = ["KEPT_BYTES", "LINE_BYTES", "News", "Reader", "SeenStep"]

LINE_BYTES = 8_192  # of one line (or one frame of a progress bar); the rest is skipped
_PIECE_BYTES = 65_536  # fed at once, so that memory is bounded however much comes
_FIRST_COUNTS = (Kind.SPECIFIC, Kind.GENERAL, Kind.WRAPPER)  # of these, the first that is found
_HEAD_BYTES = 200  # of a line: enough to know who wrote it


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
        self.facts: Facts = {}
        self.evidence = Evidence()
        self._rules = rules_of(family)
        self._idle: frozenset[int] = frozenset()  # rules that change nothing now: see _matters
        self._idle_when: tuple[object, ...] | None = None
        self._lines = 0
        self._pending = bytearray()  # the line that is not complete, at most LINE_BYTES of it
        self._head = b""  # of the line that is read: its beginning, before all frames of a bar; empty: it has none yet
        self._whose = b"", ""  # a head, and which rank it is of
        self._torn = False  # the line that comes lost its beginning: see skip
        self._kept = KeptLines()
        self._progress = Progress(family)
        self._entered: Step | None = None  # in this feed
        self._ready = False  # a line of this feed claims it

    @property
    def lines(self) -> int:
        """The lines read until now."""
        return self._lines

    @property
    def outcome(self) -> str | None:
        """The last that a line claimed: "ready", "stopped", or "crash" of a server that is dying; None: none yet."""
        return self.evidence.outcome

    @property
    def hangs(self) -> bool:
        """Whether its processes wait for one another, again and again, and not only because a start takes long."""
        return self.evidence.hangs and (self.outcome == "ready" or not self.steps)

    def feed(self, data: bytes) -> News:
        """The next bytes of the log, cut anywhere."""
        before, told = self._lines, self._progress.value
        self._ready, self._entered = False, None
        for at in range(0, len(data), _PIECE_BYTES):
            self._take(data[at : at + _PIECE_BYTES])
        return self._told(before, told)

    def skip(self, data: bytes) -> None:
        """Bytes that nobody has the time to read: their lines are counted, no more. A line that they cut is dropped."""
        if not data:
            return
        self._lines += data.count(b"\n")
        self._torn = not data.endswith(b"\n")
        self._pending.clear()
        self._head = b""
        self._kept.end_line()  # else the frames before share a line of the tail with what comes

    def close(self) -> News:
        """The log has ended: what came after its last newline is a line too."""
        before, told = self._lines, self._progress.value
        self._ready, self._entered = False, None
        if self._pending:
            last, self._pending = bytes(self._pending), bytearray()
            self._read(last + b"\n", ended=False)
        elif self._kept.end_line() or self._torn:
            self._lines, self._torn = self._lines + 1, False
        return self._told(before, told)

    def tail(self, n: int = 20) -> tuple[str, ...]:
        """The last `n` lines that are not blank, without colours and secrets; of a progress bar, its last frame."""
        lines: list[str] = []
        for raw in self._kept.backwards(cleaned(bytes(self._pending))):
            frames = [text for frame in raw.split(b"\r") if (text := shown(decoded(frame)))]
            if frames:
                lines.append(redact(frames[-1], self.secrets))
            if len(lines) >= n:
                break
        return tuple(reversed(lines[:n]))

    def _told(self, before: int, told: float | None) -> News:
        now = self._progress.value
        progress = now if self._entered is not None or now != told else None
        return News(self._lines - before, self._entered, progress, self._ready)

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
            self._look_at_pending()

    def _look_at_pending(self) -> None:
        """A bar has no end until its next frame is drawn, which may take minutes."""
        bars = self._rules.bars if b"%" in self._pending else ()
        if self._progress.looked_for is None and not bars:
            return
        text = decoded(cleaned(bytes(self._pending)))
        prefix, bare = parted(text)
        found = [(rule, match) for rule in bars for match in rule.pattern.finditer(bare)]
        self._go_on(found, self._lines + 1, prefix, bare)
        self._progress.look(bare, ended=False)

    def _read(self, block: bytes, ended: bool = True) -> None:
        """Whole lines or frames; `block` ends with a newline or a carriage return."""
        block = cleaned(_cut(block))
        self._kept.keep(block)
        flat = b"\n" + block.replace(b"\r", b"\n")  # so that a newline stands before each line
        counted, line, first = 0, self._lines + 1, self._head or block[:_HEAD_BYTES]
        for start, places in self._worth_hearing(flat):
            begin = block.rfind(b"\n", 0, start - 1) + 1
            self._head = block[begin : begin + _HEAD_BYTES] if begin else first
            line += block.count(b"\n", counted, start - 1)
            counted = start - 1
            self._hear(flat[start : flat.index(b"\n", start)], line, sorted(places), ended)
        self._lines += block.count(b"\n")
        begin = block.rfind(b"\n") + 1
        self._head = block[begin : begin + _HEAD_BYTES] if begin else first

    def _worth_hearing(self, flat: bytes) -> Iterator[tuple[int, frozenset[int]]]:
        """Where the lines begin that can change anything, and the rules that may match them. What is asked next depends
        on what was heard until then."""
        hits = self._rules.find(flat)
        starts, end = iter(hits), len(flat)
        said, shows, looked_for, at = 0, 0, None, 1  # of the next line: that a rule may match, that may show progress
        while True:
            if said < at:
                said = next((start for start in starts if start >= at and self._matters(hits[start])), end)
            if shows < at or looked_for is not self._progress.looked_for:
                looked_for = self._progress.looked_for
                match = looked_for.search(flat, at - 1) if looked_for else None
                shows = match.start() + 1 if match else end
            at = min(said, shows)
            if at == end:
                return
            yield at, hits.get(at, frozenset())
            at += 1

    def _matters(self, places: frozenset[int]) -> bool:
        """Whether a line that these rules may match can change anything."""
        evidence = self.evidence
        found = (evidence.specific is not None, evidence.general is not None, evidence.wrapper is not None)
        state = (len(self.steps), evidence.empty, *found)
        if state != self._idle_when:
            kinds = [kind for kind, known in zip(_FIRST_COUNTS, found, strict=True) if known]
            kinds += [Kind.EXCEPTION] if evidence.specific is not None else []
            kinds += [Kind.RECOVERY] if evidence.empty else []
            self._idle = self._rules.of_kinds(Kind.NOISE, *kinds) | self._rules.of_steps(
                [seen.step for seen in self.steps]
            )
            self._idle_when = state
        return not places <= self._idle

    def _hear(self, raw: bytes, line: int, places: Iterable[int], ended: bool) -> None:
        text = decoded(raw)
        prefix, bare = parted(text)
        if self.family.children is not None and self.family.children.match(bare):
            return
        rules = map(self._rules.all.__getitem__, places)
        said = [(rule, match) for rule in rules if (match := rule.pattern.search(bare))]
        if any(rule.name == "boot" for rule, _ in said):
            self._begin_anew()
        self._go_on([each for each in said if each[0].kind is Kind.STEP], line, prefix, bare)
        for rule, match in said:
            if rule.kind is Kind.FACT:
                note(self.facts, rule.name, match.groupdict().get("of"), redact(shown(_value(match)), self.secrets))
        self._weigh([rule for rule, _ in said], line, bare, below_error(prefix))
        self._progress.look(bare, ended)

    def _begin_anew(self) -> None:
        """The same log holds another start, behind one that ended."""
        self.steps.clear()
        self._idle_when = None
        self.facts.clear()
        self.evidence = Evidence()
        self._progress.begin(None)

    def _go_on(self, said: Iterable[tuple[Rule, re.Match[str]]], line: int, prefix: str, text: str) -> None:
        """What belongs to a step, in its order within `text`; bars show its progress, for each rank its own."""
        for rule, match in sorted(said, key=lambda each: each[1].start()):
            step = Step(rule.name)
            self._enter(step, line, prefix + text[: match.end()])
            if rule.bar and self.steps[-1].step is step:
                last = list(rule.pattern.finditer(text, match.start()))[-1] if "%" in text[match.end() :] else match
                self._progress.draw(rank(prefix) or self._rank_of_head(), int(last["percent"]))

    def _rank_of_head(self) -> str:
        """Of a frame, whose line began with other frames, or with a prefix alone."""
        head, whose = self._whose
        if head != self._head:
            whose = rank(parted(decoded(self._head.partition(b"\r")[0]))[0])
            self._whose = self._head, whose
        return whose

    def _enter(self, step: Step, line: int, text: str) -> None:
        if any(seen.step is step for seen in self.steps):
            return  # a phase that repeats, for a drafter or a second rank, is no restart
        self.steps.append(SeenStep(step, line, stamp(text)))
        self._entered = step
        self.evidence.step()
        self._progress.begin(step)

    def _weigh(self, heard: Sequence[Rule], line: int, text: str, harmless: bool) -> None:
        """What the line means for the question how the server fares, and why it died, should it do so. `harmless`: the
        server itself takes it for no error; it may well warn of the death of a worker."""
        evidence = self.evidence
        for rule in heard:
            if rule.kind is Kind.OUTCOME and rule.name != "boot":
                evidence.claim(rule.name)
                self._ready = self._ready or rule.name == "ready"
            elif rule.kind is Kind.RECOVERY:
                evidence.recover()
        cause = next((rule for rule in heard if rule.kind >= Kind.SPECIFIC), None)
        if (
            cause is None
            or (harmless and cause.kind is not Kind.WRAPPER)
            or any(rule.kind is Kind.NOISE for rule in heard)
        ):
            return
        if evidence.outcome == "stopped" and evidence.best() is None:
            return  # the noise of a clean end
        found = self._finding(cause, line, text)
        if cause.kind is Kind.SPECIFIC:
            evidence.specific = evidence.specific or found
        elif cause.kind is Kind.GENERAL:
            evidence.general = evidence.general or found
        elif cause.kind is Kind.WRAPPER:
            evidence.wrapper = evidence.wrapper or found
        else:
            evidence.note_exception(found)

    def _finding(self, rule: Rule, line: int, text: str) -> Finding:
        return Finding(rule.name, line, redact(shown(text), self.secrets))


def _value(match: re.Match[str]) -> str:
    """What a fact's pattern found: the last group that took part."""
    return next(group for group in reversed(match.groups()) if group is not None)


def _cut(block: bytes) -> bytes:
    """`block` with each line or frame cut to LINE_BYTES."""
    if len(block) <= LINE_BYTES or max(map(len, block.split(b"\n"))) <= LINE_BYTES:
        return block
    return b"\n".join(b"\r".join(frame[:LINE_BYTES] for frame in line.split(b"\r")) for line in block.split(b"\n"))
