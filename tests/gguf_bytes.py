"""GGUF files byte by byte, for tests that need headers no writer would write."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

from shared.catalog.formats.gguf import Header, read_header

STRING, ARRAY = 8, 9
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

#: (key, value type, value); an array's value is (element type, elements)
Pair = tuple[str, int, Any]
#: (name, shape, tensor type, offset)
Tensor = tuple[str, tuple[int, ...], int, int]


def text(value: str | bytes) -> bytes:
    """A length-prefixed string."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def scalar(kind: int, value: Any) -> bytes:
    """An encoded value that is no array."""
    return text(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def pair(item: Pair) -> bytes:
    """An encoded key and value."""
    key, kind, value = item
    if kind != ARRAY:
        return text(key) + struct.pack("<I", kind) + scalar(kind, value)
    element, elements = value
    body = b"".join(scalar(element, one) for one in elements)
    return text(key) + struct.pack("<IIQ", ARRAY, element, len(elements)) + body


def tensor(item: Tensor) -> bytes:
    """An encoded tensor info."""
    name, shape, kind, offset = item
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def build(
    pairs: Sequence[Pair], tensors: Sequence[Tensor] = (), *, data: int = 0, version: int = 3, alignment: int = 32
) -> bytes:
    """A whole file with `data` zero bytes of tensor data."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    body = head + b"".join(map(pair, pairs)) + b"".join(map(tensor, tensors))
    return body.ljust(-(-len(body) // alignment) * alignment, b"\0") + bytes(data)


def read(content: bytes, *, first: bool = False) -> Header:
    """The header of a file in memory."""
    return read_header(io.BytesIO(content), len(content), first=first)


def model(
    architecture: str = "llama",
    *,
    layers: int = 2,
    tokens: Sequence[str] = ("<s>", "</s>", "a", "b"),
    extra: Sequence[Pair] = (),
    tensors: bool = True,
    name: str = "model",
) -> bytes:
    """A small model with everything a real one states. 64 wide, 4 heads, 2 KV heads."""
    prefix = architecture
    pairs: list[Pair] = [
        ("general.architecture", STRING, architecture),
        ("general.name", STRING, name),
        ("general.file_type", 4, 1),
        (f"{prefix}.block_count", 4, layers),
        (f"{prefix}.context_length", 4, 2048),
        (f"{prefix}.embedding_length", 4, 64),
        (f"{prefix}.attention.head_count", 4, 4),
        (f"{prefix}.attention.head_count_kv", 4, 2),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.bos_token_id", 4, 0),
        ("tokenizer.ggml.eos_token_id", 4, 1),
        ("tokenizer.ggml.add_bos_token", 7, True),
        ("tokenizer.chat_template", STRING, "{{ messages }}"),
    ]
    stated = {key for key, _, _ in extra}
    pairs = [item for item in pairs if item[0] not in stated] + list(extra)
    infos: list[Tensor] = [("token_embd.weight", (64, len(tokens)), 1, 0)] if tensors else []
    offset = 64 * len(tokens) * 2 if tensors else 0
    for layer in range(layers if tensors else 0):
        for part in ("attn_k", "attn_v"):
            offset = -(-offset // 32) * 32
            infos.append((f"blk.{layer}.{part}.weight", (64, 32), 1, offset))
            offset += 64 * 32 * 2
    return build(pairs, infos, data=offset)
