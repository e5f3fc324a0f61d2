"""Cutting a stream into messages: split anywhere, oversized, broken headers."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.protocol.framing import HEAD_BYTES, HEADER_LIMIT, Framer, HeaderFramer, LineFramer, Oversized

pytestmark = pytest.mark.unit

LIMIT = 64


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces that end at the given places."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def feed(framer: Framer, pieces: list[bytes]) -> list[bytes | Oversized]:
    return [message for piece in pieces for message in framer.feed(piece)]


bodies = st.lists(st.text(min_size=1, max_size=40).map(lambda text: text.encode("utf-8", "replace")), max_size=8)
line_bodies = bodies.map(
    lambda many: [body for body in (b.replace(b"\n", b"n").replace(b"\r", b"r") for b in many) if body.strip()]
)


@pytest.mark.parametrize("make", [LineFramer, HeaderFramer])
@given(many=line_bodies, places=st.lists(st.integers(0, 10_000), max_size=30))
def test_any_split_gives_the_same_messages(make: type[LineFramer], many: list[bytes], places: list[int]) -> None:
    framer = make(LIMIT)
    stream = b"".join(framer.frame(body) for body in many)
    expected = [body if len(body) <= LIMIT else Oversized(len(body), body[:HEAD_BYTES]) for body in many]
    assert feed(framer, cut(stream, places)) == expected


@given(many=bodies, places=st.lists(st.integers(0, 10_000), max_size=30))
def test_header_bodies_may_hold_line_ends(many: list[bytes], places: list[int]) -> None:
    framer = HeaderFramer(1000)
    assert feed(framer, cut(b"".join(framer.frame(body) for body in many), places)) == many


@given(noise=st.binary(max_size=300), places=st.lists(st.integers(0, 10_000), max_size=30))
def test_noise_never_raises_and_the_next_line_is_read(noise: bytes, places: list[int]) -> None:
    framer = LineFramer(LIMIT)
    assert feed(framer, cut(noise + b"\n{}\n", places))[-1] == b"{}"


@given(noise=st.binary(max_size=300), places=st.lists(st.integers(0, 10_000), max_size=30))
def test_noise_in_headers_gives_the_same_for_any_split(noise: bytes, places: list[int]) -> None:
    assert feed(HeaderFramer(LIMIT), cut(noise, places)) == HeaderFramer(LIMIT).feed(noise)


def test_line_ends_of_windows_and_blank_lines() -> None:
    assert LineFramer(LIMIT).feed(b'\r\n\n  \n{"a":1}\r\n') == [b'{"a":1}']


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_limit_is_exact(end: bytes) -> None:
    framer = LineFramer(LIMIT)
    assert framer.feed(b"x" * LIMIT + end) == [b"x" * LIMIT]
    assert isinstance(framer.feed(b"x" * (LIMIT + 1) + end)[0], Oversized)
    header = HeaderFramer(LIMIT)
    assert header.feed(header.frame(b"x" * LIMIT)) == [b"x" * LIMIT]
    assert header.feed(header.frame(b"x" * (LIMIT + 1))) == [Oversized(LIMIT + 1, b"x" * (LIMIT + 1))]


@pytest.mark.parametrize("make", [LineFramer, HeaderFramer])
def test_an_oversized_message_costs_no_memory_and_the_stream_goes_on(make: type[LineFramer]) -> None:
    framer = make(1024)
    size = 50_000_000
    piece = b"y" * 1_000_000
    start = b"" if make is LineFramer else f"Content-Length: {size}\r\n\r\n".encode()
    tracemalloc.start()
    try:
        assert framer.feed(start) == []
        messages = [message for _ in range(50) for message in framer.feed(piece)]
        messages += framer.feed(b"\n" if make is LineFramer else b"")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert messages == [Oversized(size, b"y" * HEAD_BYTES)]
    assert peak < 4_000_000
    assert framer.feed(framer.frame(b"{}")) == [b"{}"]


@pytest.mark.parametrize(
    "block",
    [b"Nothing: 1", b"Content-Length: -5", b"Content-Length: 1e3", b"Content-Length: " + b"9" * 40, b"no colon at all"],
)
def test_headers_without_a_length_are_handed_on_as_no_json(block: bytes) -> None:
    framer = HeaderFramer(LIMIT)
    assert framer.feed(block + b"\r\n\r\n" + framer.frame(b"{}")) == [b"?" + block, b"{}"]


def test_other_headers_and_case_do_not_matter() -> None:
    block = b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length:2\r\n\r\n{}"
    assert HeaderFramer(LIMIT).feed(block) == [b"{}"]


def test_an_endless_header_costs_no_memory() -> None:
    framer = HeaderFramer(LIMIT)
    tracemalloc.start()
    try:
        for _ in range(100):
            assert framer.feed(b"h" * 100_000) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500_000
    (block,) = framer.feed(b"\r\n\r\n")
    assert isinstance(block, bytes)
    assert len(block) < HEADER_LIMIT
    assert framer.feed(framer.frame(b"{}")) == [b"{}"]


def test_a_body_of_no_length_is_a_message() -> None:
    assert HeaderFramer(LIMIT).feed(b"Content-Length: 0\r\n\r\n" * 2) == [b"", b""]
