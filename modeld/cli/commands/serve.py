"""`modeld serve`: the daemon in the foreground."""

from __future__ import annotations

import sys

from shared.diagnosis.defect import sole
from shared.errors import ModeldError
from shared.text.console import guard_streams
from shared.text.shown import one_line

USAGE = """usage: modeld serve [--backend auto|llama|openvino|none] [--quiet]

Serve in the foreground until SIGTERM, Ctrl-C or `modeld stop`. Beside a modeld that owns the hardware it
is a standby: it takes over when that one crashes."""


def main(arguments: list[str]) -> int:
    """Parsed by hand: this is the start path, and argparse costs as much as the rest of it."""
    guard_streams()
    backend: str | None = None
    quiet = False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            print(USAGE)
            return 0
        if word == "--quiet":
            quiet = True
        elif word == "--backend" and rest:
            backend = rest.pop(0)
        elif word.startswith("--backend="):
            backend = word.partition("=")[2]
        else:
            print(f"modeld serve: unknown argument {word}\n{USAGE}", file=sys.stderr)
            return 2
    try:
        return serve(backend, quiet=quiet, arguments=["serve", *arguments])
    except Exception as error:
        return _report_failure(sole(error))


def _report_failure(error: BaseException) -> int:
    """One line for what people can fix; anything else is a defect of ours, reported by its calls alone."""
    from shared.diagnosis.defect import frames, report
    from shared.endpoint.faults import EndpointError

    if isinstance(error, ModeldError):
        print(f"modeld: {error.message}", file=sys.stderr)
    elif isinstance(error, (EndpointError, OSError)):
        print(f"modeld: cannot serve: {one_line(str(error))}", file=sys.stderr)
    else:
        sys.stderr.write(frames(error))
        report("modeld", "serve", error)
    return 1


def serve(backend: str | None, *, quiet: bool, arguments: list[str]) -> int:
    """Run the daemon to its end. Raises SettingInvalid, BackendUnavailable, RootError, EndpointError."""
    import anyio

    from modeld import signals

    signals.block()
    from modeld.daemon import Daemon, reexecute
    from modeld.engine.backends import choose, is_outside
    from modeld.limit import leave
    from shared.diagnosis.defect import DefectHandler
    from shared.paths import config_file, data_root
    from shared.settings import read_settings

    DefectHandler("modeld").stand()
    outside = backend is not None and is_outside(backend)
    settings, problems = read_settings(file=config_file(), flags={} if outside else {"backend": backend})
    for problem in problems:
        if problem.name == "backend":
            raise problem  # another engine than was meant must not serve
        print(f"modeld: {problem.message}", file=sys.stderr)
    chosen = choose(backend if backend and outside else settings.backend)
    root = data_root()

    async def run() -> bool:
        daemon = Daemon(root, settings, chosen, talks=not quiet)
        await daemon.run(anyio.Event())
        return daemon.succession.again

    if anyio.run(run):
        reexecute(arguments)
    leave(0)
    return 0
