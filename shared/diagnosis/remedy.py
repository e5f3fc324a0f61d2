"""The commands that a message tells people to type, as they are right for this installation."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from shared.backends import BACKENDS

#: What each extra of the distribution brings: a tool that reinstalls must be informed of those that are there.
EXTRAS = {
    **{name: each.package for name, each in BACKENDS.items()},
    "http": "uvicorn",
    "mcp": "mcp",
    "remote": "httpx2",
}
#: In the paths of environments that are made for one run (uvx, `pipx run`): gone when a cache is cleared.
_FLEETING = ("/uv/archive-", "/uv/builds-", "\\uv\\cache\\", "/pipx/.cache/", "/archive-v0/")


def fleeting(path: str) -> bool:
    """Whether what is at this path will not stay."""
    return any(mark in path for mark in _FLEETING)


def called(program: str, environ_path: str | None = None) -> str:
    """How `program` of this installation is called from a terminal: by its name where that finds it, else by its path.

    `environ_path` instead of PATH.
    """
    from shlex import quote  # both are needed only where something is reported to people
    from shutil import which

    beside = Path(sys.executable).parent / (f"{program}.exe" if os.name == "nt" else program)
    if not beside.exists():
        return program  # there is none beside this interpreter: the one that is found has to do
    found = which(program, path=environ_path)
    by_name = found is not None and os.path.samefile(found, beside)
    return program if by_name else quote(str(beside))


def install_command(*extras: str, prefix: Path | None = None, has: Callable[[str], bool] | None = None) -> str:
    """What adds `extras` to this installation, by the tool that made it: pip, pipx or uv."""
    from shlex import quote

    where = prefix if prefix is not None else Path(sys.prefix)
    there = has if has is not None else _is_there
    if (where / "uv-receipt.toml").exists():
        return f"uv tool install {_wanted(extras, there)}"
    if (where / "pipx_metadata.json").exists():
        return f"pipx install --force {_wanted(extras, there)}"
    if fleeting(f"{where}{os.sep}"):  # nothing is added to it
        return f"uv tool install {_wanted(extras, there)}"
    wanted = f"'modeld[{','.join(sorted(extras))}]'"
    python = quote(sys.executable)
    if not there("pip"):
        return f"uv pip install --python {python} {wanted}"
    return f"{_pip(python)} install {wanted}"


def _pip(python: str) -> str:
    """`pip` where that is the one of this interpreter."""
    from shutil import which

    found = which("pip")
    mine = found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
    return "pip" if mine else f"{python} -m pip"


def _wanted(extras: tuple[str, ...], there: Callable[[str], bool]) -> str:
    kept = {name for name, package in EXTRAS.items() if there(package)}
    return f"'modeld[{','.join(sorted(kept.union(extras)))}]'"


def _is_there(package: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False  # a half-removed package is not there
