"""Whole characters out of a stream of bytes. Pure."""

from __future__ import annotations

import codecs


class Utf8Decoder:
    """Holds the bytes of an unfinished character; invalid bytes become U+FFFD, as in a browser."""

    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The characters that are complete now."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """U+FFFD for a character that was never completed, else ""."""
        return self._decoder.decode(b"", final=True)
