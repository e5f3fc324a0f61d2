"""Extracts images from messages and checks them before anything decodes them. Pure, engine-neutral.

An image stands in a prompt as one negative id for each token that it takes: the same ids for the same file, others
for any other, so that whatever compares prompts (lanes, parked states, files) knows images without knowing of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from modeld.template.message_parts import IMAGE, WORDS, kind_of
from shared.errors import ImageUnusable, UnsupportedFeature

#: A photo of a telephone has 12 to 50 million pixels and up to 15 MB; a decoded pixel takes 3 bytes, twice at times.
MOST_BYTES = 20 * 1024 * 1024
MOST_PIXELS = 50_000_000
_PIECE = 64 * 1024


class VisionUnusable(Exception):
    """Images cannot be taken; why, in words for a person."""


class PromptImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image as it came. `width` and `height` in pixels, as its header says; `digest` of the whole file.

    `index`: the message that holds it.
    """

    data: bytes
    width: int
    height: int
    digest: bytes
    index: int = 0


# --- out of the messages ---------------------------------------------------------------------------


def take_images(messages: Sequence[dict[str, Any]], mark: str) -> tuple[list[dict[str, Any]], list[PromptImage]]:
    """The messages with `mark` as words where an image was, and the images in order.

    Raises ImageUnusable (too large, broken, not an image), UnsupportedFeature (a sound, a file, an address).
    """
    images: list[PromptImage] = []
    said = [_without(message, index, mark, images) for index, message in enumerate(messages)]
    return said, images


def _without(message: dict[str, Any], index: int, mark: str, images: list[PromptImage]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list) or not any(kind_of(part) not in WORDS for part in content):
        return message
    parts: list[Any] = []
    for part in content:
        kind = kind_of(part)
        if kind in WORDS:
            parts.append(part)
        elif kind == IMAGE:
            images.append(open_image(_data(part), index))
            parts.append({"type": "text", "text": mark})
        else:
            raise UnsupportedFeature(feature=f"{kind} in a message (this model takes text and images)")
    return {**message, "content": parts}


def refuse_images(messages: Sequence[dict[str, Any]]) -> None:
    """Raises UnsupportedFeature naming the kind of a part that is no text: an image, a sound, a file."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            kind = kind_of(part)
            if kind not in WORDS:
                raise UnsupportedFeature(feature=f"{kind} in a message (this model reads words only)")


def _data(part: dict[str, Any]) -> str:
    """The base64 text of a `data:` address; nothing is ever fetched."""
    given = part.get(IMAGE)
    address = given.get("url") if isinstance(given, dict) else given
    if not isinstance(address, str) or not address.startswith("data:"):
        raise UnsupportedFeature(feature="an image by its address (send it as data:image/...;base64,...)")
    head, comma, data = address.partition(",")
    if not comma or not head.endswith(";base64"):
        raise UnsupportedFeature(feature="an image that is not base64")
    return data


def open_image(text: str, index: int) -> PromptImage:
    """Decode base64 and read the header. Raises ImageUnusable."""
    if len(text) * 3 // 4 > MOST_BYTES:
        raise ImageUnusable(reason=f"it is larger than {MOST_BYTES // 1024**2} MB", index=index)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageUnusable(reason="its base64 is broken", index=index) from error
    try:
        width, height = dimensions(data)
    except ValueError as error:
        raise ImageUnusable(reason=str(error), index=index) from error
    return PromptImage(data=data, width=width, height=height, digest=hashlib.sha256(data).digest(), index=index)


# --- headers ---------------------------------------------------------------------------------------


def dimensions(data: bytes) -> tuple[int, int]:
    """Width and height in pixels of a PNG, JPEG, GIF or BMP. Raises ValueError with the reason.

    Checked before any decoder sees the file: how large it says it is, and that a PNG holds no more than that.
    """
    for magic, read in ((b"\x89PNG\r\n\x1a\n", _png), (b"\xff\xd8\xff", _jpeg), (b"GIF8", _gif), (b"BM", _bmp)):
        if data.startswith(magic):
            try:
                width, height = read(data)
            except (struct.error, IndexError, zlib.error) as error:
                raise ValueError("it is cut off or broken") from error
            if width < 1 or height < 1:
                raise ValueError("it has no pixels")
            if width * height > MOST_PIXELS:
                raise ValueError(f"it has more than {MOST_PIXELS // 10**6} million pixels ({width} x {height})")
            return width, height
    raise ValueError("it is not a PNG, JPEG, GIF or BMP")


def _png(data: bytes) -> tuple[int, int]:
    width, height, depth, color = struct.unpack_from(">IIBB", data, 16)
    if width * height <= MOST_PIXELS:
        samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(color, 4)
        # seven passes of an interlaced one begin more rows, each with its filter byte
        _refuse_bomb(data, (width * samples * depth // 8 + 2) * height * 2 + _PIECE)
    return width, height


def _refuse_bomb(data: bytes, limit: int) -> None:
    """A few kilobytes can inflate to gigabytes that no pixel needs: count before a decoder keeps them."""
    inflate, size, at = zlib.decompressobj(), 0, 8
    while at + 8 <= len(data) and not inflate.eof:
        length, kind = struct.unpack_from(">I4s", data, at)
        piece = data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        while piece and not inflate.eof:
            size += len(inflate.decompress(piece, _PIECE))
            piece = inflate.unconsumed_tail
            if size > limit:
                raise ValueError("it holds more than it says")
        at += 12 + length


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while True:
        if data[at] != 0xFF:
            raise ValueError("it is cut off or broken")
        kind = data[at + 1]
        if kind == 0xFF:
            at += 1
        elif kind in (0x01, *range(0xD0, 0xD9)):
            at += 2
        elif 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> tuple[int, int]:
    if struct.unpack_from("<I", data, 14)[0] == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)


# --- as ids ----------------------------------------------------------------------------------------


def image_ids(digest: bytes, part: int, count: int, positions: int | None = None) -> list[int]:
    """`count` ids below zero for part `part` of an image. The first differs from those behind it (`continues`).

    `positions`: so many of them move the words behind on (None: all); where an image lies in two dimensions, fewer do.
    """
    stream = hashlib.shake_256(digest + part.to_bytes(4, "big")).digest(8 * count)
    moving = count if positions is None else positions
    return [
        -1 - ((number >> 4) << 2 | (place >= moving) << 1 | (place > 0))
        for place, number in enumerate(struct.unpack(f">{count}Q", stream))
    ]


def positions(tokens: Sequence[int]) -> int:
    """The position behind so many tokens."""
    if not tokens or min(tokens) >= 0:
        return len(tokens)
    return sum(token >= 0 or not (-1 - token) & 2 for token in tokens)


def tokens_within(tokens: Sequence[int], position: int) -> int:
    """The most tokens from the first that end at `position` or before, and in no image."""
    at = length = 0
    for place, token in enumerate(tokens):
        at += token >= 0 or not (-1 - token) & 2
        if at > position:
            break
        length = place + 1
    return whole(tokens, length)


def continues(token: int) -> bool:
    """Whether an id stands inside an image, behind its first."""
    return token < 0 and bool((-1 - token) & 1)


def begins(token: int) -> bool:
    """Whether an id is the first of an image."""
    return token < 0 and not (-1 - token) & 1


def whole(prompt: Sequence[int], length: int) -> int:
    """`length` tokens of `prompt`, or as many less as it takes to cut no image in two."""
    while 0 < length < len(prompt) and continues(prompt[length]):
        length -= 1
    return length


def words_end(prompt: Sequence[int], start: int, end: int) -> int:
    """Up to where, from `start` on and before `end`, there are words only."""
    if min(prompt[start:end]) >= 0:
        return end
    return next(place for place in range(start, end) if prompt[place] < 0)


def image_end(prompt: Sequence[int], start: int) -> int:
    """The position behind the image that begins at `start`."""
    end = start + 1
    while end < len(prompt) and continues(prompt[end]):
        end += 1
    return end


def words_of_prompt(prompt: Sequence[int]) -> Sequence[int]:
    """The prompt without its images; the prompt itself where there are none."""
    return prompt if not prompt or min(prompt) >= 0 else [token for token in prompt if token >= 0]
