"""The key of a server: random for this run or the user's own, in a file that its user alone can read."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from shared.errors import RootUnusable, SettingInvalid
from shared.system import private

#: What a header can carry as one word; long enough that it cannot be guessed.
_USABLE = re.compile(r"[\x21-\x7e]{16,512}")
#: The most that is read of a file.
_MOST = 4096


class Key:
    """A key and where clients read it. `file` is None where the user's environment holds it.

    `kept`: the file stays when the server ends, and the next run uses its key.
    """

    def __init__(self, text: str, file: Path | None, *, kept: bool) -> None:
        self._text = text
        self.file = file
        self._kept = kept

    def __repr__(self) -> str:
        return f"Key(file={self.file!r})"

    @property
    def data(self) -> bytes:
        """To compare with."""
        return self._text.encode("ascii")

    def remove(self) -> None:
        """The end of the run. A file that another run has replaced meanwhile stays."""
        if self.file is None or self._kept:
            return
        try:
            if private.read(self.file, _MOST) == self.data + b"\n":
                self.file.unlink()
        except OSError:
            return  # it has gone already


def of_run(file: Path) -> Key:
    """A random key for this run, in `file` from now on. Raises OSError."""
    key = Key(_random(), file, kept=False)
    private.folder(file.parent)
    private.write(file, key.data + b"\n")
    return key


def of_file(file: Path) -> Key:
    """The key in `file`; made where there is none. Raises SettingInvalid, RootUnusable, OSError."""
    try:
        text = private.read(file, _MOST).decode("ascii", "replace").strip()
    except FileNotFoundError:
        key = Key(_random(), file, kept=True)
        private.folder(file.parent)
        private.write(file, key.data + b"\n")
        return key
    _require_private(file)
    return Key(_usable(text, str(file)), file, kept=True)


def of_environment(name: str, environ: Mapping[str, str]) -> Key:
    """The key in the variable `name`. Raises SettingInvalid."""
    return Key(_usable(environ.get(name, ""), f"environment variable {name}"), None, kept=True)


def _random() -> str:
    return f"sk-modeld-{secrets.token_urlsafe(32)}"


def _usable(text: str, source: str) -> str:
    """Raises SettingInvalid, which never shows it."""
    if _USABLE.fullmatch(text) is None:
        reason = "a key has 16 to 512 letters, digits and signs, and no spaces" if text else "it is empty or not there"
        raise SettingInvalid(name="key", source=source, reason=reason)
    return text


def _require_private(file: Path) -> None:
    if sys.platform == "win32":
        return  # no modes: what stands in a user's folder is the user's
    facts = os.lstat(file)
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        mode = oct(stat.S_IMODE(facts.st_mode))
        hint = "a key file has to be yours and closed to others (chmod 600)"
        raise RootUnusable(path=str(file), uid=facts.st_uid, mode=mode, hint=hint)
