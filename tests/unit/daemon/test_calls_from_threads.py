"""What a thread hands to the loop runs there as the loop's own: libraries find the loop by its context."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

import anyio
import pytest

from shared.diagnosis.threads import poster

pytestmark = pytest.mark.anyio
LIBRARY = contextvars.ContextVar("library", default="")


async def test_a_call_from_a_thread_runs_in_the_context_of_the_loop() -> None:
    """sniffio, where something else installed it, names the loop by such a variable."""
    LIBRARY.set("asyncio")
    post, ran = poster(), anyio.Event()
    seen: list[tuple[str, int]] = []

    def called(number: int) -> None:
        seen.append((LIBRARY.get(), number))
        ran.set()

    thread = threading.Thread(target=post, args=(called, 7))
    thread.start()
    with anyio.fail_after(30):
        await ran.wait()
    thread.join()
    assert seen == [("asyncio", 7)]


def test_a_loop_that_has_ended_is_told_nothing() -> None:
    async def made() -> Callable[..., None]:
        return poster()

    post = anyio.run(made)
    post(pytest.fail, "called")
