"""What an engine says before an evaluation that keeps the interpreter's lock is in the pipe by then."""

from __future__ import annotations

import os
from typing import Any

import pytest

from modeld.engine.openvino.engine import OpenVinoEngine
from modeld.pipe.frames import frame
from modeld.pipe.messages import Emitted
from modeld.worker import process as worker
from shared.protocol.api import TextDelta

pytestmark = pytest.mark.unit


def test_the_turns_of_an_engine_that_keeps_the_lock_are_handed_over() -> None:
    source, sink = os.pipe()
    watchdog: Any = None
    one = worker.Worker("openvino", -1, sink, watchdog)
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
    said = Emitted(turn=1, events=[TextDelta(text="a")])
    one._hand_over(said)
    assert os.read(source, 1 << 16) == frame(said)
    one._outgoing.close()
    os.close(source)
