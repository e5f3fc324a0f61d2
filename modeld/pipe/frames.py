"""Frames on the worker's pipes: four bytes of length, little endian, then one msgpack message.

Pure. Both directions use the same framing; each side decodes only what it may receive.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from modeld.pipe.messages import FromWorker, Message, ToWorker

#: Above the wire's message cap, so that a whole conversation always fits; a length beyond it is garbage.
FRAME_LIMIT = 256 * 1024 * 1024
_HEAD = 4
T = TypeVar("T")


class BadFrame(Exception):
    """The peer does not speak the worker protocol: nothing after this can be trusted."""


class FrameReader(Generic[T]):
    """Cuts a byte stream into messages of one direction."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[T]:
        """All messages that are complete now. Raises BadFrame on garbage."""
        buffer = self._buffer
        buffer += data
        messages: list[T] = []
        start = 0
        while len(buffer) - start >= _HEAD:
            size = int.from_bytes(buffer[start : start + _HEAD], "little")
            if size > FRAME_LIMIT:
                raise BadFrame(f"a frame of {size} bytes")
            end = start + _HEAD + size
            if len(buffer) < end:
                break
            messages.append(self._decode(bytes(buffer[start + _HEAD : end])))
            start = end
        del buffer[:start]
        return messages

    def _decode(self, body: bytes) -> T:
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadFrame(str(error)) from error


def to_worker_reader() -> FrameReader[ToWorker]:
    """What the worker reads."""
    return FrameReader(msgspec.msgpack.Decoder(ToWorker))


def from_worker_reader() -> FrameReader[FromWorker]:
    """What the daemon reads."""
    return FrameReader(msgspec.msgpack.Decoder(FromWorker))


def frame(message: Message) -> bytes:
    """Encode one message. Text that is no valid Unicode is written with replacement marks, a number that
    takes more than 64 bits in hex.
    """
    try:
        body = msgspec.msgpack.encode(message)
    except (UnicodeEncodeError, OverflowError):
        body = msgspec.msgpack.encode(_cleaned(msgspec.to_builtins(message)))
    return len(body).to_bytes(_HEAD, "little") + body


def _cleaned(value: object) -> object:
    """A lone surrogate (legal in JavaScript's JSON) cannot be UTF-8: it becomes U+FFFD. JSON knows numbers of any
    length, msgpack does not.
    """
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return hex(value)
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    return value
