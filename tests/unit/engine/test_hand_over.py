"""What an engine says before an evaluation that keeps the interpreter's lock is in the pipe by then."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import pytest

from modeld.engine import worker
from modeld.engine.messages import Emitted
from modeld.engine.openvino.engine import OpenVinoEngine
from modeld.engine.wire import frame
from shared.protocol.api import TextDelta

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(sys.platform == "win32", reason="its pipes cannot be looked into without waiting"),
]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, worker.Worker]]:
    """The owner's end of a worker's pipe, which says at once when nothing is in it, and that worker, which writes."""

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    monkeypatch.setattr(worker, "_leave", leave)  # of the writing thread alone
    monkeypatch.setattr(worker, "HAND_OVER_SECONDS", 10.0)
    source, sink = os.pipe()
    os.set_blocking(source, False)
    watchdog: Any = None
    one = worker.Worker("openvino", -1, sink, watchdog)

    def write() -> None:
        with suppress(SystemExit):
            one._write_all()

    writer = threading.Thread(target=write)
    writer.start()
    yield source, one
    os.close(source)
    one._send(said("to nobody: the writer ends"))
    writer.join()
    os.close(sink)


def said(text: str) -> Emitted:
    return Emitted(turn=1, events=[TextDelta(text=text)])


def test_what_is_handed_over_is_written_before_the_engine_goes_on(source: tuple[int, worker.Worker]) -> None:
    end, one = source
    one._send(said("a"))
    for text in "bcd":
        one._hand_over(said(text))
    assert os.read(end, 1 << 16) == b"".join(frame(said(text)) for text in "abcd")


def test_the_turns_of_an_engine_that_keeps_the_lock_are_handed_over(source: tuple[int, worker.Worker]) -> None:
    _, one = source
    emits: list[Any] = []

    class Resident:
        def serve(self, job: Any, emit: Any) -> None:
            emits.append(emit)

    engine: Any = OpenVinoEngine.__new__(OpenVinoEngine)
    resident: Any = Resident()
    one._resident = resident
    job: Any = None
    one._answer(engine, job)
    assert emits == [one._hand_over]
