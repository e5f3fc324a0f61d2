"""Copies a GGUF file with the tensor types that OpenVINO loses replaced by ones it reads exactly.

Streamed by rows: a few megabytes are in memory at a time, whatever the size of the model. The header stays as it is
byte for byte but for the type and the place of each tensor, so that nothing else of the model can change.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from shared.catalog.advertised.gguf_exactness import REQUANTISED
from shared.catalog.formats import ggml
from shared.catalog.formats.gguf import Header, read_header
from shared.errors import ModelLoadFailed

#: Elements that are unpacked at once: 4 bytes each, and a few copies of them.
AT_ONCE = 1 << 20
_NUMBER = {name: number for number, (name, _, _) in ggml.TENSOR_TYPES.items()}
#: Told bytes that are done, of how many; raises to end it.
Progress = Callable[[int, int], None]


class _Tensor(msgspec.Struct, frozen=True):
    """One tensor's place in the file. `info`: of its type in the header; `begin`: from the begin of the data."""

    kind: str
    shape: tuple[int, ...]
    info: int
    begin: int

    @property
    def rows(self) -> int:
        """Rows of its first extent's length."""
        count = 1
        for extent in self.shape[1:]:
            count *= extent
        return count

    @property
    def wanted(self) -> str:
        """The type it is written with. What is no matrix is small and stays whole."""
        if self.kind not in REQUANTISED:
            return self.kind
        return REQUANTISED[self.kind] if len(self.shape) > 1 else "F32"

    def row_bytes(self, kind: str) -> int:
        """Bytes of one row of this type."""
        _, block, size = ggml.TENSOR_TYPES[_NUMBER[kind]]
        return self.shape[0] // block * size if self.shape else size


def requantise(source: Path, target: Path, name: str, progress: Progress) -> None:
    """Write `target`, a new file. Raises ModelLoadFailed at stage `weights`, OSError, and what `progress` raises."""
    codec = _codec(name)
    with source.open("rb") as old, target.open("xb") as new:
        header = read_header(old, os.fstat(old.fileno()).st_size)
        table = header.tensors
        if table is None:
            raise ModelLoadFailed(model=name, stage="header", reason="the file tells nothing of its tensors")
        old.seek(0)
        head = bytearray(old.read(table.data_offset))
        tensors = list(_tensors(head, table.infos_offset, table.count))
        _place(head, tensors, _alignment(header))
        new.write(head)
        done = 0
        for tensor in tensors:
            new.seek(-(-new.tell() // _alignment(header)) * _alignment(header))
            old.seek(table.data_offset + tensor.begin)
            for read in _copy(old, new, tensor, codec, name):
                done += read
                progress(done, table.data_bytes)


def _alignment(header: Header) -> int:
    return int(header.metadata.get("general.alignment", 32))


def _tensors(head: bytearray, at: int, count: int) -> Iterator[_Tensor]:
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", head, at)
        (dimensions,) = struct.unpack_from("<I", head, at + 8 + length)
        at += 12 + length
        shape = struct.unpack_from(f"<{dimensions}Q", head, at)
        at += 8 * dimensions
        kind, begin = struct.unpack_from("<IQ", head, at)
        yield _Tensor(ggml.TENSOR_TYPES[kind][0], shape, at, begin)
        at += 12


def _place(head: bytearray, tensors: list[_Tensor], alignment: int) -> None:
    """Write into the header what each tensor becomes, and where."""
    at = 0
    for tensor in tensors:
        struct.pack_into("<IQ", head, tensor.info, _NUMBER[tensor.wanted], at)
        at += -(-tensor.rows * tensor.row_bytes(tensor.wanted) // alignment) * alignment


def _copy(old: IO[bytes], new: IO[bytes], tensor: _Tensor, codec: Any, name: str) -> Iterator[int]:
    """Some rows at a time; how many bytes of them were read."""
    size, left = tensor.row_bytes(tensor.kind), tensor.rows
    at_once = max(1, AT_ONCE // max(1, tensor.shape[0] if tensor.shape else 1))
    while left:
        rows = min(left, at_once)
        data = old.read(rows * size)
        if len(data) < rows * size:
            raise ModelLoadFailed(model=name, stage="weights", reason="the file became shorter while it was read")
        new.write(data if tensor.wanted == tensor.kind else codec(data, rows, tensor.kind, tensor.wanted))
        left -= rows
        yield len(data)


def _codec(name: str) -> Callable[[bytes, int, str, str], bytes]:
    """Rows of one type to rows of another, by ggml's own library for it (140 ms of import, only where needed)."""
    try:
        import numpy as np
        from gguf import GGMLQuantizationType, quants
    except ImportError as error:
        reason = f"its weights have to be requantised for OpenVINO, which takes the package gguf ({error})"
        raise ModelLoadFailed(model=name, stage="weights", reason=reason) from error

    def converted(data: bytes, rows: int, kind: str, wanted: str) -> bytes:
        packed = np.frombuffer(data, np.uint8).reshape(rows, -1)
        with np.errstate(all="ignore"):  # what is no number is found below
            values = quants.dequantize(packed, GGMLQuantizationType[kind])
            if not np.isfinite(values).all():
                raise ModelLoadFailed(model=name, stage="weights", reason="some of its weights are not numbers")
            if wanted == "F16" and np.abs(values).max(initial=0) > np.finfo(np.float16).max:
                raise ModelLoadFailed(model=name, stage="weights", reason="some weights are too large for 16 bits")
            return bytes(quants.quantize(values.astype(np.float32), GGMLQuantizationType[wanted]).tobytes())

    return converted
