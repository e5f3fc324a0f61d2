"""When a peer counts as stalled, and in which order things go out. No loop, no clock."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.protocol.outbox import CHUNK_BYTES, Outbox

pytestmark = pytest.mark.unit


def outbox(*, bytes_: int = 1000, seconds: float = 10.0, hard: int = 5000) -> Outbox:
    return Outbox(bytes_, seconds, hard)


def stalled(box: Outbox, now: float) -> bool:
    """Seen twice: a stall needs a second look."""
    box.stalled(now)
    return box.stalled(now + 0.1)


def test_a_peer_that_takes_nothing_for_the_time_is_stalled() -> None:
    box = outbox()
    box.put(b"x", 100.0)
    assert not stalled(box, 109.8)
    assert box.check_at() == 110.0
    assert stalled(box, 110.0)


def test_nothing_unsent_is_never_a_stall() -> None:
    box = outbox()
    box.put(b"xyz", 100.0)
    box.sent(3, 101.0)
    assert not stalled(box, 10_000.0)
    box.put(b"x", 20_000.0)  # the idle time before does not count
    assert not stalled(box, 20_009.0)


def test_any_progress_counts() -> None:
    box = outbox()
    box.put(b"x" * 900, 100.0)
    for tick in range(1, 10):
        box.sent(1, 100.0 + tick * 9)
        assert not stalled(box, 100.0 + tick * 9 + 8)


def test_much_unsent_is_a_stall_sooner_but_not_at_once() -> None:
    box = outbox()
    box.put(b"x" * 1001, 100.0)
    assert not stalled(box, 100.1)
    assert box.check_at() == 101.0
    assert stalled(box, 101.0)


def test_a_large_answer_to_a_peer_that_reads_is_no_stall() -> None:
    box = outbox()
    box.put(b"x" * 4000, 100.0)
    for tick in range(1, 40):
        box.sent(100, 100.0 + tick * 0.2)
        assert not stalled(box, 100.0 + tick * 0.2 + 0.1)


def test_memory_is_bounded_whatever_the_peer_does() -> None:
    box = outbox()
    box.put(b"x" * 5001, 100.0)
    assert box.overflowing
    box.sent(1, 100.0)
    assert not box.overflowing


def test_one_look_after_our_own_freeze_is_not_enough() -> None:
    box = outbox()
    box.put(b"x", 100.0)
    assert not box.stalled(500.0)  # this process was stopped; the stream had no chance to write
    box.sent(1, 500.0)
    assert not box.stalled(500.2)


@given(
    sizes=st.lists(st.integers(1, 3 * CHUNK_BYTES) | st.integers(1, 100), max_size=12),
    takes=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_bytes_go_out_once_and_in_order(sizes: list[int], takes: list[bool]) -> None:
    box = outbox(hard=2**40)
    frames = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    out: list[bytes] = []
    marks: list[int] = []
    for frame, take in zip(frames, takes, strict=False):
        box.put(frame, 0.0)
        box.mark(functools.partial(marks.append, len(out)))
        if take:
            for chunk in box.take():
                assert len(chunk) <= CHUNK_BYTES
                out.append(chunk)
                box.sent(len(chunk), 0.0)
    for chunk in box.take():
        out.append(chunk)
        box.sent(len(chunk), 0.0)
    assert b"".join(out) == b"".join(frames)
    assert box.unsent == 0
    assert len(marks) == len(frames)


def test_small_frames_share_a_chunk() -> None:
    box = outbox()
    for number in range(100):
        box.put(b"%d\n" % number, 0.0)
    assert list(box.take()) == [b"".join(b"%d\n" % number for number in range(100))]


def test_the_latest_takes_the_place_of_an_unsent_one() -> None:
    box = outbox()
    box.put(b"old", 0.0, "status")
    box.put(b"text", 0.0)
    box.put(b"newer", 0.0, "status")
    assert box.unsent == len(b"newertext")
    assert list(box.take()) == [b"newertext"]
    box.put(b"newest", 0.0, "status")
    assert list(box.take()) == [b"newest"]


def test_a_mark_waits_for_what_was_put_before_it_alone() -> None:
    box = outbox()
    seen: list[str] = []
    box.mark(lambda: seen.append("empty"))
    box.put(b"abc", 0.0)
    box.mark(lambda: seen.append("abc"))
    box.put(b"def", 0.0)
    box.sent(2, 0.0)
    assert seen == ["empty"]
    box.sent(1, 0.0)
    assert seen == ["empty", "abc"]
