"""Secrets out of what is shown: tokens, passwords, and the values of flags and keys with a secret's name."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"
_SHORTEST_VALUE = 4  # a shorter literal would tear holes into ordinary text, and is no secret
_TOKENS = re.compile(r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{6,}|(?<!-)sk-[A-Za-z0-9_-]{6,}|gh[pousr]_[A-Za-z0-9]{16,})")
_USERINFO = re.compile(r"(?<=://)[^\s/?#\"'<>]*@")
_BEARER = re.compile(
    r"\b(bearer[ \t]{1,4})(?!(?:tokens?|auth\w*|scheme|header|is|or|and)\b)[\w.~+/=-]{4,}", re.IGNORECASE
)
# Only the last word of a name is looked for, then the name is read backwards: one regular expression for the whole
# name would be of quadratic time on long runs of letters.
_SECRET_NAME = re.compile(
    r"(?:token|key|secret|password|passwd|passphrase|auth|authorization|credentials?)(?![A-Za-z0-9])", re.IGNORECASE
)
_NAME_BEFORE = re.compile(r"[A-Za-z0-9_.-]*\Z")
_NAME_CHARS = 64
_ASSIGNED = re.compile(r"(?:\\{0,2}[\"'])?[ \t]{0,4}(?P<sign>[:=])[ \t]{0,4}")
_NEXT_WORD = re.compile(r"\\{0,2}[\"']?,?[ \t]{1,4}(?!-)")
_VALUE = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?|\\{1,2}\"[^\"\\]*|(?:(?:bearer|basic|token) )?[^\s\"',;&)}\]]+",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d{1,7}(?![\w-])|-?\d+\.\d+(?!\w)")


def redact(text: str, values: Sequence[str] = ()) -> str:
    """`text` with "***" in the place of each secret; `values` are hidden wherever they stand (from 4 characters on)."""
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _SHORTEST_VALUE:
            text = text.replace(value, HIDDEN)
    text = _TOKENS.sub(HIDDEN, text)
    if "://" in text:
        text = _USERINFO.sub(f"{HIDDEN}@", text)
    return _BEARER.sub(rf"\1{HIDDEN}", _named(text))


def _named(text: str) -> str:
    """Hides the values of flags and keys with a secret name."""
    parts: list[str] = []
    done = 0
    for match in _SECRET_NAME.finditer(text):
        if match.start() < done:
            continue
        value = _value_of(text, match)
        if value is not None:
            parts += [text[done : value.start()], _hidden(value.group())]
            done = value.end()
    return "".join([*parts, text[done:]])


def _hidden(value: str) -> str:
    quote = value[0] if value[0] in "\"'" else ""
    return f"{quote}{HIDDEN}{quote}"


def _value_of(text: str, match: re.Match[str]) -> re.Match[str] | None:
    """The value of the name that ends with `match`, if that is a secret's name and has one."""
    before = _NAME_BEFORE.search(text, max(0, match.start() - _NAME_CHARS), match.start())
    lead = before.group() if before else ""
    word = match.group().lower()
    if not _is_word(lead, match.group()):
        return None
    sign = _ASSIGNED.match(text, match.end())
    if sign is not None:
        value = _VALUE.match(text, sign.end())
        return None if value is None or _ordinary(text, word, lead, sign, value) else value
    if not lead.startswith("-"):
        return None
    gap = _NEXT_WORD.match(text, match.end())
    return _VALUE.match(text, gap.end()) if gap else None


def _is_word(lead: str, word: str) -> bool:
    """Whether `word` is a word of its own in its name (api_key, apiKey, APIKEY), not the end of one (monkey)."""
    if not lead or not lead[-1].isalnum():
        return True
    return word.lower().startswith("pass") or lead.lower().endswith("api") or (word[0].isupper() and lead[-1].islower())


def _ordinary(text: str, word: str, lead: str, sign: re.Match[str], value: re.Match[str]) -> bool:
    """Whether this is a log's talk of tokens and keys ("EOG token = 50", "key: a.b"), no secret."""
    if lead or word not in {"token", "key", "auth"}:
        return False
    spaced = sign.group() not in {"=", '":', '": "', "':"} and not sign.group().startswith(('"', "'", "\\"))
    return spaced or _NUMBER.match(text, value.start()) is not None
