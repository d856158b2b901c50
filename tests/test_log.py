"""The agent's own log: it escapes what would lie, and never makes anybody wait."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

from agent.log import QueuedLines, for_a_collector, for_a_person, printable


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, __file__, 1, text, None, None)


def test_what_a_server_wrote_cannot_forge_a_line_or_move_the_cursor() -> None:
    assert printable("a\nb\x1b[2J\u202ec\x9b é") == "a\\nb\\x1b[2J\\u202ec\\x9b é"
    event = {"timestamp": "t", "level": "info", "event": "x\ny", "tail": "\x1b]0;"}
    assert for_a_person(None, "", event) == "t info     x\\ny  tail=\\x1b]0;"
    assert for_a_collector(None, "", event) == "timestamp=t level=info event=x\\ny tail=\\x1b]0;"


def test_values_that_need_it_are_quoted_for_a_collector() -> None:
    event = {"event": 'say "hi"', "timestamp": "t", "level": "info", "pid": 3, "empty": "", "none": None, "eq": "a=b"}
    assert for_a_collector(None, "", event) == (
        'timestamp=t level=info event="say \\"hi\\"" pid=3 empty="" none=- eq="a=b"'
    )


def test_a_full_pipe_drops_lines_and_says_how_many() -> None:
    reader, writer = os.pipe()
    lines = QueuedLines(writer, limit=3)
    big = "x" * (1 << 20)  # more than any pipe holds: the first line blocks the writing thread
    for _ in range(50):
        lines.emit(record(big))
    text = b""
    said = None
    while said is None or text.count(big.encode() + b"\n") + int(said[1]) < 50:
        text += os.read(reader, 1 << 20)
        said = re.search(rb"^gpuagent: (\d+) log lines dropped: stderr did not take them in time$", text, re.MULTILINE)
    assert int(said[1]) in (46, 47)  # 3 wait, and 1 may be under way
    os.close(reader)


def test_a_reader_that_is_gone_stops_nobody() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    lines = QueuedLines(writer, limit=3)
    lines.emit(record("nobody reads this"))
    lines.flush()
    lines.emit(record("nor this"))
    lines.flush()


def test_a_process_whose_stderr_is_stuck_still_ends(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    program = "import structlog; from agent import log; log.setup()\n"
    program += "for _ in range(500): structlog.get_logger().info('x' * 1000)\nprint('done')"
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=writer, stdout=subprocess.PIPE, text=True, timeout=120, check=True
    )
    assert done.stdout == "done\n"
    os.close(reader)
    os.close(writer)


def test_set_up_it_speaks_for_the_standard_librarys_loggers_too() -> None:
    program = (
        "import logging, structlog; from agent import log; log.setup()\n"
        "structlog.get_logger(server='demo').warning('it died', pid=3)\n"
        "logging.getLogger('uvicorn').error('no %s', 'way')\n"
        "try: 1/0\n"
        "except ZeroDivisionError: structlog.get_logger().exception('oh')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    first, second, third = done.stderr.splitlines()
    assert first.endswith('level=warning event="it died" server=demo pid=3')
    assert second.endswith('level=error event="no way"')
    assert 'event=oh exception="Traceback' in third
    assert "ZeroDivisionError" in third
