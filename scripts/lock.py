"""`make lock`: writes constraints.txt from a fresh environment with every extra installed.

Only names and versions are written, never where they came from.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from steps import ROOT, StepFailed, fail, quiet, say

LOG = ROOT / ".work" / "lock.log"
HEAD = """# The versions this release was tested with: pip installs them for `make chat` and `make test`.
# Made by `make lock`; the ranges that are allowed stand in pyproject.toml.
"""
EXTRAS = "dev,docs,editor,http,llama,mcp,openvino,quality,remote"


def main() -> int:
    """Exit 0 when constraints.txt was written."""
    with tempfile.TemporaryDirectory() as name:
        python = Path(name) / "bin" / "python"
        try:
            quiet("a fresh environment", [sys.executable, "-m", "venv", name], log=LOG, remedy="See the log.")
            quiet(
                "installing every extra",
                [python, "-m", "pip", "install", f"{ROOT}[{EXTRAS}]"],
                log=LOG,
                remedy="Check the network.",
            )
        except StepFailed as error:
            return fail(error)
        done = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if "==" in line and "@" not in line and line[0] not in "#-"]
    (ROOT / "constraints.txt").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    say(f"{len(lines)} versions written to constraints.txt; run make test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
