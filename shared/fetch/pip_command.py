"""Which command fetches a wheel here: pip of this Python, or another way to run pip where this Python has none."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path


def pip_command(
    has_pip: Callable[[], bool] | None = None,
    which: Callable[[str], str | None] = shutil.which,
    bundled: Callable[[], Path | None] | None = None,
) -> list[str]:
    """The begin of a pip command. Environments that uv makes have no pip: then the wheel of pip that comes with
    Python, uv's own way of running a tool, and any other pip are tried, in this order.
    """
    if (has_pip or _has_pip)():
        return [sys.executable, "-m", "pip"]
    wheel = (bundled or _bundled)()
    if wheel is not None:
        return [sys.executable, str(wheel / "pip")]  # a wheel of pip runs without being installed
    uv = which("uv")
    if uv is not None:
        return [uv, "tool", "run", "--quiet", "pip"]
    return [which("pip3") or which("pip") or "pip"]


def pip_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of that command: the index that uv was given counts for pip too."""
    result = dict(environ)
    for theirs, ours in (("UV_DEFAULT_INDEX", "PIP_INDEX_URL"), ("UV_INDEX_URL", "PIP_INDEX_URL")):
        if result.get(theirs) and not result.get(ours):
            result[ours] = result[theirs]
    return result


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def _bundled() -> Path | None:
    """The newest wheel of pip that ensurepip carries, if it does (Debian takes it out)."""
    spec = importlib.util.find_spec("ensurepip")
    if spec is None or not spec.submodule_search_locations:
        return None
    wheels = sorted(Path(spec.submodule_search_locations[0], "_bundled").glob("pip-*.whl"))
    return wheels[-1] if wheels else None
