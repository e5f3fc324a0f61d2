"""What one side writes to the other's pipe: in order, by a thread of its own that nothing but the pipe holds up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

#: The longest that who hands something over stands still for it, in seconds. It is a moment; more would be the
#: machine's or the other side's fault.
HAND_OVER_SECONDS = 0.005
#: For what waits to be written at the end. Behind a process that has ended nothing is, and it takes no time.
CLOSE_SECONDS = 1.0


class _Piece(NamedTuple):
    """Bytes, and what is set when they are in the pipe."""

    data: bytes
    written: threading.Event | None = None


class Outgoing:
    """Owns the descriptor `sink`, and closes it at its end: after `close`, or when the pipe is broken (then `broken` is
    called, from its thread). After each `pause` seconds with nothing to write it writes what `beat` answers.
    """

    def __init__(
        self,
        sink: int,
        broken: Callable[[], None],
        pause: float | None = None,
        heartbeat: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self._sink = sink
        self._broken = broken
        self._pause = pause
        self._heartbeat = heartbeat
        self._pieces: SimpleQueue[_Piece | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outgoing", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread can be had
            os.close(sink)
            raise

    def put(self, data: bytes) -> None:
        """Write it soon. From any thread; nothing when the pipe is broken."""
        self._pieces.put(_Piece(data))

    def hand_over(self, data: bytes) -> None:
        """Put it and wait until it is written, for a moment at most."""
        written = threading.Event()
        self._pieces.put(_Piece(data, written))
        written.wait(HAND_OVER_SECONDS)

    def close(self) -> None:
        """Take no more, and wait within `CLOSE_SECONDS` until all is written."""
        self._pieces.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            while (pieces := self._next()) is not None:
                view = memoryview(b"".join(piece.data for piece in pieces))
                while view:
                    view = view[os.write(self._sink, view) :]
                for piece in pieces:
                    if piece.written is not None:
                        piece.written.set()
        except OSError:
            self._broken()
        finally:
            os.close(self._sink)

    def _next(self) -> list[_Piece] | None:
        """All that waits, or a heartbeat when nothing has come; None at the end."""
        try:
            first = self._pieces.get(timeout=self._pause)
        except Empty:
            return [_Piece(self._heartbeat())]
        if first is None:
            return None
        pieces = [first]
        while not self._pieces.empty():
            piece = self._pieces.get_nowait()
            if piece is None:
                self._pieces.put(None)  # it comes round again
                break
            pieces.append(piece)
        return pieces
