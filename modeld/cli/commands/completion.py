"""`modeld completion SHELL` and what its lines ask back: `modeld complete -- WORDS`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from shared import codes
from shared.completion import candidates, script

#: A key was pressed: a scan that is not done by then gives what it has. Seconds.
SCAN_SECONDS = 1.0


def main(options: argparse.Namespace) -> int:
    """Prints the lines for the shell."""
    sys.stdout.write(script("modeld", options.shell))
    return codes.OK


def complete(words: list[str]) -> int:
    """Prints one candidate a line. Says nothing where anything goes wrong: a shell is waiting."""
    from modeld.cli.app import parser

    given = words[1:] if words[:1] == ["--"] else words
    found = candidates(parser(), given, models)
    sys.stdout.write("".join(f"{word}\n" for word in found))
    return codes.OK


def models() -> Iterable[str]:
    """Names in the library."""
    from shared.catalog.library import Library
    from shared.errors import ModeldError
    from shared.paths import config_file, data_root
    from shared.settings import load_settings

    try:
        library = Library(data_root(), load_settings(file=config_file()))
    except ModeldError:
        return []
    try:
        library.wait(SCAN_SECONDS)
        return [row.name for row in library.rows()]
    finally:
        library.close()
