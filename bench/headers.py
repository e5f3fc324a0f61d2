"""Model files with headers of real size and no weights: for the library's budgets.

Each has a vocabulary and merges of 150,000 entries (about 5 MB of header) and a sparse tail as long as its
tensors say, so that a folder of 200 takes a gigabyte of disk and looks like 800 GB of models.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

STRING, ARRAY, UINT32, INT32, FLOAT32, BOOL = 8, 9, 4, 5, 6, 7
Q4_K, F32 = 12, 0
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)
_LENGTHS = (1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 10, 11, 12, 14, 17, 22, 70)
_MATRICES = (
    ("attn_q", 4096),
    ("attn_k", 1024),
    ("attn_v", 1024),
    ("attn_output", 4096),
    ("ffn_gate", 14336),
    ("ffn_up", 14336),
)


def text(value: str) -> bytes:
    """A length-prefixed string."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key: str, kind: int, value: bytes) -> bytes:
    """A key with an encoded value."""
    return text(key) + struct.pack("<I", kind) + value


def strings(key: str, count: int, seed: int) -> bytes:
    """An array of `count` strings with the lengths of a real vocabulary."""
    chooser = random.Random(seed)
    lengths = chooser.choices(_LENGTHS, k=count)
    letters = bytes(chooser.choices(b"abcdefghijklmnopqrstuvwxyz_ ", k=256))
    body = b"".join(struct.pack("<Q", length) + letters[at : at + length] for at, length in _offsets(lengths))
    return pair(key, ARRAY, struct.pack("<IQ", STRING, count) + body)


def _offsets(lengths: list[int]) -> list[tuple[int, int]]:
    return [(index * 7 % 180, length) for index, length in enumerate(lengths)]


class HeaderMaker:
    """Writes model files that differ in name and seed and share their vocabulary."""

    def __init__(self, tokens: int = 150_000, layers: int = 32) -> None:
        self.layers = layers
        self._tokens = strings("tokenizer.ggml.tokens", tokens, 1)
        self._merges = strings("tokenizer.ggml.merges", tokens, 2)
        types = struct.pack("<IQ", INT32, tokens) + struct.pack("<i", 1) * tokens
        self._types = pair("tokenizer.ggml.token_type", ARRAY, types)

    def write(self, path: Path, name: str, *, data_bytes: int | None = None) -> int:
        """Write one file; the length of its header in bytes. `data_bytes` cuts or extends the tail."""
        head = [
            pair("general.architecture", STRING, text("llama")),
            pair("general.type", STRING, text("model")),
            pair("general.name", STRING, text(name)),
            pair("general.file_type", UINT32, struct.pack("<I", 15)),
            *(pair(f"llama.{key}", UINT32, struct.pack("<I", value)) for key, value in self._numbers()),
            pair("llama.rope.freq_base", FLOAT32, struct.pack("<f", 500000.0)),
            pair("tokenizer.ggml.model", STRING, text("gpt2")),
            pair("tokenizer.ggml.pre", STRING, text("llama-bpe")),
            self._tokens,
            self._types,
            self._merges,
            pair("tokenizer.ggml.bos_token_id", UINT32, struct.pack("<I", 1)),
            pair("tokenizer.ggml.eos_token_id", UINT32, struct.pack("<I", 2)),
            pair("tokenizer.ggml.add_bos_token", BOOL, b"\1"),
            pair("tokenizer.chat_template", STRING, text(TEMPLATE)),
        ]
        infos, size = self._tensors()
        header = b"".join([b"GGUF", struct.pack("<IQQ", 3, infos.count(b".weight"), len(head)), *head, infos])
        start = -(-len(header) // 32) * 32
        with open(path, "wb") as file:
            file.write(header)
            file.truncate(start + (size if data_bytes is None else data_bytes))
        return len(header)

    def _numbers(self) -> list[tuple[str, int]]:
        return [
            ("block_count", self.layers),
            ("context_length", 131072),
            ("embedding_length", 4096),
            ("feed_forward_length", 14336),
            ("attention.head_count", 32),
            ("attention.head_count_kv", 8),
        ]

    def _tensors(self) -> tuple[bytes, int]:
        shapes: list[tuple[str, tuple[int, ...], int]] = [("token_embd.weight", (4096, 150_000), Q4_K)]
        for layer in range(self.layers):
            shapes += [(f"blk.{layer}.{part}.weight", (4096, width), Q4_K) for part, width in _MATRICES]
            shapes.append((f"blk.{layer}.ffn_down.weight", (14336, 4096), Q4_K))
            shapes += [(f"blk.{layer}.{part}_norm.weight", (4096,), F32) for part in ("attn", "ffn")]
        infos, offset = [], 0
        for name, shape, kind in shapes:
            infos.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
            elements = shape[0] * (shape[1] if len(shape) > 1 else 1)
            size = elements * 4 if kind == F32 else elements // 256 * 144
            offset += -(-size // 32) * 32
        return b"".join(infos), offset


def make_library(folder: Path, count: int = 200) -> int:
    """`count` different models in `folder`; bytes of one header."""
    folder.mkdir(parents=True, exist_ok=True)
    maker = HeaderMaker()
    size = 0
    for index in range(count):
        size = maker.write(folder / f"Model-{index:03d}-8B-Instruct.Q4_K_M.gguf", f"Model {index}")
    return size
