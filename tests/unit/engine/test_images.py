"""Images before anything decodes them: out of messages, measured by their headers, as ids in a prompt."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.engine.images import (
    MOST_PIXELS,
    begins,
    continues,
    dimensions,
    image_end,
    image_ids,
    positions,
    refuse_images,
    take_images,
    tokens_within,
    whole,
    words_end,
    words_of_prompt,
)
from modeld.engine.llama.lanes import State
from shared.errors import ImageUnusable, UnsupportedFeature
from tiny_projector import png, png_of

pytestmark = pytest.mark.unit


def jpeg(width: int, height: int, frame: int = 0xC0) -> bytes:
    """The segments of a JPEG up to its frame, filling bytes between two of them."""
    app = b"\xff\xe1" + struct.pack(">H", 300) + bytes(298)
    tables = b"\xff\xff\xdb" + struct.pack(">H", 4) + bytes(2)
    return b"\xff\xd8" + app + tables + bytes([0xFF, frame]) + struct.pack(">HBHH", 17, 8, height, width) + bytes(20)


def bmp(width: int, height: int, head: int = 40) -> bytes:
    sizes = struct.pack("<HH" if head == 12 else "<ii", width, height)
    return b"BM" + bytes(12) + struct.pack("<I", head) + sizes + bytes(40)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (png(7, 5), (7, 5)),
        (png(640, 480, seed=3), (640, 480)),
        (jpeg(4000, 3000), (4000, 3000)),
        (jpeg(20, 30, 0xC2), (20, 30)),
        (b"GIF89a" + struct.pack("<HH", 12, 8) + bytes(10), (12, 8)),
        (bmp(30, 20), (30, 20)),
        (bmp(30, -20), (30, 20)),
        (bmp(30, 20, 12), (30, 20)),
    ],
)
def test_each_format_says_how_large_it_is(data: bytes, size: tuple[int, int]) -> None:
    assert dimensions(data) == size


@pytest.mark.parametrize("data", [png(7, 5), jpeg(40, 30), bmp(30, 20), b"GIF89a" + bytes(20)])
def test_a_header_cut_anywhere_is_a_reason_and_nothing_else(data: bytes) -> None:
    for length in range(20):
        with pytest.raises(ValueError, match=r"cut off|not a PNG|no pixels"):
            dimensions(data[:length])


def test_large_images_are_reported_by_their_header_alone() -> None:
    side = int(MOST_PIXELS**0.5) + 1
    for data in (png_of(side, side, b""), jpeg(side, side), bmp(side, side)):
        with pytest.raises(ValueError, match="million pixels"):
            dimensions(data)


def test_a_png_that_inflates_to_more_than_its_pixels_is_stopped_early() -> None:
    bomb = png_of(10, 10, bytes(200_000_000))
    assert len(bomb) < 300_000
    with pytest.raises(ValueError, match="holds more than it says"):
        dimensions(bomb)
    assert dimensions(png_of(3000, 2, b"".join(b"\0" + bytes(9000) for _ in range(2)))) == (3000, 2)


@given(st.binary(max_size=200), st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b""]))
def test_no_bytes_make_anything_but_a_size_or_a_reason(data: bytes, magic: bytes) -> None:
    try:
        width, height = dimensions(magic + data)
    except ValueError:
        return
    assert 0 < width * height <= MOST_PIXELS


def part(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def test_images_leave_marks_where_they_were() -> None:
    words = {"role": "user", "content": "only words"}
    reported: list[dict[str, Any]] = [
        words,
        {"role": "user", "content": [part(png(2, 3)), {"type": "text", "text": "this"}, part(png(4, 5))]},
    ]
    messages, images = take_images(reported, "MARK")
    assert messages[0] is words
    assert [one["text"] for one in messages[1]["content"]] == ["MARK", "this", "MARK"]
    assert [(one.width, one.height, one.index) for one in images] == [(2, 3, 1), (4, 5, 1)]
    assert reported[1]["content"][0]["type"] == "image_url", "what the caller holds stays as it is"


def test_what_cannot_be_shown_is_refused_with_its_message() -> None:
    with pytest.raises(ImageUnusable) as broken:
        take_images([{"role": "user", "content": "a"}, {"role": "user", "content": [part(b"nothing")]}], "M")
    assert broken.value.index == 1
    with pytest.raises(UnsupportedFeature, match="file"):
        take_images([{"role": "user", "content": [{"type": "file"}]}], "M")
    with pytest.raises(UnsupportedFeature, match="image_url"):
        refuse_images([{"role": "user", "content": [part(png(2, 2))]}])
    refuse_images([{"role": "user", "content": [{"type": "input_text", "text": "words"}, "more"]}])


@given(st.binary(min_size=32, max_size=32), st.integers(0, 50), st.integers(1, 300))
def test_ids_of_an_image_are_below_zero_its_own_and_fit_a_file(digest: bytes, number: int, count: int) -> None:
    ids = image_ids(digest, number, count)
    assert len(ids) == count
    assert all(-(2**63) <= one < 0 for one in ids)
    assert begins(ids[0])
    assert not continues(ids[0])
    assert all(continues(one) and not begins(one) for one in ids[1:])
    assert ids == image_ids(digest, number, count)
    assert image_ids(digest, number + 1, count)[0] != ids[0]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=8), st.data())
def test_a_prompt_is_never_cut_inside_an_image(parts: list[tuple[bool, int]], data: st.DataObject) -> None:
    prompt: list[int] = []
    starts: list[int] = []
    for seen, count in parts:
        starts.extend([len(prompt)] if seen else range(len(prompt), len(prompt) + count))
        prompt += image_ids(bytes(32), 0, count) if seen else [7] * count
    length = data.draw(st.integers(0, len(prompt)))
    kept = whole(prompt, length)
    assert kept == max(place for place in [*starts, len(prompt)] if place <= length)
    assert words_of_prompt(prompt) == [one for one in prompt if one >= 0]
    for start in starts:
        end = words_end(prompt, start, len(prompt)) if prompt[start] >= 0 else image_end(prompt, start)
        assert end == len(prompt) or end in starts
        assert end > start


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(1, 9)), max_size=8), st.data())
def test_positions_and_tokens_are_found_from_each_other(
    parts: list[tuple[bool, int, int]], data: st.DataObject
) -> None:
    """Images in two dimensions move what is behind them by less than their tokens."""
    prompt: list[int] = []
    ends = [(0, 0)]
    for seen, count, most in parts:
        moving = min(count, most) if seen else count
        prompt += image_ids(bytes(32), 0, count, moving) if seen else [7] * count
        ends.append((ends[-1][0] + count, ends[-1][1] + moving))
        assert positions(prompt) == ends[-1][1]
    position = data.draw(st.integers(0, ends[-1][1]))
    kept = tokens_within(prompt, position)
    assert positions(prompt[:kept]) <= position
    assert whole(prompt, kept) == kept
    assert max(place for place, at in ends if at <= position) <= kept


def test_a_warm_state_is_used_up_to_the_image_that_differs() -> None:
    one, other = image_ids(bytes(32), 0, 20), image_ids(bytes(31) + b"1", 0, 20)
    words = list(range(30))
    state = State(tokens=[*words, *one, 5, 6])
    assert state.usable([*words, *one, 5, 6, 7]) == 52
    assert state.usable([*words, *other, 5, 6]) == 30
    assert State(tokens=[*words, *one[:9]]).usable([*words, *one, 5]) == 30, "half an image is none"


def test_a_bomb_of_another_shape_is_none() -> None:
    """Bytes behind the end of the pixels are nobody's."""
    data = png(4, 4)
    assert dimensions(data + zlib.compress(bytes(10_000_000))) == (4, 4)
