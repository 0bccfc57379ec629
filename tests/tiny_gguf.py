"""A GGUF of a llama with random weights, as small as llama.cpp takes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

_ALIGNMENT = 32
_WIDTH, _HIDDEN, _HEADS = 32, 64, 2
TOKENS = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁red", "▁no")


def write_tiny_gguf(path: Path) -> Path:
    """Write it, and return where."""
    rng = np.random.default_rng(0)
    shapes = {
        "token_embd.weight": (len(TOKENS), _WIDTH),
        "output_norm.weight": (_WIDTH,),
        "output.weight": (len(TOKENS), _WIDTH),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "blk.0.ffn_norm.weight": (_WIDTH,),
        **{f"blk.0.attn_{part}.weight": (_WIDTH, _WIDTH) for part in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": (_HIDDEN, _WIDTH),
        "blk.0.ffn_up.weight": (_HIDDEN, _WIDTH),
        "blk.0.ffn_down.weight": (_WIDTH, _HIDDEN),
    }
    tensors = {name: rng.normal(0, 0.3, shape).astype("<f4") for name, shape in shapes.items()}
    path.write_bytes(_file(_metadata(), tensors))
    return path


def _metadata() -> Mapping[str, object]:
    control, byte, plain = 3, 6, 1
    types = [2, control, control, *[byte] * 256, *[plain] * 3]
    return {
        "general.architecture": "llama",
        "llama.context_length": 4096,
        "llama.embedding_length": _WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": _HIDDEN,
        "llama.attention.head_count": _HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(TOKENS),
        "tokenizer.ggml.scores": [float(-at) for at in range(len(TOKENS))],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def _file(metadata: Mapping[str, object], tensors: Mapping[str, np.ndarray]) -> bytes:
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    header += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, tensor in tensors.items():
        sides = tensor.shape[::-1]
        header += _text(name) + struct.pack(f"<I{len(sides)}Q", len(sides), *sides)
        header += struct.pack("<IQ", 0, len(data))  # 32 bits; where it begins
        data += _padded(tensor.tobytes())
    return _padded(header) + data


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % _ALIGNMENT)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: object) -> bytes:
    match value:
        case str():
            return struct.pack("<I", 8) + _text(value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case _:
            assert isinstance(value, Sequence)
            return struct.pack("<I", 9) + _items(value)


def _items(items: Sequence[object]) -> bytes:
    kind, form = {str: (8, ""), int: (5, "<i"), float: (6, "<f")}[type(items[0])]
    texts = (_text(str(item)) if kind == 8 else struct.pack(form, item) for item in items)
    return struct.pack("<IQ", kind, len(items)) + b"".join(texts)
