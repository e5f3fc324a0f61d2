"""Reads server-sent events off an answer by the HTTP library's own reader, from servers that are not exact."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

#: The largest event: a file that a tool call writes comes in one from servers that send whole calls.
EVENT_BYTES = 16 * 1024 * 1024
EVENT_STREAM = "text/event-stream"
#: What else servers call one, "" included: those that forget the header.
LIKE_STREAMS = ("text/plain", "application/octet-stream", "application/x-ndjson", "")

_ERROR = re.compile(r"(?<=[\r\n])error:")
#: The end of a text that may go on as that.
_BEGUN = re.compile(r"(?<=[\r\n])e(?:r(?:r(?:or?)?)?)?$")


def content_type(answer: httpx2.Response) -> str:
    """The type of an answer's body, in lower case, without its parameters."""
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()


async def body_of(answer: httpx2.Response, limit: int) -> str:
    """The first `limit` characters of a body. Raises the library's errors."""
    pieces: list[str] = []
    source: Any = answer.aiter_text()
    async with aclosing(source) as texts:
        async for text in texts:
            pieces.append(text)
            limit -= len(text)
            if limit <= 0:
                break
    return "".join(pieces)[: limit if limit < 0 else None]


async def events_of(
    library: Any, answer: httpx2.Response, alive: Callable[[], None] = lambda: None
) -> AsyncGenerator[tuple[str, str]]:
    """(name, data) of each event that has data; `alive` is called for each piece, of an event or of a comment.

    Raises the library's errors (`SSEError` for an event that is too large), and what `alive` raises.
    """
    source = _Source(answer, alive)
    async with (
        aclosing(source.texts),
        aclosing(library.EventSource(source, max_event_size=EVENT_BYTES).__aiter__()) as events,
    ):
        async for event in events:
            if event.data:
                yield event.event, event.data


class _Source:
    """An answer as the library's reader takes it: of the right type, without a byte order mark.

    llama-server tells an error as a field of its own, `error: {...}`, which the standard lets a reader pass over: it
    becomes an event of that name.
    """

    def __init__(self, answer: httpx2.Response, alive: Callable[[], None]) -> None:
        self.headers = {"content-type": EVENT_STREAM}
        self.request = answer.request
        self.texts = _texts(answer, alive)

    def aiter_text(self) -> AsyncGenerator[str]:
        """As of a response."""
        return self.texts


async def _texts(answer: httpx2.Response, alive: Callable[[], None]) -> AsyncGenerator[str]:
    before, kept = "", ""
    source: Any = answer.aiter_text()
    async with aclosing(source) as texts:
        async for piece in texts:
            alive()
            text = kept + (piece if before or kept else piece.removeprefix("\ufeff"))
            lead = before or "\n"
            unfinished = _BEGUN.search(lead + text)
            kept = unfinished[0] if unfinished else ""
            text = text[: len(text) - len(kept)]
            if text:
                yield _ERROR.sub("event: error\ndata:", lead + text)[len(lead) :]
                before = text[-1]
    if kept:
        yield kept
