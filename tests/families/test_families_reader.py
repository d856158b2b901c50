"""The reader tells the same of a log however its bytes come, and never needs more memory than its bounds."""

from __future__ import annotations

import itertools
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.model import Step
from agent.families import FAMILIES, Family
from agent.families.lines import cleaned
from agent.families.reader import KEPT_BYTES, LINE_BYTES, Reader
from agent.families.rules import rules_of
from tests.families import other_servers, pytorch_lines, sglang_logs, vllm_logs
from tests.families.samples import BOOT_B5, CAUSES, HARMLESS, READY, READY_B5, crash_b5, crash_newest

LLAMA = FAMILIES["llama_cpp"]
LOADING = "srv    load_model: loading model 'x'\n"


def fold(family: Family, pieces: list[bytes], kind: type[Reader] = Reader) -> tuple[object, ...]:
    """All that a reader tells of a log that comes in `pieces`, as the core adds it up."""
    reader = kind(family)
    lines, steps, progress, ready = 0, [], None, False
    for news in [*map(reader.feed, pieces), reader.close()]:
        lines += news.lines
        ready = ready or news.ready
        if news.step is not None:
            steps.append(news.step)
            progress = None
        if news.progress is not None:
            progress = news.progress
    assert steps[-1:] == [seen.step for seen in reader.steps][-1:]
    told = (reader.outcome, reader.facts, reader.evidence, reader.tail(50), reader.lines)
    return lines, reader.steps, progress, ready, *told


def steps_of(log: str) -> list[Step]:
    reader = Reader(LLAMA)
    reader.feed(log.encode())
    reader.close()
    return [seen.step for seen in reader.steps]


_FRAGMENT = st.sampled_from(
    [
        *READY_B5.encode().splitlines(keepends=True),
        *(line.encode() for lines in CAUSES.values() for line in lines),
        *(line.encode() for line in HARMLESS),
        LOADING.encode(),
        b"\n", b"\r", b"\r\n", b".", b"....", b"\x1b[32m", b"\x1b[0m", b"\x1b", b"\0", b"\x07",
        b"\xc2\x85", "é…🙂".encode(), b"\xff\xfe",
        *(line for log in vllm_logs.READY.values() for line in log.encode().splitlines(keepends=True)),
        *(line for log in sglang_logs.READY.values() for line in log.encode().splitlines(keepends=True)),
        *(line for log in other_servers.WRAPPED.values() for line in log.encode().splitlines(keepends=True)),
        *(line.encode() for lines in pytorch_lines.CAUSES.values() for line in lines),
        *(line.encode() for line in pytorch_lines.HARMLESS),
        *(log.encode() for log in (vllm_logs.STOP, vllm_logs.DEAD, vllm_logs.WEDGED * 3, vllm_logs.SERVED)),
        b"(Worker_TP1 pid=7) ", b"[2026-08-01 23:37:50 TP3] ", b"Killed\n", b'{"log":"',
        b"\rLoading safetensors checkpoint shards:  40% Completed | 2/5 [00:01<", b"\rCapturing batches (bs=1):  70%|",
        b"[49457] ", b"web-1  | ", b"2026-01-01T00:00:00Z ", b"0.00.010.956 I ", b"x" * (LINE_BYTES - 3),
        b" 12 40M   12  5M    0 ",
    ]
)  # fmt: skip
_LOG = st.lists(_FRAGMENT | st.binary(max_size=30), max_size=40).map(b"".join)


@given(_LOG, st.lists(st.integers(0, 20_000), max_size=12), st.sampled_from(list(FAMILIES.values())))
@settings(max_examples=300, deadline=None)
def test_any_cut_of_the_bytes_tells_the_same(log: bytes, cuts: list[int], family: Family) -> None:
    edges = sorted({0, len(log), *(cut % (len(log) + 1) for cut in cuts)})
    pieces = [log[start:end] for start, end in itertools.pairwise(edges)]
    assert fold(family, pieces) == fold(family, [log])


@pytest.mark.parametrize("log", [*READY.values(), crash_b5("CUDA error: x"), crash_newest("x")])
def test_single_bytes_tell_the_same_as_the_whole(log: str) -> None:
    data = log.encode()
    assert fold(LLAMA, [data[i : i + 1] for i in range(len(data))]) == fold(LLAMA, [data])


@given(st.lists(st.binary(max_size=200), max_size=20), st.sampled_from(list(FAMILIES.values())))
def test_no_bytes_raise(pieces: list[bytes], family: Family) -> None:
    reader = Reader(family)
    for piece in pieces:
        reader.feed(piece)
    reader.close()
    reader.tail()
    assert reader.lines >= b"".join(pieces).count(b"\n")


class EveryRuleOnEveryLine(Reader):
    """What the reader must tell, told in the obvious way."""

    def _read(self, block: bytes, ended: bool = True) -> None:
        block = cleaned(b"\n".join(b"\r".join(f[:LINE_BYTES] for f in x.split(b"\r")) for x in block.split(b"\n")))
        self._kept.keep(block)
        for line in re.findall(rb"[^\r\n]*[\r\n]", block):
            self._head = self._head or line
            self._hear(line[:-1], self._lines + 1, range(len(self._rules.all)), ended)
            self._lines += line.endswith(b"\n")
            self._head = b"" if line.endswith(b"\n") else self._head


_WORDS = ["failed", "error: ", "CUDA", "out of memory", "model", " 40", "status: ", "server", "slots", "200", "12", "."]
_NOVEL = st.lists(st.sampled_from(_WORDS) | st.from_regex(r"[ -~]{1,12}", fullmatch=True), max_size=12).map(" ".join)
_PARTIAL = st.sampled_from([line for lines in CAUSES.values() for line in lines]).flatmap(
    lambda line: st.tuples(st.integers(0, len(line)), st.integers(0, len(line))).map(
        lambda cut: line[min(cut) : max(cut)]
    )
)
_LINE = (_NOVEL | _PARTIAL).map(lambda line: line.encode() + b"\n")


@given(
    st.lists(_FRAGMENT | _LINE | st.binary(max_size=30), max_size=60).map(b"".join),
    st.lists(st.integers(0, 20_000), max_size=12),
    st.sampled_from(list(FAMILIES.values())),
)
@settings(max_examples=300, deadline=None)
def test_the_quick_way_tells_what_every_rule_on_every_line_tells(log: bytes, cuts: list[int], family: Family) -> None:
    edges = sorted({0, len(log), *(cut % (len(log) + 1) for cut in cuts)})
    pieces = [log[start:end] for start, end in itertools.pairwise(edges)]
    assert fold(family, pieces) == fold(family, pieces, EveryRuleOnEveryLine)


@pytest.mark.parametrize("log", [*READY.values(), *map(crash_b5, HARMLESS), *(crash_b5(c[0]) for c in CAUSES.values())])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_the_quick_way_tells_the_same_of_whole_logs(log: str, family: Family) -> None:
    data = (log * 2).encode()
    assert fold(family, [data]) == fold(family, [data], EveryRuleOnEveryLine)


def test_lines_of_one_shape_are_told_apart_by_their_digits() -> None:
    reader = Reader(LLAMA)
    reader.feed(b"get: download failed, status: 404\nget: status: 500\nget: status: 402\n")
    reader.feed(b"get: status: 4 01\nget: status: 401\n")
    assert reader.evidence.specific is not None
    assert (reader.evidence.specific.slug, reader.evidence.specific.line) == ("missing_weights", 1)
    reader.evidence.forget()
    reader.feed(b"get: status: 402\nget: status: 403\n")
    assert reader.evidence.specific.line == 7


def test_shapes_without_end_do_not_fill_the_memory() -> None:
    rules = rules_of(LLAMA)
    for n in range(5_000):
        word = "".join(chr(97 + n // 26**place % 26) for place in range(4))
        assert rules.find(f"{word} CUDA error: x\n{word}\n".encode()).keys() == {0}
    assert len(rules._known) < 2_000


def test_lines_are_counted_as_an_editor_does() -> None:
    reader = Reader(LLAMA)
    assert reader.feed(b"one\r\n\r 1%\r 2%\r\ntwo\nCUDA error: x\nhalf").lines == 4
    assert reader.evidence.general is not None
    assert reader.evidence.general.line == 4
    assert reader.close().lines == 1
    assert reader.close().lines == 0


def test_a_step_is_new_only_once() -> None:
    reader = Reader(LLAMA)
    assert reader.feed(LOADING.encode()).step is Step.LOADING_WEIGHTS
    assert reader.feed(b"llama_context: constructing llama_context\n").step is Step.ALLOCATING_KV
    assert reader.feed(LOADING.encode()).step is None
    assert [seen.step for seen in reader.steps] == [Step.LOADING_WEIGHTS, Step.ALLOCATING_KV]


def test_two_records_on_one_line_are_both_heard_in_their_order() -> None:
    glued = "main: loading model xllama_context: constructing llama_context: cudaMalloc failed: out of memory\n"
    glued = LOADING.strip() + " " + glued
    reader = Reader(LLAMA)
    assert reader.feed(glued.encode()).step is Step.ALLOCATING_KV
    assert [seen.step for seen in reader.steps] == [Step.LOADING_WEIGHTS, Step.ALLOCATING_KV]
    assert reader.evidence.specific is not None


def test_a_dot_is_one_percent_and_counts_before_its_newline_comes() -> None:
    reader = Reader(LLAMA)
    assert reader.feed(LOADING.encode()).progress is None
    assert reader.feed(b"." * 7).progress == 0.07
    assert reader.feed(b"").progress is None
    assert reader.feed(b"...").progress == 0.10
    assert reader.feed(b"..\n").progress == 1.0  # the newline comes with the last dot; some dots stand for more


def test_dots_that_another_record_cut_off_go_on_counting() -> None:
    reader = Reader(LLAMA)
    reader.feed(LOADING.encode())
    assert reader.feed(b"..........srv  log_server_r: request: GET /health 127.0.0.1 503\n").progress == 0.10
    assert reader.feed(b".....").progress == 0.15


def test_dots_behind_a_foreign_prefix_count() -> None:
    reader = Reader(LLAMA)
    reader.feed(b"llm-1  | " + LOADING.encode())
    assert reader.feed(b"llm-1  | ....").progress == 0.04


def test_dots_outside_of_the_loading_and_at_the_end_of_text_are_no_progress() -> None:
    reader = Reader(LLAMA)
    assert reader.feed(b"......\n").progress is None
    reader.feed(LOADING.encode())
    assert reader.feed(b"load_tensors: loading model tensors, this can take a while...").progress is None


def test_a_progress_belongs_to_its_step() -> None:
    reader = Reader(LLAMA)
    news = reader.feed(LOADING.encode() + b"....\nllama_context: constructing llama_context\n")
    assert (news.step, news.progress) == (Step.ALLOCATING_KV, None)


def test_a_download_shows_its_percent() -> None:
    reader = Reader(LLAMA)
    log = b"common_download_file: trying to download model from https://hub.example/x to /c/x (etag:1)...\n"
    news = reader.feed(
        log + b"  % Total    % Received\r  3 4096M    3  130M    0     0  55.5M\r 41 4096M   41 1700M    0  "
    )
    assert (news.step, news.progress) == (Step.DOWNLOADING, 0.41)


@pytest.mark.parametrize(
    "prefix",
    [
        "llm-1  | ",
        "2026-08-21T19:42:37.123456789Z ",
        "2026-08-21T19:42:37.123Z stdout F ",
        "Jan 26 17:48:20 host llama[123]: ",
        "llm-1  | 2026-08-21T19:42:37Z Jan  6 17:48:20 host llama-server[1]: ",
        "[2026-01-01 00:00:00] ",
        "(Server pid=12) ",
        "\x1b[32m0.00.010.956\x1b[0m \x1b[34mI\x1b[0m ",
        "\0\0",
    ],
)
@pytest.mark.parametrize("kind", READY)
def test_foreign_prefixes_change_nothing(prefix: str, kind: str) -> None:
    log = "".join(prefix + line for line in READY[kind].splitlines(keepends=True))
    assert steps_of(log) == steps_of(READY[kind])


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("2026-08-21T19:42:37.5Z main: loading model", "2026-08-21T19:42:37.5Z"),
        ("Jan 26 17:48:20 host u[1]: main: loading model", "Jan 26 17:48:20"),
        ("0.00.010.956 I srv  llama_server: loading model", "0.00.010.956"),
        ("main: loading model", None),
    ],
)
def test_a_step_carries_the_time_stamp_of_its_line(line: str, at: str | None) -> None:
    reader = Reader(LLAMA)
    reader.feed(line.encode() + b"\n")
    assert reader.steps[0].at == at


def test_a_tail_is_clean_short_and_without_secrets() -> None:
    reader = Reader(LLAMA, secrets=["swordfish"])
    reader.feed(b"a\n\n  \n\x1b[31mred\x1b[0m\0\n 1%\r 2%\r\n--api-key abc swordfish\n" + b"y" * 9_000 + b"\nhalf \xc3")
    assert reader.tail()[:4] == ("a", "red", "2%", "--api-key *** ***")
    assert len(reader.tail()[4]) == 2_000
    assert reader.tail()[5] == "half \N{REPLACEMENT CHARACTER}"
    assert len(reader.tail()) == 6
    assert reader.tail(2) == reader.tail()[-2:]


def test_the_tail_goes_back_further_than_a_client_traceback_is_long() -> None:
    reader = Reader(LLAMA)
    for n in range(4_000):
        reader.feed(b"%06d " % n + b"z" * 100 + b"\n")
    tail = reader.tail(1_900)  # of 107 bytes each: 200 kB
    assert tail[0].startswith("002100")
    assert tail[-1].startswith("003999")


@pytest.mark.parametrize(
    "unit", [b"x", b"\n", b"\r", b".", b"\x1b[", b"\0", b"CUDA error: x\n", b"\xff", b"x" * 119 + b"\n"]
)
def test_memory_is_bounded_whatever_comes(unit: bytes) -> None:
    reader = Reader(LLAMA)
    reader.feed(LOADING.encode())
    piece = unit * (131_072 // len(unit))
    reader.feed(piece)
    tracemalloc.start()
    for _ in range(4):
        reader.feed(piece)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3 * KEPT_BYTES


def test_a_megabyte_without_a_newline_is_one_line_and_hides_nothing_behind_it() -> None:
    reader = Reader(LLAMA)
    for _ in range(16):
        reader.feed(b"." * 65_536)
    assert reader.feed(b"\nCUDA error: out of memory\n").lines == 2
    assert reader.evidence.specific is not None
    assert reader.evidence.specific.line == 2


def test_what_a_server_of_two_devices_takes_is_told_for_each() -> None:
    reader = Reader(LLAMA)
    reader.feed(READY_B5.encode())
    assert reader.facts["model_mib.CUDA0"] == 4000.25
    assert reader.facts["model_mib.CUDA1"] == 3000.0
    assert reader.facts["kv_mib.CUDA0"] == 320.0  # two caches on one device
    assert (reader.facts["layers_on_gpu"], reader.facts["layers"]) == (33, 33)
    assert (reader.facts["context"], reader.facts["slots"]) == (4096, 2)
    assert reader.facts["bound_url"] == "http://127.0.0.1:8080"


def test_a_line_that_claims_readiness_is_told_once() -> None:
    reader = Reader(LLAMA)
    assert not reader.feed(BOOT_B5.encode()).ready
    assert reader.feed(READY_B5.encode()).ready
    assert not reader.feed(b"srv  next: line\n").ready


def after_a_jump(before: bytes, over: bytes, behind: bytes) -> Reader:
    reader = Reader(LLAMA)
    reader.feed(before)
    reader.skip(over)
    reader.feed(behind)
    reader.close()
    return reader


@pytest.mark.parametrize(
    ("before", "over", "behind", "lines"),
    [
        (b"a\n", b"b\nc\n", b"CUDA error: out of memory\n", 4),
        (b"a\nCUDA er", b"ror: out of memory\nc\n", b"CUDA error: out of memory\n", 4),
        (b"a\n", b"b\nc", b"CUDA error: x out of memory\nCUDA error: out of memory\n", 4),
        (b"a", b"b", b"CUDA error: out of memory\nCUDA error: out of memory\n", 2),
        (b"a\r", b"b\r", b"CUDA error: out of memory\rCUDA error: x\nCUDA error: out of memory\n", 2),
        (b"a\n", b"", b"CUDA error: out of memory\n", 2),
    ],
)
def test_a_jump_counts_lines_and_drops_what_it_cuts(before: bytes, over: bytes, behind: bytes, lines: int) -> None:
    reader = after_a_jump(before, over, behind)
    assert reader.lines == lines
    assert reader.evidence.specific is not None
    assert reader.evidence.specific.line == lines
    assert reader.tail(1) == ("CUDA error: out of memory",)


def test_a_jump_keeps_what_was_known_and_ends_with_its_line() -> None:
    reader = after_a_jump(
        (READY_B5 + "CUDA error: out of memory\nhalf a").encode(), b" line\n" * 1_000 + b"cut", b" off"
    )
    assert reader.outcome == "ready"
    assert reader.evidence.specific is not None
    assert reader.lines == READY_B5.count("\n") + 1 + 1_000 + 1
    assert reader.tail(1) == ("CUDA error: out of memory",)


@given(_LOG, _LOG, _LOG)
@settings(max_examples=100, deadline=None)
def test_a_jump_never_loses_count(before: bytes, over: bytes, behind: bytes) -> None:
    whole = Reader(LLAMA)
    whole.feed(before + over + behind)
    whole.close()
    assert after_a_jump(before, over, behind).lines == whole.lines
