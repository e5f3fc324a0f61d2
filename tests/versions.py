"""Other versions of the product: copies of its folders, distinguished by the numbers in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("acp_bridge", "modeld", "shared")


class OtherVersion:
    """An installation of its own in a folder. `environ` makes a Python take the product from there."""

    def __init__(self, folder: Path, version: str, *, protocol: tuple[int, int] | None = None) -> None:
        self.folder = folder
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / package)  # the byte code too
        self.say(version)
        if protocol is not None:
            least, most = protocol
            self._set("shared/protocol/api.py", {"PROTOCOL": most, "PROTOCOL_MIN": least, "PROTOCOL_MAX": most})

    @property
    def environ(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.folder)}

    def say(self, version: str) -> None:
        """Write another version into it, as an upgrade in place does: a new file where the old one was."""
        path = self.folder / "shared" / "version.py"
        part = path.with_suffix(".new")
        part.write_text(f'"""The one place the version is written."""\n\n__version__ = "{version}"\n')
        later = path.stat().st_mtime + 2  # byte code is matched by the second and the size
        os.utime(part, (later, later))
        part.replace(path)

    def _set(self, name: str, values: dict[str, int]) -> None:
        path = self.folder / name
        text = path.read_text()
        for key, value in values.items():
            text, count = re.subn(rf"(?m)^{key} = \d+$", f"{key} = {value}", text)
            assert count == 1, (name, key)
        path.write_text(text)

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """One `modeld` command of this version."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "modeld", *arguments],
            env={**os.environ, **self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
