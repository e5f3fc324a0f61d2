"""What is attached to a message at a terminal: text files, images, and what is piped in. Blocks on the disk."""

from __future__ import annotations

import base64
from pathlib import Path

from acp_bridge.conversations.events import ImagePart, ResourcePart
from shared.errors import ArgumentInvalid

#: An image travels in one message with its conversation, as base64; engines scale it down anyway. Bytes.
IMAGE_MOST = 20 * 1024 * 1024
#: More than any window of today holds as text. Bytes.
TEXT_MOST = 16 * 1024 * 1024
#: How files of images begin, and what an engine may be given.
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def text_file(name: str) -> ResourcePart:
    """A file as text. Raises ArgumentInvalid."""
    data = _read(name, TEXT_MOST)
    if mime_of(data):
        raise ArgumentInvalid(name=name, reason="it is an image; attach it as one (`--image`, `/image`)")
    return ResourcePart(uri=name, text=as_text(data, name))


def as_text(data: bytes, name: str) -> str:
    """Bytes as text. Raises ArgumentInvalid for what is not valid UTF-8 or holds NUL bytes."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"it is not valid UTF-8 text (byte {error.start:,})"
        raise ArgumentInvalid(name=name, reason=reason) from error
    if "\x00" in text:
        raise ArgumentInvalid(name=name, reason="it is binary, not text")
    return text


def image_file(name: str) -> ImagePart:
    """A file as an image, by its content. Raises ArgumentInvalid."""
    data = _read(name, IMAGE_MOST)
    kind = mime_of(data)
    if not kind:
        raise ArgumentInvalid(name=name, reason="it is no PNG, JPEG, GIF, BMP or WebP image")
    return ImagePart(data=base64.b64encode(data).decode("ascii"), mime_type=kind)


def mime_of(data: bytes) -> str:
    """The kind of image that begins so, "" for what is none. Pure."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _IMAGES if data.startswith(mark)), "")


def _read(name: str, most: int) -> bytes:
    path = Path(name).expanduser()
    try:
        if not path.is_file():
            reason = "it is not a file" if path.exists() else "there is no such file"
            raise ArgumentInvalid(name=name, reason=reason)
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ArgumentInvalid(name=name, reason=(error.strerror or str(error)).lower()) from error
    if len(data) > most:
        raise ArgumentInvalid(name=name, reason=f"it is larger than {most >> 20} MiB")
    return data
