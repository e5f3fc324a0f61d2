"""llama.cpp's cache: one flat folder of all repositories, `owner_repository-GGUF_file.gguf` (pure)."""

from __future__ import annotations

import re

import msgspec

from shared.catalog import names

_FLAT = re.compile(r"(?P<owner>[^_]+)_(?P<repository>.+-gguf)_(?P<stem>.+)\.gguf", re.IGNORECASE)


class FlatName(msgspec.Struct, frozen=True):
    """What such a name is made of; `repository` is owner and name."""

    repository: str
    stem: str


def parted(file: str) -> FlatName | None:
    """The parts of a file's name in that cache; None for any other, and for one part of a split model."""
    found = _FLAT.fullmatch(file)
    if found is None or names.split_stem(found["stem"]) is not None:
        return None
    repository = f"{found['owner']}/{found['repository']}"
    return FlatName(repository, names.readable(found["stem"], repository))
