"""Files that no engine can load, each with one fault, made of the bytes of one that can."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from tiny_gguf import write_tiny_adapter, write_tiny_gguf

Fault = Callable[[bytes], bytes]


def _named(old: str, new: str) -> Fault:
    """A key or tensor goes by another name of the same length: what is asked for is not there."""
    assert len(old) == len(new)
    return lambda data: data.replace(old.encode(), new.encode(), 1)


def _number(key: str, value: int) -> Fault:
    """The header says another number."""

    def spoil(data: bytes) -> bytes:
        at = data.index(struct.pack("<Q", len(key)) + key.encode()) + 8 + len(key) + 4
        return data[:at] + struct.pack("<I", value) + data[at + 4 :]

    return spoil


def _extents(tensor: str, *extents: int) -> Fault:
    """A tensor has other extents, as many elements."""

    def spoil(data: bytes) -> bytes:
        at = data.rindex(struct.pack("<Q", len(tensor)) + tensor.encode()) + 8 + len(tensor) + 4
        return data[:at] + struct.pack(f"<{len(extents)}Q", *extents) + data[at + 8 * len(extents) :]

    return spoil


#: name of the fault -> what makes it
FAULTS: dict[str, Fault] = {
    "missing-tensor": _named("blk.1.ffn_up.weight", "blk.1.ffn_xx.weight"),
    "other-layer": _named("blk.1.attn_q.weight", "blk.7.attn_q.weight"),
    "no-output-norm": _named("output_norm.weight", "output_xorm.weight"),
    "no-embedding": _named("token_embd.weight", "token_xmbd.weight"),
    "turned-tensor": _extents("blk.0.ffn_down.weight", 64, 128),
    "no-context": _named("llama.context_length", "llama.context_lengtx"),
    "no-width": _named("llama.embedding_length", "llama.embedding_lengtx"),
    "no-epsilon": _named("llama.attention.layer_norm_rms_epsilon", "llama.attention.layer_norm_rms_epsilox"),
    "no-blocks": _named("llama.block_count", "llama.block_counx"),
    "no-tokens": _named("tokenizer.ggml.tokens", "tokenizer.ggml.tokenx"),
    "no-merges": _named("tokenizer.ggml.merges", "tokenizer.ggml.mergex"),
    "no-tokenizer": _named("tokenizer.ggml.model", "tokenizer.ggml.modex"),
    "no-heads": _number("llama.attention.head_count", 0),
    "odd-heads": _number("llama.attention.head_count", 3),
    "odd-keys": _number("llama.attention.head_count_kv", 3),
    "more-blocks": _number("llama.block_count", 99),
    "fewer-blocks": _number("llama.block_count", 1),
    "other-inner": _number("llama.feed_forward_length", 96),
    "other-family": lambda data: data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0gemma", 1),
    "cut": lambda data: data[:-200],
    "cut-header": lambda data: data[:5000],
    "version": lambda data: data[:4] + struct.pack("<I", 9) + data[8:],
}
#: and a template each
TEMPLATES = {
    "open-template": "{% for m in messages %}{{ m.content }",
    "endless-template": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "no-such-filter": "{% for m in messages %}{{ m.content | reverse_all_words }}{% endfor %}",
}


def write_unloadable(folder: Path) -> list[str]:
    """Write all of them; their names."""
    source = write_tiny_gguf(folder / "source.gguf", name="source", seed=99, half=True, pre="default")
    good = source.read_bytes()
    source.unlink()
    for name, spoil in FAULTS.items():
        bad = spoil(good)
        assert bad != good, name
        (folder / f"{name}.gguf").write_bytes(bad)
    for seed, (name, template) in enumerate(TEMPLATES.items()):
        write_tiny_gguf(folder / f"{name}.gguf", name=name, seed=seed, template=template, half=True, pre="default")
    return [*FAULTS, *TEMPLATES]


def write_adapters(folder: Path) -> list[Path]:
    """Adapters that do not fit the tiny model: of another width, another family, a model, a page, a folder."""
    page = folder / "page.gguf"
    page.write_text("<html>not found</html>")
    return [
        write_tiny_adapter(folder / "wide.gguf", width=32),
        write_tiny_adapter(folder / "family.gguf", architecture="qwen2"),
        write_tiny_gguf(folder / "model.gguf"),
        page,
        folder,
    ]
