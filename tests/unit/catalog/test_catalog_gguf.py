"""The header reader: what it tells, what it refuses, and how little it reads."""

from __future__ import annotations

import io
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_bytes import ARRAY, STRING, build, model, pair, read, text
from shared.catalog.formats.gguf import HEAD_TOKENS, MARK_EVERY, read_header
from shared.catalog.formats.window import READ_LIMIT, HeaderRejected

pytestmark = pytest.mark.unit


def rejected(content: bytes) -> HeaderRejected:
    with pytest.raises(HeaderRejected) as caught:
        read(content)
    return caught.value


def test_reads_keys_arrays_and_tensors() -> None:
    header = read(model())
    assert header.complete
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["tokenizer.ggml.add_bos_token"] is True
    assert header.lengths == {"tokenizer.ggml.tokens": 4}
    assert "tokenizer.ggml.tokens" not in header.metadata
    assert header.token_texts == {0: "<s>", 1: "</s>"}
    table = header.tensors
    assert table is not None
    assert (table.count, table.parameters) == (5, 64 * 4 + 4 * 64 * 32)
    assert table.bytes_by_type == {"F16": table.parameters * 2}
    assert table.shapes["blk.0.attn_k.weight"] == (64, 32)


@pytest.mark.parametrize("version", [2, 3])
def test_versions_two_and_three_are_read(version: int) -> None:
    assert read(build([("general.architecture", STRING, "llama")], version=version)).version == version


@pytest.mark.parametrize("version", [0, 1, 4, 77])
def test_other_versions_are_refused(version: int) -> None:
    error = rejected(build([], version=version))
    assert (error.fault, f"version {version}" in error.reason) == ("version", True)


def test_big_endian_is_named() -> None:
    error = rejected(b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64))
    assert error.fault == "byte_order"
    assert "big-endian" in error.reason


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\n  <html lang=en>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"ggjt" + bytes(40), "before GGUF"),
        (bytes(64), "zero bytes"),
        (b"PK\3\4" + bytes(40), "not a GGUF"),
    ],
)
def test_other_files_are_described(start: bytes, words: str) -> None:
    error = rejected(start)
    assert error.fault == "not_gguf"
    assert words in error.reason


def test_an_empty_file_is_no_model() -> None:
    assert rejected(b"").fault == "not_gguf"


def test_a_file_cut_anywhere_is_found() -> None:
    whole = model(extra=[("general.tags", ARRAY, (STRING, ["a", "bc"])), ("llama.rope.scaling", 6, 1.0)])
    table = read(whole).tensors
    assert table is not None
    lengths = [*range(table.data_offset + 1), *range(table.data_offset, len(whole), 61), len(whole) - 1]
    for length in lengths:
        with pytest.raises(HeaderRejected) as caught:
            read(whole[:length])
        assert caught.value.fault == ("not_gguf" if length < 4 else "truncated"), length


def test_padding_and_trailing_bytes_are_no_fault() -> None:
    whole = model()
    assert read(whole + bytes(4096)) == read(whole + bytes(4096))
    assert read(whole + b"trailing").tensors == read(whole).tensors


def test_alignment_of_the_file_is_used() -> None:
    pairs = [("general.architecture", STRING, "llama"), ("general.alignment", 4, 4096)]
    whole = build(pairs, [("a.weight", (32,), 0, 4096)], data=4096 + 128, alignment=4096)
    table = read(whole).tensors
    assert table is not None
    assert table.data_offset == 4096
    assert rejected(whole[:-1]).fault == "truncated"


@pytest.mark.parametrize("alignment", [0, 3, 1 << 30])
def test_odd_alignments_are_refused(alignment: int) -> None:
    assert rejected(build([("general.alignment", 4, alignment)])).fault == "malformed"


def test_a_tensor_off_its_alignment_is_refused() -> None:
    assert rejected(build([], [("a.weight", (32,), 0, 7)], data=400)).fault == "malformed"


def test_rows_that_do_not_fill_a_block_are_refused() -> None:
    assert "multiple of 32" in rejected(build([], [("a.weight", (33,), 2, 0)], data=400)).reason


def test_more_elements_than_any_machine_holds_are_refused() -> None:
    assert rejected(build([], [("a.weight", (1 << 40, 1 << 40), 0, 0)], data=64)).fault == "malformed"


def test_five_dimensions_are_refused() -> None:
    assert "5 dimensions" in rejected(build([], [("a.weight", (1, 1, 1, 1, 1), 0, 0)], data=64)).reason


def test_unknown_tensor_types_are_reported_not_refused() -> None:
    table = read(build([], [("a.weight", (32,), 250, 0)], data=64)).tensors
    assert table is not None
    assert table.unknown_types == (250,)


def test_doubled_keys_and_tensors_are_refused() -> None:
    twice = [("a", 4, 1), ("a", 4, 2)]
    assert "twice" in rejected(build(twice)).reason
    assert "twice" in rejected(build([], [("a.weight", (32,), 0, 0)] * 2, data=128)).reason


def test_arrays_of_arrays_are_refused() -> None:
    nested = text("deep") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", ARRAY, 1) * 1000
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + nested
    assert "array of arrays" in rejected(content).reason


@pytest.mark.parametrize("kind", [13, 99, 0xFFFFFFFF])
def test_unknown_value_types_are_refused(kind: int) -> None:
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", kind) + bytes(64)
    assert rejected(content).fault == "malformed"
    inside = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", ARRAY, kind, 1) + bytes(64)
    assert rejected(inside).fault == "malformed"


@pytest.mark.parametrize("huge", [1 << 32, 1 << 62, (1 << 64) - 1])
def test_hostile_counts_and_lengths_cost_nothing(huge: int) -> None:
    contents = [
        b"GGUF" + struct.pack("<IQQ", 3, huge, 0) + bytes(256),
        b"GGUF" + struct.pack("<IQQ", 3, 0, huge) + bytes(256),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", huge) + bytes(256),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IQ", STRING, huge) + bytes(256),
        *(
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", ARRAY, kind, huge) + bytes(256)
            for kind in (0, 4, STRING, 12)
        ),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", huge) + bytes(256),
    ]
    tracemalloc.start()
    try:
        for content in contents:
            assert rejected(content).fault in ("limit", "truncated")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_string_inside_an_array_cannot_jump_out() -> None:
    strings = b"".join([text("a")] * 2000) + struct.pack("<Q", 1 << 63) + b"".join([text("a")] * 2000)
    body = text("k") + struct.pack("<IIQ", ARRAY, STRING, 4001) + strings
    assert rejected(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + body).fault == "truncated"


class Sparse:
    """A file of `size` bytes that repeats one block after its head, without holding them."""

    def __init__(self, head: bytes, block: bytes, size: int) -> None:
        self.head, self.block, self.size, self.at, self.given = head, block, size, 0, 0

    def seek(self, offset: int, /) -> int:
        self.at = offset
        return offset

    def read(self, count: int, /) -> bytes:
        if self.at < len(self.head):
            part = self.head[self.at : self.at + count]
        else:
            start = (self.at - len(self.head)) % len(self.block)
            part = (self.block * (count // len(self.block) + 2))[start : start + count]
        self.at += len(part)
        self.given += len(part)
        return part


def test_never_more_than_the_limit_is_read() -> None:
    count = 40_000_000
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", ARRAY, STRING, count)
    file = Sparse(head, text("abcdefgh"), 10**12)
    with pytest.raises(HeaderRejected) as caught:
        read_header(file, file.size)
    assert caught.value.fault == "limit"
    assert file.given <= READ_LIMIT


def test_long_strings_are_passed_over_without_being_read() -> None:
    long = text(b"x" * 3_000_000)
    body = (
        pair(("k", ARRAY, (4, [1]))) + text("big") + struct.pack("<IIQ", ARRAY, STRING, 2000) + long + text("") * 1999
    )
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + body
    header = read(content)
    assert header.lengths["big"] == 2000
    assert header.bytes_read < 600_000


@given(st.lists(st.binary(max_size=300), min_size=0, max_size=700), st.integers(0, 3))
def test_passing_over_strings_equals_reading_them(strings: list[bytes], repeat: int) -> None:
    everything = strings * (1 + repeat) + [b"q" * 70] * repeat
    # more than a small array, so that it is passed over
    filler = [b""] * 1025
    body = text("k") + struct.pack("<IIQ", ARRAY, STRING, len(everything) + len(filler))
    body += b"".join(map(text, everything + filler)) + pair(("after", 4, 4711))
    header = read(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + body)
    assert header.metadata["after"] == 4711


def test_special_tokens_are_found_anywhere_in_a_large_vocabulary() -> None:
    count = MARK_EVERY * 2 + 900
    tokens = [f"t{index}" for index in range(count)]
    wanted = [0, HEAD_TOKENS, MARK_EVERY - 1, MARK_EVERY, count - 1]
    keys = ["bos", "eos", "eot", "eom", "padding"]
    extra = [(f"tokenizer.ggml.{key}_token_id", 4, value) for key, value in zip(keys, wanted, strict=True)]
    header = read(model(tokens=tokens, extra=extra))
    assert header.token_texts == {index: f"t{index}" for index in wanted}


@pytest.mark.parametrize("place", ["head", "tail"])
def test_fim_tokens_are_found_at_both_ends(place: str) -> None:
    plain = [f"t{index}" for index in range(20_000)]
    fim = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    tokens = fim + plain if place == "head" else plain + fim
    header = read(model(tokens=tokens))
    assert header.edge_tokens == {value: tokens.index(value) for value in fim}


def test_first_rows_stop_before_the_vocabulary() -> None:
    whole = model(tokens=[f"t{index}" for index in range(50_000)])
    header = read(whole, first=True)
    assert not header.complete
    assert header.tensors is None
    assert header.metadata["llama.context_length"] == 2048
    assert header.lengths["tokenizer.ggml.tokens"] == 50_000
    assert header.bytes_read <= 64 * 1024


def test_a_header_without_large_arrays_is_complete_at_once() -> None:
    assert read(build([("general.architecture", STRING, "clip")]), first=True).complete


def test_too_much_text_is_refused() -> None:
    pairs = [(f"k{index}", STRING, "x" * 1_000_000) for index in range(9)]
    assert rejected(build(pairs)).fault == "limit"


def test_names_that_are_no_utf8_are_read() -> None:
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(b"k\xff") + struct.pack("<I", STRING) + text(b"\xfe\xff")
    assert read(content + bytes(32)).metadata == {"k\ufffd": "\ufffd\ufffd"}


def test_a_file_that_shrinks_while_it_is_read_is_reported() -> None:
    whole = model()
    with pytest.raises(HeaderRejected) as caught:
        read_header(io.BytesIO(whole[:200]), len(whole))
    assert caught.value.fault == "truncated"
