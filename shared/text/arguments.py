"""The parser of both command lines: what it says of a mistake shows no secret that was typed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn


class UsageWrong(Exception):
    """The command line is wrong, and the caller wants JSON: who ends the command writes both."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.message = message
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """As in argparse, which repeats what was typed: an address with a password, the value of a `--token`.

    Parsers of commands below this one are of the same class.
    """

    #: Whether options may stand between the words of the positional arguments, which argparse takes in one piece.
    intermixed = False
    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse."""
        self._given = args or ()
        if not self.intermixed:
            return super().parse_known_args(args, namespace)
        self.intermixed = False  # it comes back here for each of its two looks
        try:
            return super().parse_known_intermixed_args(args, namespace)
        finally:
            self.intermixed = True

    def error(self, message: str) -> NoReturn:
        """As in argparse, cleaned."""
        from shared.text.secret import Cleaner, argument_secrets  # only for a mistake

        cleaned = Cleaner(argument_secrets(self._given))(message)
        if "--json" in self._given:
            raise UsageWrong(cleaned, self.format_usage())
        super().error(cleaned)
