"""What a validation error means for a person: where it is in the file, what is wrong, what to do.

No value that was read is repeated: it may be a secret.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Where = tuple[str | int, ...]
"""A path in a TOML document: keys and, in lists, positions from 0."""

M = TypeVar("M", bound=BaseModel)

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
"""What a TOML key may hold without quotes."""

_SAYINGS = {
    "bool_type": "must be true or false, not {given}; write it without quotes",
    "dict_type": 'must be a table, not {given}; write {{ KEY = "VALUE" }}',
    "finite_number": "must be a finite number; give a number, or leave the key out",
    "float_type": "must be a number, not {given}; write it without quotes",
    "greater_than": "must be more than {gt:g}; give a larger number",
    "greater_than_equal": "must be {ge:g} or more; give a larger number",
    "int_type": "must be a whole number, not {given}; write it without quotes and without a fraction",
    "less_than_equal": "must be {le:g} or less; give a smaller number",
    "missing": "is missing; add it",
    "model_type": "must be a table, not {given}; write its keys below [{where}]",
    "path_type": "must be a path, not {given}; put it in quotes",
    "string_type": "must be text, not {given}; put it in quotes",
    "too_short": "must not be empty; give at least one",
    "tuple_type": "must be a list, not {given}; put what belongs in it between [ and ], parted by commas",
}
"""What pydantic calls it -> what it means."""

_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),  # before int: a bool is an int to Python
    (str, "text"),
    (int, "a whole number"),
    (float, "a number"),
    (list, "a list"),
    (dict, "a table"),
    (datetime.date, "a date"),
    (datetime.time, "a time"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong at `where`; `text` says what, and what to do."""

    where: Where
    text: str

    def __str__(self) -> str:
        return f"{dotted(self.where)}: {self.text}"


@dataclass(frozen=True, slots=True)
class Reading(Generic[M]):
    """What could be read of a table: `value` has defaults for the keys in `unsure`, which are faulty."""

    value: M | None
    unsure: frozenset[str]


def dotted(where: Where) -> str:
    """`where` as TOML writes it: servers.demo.gpus[0]."""
    path = ""
    for part in where:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            key = part if part and set(part) <= _PLAIN else repr(part)
            path += f".{key}" if path else key
    return path


def kind(value: object) -> str:
    """What a TOML value is, in a word or two."""
    return next((name for of, name in _KINDS if isinstance(value, of)), "that")


def unknown_key(key: str, known: Mapping[str, Any]) -> str:
    """That `key` is none of `known`, and which one may have been meant."""
    near = difflib.get_close_matches(key, known, n=1)
    advice = f"did you mean {near[0]}?" if near else f"remove it; the keys here are {', '.join(known)}"
    return f"is not a known key; {advice}"


def read(model: type[M], table: object, where: Where, found: list[Fault]) -> Reading[M]:
    """`table` as a `model`; what is wrong is added to `found`, and the rest read all the same."""
    try:
        return Reading(model.model_validate(table), frozenset())
    except ValidationError as error:
        faults = [e for e in error.errors(include_url=False) if e["type"] != "default_factory_not_called"]
    found.extend(Fault(where + _place(e), _text(e, model, where)) for e in faults)
    unsure = frozenset(str(e["loc"][0]) for e in faults if e["loc"])
    if not isinstance(table, dict):
        return Reading(None, unsure)
    try:
        return Reading(model.model_validate({k: v for k, v in table.items() if k not in unsure}), unsure)
    except ValidationError:  # a key that has no default is missing: said above
        return Reading(None, unsure)


def _place(error: ErrorDetails) -> Where:
    # pydantic marks the fault of a key, not of its value, with a last part of its own.
    return tuple(part for part in error["loc"] if part != "[key]")


def _text(error: ErrorDetails, model: type[BaseModel], where: Where) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "extra_forbidden":
            return unknown_key(str(error["loc"][-1]), _fields(model, error["loc"][:-1]))
        case "literal_error":
            expected = str(context["expected"]).replace("'", '"')
            return f"must be {expected}; write one of them"
        case name if name in _SAYINGS:
            place = dotted(where + _place(error))
            return _SAYINGS[name].format(given=kind(error["input"]), where=place, **context)
        case _:
            return f"{error['msg'].lower()}; see this key in config/gpuagent.toml"


def _fields(model: type[BaseModel], path: Where) -> Mapping[str, Any]:
    """The keys of the table at `path` below `model`."""
    for part in path:
        inner = model.model_fields[str(part)].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return model.model_fields
