"""Whether the engine's GGUF reader would read a file as its makers meant it; no native code.

It reads past the end of a truncated file (the process dies), and leaves out what it does not know
without a word: scaled rotary positions are computed unscaled, other word splitting rules replaced.
"""

from __future__ import annotations

import os
from pathlib import Path

from shared.catalog.gguf import Header, read_header
from shared.catalog.window import HeaderRejected
from shared.errors import ModelLoadFailed

_FREQUENCIES = b"rope_freqs.weight"


def check_gguf(path: Path, name: str) -> None:
    """Raises ModelLoadFailed at stage `header` with the reason."""
    try:
        with path.open("rb", buffering=0) as file:
            header = read_header(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            infos = file.read(header.tensors.data_offset if header.tensors else 0)
    except (OSError, HeaderRejected) as error:
        raise ModelLoadFailed(model=name, stage="header", reason=str(error)) from error
    reason = unread(header) or (_scaled() if _FREQUENCIES in infos else "")
    if reason:
        raise ModelLoadFailed(model=name, stage="header", reason=reason)


def unread(header: Header) -> str:
    """What the header asks for and the reader does not do, or ""."""
    architecture = header.metadata.get("general.architecture", "")
    scaling = header.metadata.get(f"{architecture}.rope.scaling.type", "none")
    return "" if scaling in ("none", "") else _scaled()


def _scaled() -> str:
    return "OpenVINO's GGUF reader does not know scaled rotary positions (use an IR folder of this model)"
