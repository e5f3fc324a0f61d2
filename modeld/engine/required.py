"""What an engine must have by the time it is asked."""

from __future__ import annotations

from typing import TypeVar

from shared.errors import EngineFailed

T = TypeVar("T")


def there(value: T | None) -> T:
    """The value. Raises EngineFailed before anything was loaded."""
    if value is None:
        raise EngineFailed(reason="no model is loaded")
    return value
