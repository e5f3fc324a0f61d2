"""The shape of a model's attention memory, layer by layer, from its header (pure).

Where tensor shapes are known they decide (they are exact for models whose layers differ, and say
which layers of a hybrid have attention at all); else the metadata does. Sliding windows follow the
pattern that llama.cpp compiles in for each architecture; an architecture not in the table is counted
without a window, which only overestimates.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from shared.catalog.entry import KvSpan
from shared.catalog.formats.gguf import Header

MAX_LAYERS = 1024

#: architecture -> (period, whether the first layer of each period is the full one instead of the last).
WINDOW_PATTERNS: dict[str, tuple[int, bool]] = {
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "cohere2": (4, False),
    "gpt-oss": (2, False),
    "llama4": (4, False),
    "exaone4": (4, False),
    "exaone-moe": (4, False),
    "olmo2": (4, False),
    "plamo3": (8, False),
    "afmoe": (4, False),
    "smallthinker": (4, True),
}


def kv_spans(header: Header, architecture: str) -> tuple[KvSpan, ...]:
    """Runs of equal layers in order. Empty when the header does not say enough."""
    meta, prefix = header.metadata, f"{architecture}."
    layers = _int(meta.get(prefix + "block_count"))
    heads = meta.get(prefix + "attention.head_count")
    if not 0 < layers <= MAX_LAYERS:
        return ()
    dim = _int(meta.get(prefix + "embedding_length")) // max(1, max(_each(heads, layers), default=1))
    k_dim = _int(meta.get(prefix + "attention.key_length")) or dim
    v_dim = _int(meta.get(prefix + "attention.value_length")) or dim
    kv_heads = _each(meta.get(prefix + "attention.head_count_kv", heads), layers)
    windowed = _windowed(meta, architecture, layers)
    window = _window(meta, architecture)
    shapes = header.tensors.shapes if header.tensors else {}
    per_layer = []
    for layer in range(layers):
        k, v = _from_shapes(shapes, layer, kv_heads[layer], k_dim, v_dim)
        per_layer.append((k, v, window if windowed(layer) else 0))
    return tuple(KvSpan(len(list(run)), *key) for key, run in groupby(per_layer))


def state_bytes(header: Header, architecture: str) -> int:
    """Bytes of recurrent state of one sequence (32-bit floats), 0 for models without."""
    meta, prefix = header.metadata, f"{architecture}.ssm."
    inner, state = _int(meta.get(prefix + "inner_size")), _int(meta.get(prefix + "state_size"))
    if not inner or not state:
        return 0
    kernel, groups = _int(meta.get(prefix + "conv_kernel")), _int(meta.get(prefix + "group_count"))
    layers = _int(meta.get(f"{architecture}.block_count"))
    if layers > MAX_LAYERS:
        return 0
    a_layer = max(0, kernel - 1) * (inner + 2 * groups * state) + inner * state
    return layers * a_layer * 4


def _from_shapes(
    shapes: dict[str, tuple[int, ...]], layer: int, kv_heads: int, k_dim: int, v_dim: int
) -> tuple[int, int]:
    """K and V elements a token of one layer."""
    stated = (kv_heads * k_dim, kv_heads * v_dim)
    if not shapes:
        return stated
    k, v = shapes.get(f"blk.{layer}.attn_k.weight"), shapes.get(f"blk.{layer}.attn_v.weight")
    if k is not None and len(k) > 1:
        return k[1], v[1] if v is not None and len(v) > 1 else kv_heads * v_dim or k[1]
    if f"blk.{layer}.attn_kv_a_mqa.weight" in shapes:
        return stated
    has_joint = f"blk.{layer}.attn_qkv.weight" in shapes
    attention_seen = any(".attn_k." in name or ".attn_qkv." in name for name in shapes)
    if has_joint or not attention_seen:
        return stated if f"blk.{layer}.ssm_in.weight" not in shapes else (0, 0)
    return 0, 0  # other layers have attention, this one does not


def _window(meta: dict[str, Any], architecture: str) -> int:
    window = _int(meta.get(f"{architecture}.attention.sliding_window"))
    if architecture == "llama4":
        return _int(meta.get("llama4.attention.chunk_size")) or 8192
    return window


def _windowed(meta: dict[str, Any], architecture: str, layers: int) -> Callable[[int], bool]:
    pattern = meta.get(f"{architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, list) and len(pattern) >= layers:
        return lambda layer: bool(pattern[layer])
    known = WINDOW_PATTERNS.get(architecture)
    if known is None:
        return lambda _: False
    period = pattern if isinstance(pattern, int) and 0 < pattern <= MAX_LAYERS else known[0]
    if known[1]:
        return lambda layer: layer % period != 0
    return lambda layer: layer % period < period - 1


def _each(value: Any, layers: int) -> list[int]:
    """A number for every layer, from one number or a list (a short list is filled with its largest)."""
    if isinstance(value, list):
        numbers = [_int(item) for item in value[:layers]]
        return numbers + [max(numbers, default=0)] * (layers - len(numbers))
    return [_int(value)] * layers


def _int(value: Any) -> int:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
    return value if usable else 0
