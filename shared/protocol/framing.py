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
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None  # set while an oversized line is being skipped

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """See Framer. Parts of a line are joined once, when its end is seen."""
        lines = data.split(b"\n")
        messages: list[bytes | Oversized] = []
        for line in lines[:-1]:
            self._add(line)
            self._finish(messages)
        self._add(lines[-1])
        return messages

    def frame(self, body: bytes) -> bytes:
        """The body and a newline. JSON from the encoders holds no newline of its own."""
        return body + b"\n"

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self._size += len(part)
        if self._head is not None:
            return
        self._parts.append(part)
        if self._size > self.limit + 1:  # one more for the "\r" of a line that is exactly at the limit
            self._head = _head_of(self._parts)
            self._parts = []

    def _finish(self, messages: list[bytes | Oversized]) -> None:
        parts, size, head = self._parts, self._size, self._head
        self._parts, self._size, self._head = [], 0, None
        if head is not None:
            messages.append(Oversized(size, head))
            return
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        body = body.removesuffix(b"\r")
        if len(body) > self.limit:
            messages.append(Oversized(len(body), body[:HEAD_BYTES]))
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
        self._parts: list[bytes] = []
        self._missing: int | None = None  # bytes of the body still to come; None inside a header
        self._size = 0
        self._kept = 0

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
        if self._kept < keep:
            self._parts.append(part)
            self._kept += len(part)
        return data[len(part) :]

    def _finish(self, messages: list[bytes | Oversized]) -> None:
        body, size = b"".join(self._parts), self._size
        self._parts, self._kept, self._size, self._missing = [], 0, 0, None
        messages.append(body if size <= self.limit else Oversized(size, body[:HEAD_BYTES]))


def _head_of(parts: list[bytes]) -> bytes:
    head = b""
    for part in parts:
        head += part[: HEAD_BYTES - len(head)]
        if len(head) >= HEAD_BYTES:
            break
    return head


def _content_length(block: bytes) -> int | None:
    for line in block.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name.strip().lower() == b"content-length":
            digits = value.strip()
            return int(digits) if digits.isdigit() and len(digits) < 19 else None
    return None
