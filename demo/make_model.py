#!/usr/bin/env python3
"""Write a Llama model with random weights as one GGUF file, for the demo and for tests.

`demo`: about 0.7 GB, so that its load can be watched for some seconds. `tiny`: half a megabyte, loads at once.
Needs numpy and gguf. A file that is there whole is left alone; one that is being written has another name.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import gguf
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

RECIPE = "1"  # written into the file; raise it when the content changes, and old files are made anew
HEAD_SIZE = 64
Q4_K_BLOCK = 256  # weights in one block of Q4_K
Q4_K_BYTES = 144  # of one block: two f16 scales, 12 bytes of 6-bit scales, 128 bytes of 4-bit weights
SPARE_BYTES = 64 << 20  # free disk that must be left for others
UNK, BOS, EOS = 0, 1, 2
FIRST_BYTE = 3  # token of byte 0
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


class ModelError(Exception):
    """The model cannot be written; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a model. `quantized`: weights as Q4_K, whose repacking at load is real work for the CPU."""

    hidden: int
    layers: int
    inner: int
    context: int
    quantized: bool


SHAPES = {
    "tiny": Shape(hidden=64, layers=2, inner=128, context=512, quantized=False),
    # 0.69 GB on disk; with 4096 tokens of context 1.5 GB in memory, and some 4 s to load on two cores.
    "demo": Shape(hidden=1536, layers=32, inner=6144, context=4096, quantized=True),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the file. `zero_first`: its first output row is zero (see `_embedding`)."""

    name: str
    rows: int
    columns: int
    zero_first: bool = False


def _matrices(shape: Shape) -> Iterator[Tensor]:
    """The matrices of all layers, in the order of the file."""
    hidden, inner = shape.hidden, shape.inner
    for i in range(shape.layers):
        for part in ("attn_q", "attn_k", "attn_v"):
            yield Tensor(f"blk.{i}.{part}.weight", hidden, hidden)
        yield Tensor(f"blk.{i}.attn_output.weight", hidden, hidden, zero_first=True)
        yield Tensor(f"blk.{i}.ffn_gate.weight", inner, hidden)
        yield Tensor(f"blk.{i}.ffn_up.weight", inner, hidden)
        yield Tensor(f"blk.{i}.ffn_down.weight", hidden, inner, zero_first=True)


def _vocabulary() -> list[str]:
    """Three special tokens, one token a byte as GPT-2 spells bytes, and one merge, without which llama.cpp refuses."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelled = {byte: chr(byte) for byte in plain}
    for byte in range(256):  # bytes that do not print are spelled with letters from 256 on
        spelled.setdefault(byte, chr(256 + len(spelled) - len(plain)))
    return ["<unk>", "<s>", "</s>", *(spelled[byte] for byte in range(256)), "th"]


def _embedding(shape: Shape, rng: np.random.Generator) -> Array:
    """Channel 0 is the same for every token, and stays so: no layer adds to it (`zero_first`)."""
    table = rng.standard_normal((len(_vocabulary()), shape.hidden), dtype=np.float32) * np.float32(0.5)
    table[:, 0] = 8.0  # the layers add up to about 5 in the other channels: it must not drown in them
    return table


def _head(shape: Shape, rng: np.random.Generator) -> Array:
    """Because channel 0 is constant, its weights are a bias: only printable ASCII wins, and never the end of text.

    With plain random weights the text is no valid UTF-8, and the server answers 500.
    """
    table = rng.standard_normal((len(_vocabulary()), shape.hidden), dtype=np.float32) * np.float32(0.05)
    table[:, 0] = -20.0
    table[FIRST_BYTE + 0x20 : FIRST_BYTE + 0x7F, 0] = 0.0
    return table


def _f32(tensor: Tensor, rng: np.random.Generator) -> Array:
    """Random weights as they are."""
    weights = rng.standard_normal((tensor.rows, tensor.columns), dtype=np.float32) * np.float32(0.05)
    weights[0, :] *= not tensor.zero_first
    return weights


class _Q4K:
    """Random blocks of Q4_K, cut out of one pool: drawing 0.7 GB anew would take most of the time."""

    def __init__(self, biggest: int, rng: np.random.Generator) -> None:
        """`biggest`: weights of the biggest matrix."""
        self._rng = rng
        blocks = biggest // Q4_K_BLOCK + 4096
        self._pool = rng.integers(0, 256, (blocks, Q4_K_BYTES), dtype=np.uint8)
        # A weight is d * scale * q - dmin * minimum, with scale and minimum in 0..63 and q in 0..15: dmin = 7.5 d
        # centres it, and this d makes the spread about 0.02.
        scales = np.array([1.2e-4, 7.5 * 1.2e-4], dtype="<f2")
        self._pool[:, :4] = scales.view(np.uint8)

    def matrix(self, tensor: Tensor) -> Array:
        """rows x bytes of a row."""
        blocks = tensor.rows * tensor.columns // Q4_K_BLOCK
        start = int(self._rng.integers(0, len(self._pool) - blocks))
        cut = self._pool[start : start + blocks].reshape(tensor.rows, -1)
        if tensor.zero_first:
            cut = cut.copy()
            cut[0] = 0
        return cut


def _tensors(shape: Shape) -> Iterator[tuple[Tensor, Array]]:
    """Every tensor of the file with its values, the same at each call. Norms are 1-row matrices here."""
    rng = np.random.default_rng(0)
    words, hidden = len(_vocabulary()), shape.hidden
    ones = np.ones((1, hidden), np.float32)
    yield Tensor("token_embd.weight", words, hidden), _embedding(shape, rng)
    blocks = _Q4K(max(t.rows * t.columns for t in _matrices(shape)), rng) if shape.quantized else None
    for tensor in _matrices(shape):
        yield tensor, blocks.matrix(tensor) if blocks else _f32(tensor, rng)
    for i in range(shape.layers):
        yield Tensor(f"blk.{i}.attn_norm.weight", 1, hidden), ones
        yield Tensor(f"blk.{i}.ffn_norm.weight", 1, hidden), ones
    yield Tensor("output_norm.weight", 1, hidden), ones
    yield Tensor("output.weight", words, hidden), _head(shape, rng)


def _describe(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """The file's key-value part."""
    vocabulary = _vocabulary()
    writer.add_name("gpuagent-demo-random-weights")
    writer.add_version(RECIPE)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.hidden // HEAD_SIZE)
    writer.add_head_count_kv(shape.hidden // HEAD_SIZE)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([gguf.TokenType.CONTROL] * FIRST_BYTE + [gguf.TokenType.NORMAL] * (len(vocabulary) - 3))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNK)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT)


def _write(path: Path, shape: Shape) -> None:
    """The whole file, then on the disk for good."""
    writer = gguf.GGUFWriter(path, "llama")
    try:
        _describe(writer, shape)
        for tensor, values in _tensors(shape):
            dtype = gguf.GGMLQuantizationType.Q4_K if values.dtype == np.uint8 else gguf.GGMLQuantizationType.F32
            size = values.shape[1:] if tensor.rows == 1 else values.shape
            writer.add_tensor_info(tensor.name, size, values.dtype, values.nbytes, dtype)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for _, values in _tensors(shape):
            writer.write_tensor_data(values)
    finally:
        writer.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _need_bytes(shape: Shape) -> int:
    """Size of the file, to a few kilobytes."""
    per_weight = Q4_K_BYTES / Q4_K_BLOCK if shape.quantized else 4
    matrices = sum(t.rows * t.columns for t in _matrices(shape))
    return int(matrices * per_weight) + 2 * 4 * len(_vocabulary()) * shape.hidden


def is_whole(path: Path, shape: Shape) -> bool:
    """Whether `path` is a model of this recipe and shape, not cut off."""
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError):  # what the reader raises for no file, and for a broken one
        return False
    recipe, layers = reader.get_field("general.version"), reader.get_field("llama.block_count")
    if recipe is None or layers is None:
        return False
    return bool(recipe.contents() == RECIPE and layers.contents() == shape.layers)


def _clear_leftovers(path: Path) -> None:
    """Parts of makers that were killed."""
    for part in path.parent.glob(f"{path.name}.*.part"):
        if not Path("/proc", part.name.split(".")[-2]).exists():
            part.unlink(missing_ok=True)


def _check_room(folder: Path, need_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < need_bytes + SPARE_BYTES:
        raise _no_room(folder, need_bytes, f"only {free / 1e9:.2f} GB are free")


def _no_room(folder: Path, need_bytes: int, why: str) -> ModelError:
    return ModelError(
        f"the model needs {need_bytes / 1e9:.2f} GB in {folder}, and {why}. "
        "Free some space there, or name a file on another disk with --out"
    )


def make(path: Path, shape: Shape) -> None:
    """Write the model to `path`. ModelError: it cannot be written, and nothing is left of it."""
    need_bytes = _need_bytes(shape)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_leftovers(path)
        _check_room(path.parent, need_bytes)
        _write(part, shape)
        part.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_room(path.parent, need_bytes, "the disk is full") from error
        raise ModelError(f"cannot write the model to {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # there is no such folder: said above
            part.unlink()


def _end(signum: int, _frame: object) -> NoReturn:
    """So that SIGTERM, too, leaves no half file."""
    raise SystemExit(128 + signum)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: the model is there. 1: it is not, and why."""
    parser = argparse.ArgumentParser(description="Write a Llama model with random weights as one GGUF file.")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    parser.add_argument("--size", choices=sorted(SHAPES), default="demo", help="demo: 0.7 GB; tiny: 0.5 MB")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    shape = SHAPES[options.size]
    if is_whole(options.out, shape):
        return 0
    print(f"Writing {options.out}: random weights, {_need_bytes(shape) / 1e6:.1f} MB ...", flush=True)
    try:
        make(options.out, shape)
    except ModelError as error:
        print(f"make_model: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
