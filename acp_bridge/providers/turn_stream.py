"""One turn streamed from an endpoint: tried again where that helps, its end and its failures told apart."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge.providers import requests
from acp_bridge.providers.answers.events import (
    EVENT_BYTES,
    EVENT_STREAM,
    LIKE_STREAMS,
    body_of,
    content_type,
    events_of,
)
from acp_bridge.providers.answers.stream import StreamReader
from acp_bridge.providers.endpoint import ERROR_READ, Endpoint, TryAgain, troubles
from acp_bridge.providers.refusals import overflow_of, without_refused
from acp_bridge.providers.retry import pause
from shared.errors import ContextOverflow, EngineFailed, ModeldError, WaitTimeout
from shared.protocol import api

if TYPE_CHECKING:
    import httpx2

    from acp_bridge.providers.learned import Learned

#: A server that only keeps the connection alive (comments of the stream) is waited for this many times `timeout_s`.
ALIVE_TIMES = 10
#: How long the end of a body is waited for behind the end of the answer, so that the connection can be used again.
DRAIN_S = 0.05
#: Kept free behind the prompt where `max_tokens` is lowered to what fits: what templates add.
SLACK = 8
#: A pause from this length on is shown.
SHOWN_PAUSE_S = 1.0


class _Refused(Exception):
    """The endpoint does not take the request as it is. `text`: its own words."""

    def __init__(self, error: ModeldError, text: str) -> None:
        super().__init__(error.message)
        self.error = error
        self.text = text


class TurnStream:
    """Sends one turn. `waiting` is told of pauses that a person notices."""

    def __init__(
        self,
        endpoint: Endpoint,
        learned: Learned,
        params: api.TurnParams,
        on_event: Callable[[api.Event], None],
        waiting: Callable[[str], None],
    ) -> None:
        self._endpoint = endpoint
        self._provider = endpoint.provider
        self._learned = learned
        self._params = params
        self._on_event = on_event
        self._waiting = waiting
        self._reader = StreamReader(endpoint.clean)
        self._body = self._whole_body()
        affinity = self._provider.affinity_header
        self._headers = {affinity: requests.affinity(params)} if affinity else {}
        self._began = time.monotonic()
        self._first = 0.0
        self._heard = self._began

    async def run(self) -> api.TurnResult:
        """Until its end. Tried again before the first byte alone, `max_retries` times. Raises the typed errors."""
        retries = self._provider.max_retries
        for attempt in range(1, retries + 2):
            try:
                await self._adapted()
                return self._result()
            except TryAgain as again:
                seconds = pause(attempt, again.after, random.random()) if attempt <= retries else None  # noqa: S311
                if seconds is None:
                    raise again.error from again
            if seconds >= SHOWN_PAUSE_S:
                self._waiting(f"{self._provider.name} is busy; trying again in {seconds:.0f} s")
            await anyio.sleep(seconds)
        raise AssertionError("the last try returns or raises")

    def _whole_body(self) -> dict[str, Any]:
        name = self._params.model
        served = self._learned.served(name)
        body = requests.chat_body(self._params, served, self._learned.thinking(name))
        dropped = self._learned.dropped.get(served, frozenset())
        if "max_tokens" in dropped and "max_tokens" in body:
            body["max_completion_tokens"] = body["max_tokens"]
        return {field: value for field, value in body.items() if field not in dropped}

    async def _adapted(self) -> None:
        """The request; once more without a field that the endpoint does not know, or with as many tokens as fit."""
        try:
            await self._stream()
            return
        except _Refused as refused:
            body = without_refused(self._body, refused.text)
            if body is None:
                raise refused.error from refused
            known = self._learned.dropped.get(body["model"], frozenset())
            self._learned.dropped[body["model"]] = known | (self._body.keys() - body.keys())
            self._body = body
        except ContextOverflow as overflow:
            self._learned.overflowed(self._params, overflow)
            room = int(overflow.context or 0) - int(overflow.additional or 0) - SLACK
            limit = "max_completion_tokens" if "max_completion_tokens" in self._body else "max_tokens"
            if not overflow.additional or not 0 < room < self._body.get(limit, 0):
                raise
            self._body = {**self._body, limit: room}
        try:
            await self._stream()
        except _Refused as refused:
            raise refused.error from refused

    # --- one try -------------------------------------------------------------------------------

    async def _stream(self) -> None:
        endpoint = self._endpoint
        library = await endpoint.ready()
        url = f"{self._provider.base_url}/chat/completions"
        started: list[bool] = []
        try:
            async with endpoint.open(
                "POST", url, self._body, limit_s=self._provider.timeout_s, headers=self._headers
            ) as answer:
                if answer.status_code != 200:
                    await self._refuse(answer)
                await self._read(library, answer, started)
        except library.SSEError as error:
            text = f"{self._provider.name} sent a piece of more than {EVENT_BYTES // 2**20} MiB"
            raise EngineFailed(text, reason="too large") from error
        except troubles(library) as error:
            failed, again = endpoint.failed(library, error)
            if started and not isinstance(failed, WaitTimeout):
                text = f"{self._provider.name} broke the answer off"
                raise EngineFailed(text, reason="connection lost") from error
            if again:
                raise TryAgain(failed) from error
            raise failed from error  # a setting that cannot work: another try cannot either
        self._require_whole()

    async def _read(self, library: Any, answer: httpx2.Response, started: list[bool]) -> None:
        reader = self._reader
        async with aclosing(self._events(library, answer)) as events:
            async for kind, data in events:
                started.append(True)
                self._heard = time.monotonic()
                self._show(reader.event(data, kind))
                if reader.ended or reader.error:
                    await self._drain(library, events)
                    break
        self._show(reader.end())

    @staticmethod
    async def _drain(library: Any, events: AsyncGenerator[tuple[str, str]]) -> None:
        """Behind the end nothing is read, waited for or taken for a failure."""
        failures: tuple[type[Exception], ...] = (*troubles(library), ModeldError)
        try:
            with anyio.move_on_after(DRAIN_S):
                async for _ in events:
                    continue
        except failures:
            return

    def _show(self, events: list[api.Event]) -> None:
        for event in events:
            self._first = self._first or time.monotonic() - self._began
            self._on_event(event)

    async def _refuse(self, answer: httpx2.Response) -> None:
        text = await body_of(answer, ERROR_READ)
        try:
            self._endpoint.require_good(answer, text, self._params.model)
        except ContextOverflow:
            raise
        except ModeldError as error:
            if answer.status_code not in (400, 422):
                raise
            raise _Refused(error, text) from error

    def _require_whole(self) -> None:
        """Raises for an answer that ended as an error, or did not end at all."""
        name, reader = self._provider.name, self._reader
        if reader.error:
            said = self._endpoint.said(reader.error)
            overflow = None if reader.begun else overflow_of(reader.error)
            if overflow is not None:
                window = overflow.window or self._learned.window(self._params.model) or None
                raise ContextOverflow(f"{name}: {said}", context=window, resident=0, additional=overflow.prompt or None)
            raise EngineFailed(f"{name}: {said}", reason=said)
        if not (reader.ended or reader.finish):
            raise EngineFailed(f"{name} broke the answer off", reason="the stream ended early")

    async def _events(self, library: Any, answer: httpx2.Response) -> AsyncGenerator[tuple[str, str]]:
        """(name, data) of the answer's events; one in a single piece is one. Raises EngineFailed for other bodies."""
        kind = content_type(answer)
        some = kind == EVENT_STREAM  # one that breaks off is reported as that
        self._heard = time.monotonic()
        if some or kind in LIKE_STREAMS:
            async with aclosing(events_of(library, answer, self._require_events)) as events:
                async for event in events:
                    some = True
                    yield event
        elif kind == "application/json" or kind.endswith("+json"):
            some = True
            yield "message", await body_of(answer, EVENT_BYTES)
        if not some:
            said = self._endpoint.said(kind) or "a body without a type"
            text = f"{self._provider.name} answered with {said} in place of a stream: is its base_url right?"
            raise EngineFailed(text, reason=said)

    def _require_events(self) -> None:
        """Raises WaitTimeout for a stream that is only kept alive."""
        waited = time.monotonic() - self._heard
        if waited > ALIVE_TIMES * self._provider.timeout_s:
            text = f"{self._provider.name} kept the connection open for {waited:.0f} s and sent nothing of an answer"
            raise WaitTimeout(text, position=0, waited_s=round(waited))

    # --- the end -------------------------------------------------------------------------------

    def _result(self) -> api.TurnResult:
        reader, params = self._reader, self._params
        spent = time.monotonic() - self._began
        first = self._first or spent
        used = reader.prompt_tokens + reader.generated
        self._learned.answered(params, reader.prompt_tokens, used)
        window, finish = self._learned.window(params.model), reader.reason()
        if finish == "length" and window and used >= window - 1:
            finish = "context_full"
        reused = min(reader.cached_tokens, reader.prompt_tokens)
        rate = reader.generated / max(spent - first, 1e-3)
        return api.TurnResult(
            finish_reason=finish,
            model=params.model,
            usage=api.Usage(reused=reused, prefilled=reader.prompt_tokens - reused, generated=reader.generated),
            timings=api.Timings(first_token_s=first, tokens_per_s=round(rate, 1)),
            generation=0,
            num_ctx=window if used else 0,
            tool_calls=reader.tool_calls(),
            warnings=reader.warnings(self._provider.name),
        )
