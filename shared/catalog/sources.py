"""Where models are looked for: the own store and the folders that other programs keep."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from shared.catalog.entry import Source
from shared.paths import DataRoot
from shared.settings import Settings

#: Who keeps the plain name, and who is listed first, when two places hold the same.
RANK: dict[str, int] = {"store": 0, "folder": 1, "lmstudio": 2, "huggingface": 3, "ollama": 4}


class SearchFolder(msgspec.Struct, frozen=True):
    """One folder to search and the layout it has."""

    source: Source
    path: str


def search_folders(root: DataRoot, settings: Settings, environ: Mapping[str, str] = os.environ) -> list[SearchFolder]:
    """The folders of this user in the order of `RANK`; a folder that is missing is left out, unless the
    user named it (then its absence is worth a word).
    """
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~"))
    searched = [SearchFolder("store", str(root.models))]
    searched += [
        SearchFolder("folder", os.path.abspath(os.path.expanduser(folder))) for folder in settings.model_folders
    ]
    for source, folders in (
        ("lmstudio", _lmstudio(home)),
        ("huggingface", [_huggingface(home, environ)]),
        ("ollama", _ollama(home, environ)),
    ):
        searched += [SearchFolder(source, str(folder)) for folder in folders if folder.is_dir()]  # type: ignore[arg-type]
    unique: dict[str, SearchFolder] = {}
    for folder in searched:
        unique.setdefault(os.path.realpath(folder.path), folder)
    return list(unique.values())


def _huggingface(home: Path, environ: Mapping[str, str]) -> Path:
    """huggingface_hub: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(variable):
            return Path(environ[variable]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "hub"
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache).expanduser() if cache else home / ".cache") / "huggingface" / "hub"


def _lmstudio(home: Path) -> list[Path]:
    folders = [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    pointer = home / ".lmstudio-home-pointer"
    try:
        folders.insert(0, Path(pointer.read_text(encoding="utf-8").strip()) / "models")
    except (OSError, UnicodeDecodeError):
        return folders  # no pointer: the usual places
    return folders


def _ollama(home: Path, environ: Mapping[str, str]) -> list[Path]:
    if environ.get("OLLAMA_MODELS"):
        return [Path(environ["OLLAMA_MODELS"]).expanduser()]
    folders = [home / ".ollama" / "models"]
    if sys.platform.startswith("linux"):
        folders.append(Path("/usr/share/ollama/.ollama/models"))
    return folders
