"""Says where a worker failed or hangs: in the engine, or in the handling of text. Pure.

A stack tells it: whose function is the innermost of ours? So no call needs a mark of its own, and an engine is
found out wherever it is called from. Functions of an engine that only look at its vocabulary count as text: they
touch no conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import NamedTuple

_OURS = ("modeld.", "shared.")
_ENGINES = ("modeld.engine.llama.", "modeld.engine.openvino.", "modeld.engine.outside.", "modeld.engine.none.")
#: Of `modeld.engine.contract.Engine`: what a defect in it leaves untouched.
_VOCABULARY = frozenset({"special", "tokenize", "piece", "common_prefix", "constrain", "measure", "accelerators"})


class Call(NamedTuple):
    """One function of a stack."""

    module: str
    function: str
    line: int


class Place(NamedTuple):
    """`name` is module and line, for people who write to us; "" where nothing of ours runs."""

    in_engine: bool
    name: str


def place_of(stack: Sequence[Call]) -> Place:
    """Judge a stack, outermost call first."""
    ours = [call for call in stack if f"{call.module}.".startswith(_OURS)]
    if not ours:
        return Place(in_engine=True, name="")
    name = f"{ours[-1].module}:{ours[-1].line}"
    entered = ""
    for call in reversed(ours):
        if not f"{call.module}.".startswith(_ENGINES):
            break
        entered = call.function
    return Place(in_engine=bool(entered) and entered not in _VOCABULARY, name=name)


def of_error(error: BaseException) -> Place:
    """Where an exception was raised."""
    return place_of([_call(trace.tb_frame, trace.tb_lineno) for trace in _traces(error.__traceback__)])


def of_frame(innermost: FrameType) -> Place:
    """Where a thread is now, by its innermost frame."""
    calls = []
    frame: FrameType | None = innermost
    while frame is not None:
        calls.append(_call(frame, frame.f_lineno))
        frame = frame.f_back
    return place_of(calls[::-1])


def _traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _call(frame: FrameType, line: int) -> Call:
    return Call(str(frame.f_globals.get("__name__", "")), frame.f_code.co_name, line)
