"""What an ownership needs of the coordination store."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol


class Coordination(Protocol):
    """What an ownership needs of the store. Blocking."""

    def stored_epoch(self) -> int:
        """The highest epoch that the database knows, 0 without a database. Raises RootError."""
        ...

    def take_over(self, instance: str, epoch: int) -> None:
        """Write the owner row; everything of older owners is refused from here on. Raises ModeldError."""
        ...

    def let_go(self) -> Future[None] | None:
        """Stop writing; the future ends when the file is closed, None where it was not open."""
        ...
