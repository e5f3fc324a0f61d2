"""Whether the files under a running process are still those it was started from.

`pip install -U` replaces them while old processes run. What such a process imports from then on would be of another
version than what it has already: a daemon ends its turn and starts again, a bridge imports nothing more and says so.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from shared import version
from shared.errors import Upgraded

_VERSION = re.compile(r"^__version__\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)
_Facts = tuple[int, int, int]


class Installed:
    """The installation this process came from. `running` is the version in memory."""

    def __init__(self, path: Path | None = None, running: str = version.__version__) -> None:
        self.running = running
        self._path = path if path is not None else Path(version.__file__ or "")
        self._facts = self._look()
        self._changed = ""

    def changed(self) -> str:
        """The version on disk when it is another one, else "". Costs one stat while nothing happens.

        "" also while files are being exchanged: what cannot be read yet is looked at again.
        """
        facts = self._look()
        if facts is not None and facts != self._facts:
            found = self._read()
            if found is not None:
                self._facts = facts
                self._changed = found if found != self.running else ""
        return self._changed

    def _look(self) -> _Facts | None:
        try:
            facts = os.stat(self._path)
        except OSError:
            return None
        return facts.st_mtime_ns, facts.st_size, facts.st_ino

    def _read(self) -> str | None:
        try:
            found = _VERSION.search(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return None
        return found.group(1) if found is not None else None


class ImportGuard:
    """Stands first among the finders of modules and refuses ours once they are of another version."""

    def __init__(self, installed: Installed, packages: Sequence[str]) -> None:
        self._installed = installed
        self._prefixes = tuple(f"{package}." for package in packages)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds nothing. Raises Upgraded for a module that must not be mixed with what runs."""
        if name.startswith(self._prefixes):
            found = self._installed.changed()
            if found:
                raise Upgraded(running=self._installed.running, installed=found)
        return None

    def stand(self) -> None:
        """From now on, in this process."""
        sys.meta_path.insert(0, self)
