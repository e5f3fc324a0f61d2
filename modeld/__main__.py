"""`modeld`: the command line's entry. Nothing is imported before the command is known."""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code. A Ctrl-C while it is still being imported is reported by the code alone."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130


def _run(arguments: list[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["serve"]:  # the start path: no other command's code
        from modeld.cli.commands.serve import main as serve

        return serve(given[1:])
    if given[:1] == ["complete"]:
        from modeld.cli.commands.completion import complete

        return complete(given[1:])
    if given[:1] in (["acp"], ["lsp"], ["chat"], ["run"]):
        return _bridge(given)
    from modeld.cli.app import run
    from shared.text.console import command

    return command("modeld", lambda: run(given))


def _bridge(arguments: list[str]) -> int:
    """`modeld acp` is `acp-bridge acp`: what runs a package by its name alone (uvx) has one command only.

    `modeld chat` and `modeld run` are the bridge's too: people look for them here.
    """
    import os
    import subprocess

    command = [sys.executable, "-P", "-m", "acp_bridge", *arguments]
    if sys.platform != "win32":  # there, exec would leave the editor with a process that has ended
        os.execv(sys.executable, command)  # noqa: S606  our own interpreter
    return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main())
