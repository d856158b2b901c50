"""Whether a model's files are whole: every shard that an index names is there, each as long as its own header says.

Only sizes and headers are read, never the weights: those may be a terabyte. What is not understood is not judged: a
server that would load it must not be kept from it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from agent.core.seen import Need
from agent.privileged import gguf
from agent.privileged.files import open_file, unmet
from agent.privileged.known import Known

INDEX = "*.index.json"  # model.safetensors.index.json, pytorch_model.bin.index.json, consolidated...
INDEX_BYTES = 24 << 20  # that of a model with 90,000 tensors has 9 MB; the look has 256 MiB of memory
HEADER_BYTES = 24 << 20  # those of real shards have some hundred kB
PART = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})\.gguf")
MODELS = 64  # files looked at in one folder without an index


def incomplete(model: Path, known: Known, begin: Any) -> Need | None:
    """What a model that is there and readable lacks. `begin(path)` is called before each look at a file."""
    try:
        fault = next(_faults(model, known, begin), None)
    except OSError as error:
        fault = f"{error.filename or model}: {error.strerror}"
    if fault is None:
        return None
    remedy = "Download or copy that file again; the start goes on by itself once it is whole."
    return unmet("weights", "missing_weights", f"Model {model} is not complete: {fault}", remedy, subject=str(model))


def _faults(model: Path, known: Known, begin: Any) -> Iterator[str]:
    if not model.is_dir():
        yield from _of_file(model, known, begin)
        return
    indexes = sorted(model.glob(INDEX))
    for index in indexes:
        yield from _of_index(index, known, begin)
    if not indexes:
        for file in sorted([*model.glob("*.safetensors"), *model.glob("*.gguf")])[:MODELS]:
            yield from _of_file(file, known, begin)


def _of_index(index: Path, known: Known, begin: Any) -> Iterator[str]:
    begin(str(index))
    shards = known.of(str(index), "index", partial(_shards, index))
    if shards is None:
        yield f"{index.name} is no index of shards"
        return
    missing = []
    for name in shards:
        shard = index.parent / name
        begin(str(shard))
        if not shard.is_file():
            missing.append(name)
        else:
            yield from _of_file(shard, known, begin)
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield f"{missing[0]}{more} of the {len(shards)} shards that {index.name} names is not there"


def _shards(index: Path) -> list[str] | None:
    """The names of files that an index gives; [] of one that has no such map, None: it is broken."""
    with open_file(index) as opened:
        text = opened.read(INDEX_BYTES + 1)
    if len(text) > INDEX_BYTES:
        return []
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    except MemoryError:
        return []
    table = content.get("weight_map") if isinstance(content, dict) else None
    return sorted({name for name in table.values() if isinstance(name, str)}) if isinstance(table, dict) else []


def _of_file(file: Path, known: Known, begin: Any) -> Iterator[str]:
    begin(str(file))
    if file.suffix == ".safetensors":
        fault = known.of(str(file), "safetensors", partial(_safetensors, file))
    elif file.suffix == ".gguf":
        yield from _missing_parts(file)
        fault = known.of(str(file), "gguf", partial(gguf.fault, file))
    else:
        return
    if fault is not None:
        yield fault


def _safetensors(file: Path) -> str | None:
    """8 bytes with the length of the header, little-endian; the header, JSON; the data, to a tensor's last byte."""
    with open_file(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > size - 8:
            return f"{file.name} ends after {size} bytes, within its header"
        if length > HEADER_BYTES:
            return None
        try:
            header = json.loads(opened.read(length))
            ends = [each["data_offsets"][1] for key, each in header.items() if key != "__metadata__"]
            whole = 8 + length + max(map(int, ends), default=0)
        except MemoryError:
            return None
        except (ArithmeticError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            return f"{file.name} has a header that is none of a safetensors file"
    if size == whole:
        return None
    return f"{file.name} has {size} bytes, and its header says {whole}"


def _missing_parts(file: Path) -> Iterator[str]:
    """Of a model in several files the first is named, and the others are found beside it."""
    match = PART.fullmatch(file.name)
    if match is None:
        return
    count = int(match["count"])
    names = (f"{match['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, min(count, 999) + 1))
    yield from (f"{name} is not there" for name in names if not file.with_name(name).is_file())
