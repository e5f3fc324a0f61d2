"""Collects what the grammars find, as wire events: monotone, trimmed where a model only adds air. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable

from modeld.output.grammar.values import Opened
from shared.protocol.api import Event, Generating, ReasoningDelta, TextDelta, Thinking, ToolCall, ToolCallDelta
from shared.text.nesting import too_deep


class _Trimmed:
    """Text without white space at its begin (if asked) and end. Pieces of white space wait for more."""

    __slots__ = ("_lead", "_tail")

    def __init__(self, *, lead: bool) -> None:
        self._lead = lead
        self._tail: list[str] = []

    def feed(self, text: str) -> str:
        body = text.rstrip()
        if not body:
            self._tail.append(text)
            return ""
        whole = "".join(self._tail) + body
        self._tail = [text[len(body) :]] if len(body) < len(text) else []
        if self._lead:
            self._lead = False
            return whole.lstrip()
        return whole

    def rest(self) -> str:
        """White space at the end, given up; "" where nothing else ever came and the begin is trimmed."""
        tail, self._tail = "".join(self._tail), []
        return "" if self._lead else tail


class Emitter:
    """The events of one output, in order. `take` empties it."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._events: list[Event] = []
        self._mode: type[Event] | None = None
        self._text = _Trimmed(lead=False)
        self._thought = _Trimmed(lead=True)
        self._unclosed: list[str] = []
        self._arguments: list[str] = []
        self._call: tuple[str, str] | None = None
        self._index = -1
        self.calls: list[ToolCall] = []
        #: A call that has just begun, for whoever holds the model to a grammar; taken by setting it to None.
        self.opened: Opened | None = None
        self.said = False
        self.thinking = False

    def take(self) -> list[Event]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    # --- answer ------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """A part of the answer."""
        self._say(self._text.feed(text))

    def end_text(self) -> None:
        """The output ends: white space at its end is the answer's own."""
        self._say(self._text.rest())

    def _say(self, text: str) -> None:
        if not text:
            return
        self._enter(Generating)
        self.said = self.said or not text.isspace()
        last = self._events[-1] if self._events else None
        if isinstance(last, TextDelta):
            last.text += text
        else:
            self._events.append(TextDelta(text=text))

    # --- reasoning ---------------------------------------------------------------------------

    def open_reasoning(self) -> None:
        """White space of the answer just before a thought is dropped, and that after it too."""
        self.thinking = True
        self._thought = _Trimmed(lead=True)
        self._unclosed = []

    def reasoning(self, text: str) -> None:
        """A part of the thoughts."""
        text = self._thought.feed(text)
        if not text:
            return
        self._enter(Thinking)
        self._unclosed.append(text)
        last = self._events[-1] if self._events else None
        if isinstance(last, ReasoningDelta):
            last.text += text
        else:
            self._events.append(ReasoningDelta(text=text))

    def inner_close(self) -> None:
        """A nested thought ended: were the outer one never closed, the answer would begin here."""
        self._unclosed = []

    def close_reasoning(self) -> None:
        """White space between a thought and the answer is dropped."""
        self.thinking = False
        self._unclosed = []
        self._text = _Trimmed(lead=True)

    def answer_with_thoughts(self) -> None:
        """The model ended by itself inside its thoughts and said nothing: they are the answer."""
        thoughts = "".join(self._unclosed).strip()
        if self.thinking and not self.said and not self.calls:
            self.close_reasoning()
            self.text(thoughts)

    # --- tool calls --------------------------------------------------------------------------

    def begin_call(self, name: str, call_id: str = "") -> None:
        """A call whose name is known. White space before it is dropped."""
        self.end_unfinished()
        self._enter(Generating)
        self._text = _Trimmed(lead=True)
        self._index += 1
        self._call = (call_id or self._new_id(), name)
        self._arguments = []
        self._delta("")

    def expect_arguments(self, written: str) -> None:
        """The JSON of the arguments comes next; `written` of it is there already."""
        if self._call is not None:
            self.opened = Opened(written, self._call[1])

    def arguments(self, text: str) -> None:
        """A part of the arguments' JSON text."""
        if text:
            self._arguments.append(text)
            self._delta(text)

    def end_call(self) -> bool:
        """The call is complete, and fails where its arguments cannot be read; False where none has begun."""
        if self._call is None:
            return False
        call_id, name = self._call
        if not self._arguments:
            self.arguments("{}")
        arguments = "".join(self._arguments)
        self._call = None
        fault = fault_of(arguments)
        self.calls.append(ToolCall(id=call_id, name=name, arguments="{}" if fault else arguments, fault=fault))
        return True

    def end_unfinished(self) -> None:
        """The model went on, or ended, in the middle of a call: it fails. One that a limit cut is none."""
        if self._call is not None:
            call_id, name = self._call
            self._call = None
            self.calls.append(ToolCall(id=call_id, name=name, arguments="{}", fault="its arguments never end"))

    def _delta(self, text: str) -> None:
        if self._call is None:
            return
        call_id, name = self._call
        last = self._events[-1] if self._events else None
        if isinstance(last, ToolCallDelta) and last.index == self._index:
            last.arguments += text
        else:
            self._events.append(ToolCallDelta(index=self._index, id=call_id, name=name, arguments=text))

    def _enter(self, mode: type[Thinking | Generating]) -> None:
        if self._mode is not mode:
            self._mode = mode
            self._events.append(mode())


_TOO_DEEP = "its arguments nest too deeply"


def is_object(text: str) -> bool:
    """Whether the text is one valid JSON object (RFC 8259: no NaN, no Infinity), of a depth that all can read."""
    return not fault_of(text)


def fault_of(text: str) -> str:
    """Why a text cannot be the arguments of a call, or ""."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return _TOO_DEEP
    except ValueError as error:
        return f"its arguments cannot be read as JSON: {_reason(error)}"
    if not isinstance(value, dict):
        return "its arguments are not a JSON object"
    return _TOO_DEEP if too_deep(value) else ""


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "NaN and Infinity are not JSON" if isinstance(error, _NoJson) else "a number has too many digits"


class _NoJson(ValueError):
    """A constant that Python reads and JSON does not have."""


def _refuse(constant: str) -> None:
    raise _NoJson(constant)
