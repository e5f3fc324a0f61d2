"""How every listener runs the handler of one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from anyio.abc import ByteStream


async def handle_connection(stream: ByteStream, handler: Callable[[ByteStream], Awaitable[None]]) -> None:
    """Run the handler and close the stream. A defect ends this connection alone and is reported to the loop."""
    try:
        await handler(stream)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a connection handler failed", "exception": error}
        )
    finally:
        with anyio.CancelScope(shield=True):
            await stream.aclose()
