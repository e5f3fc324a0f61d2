"""Whether the engine's GGUF reader would read a file as its makers meant it; no native code.

It reads past the end of a truncated file (the process dies), and leaves out what it does not know
without a word: scaled rotary positions are computed unscaled, other word splitting rules replaced.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from shared.catalog.advertised.gguf_exactness import REQUANTISED, inexact, requantised_bytes
from shared.catalog.advertised.servable import OPENVINO_GGUF_ARCHITECTURES
from shared.catalog.formats.gguf import MAX_DIMENSIONS, TOKENS, Header, read_header
from shared.catalog.formats.window import HeaderRejected
from shared.errors import ModelLoadFailed
from shared.text.words import size_text

_FREQUENCIES = b"rope_freqs.weight"
#: What the reader builds its graph by.
_KEYS: tuple[str, ...] = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
)


def check_gguf(path: Path, name: str) -> Header:
    """The header of a file that can be read. Raises ModelLoadFailed at stage `header` with the reason."""
    try:
        with path.open("rb", buffering=0) as file:
            header = read_header(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            infos = file.read(header.tensors.data_offset if header.tensors else 0)
    except (OSError, HeaderRejected) as error:
        raise ModelLoadFailed(model=name, stage="header", reason=str(error)) from error
    reason = unread(header) or (_scaled() if _FREQUENCIES in infos else "") or wrong_tensor(header, infos)
    if reason:
        raise ModelLoadFailed(model=name, stage="header", reason=reason)
    return header


def inexact_types(header: Header) -> list[str]:
    """Tensor types that are requantised before the reader sees the file."""
    return inexact(header.tensors.bytes_by_type) if header.tensors is not None else []


def notes(header: Header) -> tuple[str, ...]:
    """What should be known of the file: that its weights take another form here, and how much room."""
    types, table = inexact_types(header), header.tensors
    if not types or table is None:
        return ()
    before, after = (size_text(one) for one in (table.data_bytes, requantised_bytes(table.bytes_by_type)))
    kinds = " and ".join(sorted({REQUANTISED[one] for one in types}))
    told = f"OpenVINO cannot read {', '.join(types)} weights exactly: they are kept as {kinds}"
    return (f"{told} ({after} instead of {before})",)


def split_parts(header: Header) -> int:
    """Files that the model is split into; the reader takes the first for the whole."""
    count = header.metadata.get("split.count", 1)
    return count if isinstance(count, int) else 1


def unread(header: Header) -> str:
    """What the header asks for and the reader does not do, or ""."""
    architecture = header.metadata.get("general.architecture", "")
    scaling = header.metadata.get(f"{architecture}.rope.scaling.type", "none")
    if split_parts(header) > 1:
        return "OpenVINO's GGUF reader takes one file: join the parts of this model first"
    if architecture not in OPENVINO_GGUF_ARCHITECTURES:
        return f"OpenVINO's GGUF reader does not know the architecture {str(architecture)[:80]}"
    return "" if scaling in ("none", "") else _scaled()


def wrong_tensor(header: Header, infos: bytes) -> str:
    """Which tensor the reader will miss, or find with other extents than the header says, or "".

    `infos` are the bytes before the tensors' data. The families that the reader knows are alike but for biases and
    norms; it takes each tensor by its name.
    """
    family = header.metadata.get("general.architecture", "")
    for key in _KEYS:
        if not header.metadata.get(f"{family}.{key}"):
            return f"its header does not say {family}.{key}"
    for key in (TOKENS, "tokenizer.ggml.merges"):
        if not header.lengths.get(key):
            return f"its vocabulary is not whole: {key} is missing"
    count = header.metadata[f"{family}.block_count"]
    if _extents(infos, f"blk.{count}.attn_norm.weight") is not None:
        return f"it holds more than the {count} blocks that its header says"
    for name, wanted in _tensors(header):
        found = _extents(infos, name)
        if found is None:
            return f"the tensor {name} is missing"
        if wanted is not None and found != wanted:
            told, should = (" x ".join(map(str, one)) for one in (found, wanted))
            return f"the tensor {name} is {told}, and not {should} as its header says"
    return ""


def _extents(infos: bytes, name: str) -> tuple[int, ...] | None:
    """Of a tensor as its info says them, fastest first: length and name, number of dimensions, extents."""
    written = struct.pack("<Q", len(name)) + name.encode()
    at = infos.rfind(written) + len(written)
    if at < len(written) or at + 4 > len(infos):
        return None
    (count,) = struct.unpack_from("<I", infos, at)
    end = at + 4 + 8 * count
    return struct.unpack_from(f"<{count}Q", infos, at + 4) if count <= MAX_DIMENSIONS and end <= len(infos) else None


def _tensors(header: Header) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """Names, and extents where the header tells them."""
    family = header.metadata.get("general.architecture", "")

    def told(key: str) -> int:
        value = header.metadata.get(f"{family}.{key}", 0)
        return value if isinstance(value, int) else 0

    width, inner, heads = told("embedding_length"), told("feed_forward_length"), told("attention.head_count")
    head = told("attention.key_length") or (width // heads if heads else 0)
    queries, keys = heads * head, (told("attention.head_count_kv") or heads) * head
    yield "token_embd.weight", None
    yield "output_norm.weight", (width,)
    parts: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (width,),
        "attn_q.weight": (width, queries),
        "attn_k.weight": (width, keys),
        "attn_v.weight": (width, keys),
        "attn_output.weight": (queries, width),
        "ffn_norm.weight": (width,),
        "ffn_gate.weight": (width, inner),
        "ffn_up.weight": (width, inner),
        "ffn_down.weight": (inner, width),
    }
    if family == "qwen2":
        parts |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
    if family == "qwen3":
        parts |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
    for layer in range(told("block_count")):
        for part, extents in parts.items():
            yield f"blk.{layer}.{part}", extents if all(extents) else None


def _scaled() -> str:
    return "OpenVINO's GGUF reader does not know scaled rotary positions (use an IR folder of this model)"
