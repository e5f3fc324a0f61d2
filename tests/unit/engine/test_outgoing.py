"""What one side writes to the other's pipe: its order, its heartbeats, its end, what is handed over."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from modeld.pipe import pipe_writer as outgoing
from modeld.pipe.pipe_writer import Outgoing

pytestmark = pytest.mark.unit


class Pipe:
    """A pipe that an Outgoing writes to; `broken` is set when it said so."""

    def __init__(self, **options: Any) -> None:
        self.source, sink = os.pipe()
        self.broken = threading.Event()
        self.outgoing = Outgoing(sink, self.broken.set, **options)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.outgoing.close()
    os.close(made.source)


def rest(source: int) -> bytes:
    data = b""
    while piece := os.read(source, 1 << 16):
        data += piece
    return data


def test_everything_is_written_in_order_and_then_the_end(pipe: Pipe) -> None:
    """Also what the pipe does not take in one piece, while nobody reads yet."""
    parts = [bytes([number]) * 50_000 for number in range(9)]
    for part in parts:
        pipe.outgoing.put(part)
    closing = threading.Thread(target=pipe.outgoing.close)
    closing.start()
    assert rest(pipe.source) == b"".join(parts)
    closing.join()


def test_silence_is_filled_with_beats_that_may_be_withheld() -> None:
    beats = iter([b"beat", b"", b"beat"])
    ended = threading.Event()

    def heartbeat() -> bytes:
        found = next(beats, None)
        if found is None:
            ended.set()
        return found or b""

    pipe = Pipe(pause=0.01, heartbeat=heartbeat)
    assert ended.wait(10)
    pipe.outgoing.close()
    assert rest(pipe.source) == b"beatbeat"
    os.close(pipe.source)


def test_a_broken_pipe_is_reported_and_takes_no_more(pipe: Pipe) -> None:
    source, pipe.source = pipe.source, os.open(os.devnull, os.O_RDONLY)
    os.close(source)
    pipe.outgoing.put(b"to nobody")
    assert pipe.broken.wait(10)
    pipe.outgoing.put(b"nor this")
    pipe.outgoing.hand_over(b"which waits for a moment only")


def test_what_is_handed_over_is_written_before_the_caller_goes_on(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "HAND_OVER_SECONDS", 10.0)
    pipe.outgoing.put(b"a")
    for data in (b"b", b"c", b"d"):
        pipe.outgoing.hand_over(data)
    assert os.read(pipe.source, 1 << 16) == b"abcd"
