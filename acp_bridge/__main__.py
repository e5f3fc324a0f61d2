"""`acp-bridge`: what an editor spawns, and its command-line siblings.

Standard output is taken private before anything else is imported, so that nothing but the protocol can reach it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:] in (["acp"], ["lsp"]):
        from shared.endpoint.stdio import claim_stdin, claim_stdout

        output, source = claim_stdout(), claim_stdin()
        from acp_bridge import app

        serve = app.serve_acp if sys.argv[1] == "acp" else app.serve_lsp
        _leave(_served(lambda: serve(source, output)))
    try:
        from acp_bridge.cli.app import run
        from shared.text.console import command

        code = command("acp-bridge", lambda: run(sys.argv[1:]))
    except KeyboardInterrupt:  # also while the imports run
        code = 130
    sys.exit(code)


def _served(serve: Callable[[], int]) -> int:
    """The exit code of a face, by the table of the commands; what ends it early is one line, never a traceback."""
    try:
        return serve()
    except Exception as error:
        from shared import codes

        raised = error

    def again() -> int:
        raise raised

    return codes.ended("acp-bridge", sys.argv[1:], again)


#: An editor expects the process to be gone a second after it closed the pipe.
EXIT_LIMIT_S = 0.4


def _leave(code: int) -> None:
    """End in order, but soon: a thread that still reads a disk or a pipe must not keep an editor waiting."""
    import os
    import threading

    end = threading.Timer(EXIT_LIMIT_S, os._exit, (code,))
    end.daemon = True
    end.start()
    sys.exit(code)


if __name__ == "__main__":
    main()
