"""Files in the formats of weights, written by hand after the formats; their tensors are zeros."""

from __future__ import annotations

import json
import struct
from pathlib import Path


def safetensors(path: Path, tensor_bytes: int = 4096) -> Path:
    """A whole file with one tensor: length of the header, header, data."""
    header = {
        "__metadata__": {"format": "pt"},
        path.stem: {"dtype": "U8", "shape": [tensor_bytes], "data_offsets": [0, tensor_bytes]},
    }
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(tensor_bytes))
    return path


def sharded(folder: Path, shards: int = 3) -> list[Path]:
    """A model in several files, with the index that names them."""
    names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    index = {"metadata": {}, "weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return [safetensors(folder / name) for name in names]


def gguf(path: Path, tensor_bytes: int = 4096) -> Path:
    """A whole file: words of every kind, two tensors of which the second begins in the middle of the data."""

    def text(of: str) -> bytes:
        return struct.pack("<Q", len(of)) + of.encode()

    words = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    words += text("general.alignment") + struct.pack("<II", 4, 64)
    words += text("a.float") + struct.pack("<If", 6, 1.5)
    words += text("a.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("<s>") + text("</s>")
    words += text("a.scores") + struct.pack("<IIQ2f", 9, 6, 2, 0.0, 1.0)
    infos = text("first") + struct.pack("<IQIQ", 1, tensor_bytes // 2, 0, 0)
    infos += text("second") + struct.pack("<IQIQ", 1, tensor_bytes // 2, 0, tensor_bytes // 2)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 5) + words + infos
    path.write_bytes(head + bytes(-len(head) % 64) + bytes(tensor_bytes))
    return path


def cut(path: Path, by: int) -> None:
    """As a download that was broken off leaves it."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - by)
