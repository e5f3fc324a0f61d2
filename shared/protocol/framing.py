"""Cuts a byte stream into messages: one JSON object a line, or Content-Length headers.

Pure: bytes in, bodies out. A message over the limit is skipped while it arrives, so that memory
stays bounded by the limit, and is reported once with its size; the stream goes on behind it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

#: How much of an oversized message is kept, so that the request it was can still be answered by id.
HEAD_BYTES = 4096
#: Longest header block of a Content-Length message. LSP headers are two short lines.
HEADER_LIMIT = 8192

_HEADER_END = b"\r\n\r\n"


class Oversized(msgspec.Struct, frozen=True):
    """A message that was skipped. `size` in bytes without framing; `head` is its beginning."""

    size: int
    head: bytes


class Framer(Protocol):
    """Both directions of one framing. `limit`: largest body in bytes."""

    limit: int

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """Take what arrived, split anywhere; give the messages that are now complete, in order."""
        ...

    def frame(self, body: bytes) -> bytes:
        """The body as it goes on the wire."""
        ...


class LineFramer:
    r"""Newline-delimited JSON. Blank lines are nothing; `\r\n` ends a line too."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._line = bytearray()  # the unfinished line; only its beginning once it is oversized
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """See Framer."""
        *ends, rest = data.split(b"\n")
        messages: list[bytes | Oversized] = []
        for end in ends:
            whole = end
            if self._size:
                self._add(end)
                whole = bytes(self._line)
            self._finish(whole, self._size or len(end), messages)
            self._line, self._size = bytearray(), 0
        self._add(rest)
        return messages

    def frame(self, body: bytes) -> bytes:
        """The body and a newline. JSON from the encoders holds no newline of its own."""
        return body + b"\n"

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self.limit + 1:  # one more for the "\r" of a line that is exactly at the limit
            self._line += part
        else:
            self._line += part[:HEAD_BYTES]
            del self._line[HEAD_BYTES:]

    def _finish(self, line: bytes, size: int, messages: list[bytes | Oversized]) -> None:
        body = line.removesuffix(b"\r")
        if size > self.limit + 1 or len(body) > self.limit:
            messages.append(Oversized(size, body[:HEAD_BYTES]))
        elif body and not body.isspace():
            messages.append(body)


class HeaderFramer:
    """LSP's base protocol: `Content-Length: N`, an empty line, then N bytes.

    A header block that names no length cannot be skipped over: it is handed on as a body, which
    no parser takes for JSON, and reading goes on behind its empty line.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._header = b""
        self._body = bytearray()
        self._missing: int | None = None  # bytes of the body still to come; None inside a header
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """See Framer."""
        messages: list[bytes | Oversized] = []
        while data:
            if self._missing is None:
                data = self._take_header(data, messages)
            else:
                data = self._take_body(data)
            if self._missing == 0:
                self._finish(messages)
        return messages

    def frame(self, body: bytes) -> bytes:
        """The body behind its length."""
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    def _take_header(self, data: bytes, messages: list[bytes | Oversized]) -> bytes:
        block, found, rest = (self._header + data).partition(_HEADER_END)
        if not found:
            # Only the tail can still become an empty line: an endless header costs no memory.
            self._header = block if len(block) <= HEADER_LIMIT else block[:16] + block[-3:]
            return b""
        self._header = b""
        length = _content_length(block)
        if length is None:
            messages.append(b"?" + block[:HEAD_BYTES])
        else:
            self._missing = self._size = length
        return rest

    def _take_body(self, data: bytes) -> bytes:
        assert self._missing is not None
        part = data[: self._missing]
        self._missing -= len(part)
        keep = self.limit if self._size <= self.limit else HEAD_BYTES
        self._body += part[: keep - len(self._body)]
        return data[len(part) :]

    def _finish(self, messages: list[bytes | Oversized]) -> None:
        body, size = bytes(self._body), self._size
        self._body, self._size, self._missing = bytearray(), 0, None
        messages.append(body if size <= self.limit else Oversized(size, body[:HEAD_BYTES]))


def _content_length(block: bytes) -> int | None:
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name.strip().lower() == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) < 19 else None
    return None
