"""Writes a model of a real model's shape with random weights, in seconds and without its memory: for timing alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tiny_gguf import CHATML, add_vocabulary, written

_BLOCK, _BLOCK_BYTES = 32, 18  # of Q4_0: a 16-bit scale and 32 times 4 bits


def write_large_gguf(
    path: Path, *, layers: int = 16, width: int = 2048, inner: int = 8192, heads: int = 32, kv_heads: int = 8
) -> Path:
    """Q4_0 throughout; by default the blocks of a model of one billion weights (about 550 MB), and a tiny vocabulary.

    Tensors of one shape share their bytes, so that as much memory as the largest one is needed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    tokens = add_vocabulary(writer, (), (), "default")
    writer.add_chat_template(CHATML)
    kept: dict[tuple[int, int], Any] = {}

    def matrix(rows: int, columns: int) -> Any:
        if (rows, columns) not in kept:
            blocks = np.random.default_rng(1).integers(0, 256, (rows, columns // _BLOCK, _BLOCK_BYTES), dtype=np.uint8)
            scale = np.array([0.3 / np.sqrt(columns)], dtype=np.float16).view(np.uint8)
            blocks[:, :, :2] = scale
            kept[rows, columns] = blocks.reshape(rows, -1)
        return kept[rows, columns]

    def add(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(name, matrix(rows, columns), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    ones, narrow = np.ones(width, dtype=np.float32), width // heads * kv_heads
    add("token_embd.weight", len(tokens), width)
    add("output.weight", len(tokens), width)
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(layers):
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", ones)
        writer.add_tensor(f"blk.{layer}.ffn_norm.weight", ones)
        for part, rows, columns in (
            ("attn_q", width, width),
            ("attn_k", narrow, width),
            ("attn_v", narrow, width),
            ("attn_output", width, width),
            ("ffn_gate", inner, width),
            ("ffn_up", inner, width),
            ("ffn_down", width, inner),
        ):
            add(f"blk.{layer}.{part}.weight", rows, columns)
    return written(writer, path)
