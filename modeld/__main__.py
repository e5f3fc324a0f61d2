"""`modeld`: the command line's entry. Nothing is imported before the command is known."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["serve"]:  # the start path: no other command's code
        from modeld.cli.serve import main as serve

        return serve(given[1:])
    from modeld.cli.app import run

    return run(given)


if __name__ == "__main__":
    sys.exit(main())
