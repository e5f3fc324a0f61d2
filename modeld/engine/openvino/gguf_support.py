"""Whether the engine's GGUF reader would read a file as its makers meant it; no native code.

It reads past the end of a truncated file (the process dies), and leaves out what it does not know
without a word: scaled rotary positions are computed unscaled, other word splitting rules replaced.
"""

from __future__ import annotations

import os
from pathlib import Path

from shared.catalog.formats.gguf import Header, read_header
from shared.catalog.formats.window import HeaderRejected
from shared.errors import ModelLoadFailed

_FREQUENCIES = b"rope_freqs.weight"
_MOSTLY_Q4_1 = 3


def check_gguf(path: Path, name: str) -> tuple[str, ...]:
    """What should be known of the file. Raises ModelLoadFailed at stage `header` with the reason."""
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
    return approximated(header)


def approximated(header: Header) -> tuple[str, ...]:
    """Q4_1 keeps the least value of each group as a float; here it becomes a whole number of steps.

    Measured on SmolLM2: weights off by 8 % of their spread, the best token's log-probability by 0.1, 1.0 and 4.9.
    """
    if header.metadata.get("general.file_type") != _MOSTLY_Q4_1:
        return ()
    return ("OpenVINO reads Q4_1 weights with a coarser zero point: answers are worse than llama.cpp's",)


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
    return "" if scaling in ("none", "") else _scaled()


def _scaled() -> str:
    return "OpenVINO's GGUF reader does not know scaled rotary positions (use an IR folder of this model)"
