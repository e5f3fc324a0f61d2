"""Writes real, tiny projectors (the vision part of a model) that llama.cpp loads in milliseconds, and images.

A vision transformer of seeded noise in front of LLaVA's two-layer projector: what a model reads through it
is noise, but the same noise for the same image and other noise for another one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np

from tiny_gguf import written

#: Side of the square that every image is brought to, and of one patch, in pixels: 16 tokens an image.
IMAGE, PATCH = 32, 8
TOKENS = (IMAGE // PATCH) ** 2


def write_tiny_projector(
    path: Path,
    *,
    width: int = 64,
    seed: int = 5,
    kind: str = "mlp",
    image: int = IMAGE,
    scale: float = 8.0,
    spoilt: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Path:
    """Write one projector for a model of embedding width `width` and answer its path.

    `kind`: llama.cpp's name of the projector. `scale`: how strong images are beside words. `spoilt`: tensors that get
    another shape, which native code stumbles over.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    inner, feed = 32, 96
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_name("tiny projector")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_uint32("clip.vision.image_size", image)
    writer.add_uint32("clip.vision.patch_size", PATCH)
    writer.add_uint32("clip.vision.embedding_length", inner)
    writer.add_uint32("clip.vision.feed_forward_length", feed)
    writer.add_uint32("clip.vision.block_count", 1)
    writer.add_uint32("clip.vision.projection_dim", width)
    writer.add_uint32("clip.vision.attention.head_count", 2)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    for name, data in _weights(np.random.default_rng(seed), width, inner, feed, image, kind, scale).items():
        writer.add_tensor(name, np.zeros(spoilt[name], np.float32) if name in spoilt else data)
    return written(writer, path)


def _weights(random: Any, width: int, inner: int, feed: int, image: int, kind: str, scale: float) -> dict[str, Any]:
    def noise(*shape: int) -> Any:
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def ones(count: int) -> Any:
        return np.ones(count, dtype=np.float32)

    def zeros(count: int) -> Any:
        return np.zeros(count, dtype=np.float32)

    block = "v.blk.0"
    tensors: dict[str, Any] = {
        "v.patch_embd.weight": noise(inner, 3, PATCH, PATCH),
        "v.position_embd.weight": noise((image // PATCH) ** 2, inner),
        f"{block}.ln1.weight": ones(inner),
        f"{block}.ln1.bias": zeros(inner),
        f"{block}.ln2.weight": ones(inner),
        f"{block}.ln2.bias": zeros(inner),
        f"{block}.ffn_up.weight": noise(feed, inner),
        f"{block}.ffn_down.weight": noise(inner, feed),
    }
    for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
        tensors[f"{block}.{part}.weight"] = noise(inner, inner)
    if kind == "gemma3":
        tensors["mm.input_projection.weight"] = noise(inner, width) * scale
        tensors["mm.soft_emb_norm.weight"] = ones(inner)
        tensors["v.post_ln.weight"] = ones(inner)
        tensors["v.post_ln.bias"] = zeros(inner)
        tensors["v.patch_embd.bias"] = zeros(inner)
    elif kind == "qwen2vl_merger":
        del tensors["v.position_embd.weight"]
        tensors["v.patch_embd.weight.1"] = noise(inner, 3, PATCH, PATCH)
        for part in ("attn_q", "attn_k", "attn_v"):
            tensors[f"{block}.{part}.bias"] = zeros(inner)
        tensors["mm.0.weight"] = noise(4 * inner, 4 * inner)
        tensors["mm.0.bias"] = zeros(4 * inner)
        tensors["mm.2.weight"] = noise(width, 4 * inner) * scale
        tensors["mm.2.bias"] = zeros(width)
    else:
        tensors["mm.0.weight"] = noise(width, inner)
        tensors["mm.0.bias"] = zeros(width)
        tensors["mm.2.weight"] = noise(width, width) * scale
        tensors["mm.2.bias"] = zeros(width)
    return tensors


def png(width: int, height: int, color: tuple[int, int, int] = (200, 30, 60), *, seed: int | None = None) -> bytes:
    """A PNG of one colour, or of seeded noise."""
    if seed is None:
        rows = [bytes(color) * width] * height
    else:
        random = np.random.default_rng(seed)
        rows = [random.integers(0, 256, width * 3, dtype=np.uint8).tobytes() for _ in range(height)]
    return png_of(width, height, b"".join(b"\0" + row for row in rows))


def png_of(width: int, height: int, raw: bytes) -> bytes:
    """A PNG that says it is so large and holds `raw` (filter byte and RGB of each row), fitting or not."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(raw)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
