"""Blocking calls of an event loop in a thread, where no thread can be had told by its type."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread

from shared.diagnosis.exhausted import exhausted
from shared.errors import ResourcesExhausted

T = TypeVar("T")


async def in_thread(call: Callable[..., T], *arguments: Any, abandon_on_cancel: bool = False) -> T:
    """As `anyio.to_thread.run_sync`. Raises ResourcesExhausted where the system gives no thread."""
    try:
        return await anyio.to_thread.run_sync(call, *arguments, abandon_on_cancel=abandon_on_cancel)
    except RuntimeError as error:
        full = exhausted(error)
        if full is None:
            raise
        raise full from error


def poster() -> Callable[..., None]:
    """What hands a call from any thread to the running loop; nothing happens where that has ended meanwhile.

    In the context of whoever asks here: that of a thread does not name the loop, and nothing of anyio can be used in
    it where sniffio is installed.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()

    def post(call: Callable[..., None], *arguments: Any) -> None:
        try:
            loop.call_soon_threadsafe(call, *arguments, context=context)
        except RuntimeError:
            return  # the loop has ended, and with it everybody who listened

    return post


async def somehow(call: Callable[..., T], *arguments: Any, abandon_on_cancel: bool = False) -> T:
    """As `in_thread`, or at once on the loop where no thread can be had: for the bounded steps of an end."""
    try:
        return await in_thread(call, *arguments, abandon_on_cancel=abandon_on_cancel)
    except ResourcesExhausted:
        return call(*arguments)
