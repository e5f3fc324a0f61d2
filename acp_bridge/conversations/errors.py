"""What the core raises besides the table of `shared.errors`: mistakes of the caller, each with a translation a face."""

from __future__ import annotations


class UnknownConversation(Exception):
    """No conversation has this id."""


class BadChoice(Exception):
    """A mode, option or level that is not offered; `at` names what was set, `value` to what."""

    def __init__(self, at: str, value: object, offered: list[str]) -> None:
        super().__init__(f"{value!r} is not one of {', '.join(offered) or 'the offered values'}")
        self.at = at
        self.value = value
