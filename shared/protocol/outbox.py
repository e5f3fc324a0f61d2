"""What waits to be written to one peer: order, accounting, and when the peer counts as stalled. Pure.

Positions count bytes put since the start; what is behind `sent` has been taken by the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator

#: Small messages are sent together up to this, large ones in parts of it.
CHUNK_BYTES = 256 * 1024

#: Part of the stall time within which a burst of our own is not held against the peer. On a busy machine a program that
#: reads is not run for some tenths of a second.
_BURST_FRACTION = 1 / 10

#: A stall has to be seen twice, this many seconds apart: when this process itself was frozen
#: or busy, the first look after it comes before the stream had a chance to write.
_SECOND_LOOK = 0.1


class Outbox:
    """Frames in order, with the number of bytes unsent.

    A peer is stalled when it took nothing for `stalled_seconds`; or, with more than
    `stalled_bytes` unsent, for a tenth of that (so that one large answer to a peer that reads
    is no stall); or when `hard_bytes` are unsent, whatever it does: memory is bounded.
    """

    def __init__(self, stalled_bytes: int, stalled_seconds: float, hard_bytes: int) -> None:
        self._stalled_bytes = stalled_bytes
        self._stalled_seconds = stalled_seconds
        self._hard_bytes = hard_bytes
        self._frames: list[bytes] = []
        self._latest: dict[Hashable, int] = {}
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()
        self._put = 0
        self._sent = 0
        self._moved = 0.0
        self._suspected: float | None = None

    @property
    def unsent(self) -> int:
        """Bytes that the stream has not taken yet."""
        return self._put - self._sent

    @property
    def waiting(self) -> bool:
        """Whether there are frames that no batch has taken."""
        return bool(self._frames)

    def put(self, frame: bytes, now: float, latest: Hashable = None) -> None:
        """Queue a frame. With `latest`, it takes the place of a waiting frame of the same key."""
        if self._put == self._sent:
            self._moved = now
        self._put += len(frame)
        if latest is not None:
            place = self._latest.get(latest)
            if place is not None:
                self._sent += len(self._frames[place])
                self._frames[place] = frame
                return
            self._latest[latest] = len(self._frames)
        self._frames.append(frame)

    def mark(self, callback: Callable[[], None]) -> None:
        """Call `callback` once everything that was put so far has been sent."""
        if self._put == self._sent:
            callback()
        else:
            self._marks.append((self._put, callback))

    def take(self) -> Iterator[bytes]:
        """All waiting frames as chunks to send, in order; they count as unsent until `sent`."""
        frames = self._frames
        self._frames = []
        self._latest.clear()
        return _chunks(frames)

    def sent(self, size: int, now: float) -> None:
        """The stream has taken `size` more bytes."""
        self._sent += size
        self._moved = now
        self._suspected = None
        while self._marks and self._marks[0][0] <= self._sent:
            self._marks.popleft()[1]()

    @property
    def overflowing(self) -> bool:
        """Whether more waits than may be kept in memory."""
        return self._put - self._sent > self._hard_bytes

    def stalled(self, now: float) -> bool:
        """Whether the peer has to be given up."""
        unsent = self._put - self._sent
        if not unsent or now < self._moved + self._patience(unsent):
            return False
        if self._suspected is None:
            self._suspected = now
        return now >= self._suspected + _SECOND_LOOK

    def check_at(self) -> float:
        """When to ask `stalled` again if nothing moves; only meaningful while something is unsent."""
        if self._suspected is not None:
            return self._suspected + _SECOND_LOOK
        return self._moved + self._patience(self.unsent)

    def _patience(self, unsent: int) -> float:
        over = unsent > self._stalled_bytes
        return self._stalled_seconds * (_BURST_FRACTION if over else 1)


def _chunks(frames: list[bytes]) -> Iterator[bytes]:
    small: list[bytes] = []
    size = 0
    for frame in frames:
        if small and size + len(frame) > CHUNK_BYTES:
            yield b"".join(small)
            small, size = [], 0
        if len(frame) <= CHUNK_BYTES:
            small.append(frame)
            size += len(frame)
            continue
        for start in range(0, len(frame), CHUNK_BYTES):
            yield frame[start : start + CHUNK_BYTES]
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)
