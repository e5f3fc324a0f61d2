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
from shared.system import private
from shared.system.foreign import Foreign
from shared.text.nesting import decode_json

#: Who keeps the plain name, and who is listed first, when two places hold the same.
RANK: dict[str, int] = {"store": 0, "folder": 1, "lmstudio": 2, "huggingface": 3, "ollama": 4}
#: Settings files of other programs are small.
_MOST_SETTINGS = 1024 * 1024


class SearchFolder(msgspec.Struct, frozen=True):
    """One folder to search and the layout it has."""

    source: Source
    path: str

    @property
    def named(self) -> bool:
        """Whether the user named it: then its absence is worth a word."""
        return self.source == "folder"

    @property
    def is_address(self) -> bool:
        """Whether it is an address of the net, which no folder is."""
        return "://" in self.path


def search_folders(
    root: DataRoot, settings: Settings, environ: Mapping[str, str], foreign: Foreign
) -> list[SearchFolder]:
    """The places of this user in the order of `RANK`, there or not."""
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~"))
    places = [SearchFolder("store", str(root.models))]
    places += [SearchFolder("folder", _named(folder)) for folder in settings.model_folders]
    places += [SearchFolder("lmstudio", str(folder)) for folder in _lmstudio(home, foreign)]
    places += [SearchFolder("huggingface", str(_huggingface(home, environ)))]
    places += [SearchFolder("ollama", str(folder)) for folder in _ollama(home, environ)]
    unique: dict[str, SearchFolder] = {}
    for place in places:
        unique.setdefault(os.path.normcase(place.path), place)
    return list(unique.values())


def _named(folder: str) -> str:
    return folder if "://" in folder else os.path.abspath(os.path.expanduser(folder))


def _huggingface(home: Path, environ: Mapping[str, str]) -> Path:
    """huggingface_hub: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(variable):
            return Path(environ[variable]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "hub"
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache).expanduser() if cache else home / ".cache") / "huggingface" / "hub"


def _lmstudio(home: Path, foreign: Foreign) -> list[Path]:
    """Its own folder, the one it was moved to, and the one that its settings name for downloads."""
    folders = [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    pointed = _text(home / ".lmstudio-home-pointer", foreign).strip()
    if pointed:
        folders.insert(0, Path(pointed) / "models")
    try:
        settings = decode_json(_text(home / ".lmstudio" / "settings.json", foreign).encode() or b"{}", _LmStudio)
    except msgspec.MsgspecError:
        settings = _LmStudio()  # of another form: the usual places
    if settings.downloadsFolder:
        folders.insert(0, Path(settings.downloadsFolder).expanduser())
    return folders


class _LmStudio(msgspec.Struct):
    downloadsFolder: str = ""  # noqa: N815 - the name in the file


def _text(path: Path, foreign: Foreign) -> str:
    """A small file of another program, "" where it cannot be read."""
    try:
        return foreign.call(path, lambda: private.read(path, _MOST_SETTINGS)).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""  # no such file: the usual places


def _ollama(home: Path, environ: Mapping[str, str]) -> list[Path]:
    if environ.get("OLLAMA_MODELS"):
        return [Path(environ["OLLAMA_MODELS"]).expanduser()]
    folders = [home / ".ollama" / "models"]
    if sys.platform.startswith("linux"):
        folders.append(Path("/usr/share/ollama/.ollama/models"))
    return folders
