"""The small chat model as one that can fill in: its weights are untouched, three spare tokens are named as marks.

No small model with marks of its own is in the package index, and no test is about what this one writes there.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from weights import CACHE

#: spare tokens at the head of SmolLM2's vocabulary that stand for the marks
MARKS = {
    "tokenizer.ggml.fim_pre_token_id": 5,  # <file_sep>
    "tokenizer.ggml.fim_suf_token_id": 3,  # <repo_name>
    "tokenizer.ggml.fim_mid_token_id": 7,  # <gh_stars>
}
#: GGUF: magic, version, tensors, keys; types of values; where tensors may begin
_HEAD = struct.Struct("<4sIQQ")
_UINT32, _STRING = 4, 8
_ALIGNMENT = 32


def with_marks(source: Path, target: Path) -> Path:
    """A copy of `source` with the marks in its header. What follows moves by whole alignments and stays as it is."""
    added = b"".join(_key(name) + struct.pack("<II", _UINT32, value) for name, value in MARKS.items())
    filler = _key("test.filler") + struct.pack("<I", _STRING)
    length = -(len(added) + len(filler) + 8) % _ALIGNMENT
    added += filler + struct.pack("<Q", length) + b" " * length
    with source.open("rb") as old, target.open("wb") as new:
        magic, version, tensors, keys = _HEAD.unpack(old.read(_HEAD.size))
        new.write(_HEAD.pack(magic, version, tensors, keys + len(MARKS) + 1) + added)
        shutil.copyfileobj(old, new, 1 << 20)
    return target


def _key(name: str) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode()


@pytest.fixture(scope="session")
def marked(smollm2: Path) -> Path:
    """The model with marks, kept between runs."""
    target = CACHE / "weights-marked" / "SmolLM2-135M-marked.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with_marks(smollm2, target.with_suffix(".part")).replace(target)
    return target
