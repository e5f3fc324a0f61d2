"""Standard work-done progress and partial results of one request, from the daemon's events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from acp_bridge.faces.lsp import wire
from acp_bridge.turn.stages import loading_title, queue_title
from shared.protocol import api
from shared.text.shown import one_line

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.connection import EditorConnection


class WorkDone:
    """`$/progress` with begin, report and end; silent without a token."""

    def __init__(self, connection: EditorConnection, token: wire.Token | None, title: str) -> None:
        self._connection = connection
        self._token = token
        self._last: tuple[str, int | None] = ("", None)
        self._tell({"kind": "begin", "title": one_line(title), "cancellable": True})

    def report(self, text: str, fraction: float | None = None) -> None:
        """`fraction` is 0 to 1. The same again is not sent."""
        percentage = None if fraction is None else max(0, min(100, int(fraction * 100)))
        text = one_line(text)
        if (text, percentage) == self._last:
            return
        self._last = (text, percentage)
        value: dict[str, Any] = {"kind": "report", "message": text}
        if percentage is not None:
            value["percentage"] = percentage
        self._tell(value)

    def end(self, text: str = "") -> None:
        """Once, whatever happened."""
        self._tell({"kind": "end", "message": one_line(text)} if text else {"kind": "end"})

    def _tell(self, value: dict[str, Any]) -> None:
        if self._token is not None:
            self._connection.tell("$/progress", {"token": self._token, "value": value})


def turn_event(event: api.Event) -> wire.TurnEvent | None:
    """The event as a partial result, None for what no editor shows."""
    kind = _SHOWN.get(event.__struct_config__.tag)
    return wire.mirrored(kind, event) if kind is not None else None


#: By the tag that both wires give it.
_SHOWN: dict[Any, type[wire.TurnEvent]] = {kind.__struct_config__.tag: kind for kind in get_args(wire.TurnEvent)}


def stage_text(event: api.Event) -> tuple[str, float | None] | None:
    """A line and a fraction for the stages that take time, None for all other events."""
    if isinstance(event, api.Queued):
        return queue_title(event.position, event.ahead), None
    if isinstance(event, api.Loading):
        return loading_title(event.model, event.fraction, event.unloads), event.fraction
    if isinstance(event, api.Prefill) and event.total:
        return f"Reading the conversation ({event.done:,} of {event.total:,} tokens)", event.done / event.total
    return None
