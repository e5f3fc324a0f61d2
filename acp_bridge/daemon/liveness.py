"""Tells a busy daemon from a dead one: silence alone means nothing, an unanswered ping does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio

from shared.errors import ModeldError
from shared.protocol import api
from shared.protocol.faults import BadAnswer, PeerGone

if TYPE_CHECKING:
    from shared.client.link import Link, OnEvent

R = TypeVar("R")


class Silent(Exception):
    """The instance on the other end was frozen or cut off: neither its work nor a ping tells anything."""

    def __str__(self) -> str:
        return "it does not answer"


async def answers(link: Link, limit: float) -> bool:
    """Whether the other end answers within `limit` seconds, whatever it says."""
    with anyio.move_on_after(limit):
        try:
            await link.call("ping", api.Fenced(), api.PingResult)
        except (ModeldError, BadAnswer):
            return True
        except PeerGone:
            return False
        return True
    return False


async def watched(link: Link, work: Callable[[OnEvent], Awaitable[R]], on_event: OnEvent | None, *, limit: float) -> R:
    """The result of `work`, which is given what to call with its events (`on_event` gets them).

    Raises Silent when nothing was heard for `limit` seconds and a ping is not answered in as many.
    """
    heard = [anyio.current_time()]
    results: list[R] = []
    failures: list[Exception] = []

    def noticed(event: api.Event) -> None:
        heard[0] = anyio.current_time()
        if on_event is not None:
            on_event(event)

    async def watch() -> None:
        while True:
            await anyio.sleep_until(heard[0] + limit)
            if anyio.current_time() < heard[0] + limit:
                continue
            if not await answers(link, limit) and not results:
                failures.append(Silent())
                group.cancel_scope.cancel()
                return
            heard[0] = anyio.current_time()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        try:
            results.append(await work(noticed))
        except Exception as error:
            failures.insert(0, error)
        group.cancel_scope.cancel()
    if results:
        return results[0]
    raise failures[0]
