"""Where things are: one data root per user, and the config file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

APP = "modeld"


class DataRoot:
    """Every path under one data root. Nothing is created here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.owner = path / "owner"
        self.owner_copy = path / "owner.lease"
        self.instances = path / "instances"
        self.database = path / "local.db"
        self.library_cache = path / "library.cache"
        self.bridge_database = path / "bridge.db"
        self.chat_history = path / "chat_history"
        self.models = path / "models"
        self.logs = path / "logs"
        self.cache = path / "cache"
        self.parked = path / "parked"

    def __repr__(self) -> str:
        return f"DataRoot({str(self.path)!r})"


def data_root(environ: Mapping[str, str] = os.environ) -> DataRoot:
    """`MODELD_DATA_ROOT`, else the platform's per-user data folder.

    Raises RootUnusable where no home is known, for a name that no record could hold, and to root for another user's.
    """
    explicit = environ.get("MODELD_DATA_ROOT")
    if explicit:
        return DataRoot(_not_roots_guest(_nameable(Path(explicit).expanduser().absolute())))
    _need_home(environ, "MODELD_DATA_ROOT")
    import platformdirs  # 18 ms, needed only here

    return DataRoot(_not_roots_guest(_nameable(Path(platformdirs.user_data_dir(APP, appauthor=False)))))


def _not_roots_guest(path: Path) -> Path:
    """Root may write anywhere, and would leave files behind that the folder's own user cannot write."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return path
    try:
        facts = os.stat(path)
    except OSError:
        return path  # whoever uses it is told
    if facts.st_uid == 0:
        return path
    from shared.errors import RootUnusable

    whose = f"it belongs to uid {facts.st_uid}, who could not write what root leaves there"
    hint = f"{whose}; run this as that user, or set MODELD_DATA_ROOT"
    raise RootUnusable(path=str(path), uid=facts.st_uid, mode=f"{facts.st_mode & 0o7777:04o}", hint=hint)


def _nameable(path: Path) -> Path:
    """Records, messages and the database hold text: a path of other bytes cannot stand in them."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        from shared.errors import RootUnusable

        shown = ascii(str(path))
        hint = "set MODELD_DATA_ROOT to a folder whose name is UTF-8"
        message = f"{shown} cannot be the data root: its name is not UTF-8; {hint}"
        raise RootUnusable(message, path=shown, hint=hint) from error
    return path


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """`MODELD_CONFIG`, else `config.toml` in the platform's config folder. Raises RootUnusable without a home."""
    explicit = environ.get("MODELD_CONFIG")
    if explicit:
        return Path(explicit).expanduser().absolute()
    _need_home(environ, "MODELD_CONFIG")
    import platformdirs

    return Path(platformdirs.user_config_dir(APP, appauthor=False)) / "config.toml"


def home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The user's folder; None where nobody knows it: an empty or relative HOME would lead to the root of the disk."""
    given = environ.get("USERPROFILE" if os.name == "nt" else "HOME")
    found = os.path.expanduser("~") if given is None else given
    return Path(found) if os.path.isabs(found) else None


def _need_home(environ: Mapping[str, str], instead: str) -> None:
    if home(environ) is None:
        from shared.errors import RootUnusable

        raise RootUnusable(
            f"no home folder is known: set HOME to it, or {instead} to a place of its own", path="~", hint="set HOME"
        )
