"""What is asked of params beyond their types. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shared.protocol.faults import InvalidParams


def require_messages(messages: Sequence[object]) -> None:
    """A conversation has at least one message: templates make nonsense of none. Raises InvalidParams."""
    if not messages:
        raise InvalidParams(at="$.messages", reason="at least one message is needed")
