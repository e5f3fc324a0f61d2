"""The names of models as people type them: the whole name, or how it begins where only one does.

The wire takes whole names alone, so that a remembered pick can never come to mean another model. What a person types
now may be shorter; what removes something may not.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from shared.catalog.names import begun
from shared.errors import ModelNotFound
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.client import Connection

T = TypeVar("T")


async def by_name(connection: Connection, typed: str, call: Callable[[str], Awaitable[T]]) -> T:
    """`call` with the name as it was typed, and where there is none, with the one that begins so (it is said which).

    Raises ModelNotFound with the nearest names.
    """
    try:
        return await call(typed)
    except ModelNotFound:
        library = await connection.call("library/list", api.Fenced(), api.LibraryResult)
        whole = begun(typed, [row.name for row in library.rows])
        if whole is None:
            raise
    sys.stderr.write(f"modeld: using {whole}\n")
    return await call(whole)
