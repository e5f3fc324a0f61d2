"""Reads the header of a GGUF file, and nothing else of it.

Written for the library: a folder of 200 models has to be listed in a second, so large arrays
(vocabulary, merges, scores) are passed over and never built. Versions 2 and 3 little-endian;
everything else is refused with its reason. Counts, lengths and the bytes read are bounded, arrays of
arrays are refused (no engine reads them), and the extents of every tensor are checked against the
size of the file, so that a file cut anywhere is found. Padding and trailing bytes are no fault.

Format: gguf.md of ggml; the checks mirror what ggml's own reader refuses.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import msgspec

from shared.catalog.formats import ggml
from shared.catalog.formats.window import READ_LIMIT, HeaderRejected, Seekable, Window

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_KEYS = 65_536
MAX_TENSORS = 131_072
MAX_KEY_BYTES = 65_535
MAX_NAME_BYTES = 1_024
MAX_DIMENSIONS = 4
MAX_STRING = 1024 * 1024
MAX_KEPT = 8 * 1024 * 1024
#: Arrays up to this many elements are kept (per-layer numbers, tags); longer ones are passed over.
SMALL_ARRAY = 1024
#: How many tokens are compared at the start and the end of the vocabulary, where special ones stand.
HEAD_TOKENS = 512
TAIL_TOKENS = 3072
MARK_EVERY = 8192

TOKENS = "tokenizer.ggml.tokens"

_KEPT_SHAPE = re.compile(r"(?:blk\.\d+\.(?:attn_k|attn_v|attn_qkv|attn_kv_a_mqa|ssm_in)|token_embd)\.weight")
#: Vocabulary texts that mark fill-in-the-middle, as llama.cpp recognises them: prefix, suffix, middle.
FIM_TEXTS: tuple[tuple[str, str, str], ...] = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ("<|prefix|>", "<|suffix|>", "<|middle|>"),
)
_FIM_BYTES = frozenset(text.encode() for texts in FIM_TEXTS for text in texts)

#: By the number of dimensions: extents, type, offset.
_INFO = tuple(struct.Struct(f"<{count}QIQ") for count in range(MAX_DIMENSIONS + 1))
_LONGEST_INFO = 8 + MAX_NAME_BYTES + 4 + _INFO[-1].size
_U32 = struct.Struct("<I").unpack_from
_U64 = struct.Struct("<Q").unpack_from


class TensorTable(msgspec.Struct, frozen=True, kw_only=True):
    """What the tensor infos say. `bytes_by_type` and `data_bytes` in bytes; `parameters` in elements.

    `shapes` holds only the tensors that tell the geometry of the KV memory. `unknown_types` are type
    numbers this version does not know: their sizes are left out. `infos_offset`: where the infos begin.
    """

    count: int
    parameters: int
    infos_offset: int = 0
    data_offset: int
    data_bytes: int
    bytes_by_type: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    unknown_types: tuple[int, ...] = ()


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """A header. `complete` is false when reading stopped before the first large array.

    `metadata` has scalars, strings and small arrays; `lengths` the element count of every array;
    `token_texts` the texts of the special tokens by id; `edge_tokens` the ids of fill-in-the-middle texts
    found at either end of the vocabulary. `bytes_read` counts what was read from the file.
    """

    version: int
    metadata: dict[str, Any]
    lengths: dict[str, int]
    complete: bool
    bytes_read: int
    file_size: int
    tensors: TensorTable | None = None
    token_texts: dict[int, str] = {}
    edge_tokens: dict[str, int] = {}


def read_header(file: Seekable, size: int, *, first: bool = False, limit: int = READ_LIMIT) -> Header:
    """Read the header of an open file of `size` bytes.

    With `first`, stop before the first large array: a few kilobytes tell a row its name, architecture
    and context. Raises HeaderRejected.
    """
    return _Reader(Window(file, size, limit)).read(first)


class _Reader:
    def __init__(self, window: Window) -> None:
        self.window = window
        self.metadata: dict[str, Any] = {}
        self.lengths: dict[str, int] = {}
        self.kept = 0
        self.marks: list[int] = []
        self.edge_tokens: dict[str, int] = {}

    def read(self, first: bool) -> Header:
        version = self._preamble()
        tensor_count, key_count = self._count(MAX_TENSORS, "tensors"), self._count(MAX_KEYS, "keys")
        complete = self._pairs(key_count, first)
        table = None
        texts: dict[int, str] = {}
        if complete:
            table = self._tensors(tensor_count)
            texts = self._special_texts()
        return Header(
            version=version,
            metadata=self.metadata,
            lengths=self.lengths,
            complete=complete,
            bytes_read=self.window.bytes_read,
            file_size=self.window.size,
            tensors=table,
            token_texts=texts,
            edge_tokens=self.edge_tokens,
        )

    def _preamble(self) -> int:
        if self.window.size < 4:
            raise HeaderRejected("not_gguf", "the file is empty" if not self.window.size else "the file is too short")
        magic = self.window.take(4)
        if magic != MAGIC:
            raise HeaderRejected("not_gguf", _describe_other(magic + self._peek(60)))
        version: int = _U32(self.window.take(4))[0]
        if version in VERSIONS:
            return version
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise HeaderRejected("byte_order", "the file is big-endian; convert it to little-endian first")
        raise HeaderRejected("version", f"GGUF version {version} cannot be read (only 2 and 3 can)")

    def _peek(self, count: int) -> bytes:
        self.window.ahead(count)
        return self.window.data[self.window.at : self.window.at + count]

    def _count(self, most: int, what: str) -> int:
        value: int = _U64(self.window.take(8))[0]
        if value > most:
            raise HeaderRejected("limit", f"{value} {what} are more than the {most} allowed")
        return value

    def _string(self, most: int, what: str) -> bytes:
        length: int = _U64(self.window.take(8))[0]
        if length > most:
            raise HeaderRejected("limit", f"a {what} of {length} bytes is longer than the {most} allowed")
        return self.window.take(length)

    # --- key-value pairs -----------------------------------------------------------------------

    def _pairs(self, count: int, first: bool) -> bool:
        """Read the pairs; False when stopped before a large array."""
        for _ in range(count):
            key = self._string(MAX_KEY_BYTES, "key").decode("utf-8", "replace")
            if key in self.metadata or key in self.lengths:
                raise HeaderRejected("malformed", f"the key {key[:80]} appears twice")
            kind: int = _U32(self.window.take(4))[0]
            if kind == ggml.ARRAY:
                if not self._array(key, first):
                    return False
            else:
                self.metadata[key] = self._scalar(kind, key)
        return True

    def _scalar(self, kind: int, key: str) -> Any:
        if kind == ggml.STRING:
            return self._keep(self._string(MAX_STRING, f"value of {key[:80]}"))
        known = ggml.SCALARS.get(kind)
        if known is None:
            raise HeaderRejected("malformed", f"the value of {key[:80]} has the unknown type {kind}")
        return struct.unpack(known[0], self.window.take(known[1]))[0]

    def _keep(self, raw: bytes) -> str:
        self.kept += len(raw)
        if self.kept > MAX_KEPT:
            raise HeaderRejected("limit", f"more than {MAX_KEPT} bytes of text in the metadata")
        return raw.decode("utf-8", "replace")

    def _array(self, key: str, first: bool) -> bool:
        kind: int = _U32(self.window.take(4))[0]
        count: int = _U64(self.window.take(8))[0]
        scalar = ggml.SCALARS.get(kind)
        if kind == ggml.ARRAY:
            raise HeaderRejected("malformed", f"{key[:80]} is an array of arrays")
        if scalar is None and kind != ggml.STRING:
            raise HeaderRejected("malformed", f"the array {key[:80]} has the unknown type {kind}")
        least = count * (8 if scalar is None else scalar[1])
        if self.window.position + least > self.window.size:
            raise self.window.truncated(self.window.position + least)
        self.lengths[key] = count
        if count <= SMALL_ARRAY and key != TOKENS:
            self.metadata[key] = self._small_array(kind, count)
        elif first:
            return False
        elif scalar is not None:
            self.window.skip(count * scalar[1])
        elif key == TOKENS:
            self._vocabulary(count)
        else:
            self.window.skip_strings(count)
        return True

    def _small_array(self, kind: int, count: int) -> list[Any]:
        if kind == ggml.STRING:
            return [self._keep(self._string(MAX_STRING, "text in an array")) for _ in range(count)]
        form, size = ggml.SCALARS[kind]
        return list(struct.unpack(f"<{count}{form[1]}", self.window.take(count * size)))

    # --- the vocabulary ------------------------------------------------------------------------

    def _vocabulary(self, count: int) -> None:
        """Pass over the tokens, reading those at both ends, and mark every 8192nd position."""
        index, tail = 0, count - TAIL_TOKENS
        while index < count:
            if index % MARK_EVERY == 0:
                self.marks.append(self.window.position)
            until = min(count, index - index % MARK_EVERY + MARK_EVERY)
            if index < HEAD_TOKENS or index >= tail:
                until = min(until, HEAD_TOKENS) if index < HEAD_TOKENS else until
                for place, text in self.window.find_strings(until - index, _FIM_BYTES):
                    self.edge_tokens.setdefault(text.decode(), index + place)
            else:
                until = min(until, tail)
                self.window.skip_strings(until - index)
            index = until

    def _special_texts(self) -> dict[int, str]:
        """The texts of the tokens that `tokenizer.ggml.*_token_id` keys name."""
        count = self.lengths.get(TOKENS, 0)
        texts: dict[int, str] = {}
        for key, value in self.metadata.items():
            special = key.startswith("tokenizer.ggml.") and key.endswith("_token_id")
            if special and isinstance(value, int) and 0 <= value < count and value not in texts and self.marks:
                self.window.seek(self.marks[value // MARK_EVERY])
                self.window.skip_strings(value % MARK_EVERY)
                texts[value] = self._string(MAX_STRING, "token").decode("utf-8", "replace")
        return texts

    # --- tensors -------------------------------------------------------------------------------

    def _tensors(self, count: int) -> TensorTable:
        begin = self.window.position
        infos = [self._tensor() for _ in range(count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise HeaderRejected("malformed", f"the alignment {str(alignment)[:40]} is not a power of two")
        start = -(-self.window.position // alignment) * alignment
        return msgspec.structs.replace(self._table(infos, start, alignment), infos_offset=begin)

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        window = self.window
        window.ahead(_LONGEST_INFO)
        data, at = window.data, window.at
        try:
            length: int = _U64(data, at)[0]
            if length > MAX_NAME_BYTES:
                raise HeaderRejected("limit", f"a tensor name of {length} bytes is longer than {MAX_NAME_BYTES}")
            name = data[at + 8 : at + 8 + length].decode("utf-8", "replace")
            at += 8 + length
            dimensions: int = _U32(data, at)[0]
            if dimensions > MAX_DIMENSIONS:
                raise HeaderRejected("malformed", f"tensor {name[:80]} has {dimensions} dimensions")
            *shape, kind, offset = _INFO[dimensions].unpack_from(data, at + 4)
        except struct.error:
            raise window.truncated(window.size + 1) from None  # nothing more was ahead
        window.at = at + 4 + _INFO[dimensions].size
        return name, tuple(shape), kind, offset

    def _table(self, infos: list[tuple[str, tuple[int, ...], int, int]], start: int, alignment: int) -> TensorTable:
        names: set[str] = set()
        by_type: dict[str, int] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        unknown: set[int] = set()
        parameters = total = 0
        for name, shape, kind, offset in infos:
            if name in names:
                raise HeaderRejected("malformed", f"the tensor {name[:80]} appears twice")
            names.add(name)
            size = self._checked_size(name, shape, kind)
            if offset % alignment:
                raise HeaderRejected("malformed", f"tensor {name[:80]} is not aligned to {alignment} bytes")
            end = start + offset + (size or 0)
            if end > self.window.size:
                raise self.window.truncated(end)
            if size is None:
                unknown.add(kind)
            else:
                label = ggml.TENSOR_TYPES[kind][0]
                by_type[label] = by_type.get(label, 0) + size
                total += size
            elements = 1
            for extent in shape:
                elements *= extent
            parameters += elements
            if _KEPT_SHAPE.fullmatch(name):
                shapes[name] = shape
        return TensorTable(
            count=len(infos),
            parameters=parameters,
            data_offset=start,
            data_bytes=total,
            bytes_by_type=by_type,
            shapes=shapes,
            unknown_types=tuple(sorted(unknown)),
        )

    def _checked_size(self, name: str, shape: tuple[int, ...], kind: int) -> int | None:
        elements = 1
        for extent in shape:
            elements *= extent
        if elements >= 1 << 63:
            raise HeaderRejected("malformed", f"tensor {name[:80]} has more elements than any machine can hold")
        try:
            return ggml.tensor_bytes(kind, shape)
        except ValueError as error:
            raise HeaderRejected("malformed", f"tensor {name[:80]}: {error}") from error


def _describe_other(start: bytes) -> str:
    """What a file that is no GGUF seems to be."""
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "this is a web page, not a model (a download that needed a login is often saved like this)"
    if text.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the model itself; fetch it with `git lfs pull`"
    if start[:4] in (b"ggml", b"ggmf", b"ggjt", b"lmgg", b"fmgg", b"tjgg"):
        return "this is an old GGML file from before GGUF; convert or download it again"
    if not start.strip(b"\0"):
        return "the file starts with zero bytes (a download that was never finished?)"
    return "this is not a GGUF file"
