"""`make wheel`: the wheel and the source archive of a release in `dist/`, the VS Code extension inside the wheel.

With the extension in it, `acp-bridge install vscode` needs nothing else. Without it (a plain `pip wheel`) that command
asks for `--vsix`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import editor
from prepare import LOG
from steps import BIN, ROOT, StepFailed, fail, quiet, say

#: Where the installed command looks first; the wheel takes it along (pyproject.toml, `artifacts`).
VSIX = ROOT / "acp_bridge" / "install" / "modeld.vsix"
DIST = ROOT / "dist"


def extension() -> Path:
    """Build and pack the extension. Raises StepFailed."""
    found = editor.tools()
    folder = Path(found["extension"])
    scripts = json.loads((folder / "package.json").read_text(encoding="utf-8"))["scripts"]
    build = scripts["build"].split()
    if build[0] == "node":
        build = build[1:]
    quiet("building the extension", [found["node"], *build], log=LOG, remedy="See the log.", folder=folder)
    vsce = folder / "node_modules" / "@vscode" / "vsce" / "vsce"
    command: list[str | Path] = [found["node"], vsce, "package", "--no-dependencies", "--out", VSIX]
    quiet("packing the extension", command, log=LOG, remedy="See the log.", folder=folder)
    return VSIX


def main() -> int:
    """Exit 0 when `dist/` has a wheel with the extension in it, and a source archive."""
    try:
        extension()
    except (StepFailed, KeyError) as error:
        return fail(StepFailed(str(error)))
    subprocess.run([str(BIN / "uv"), "build", "--quiet", "--out-dir", str(DIST), str(ROOT)], check=True)
    newest = max(DIST.glob("modeld-*.whl"), key=lambda path: path.stat().st_mtime)
    with zipfile.ZipFile(newest) as archive:
        if "acp_bridge/install/modeld.vsix" not in archive.namelist():
            return fail(StepFailed(f"{newest.name} does not hold the extension"))
    for path in sorted(DIST.glob("modeld-*")):
        say(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
