"""The hygiene of log lines: colours, control characters, and what other programs put before a line."""

from __future__ import annotations

import re

SHOWN_CHARS = 2_000  # of one line, in a tail or a cause
_COLOURS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\-_]?)")
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r"))
_MORE_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]")  # U+0080 to U+009F
_STRAY = re.compile("[\x80-\x9f]")  # one that was made by taking out another
_STAMP_TEXT = (
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"  # ISO: docker, kubernetes, Python
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"  # syslog, journald
    r"|\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d|\d\d-\d\d \d\d:\d\d:\d\d"
    r"|\d{1,9}\.\d\d\.\d{3}\.\d{3}"  # llama.cpp: minutes, seconds, ms, us since its start
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)
_STAMP = re.compile(rf"(?<![\w.:-])(?:{_STAMP_TEXT})(?![\w:])")
_STAMP_WITHIN = 120  # characters: further on, it is no stamp of the line
_PREFIX_TEXT = (
    r"[ \t]*(?:"
    r"[\w.-]{1,64} +\| ?"  # docker compose
    r"|\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?: (?:stdout|stderr) [FP])?(?: |$)"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [\w.-]{1,253} [!-9;-Z\\-~]{1,64}(?:\[\d{1,10}\])?: ?"
    r"|[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{2,5} (?=[\w.-]{1,253} \S{1,64}\[)"  # journalctl -o short-full
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d "  # ts
    r"|[\w.-]{1,253} [!-9;-Z\\-~]{1,64}\[\d{1,10}\]: ?"  # journald's, behind an ISO stamp
    r"|\d{1,9}\.\d\d\.\d{3}\.\d{3} [A-Z] "
    r"|\[[ -Z\\^-~]{0,40}\d\d:\d\d:\d\d[ -Z\\^-~]{0,40}\] ?"
    r"|\([A-Za-z]\w{0,40}(?: \w{1,20}=[\w.:]{1,40},?){1,4}\) ?"  # (EngineCore pid=12), (RayWorker pid=1, ip=10.0.0.2)
    r"|\[pod/[!-Z\\^-~]{1,300}\] "  # kubectl
    r"|\d{1,3}\|[\w.-]{1,64} +\| "  # pm2
    r"|\{\"log\":\""  # docker's own files
    r"|\[\d,\d{1,4}\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|\[(?:rank|default)\d{1,4}\]: ?"  # torch
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? "  # vLLM, with the next
    r"|\[?[\w./-]{1,80}\.py:\d{1,6}\](?: |$)"
    r"|- (?:[\w.-]{1,60} - )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - (?:[\w./-]{1,80}\.py:\d{1,6} - )?"  # logging's
    r"|(?:TRACE|DEBUG|INFO|WARN"
    r"|ERROR) (?:[\w-]{1,40}(?:\{[ -z|~]{0,200}\})?: )?text_generation_\w{1,20}[\w:]{0,60}: "  # TGI
    r"|[\w./-]{1,80}\.rs:\d{1,6}: "
    r"|\[(?:TRT-LLM|TensorRT-LLM|TM)\] ?(?:\[RANK \d{1,4}\] )?(?:\[[A-Z]{1,8}\] ?)?"  # TensorRT-LLM, TurboMind
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d{1,10} [\w./-]{1,120}:\d{1,6}\] "  # glog: Triton
    r")"
)
_PREFIX = re.compile(_PREFIX_TEXT, re.ASCII)
_DOCKER = '{"log":"'
_DOCKER_END = re.compile(r'(?:\\[nr])*","stream":"std(?:out|err)".{0,1000}\}\s*$')
_PREFIXES = 8  # they nest, but not deeper
_NO_ERROR = re.compile(
    r"(?:^|[ (])(?:TRACE|DEBUG|INFO|WARN|WARNING) |\[(?:[DIWV]|TRACE|DEBUG|INFO|WARNING)\]"
    r"|(?:^|[ :\[])[IW]\d{3,4} \d\d:\d\d:",
    re.ASCII,
)
_RANK = re.compile(
    r"(?:\bTP|Worker_TP|\brank[ =]?|\bRANK |Worker[-_]|_DP|\bDP|\bPP|\bEP|\bip=|\bpid=)[\d.]+(?:_\w+)?", re.ASCII
)


def cleaned(block: bytes) -> bytes:
    """`block` without escape sequences and control characters. Its line ends and tabs stay."""
    if b"\x1b" in block:
        block = _COLOURS.sub(b"", block)
    if b"\xc2" in block:
        block = _MORE_CONTROLS.sub(b"", block)
    return block.translate(None, _CONTROLS)


def decoded(raw: bytes) -> str:
    """One cleaned line as text; what is no UTF-8 is replaced."""
    text = raw.decode("utf-8", "replace")
    return text if text.isascii() else _STRAY.sub("\N{REPLACEMENT CHARACTER}", text)


def behind_prefixes(pattern: re.Pattern[str]) -> re.Pattern[bytes]:
    """Finds, in cleaned lines, the newline before each line that `pattern` may match at its start without prefixes."""
    return re.compile(rf"\n(?:{_PREFIX_TEXT}){{0,{_PREFIXES}}}{pattern.pattern.removeprefix('^')}".encode())


def parted(text: str) -> tuple[str, str]:
    """What docker, journald, clocks and process names put before a line, and the line."""
    at = 0
    for _ in range(_PREFIXES):
        match = _PREFIX.match(text, at)
        if match is None:
            break
        at = match.end()
    bare = text[at:]
    if _DOCKER in text[:at]:
        bare = _DOCKER_END.sub("", bare).replace('\\"', '"')
    return text[:at], bare


def below_error(prefix: str) -> bool:
    """Whether the writer of a line that begins with `prefix` says that it is no error."""
    return _NO_ERROR.search(prefix) is not None


def rank(prefix: str) -> str:
    """Which of several ranks wrote a line that begins with `prefix`; "" if it does not say."""
    return " ".join(_RANK.findall(prefix))


def stamp(text: str) -> str | None:
    """The time stamp of a line, as it stands there."""
    match = _STAMP.search(text[:_STAMP_WITHIN])
    return match.group() if match else None


def shown(text: str) -> str:
    """`text` as a person shall see it: no longer than bearable."""
    text = text.strip()
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
