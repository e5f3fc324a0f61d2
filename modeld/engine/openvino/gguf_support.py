"""Whether the engine's GGUF reader would read a file as its makers meant it; no native code.

It reads past the end of a truncated file (the process dies), and leaves out what it does not know
without a word: scaled rotary positions are computed unscaled, other word splitting rules replaced.
"""

from __future__ import annotations

import os
from pathlib import Path

from shared.catalog.advertised.gguf_exactness import REQUANTISED, inexact, requantised_bytes
from shared.catalog.advertised.servable import OPENVINO_GGUF_ARCHITECTURES
from shared.catalog.formats.gguf import Header, read_header
from shared.catalog.formats.window import HeaderRejected
from shared.errors import ModelLoadFailed
from shared.text.words import size_text

_FREQUENCIES = b"rope_freqs.weight"


def check_gguf(path: Path, name: str) -> Header:
    """The header of a file that can be read. Raises ModelLoadFailed at stage `header` with the reason."""
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


def _scaled() -> str:
    return "OpenVINO's GGUF reader does not know scaled rotary positions (use an IR folder of this model)"
