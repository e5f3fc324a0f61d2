"""A bounded, forward-reading window over a file: little memory, no more than a fixed number of bytes."""

from __future__ import annotations

import re
import struct
from itertools import repeat
from operator import length_hint
from typing import Literal, Protocol

from shared.text.shown import one_line

FIRST_READ = 64 * 1024
WINDOW = 256 * 1024
READ_LIMIT = 32 * 1024 * 1024
BATCH = 256

Fault = Literal["not_gguf", "version", "byte_order", "truncated", "limit", "malformed", "unreadable"]

_LENGTH = struct.Struct("<Q").unpack_from
# One alternative for each length that fits a byte, the usual ones first: 41 ns a string against 110 ns
# for a loop over struct (measured, Python 3.11). Longer strings fall back to the loop. Possessive, so
# that nothing is kept for backtracking.
_SHORT = sorted(range(256), key=lambda length: abs(length - 6))
_STRINGS = b"(?:" + b"|".join(b"\\x%02x" % n + b"\\x00" * 7 + b".{%d}" % n for n in _SHORT) + b"){%d}+" % BATCH


class Seekable(Protocol):
    """What a window reads from: an unbuffered file, or bytes in memory."""

    def seek(self, offset: int, /) -> int:
        """Go to an absolute offset."""
        ...

    def read(self, count: int, /) -> bytes | None:
        """Up to `count` bytes."""
        ...


class HeaderRejected(Exception):
    """The file cannot be used; `fault` says which kind of reason, `reason` says it in words."""

    def __init__(self, fault: Fault, reason: str) -> None:
        self.fault = fault
        self.reason = one_line(reason)
        super().__init__(self.reason)


class Window:
    """Reads forward through `file`; `position` is absolute.

    Every length is checked against the file's size before anything is read or allocated, and no
    more than `limit` bytes are read in all. Raises HeaderRejected (`truncated`, `limit`, `unreadable`).
    """

    def __init__(self, file: Seekable, size: int, limit: int = READ_LIMIT) -> None:
        self._file = file
        self._limit = limit
        self.size = size
        self.bytes_read = 0
        self.data = b""
        self._base = 0
        self.at = 0
        self._batch = _batch_pattern()

    @property
    def position(self) -> int:
        """Absolute offset of the next byte."""
        return self._base + self.at

    def seek(self, position: int) -> None:
        """Go to an absolute offset, within the window when it is there."""
        if position > self.size:
            raise self.truncated(position)
        if self._base <= position <= self._base + len(self.data):
            self.at = position - self._base
        else:
            self.data, self._base, self.at = b"", position, 0

    def truncated(self, needed: int) -> HeaderRejected:
        """The error for a file that should reach to `needed`."""
        return HeaderRejected("truncated", f"the file ends at byte {self.size} and should reach to {needed}")

    def need(self, count: int) -> None:
        """Make sure that `count` bytes from here on are in `data`."""
        if len(self.data) - self.at < count:
            if self.position + count > self.size:
                raise self.truncated(self.position + count)
            self._fill(max(count, WINDOW if self.bytes_read else FIRST_READ))

    def ahead(self, count: int) -> None:
        """Like `need`, for up to `count` bytes: less at the end of the file is no error."""
        if len(self.data) - self.at < count and self._base + len(self.data) < self.size:
            self._fill(max(count, WINDOW if self.bytes_read else FIRST_READ))

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        self.need(count)
        start = self.at
        self.at += count
        return self.data[start : self.at]

    def skip(self, count: int) -> None:
        """Pass over `count` bytes without reading them."""
        self.seek(self.position + count)

    def find_strings(self, count: int, wanted: frozenset[bytes]) -> list[tuple[int, bytes]]:
        """Pass over `count` strings and tell which are `wanted` (none of them empty), with their index."""
        found = []
        longest = max(map(len, wanted))
        starts = frozenset(text[0] for text in wanted)
        index = 0
        while index < count:
            self.need(8)
            self.ahead(8 + longest)
            data, at = self.data, self.at
            last = max(at, len(data) - 8 - longest)
            while index < count and at <= last:
                length = _LENGTH(data, at)[0]
                if 0 < length <= longest and at + 8 < len(data) and data[at + 8] in starts:
                    text = data[at + 8 : at + 8 + length]
                    if text in wanted:
                        found.append((index, text))
                at += 8 + length
                index += 1
            self.seek(self._base + at)
        return found

    def skip_strings(self, count: int) -> None:
        """Pass over `count` length-prefixed strings."""
        match = self._batch.match
        while count >= BATCH:
            found = match(self.data, self.at)
            if found is None:
                self._skip_slowly(BATCH)
            else:
                self.at = found.end()
            count -= BATCH
        self._skip_slowly(count)

    def _skip_slowly(self, count: int) -> None:
        while count:
            steps = repeat(None, count)
            data, at = self.data, self.at
            try:
                for _ in steps:
                    at += 8 + _LENGTH(data, at)[0]
                count = 0
            except (struct.error, OverflowError):  # past the window, or a length past any file
                count = length_hint(steps) + 1
            self.seek(self._base + at)
            if count:
                self.need(8)

    def _fill(self, wanted: int) -> None:
        position = self.position
        wanted = min(wanted, self.size - position)
        if self.bytes_read + wanted > self._limit:
            raise HeaderRejected("limit", f"the header is larger than {self._limit} bytes")
        kept = self.data[self.at :]
        try:
            self._file.seek(position + len(kept))
            data = kept
            while len(data) < wanted:
                part = self._file.read(wanted - len(data))
                if not part:
                    raise HeaderRejected("truncated", "the file became shorter while it was read")
                data = data + part if data else part
                self.bytes_read += len(part)
        except OSError as error:
            raise HeaderRejected("unreadable", error.strerror or str(error)) from error
        self.data, self._base, self.at = data, position, 0


def _batch_pattern() -> re.Pattern[bytes]:
    return re.compile(_STRINGS, re.DOTALL)  # kept by re's own cache
