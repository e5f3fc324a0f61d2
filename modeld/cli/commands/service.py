"""`modeld service install|remove|status`: started at login, by the platform's own manager, without privilege."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys

from modeld.cli.context import Context, print_json
from modeld.service import manager
from modeld.service.manager import Service
from shared import codes
from shared.diagnosis.remedy import install_command
from shared.errors import BackendUnavailable, SettingInvalid
from shared.paths import home
from shared.text.shown import one_line

#: Where programs find the HTTP face that is a service, if nobody says another port.
HTTP_PORT = 8199


def main(options: argparse.Namespace) -> int:
    """Raises RootUnusable where no home is known, OSError."""
    context = Context()
    folder = home()
    if folder is None:
        print("modeld: no home folder is known: set HOME, then run this again", file=sys.stderr)
        return codes.FAILED
    if options.port is not None and not options.http:
        print("modeld: --port is for the service of --http", file=sys.stderr)
        return codes.USAGE
    start = _http(context, options) if options.http else manager.daemon(options.backend)
    found = manager.service(sys.platform, folder, context.root, start)
    if options.action == "status":
        return _status(found, as_json=options.json)
    if options.print_only:
        print(found.text, end="")
        return codes.OK
    return _install(found, start.program.name) if options.action == "install" else _remove(found)


def _http(context: Context, options: argparse.Namespace) -> manager.Start:
    """Raises BackendUnavailable where it could not start, SettingInvalid."""
    if options.action == "install" and any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        hint = f"install it with `{install_command('http')}`"
        raise BackendUnavailable(backend="http", reason="the HTTP server is not installed", hint=hint)
    port = HTTP_PORT if options.port is None else options.port
    if not 1 <= port <= 65535:
        raise SettingInvalid(name="port", source="flag --port", reason="a port is 1 to 65535")
    return manager.http(context.root, port)


def _install(found: Service, name: str) -> int:
    """Write the file and have it read. Again: the same."""
    data = found.text.encode(found.encoding)
    found.path.parent.mkdir(parents=True, exist_ok=True)
    part = found.path.with_name(f".{found.path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(found.path)
    print(f"wrote {found.path}")
    for words in found.install:
        code, said = manager.run(words)
        if code != 0:
            print(f"modeld: `{shlex.join(words)}` failed: {one_line(said) or code}", file=sys.stderr)
            rest = "; ".join(shlex.join(each) for each in found.install)
            print(f"modeld: in a session with {found.manager} running, type: {rest}", file=sys.stderr)
            return codes.FAILED
    undo = "modeld service remove" + (" --http" if name != "modeld" else "")
    print(f"{found.manager} starts {name} at login, and started it now; `{undo}` undoes it")
    return codes.OK


def _remove(found: Service) -> int:
    """Stop it, and take the file away. Again: nothing to do."""
    if not found.path.exists():
        print("no service is installed")
        return codes.OK
    for words in found.remove:
        code, said = manager.run(words)
        if code != 0:
            print(f"modeld: `{shlex.join(words)}`: {one_line(said) or code}", file=sys.stderr)
    found.path.unlink(missing_ok=True)
    print(f"removed {found.path}")
    return codes.OK


def _status(found: Service, *, as_json: bool) -> int:
    installed = found.path.exists()
    code, said = manager.run(found.status) if installed else (1, "")
    current = installed and found.path.read_bytes() == found.text.encode(found.encoding)
    if as_json:
        print_json(
            {"installed": installed, "current": current, "manager": found.manager, "active": code == 0, "said": said}
        )
    elif not installed:
        print(f"no service is installed for {found.manager}; `modeld start` works without one")
    else:
        print(f"{found.path}: {'active' if code == 0 else f'not active ({one_line(said) or code})'}")
        if not current:
            print("Another installation wrote it, or other options; `modeld service install` rewrites it.")
    return codes.OK
