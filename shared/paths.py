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
        self.models = path / "models"
        self.logs = path / "logs"
        self.cache = path / "cache"

    def __repr__(self) -> str:
        return f"DataRoot({str(self.path)!r})"


def data_root(environ: Mapping[str, str] = os.environ) -> DataRoot:
    """`MODELD_DATA_ROOT`, else the platform's per-user data folder."""
    explicit = environ.get("MODELD_DATA_ROOT")
    if explicit:
        return DataRoot(Path(explicit).expanduser().absolute())
    import platformdirs  # 18 ms, needed only here

    return DataRoot(Path(platformdirs.user_data_dir(APP, appauthor=False)))


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """`MODELD_CONFIG`, else `config.toml` in the platform's config folder."""
    explicit = environ.get("MODELD_CONFIG")
    if explicit:
        return Path(explicit).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_config_dir(APP, appauthor=False)) / "config.toml"
