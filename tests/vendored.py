"""Chat templates and vocabularies out of the sources of the llama.cpp binding, kept between runs like the weights."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from weights import CACHE, DOWNLOAD_SECONDS

_KINDS = {
    "templates": "*/vendor/llama.cpp/models/templates/*.jinja",
    "vocabularies": "*/vendor/llama.cpp/models/ggml-vocab-*.gguf",
}


def source_archive(folder: Path) -> Path:
    """The source distribution of the installed version, fetched into `folder`. Raises RuntimeError."""
    wanted = f"llama-cpp-python=={version('llama_cpp_python')}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run(
        [*command, "-d", str(folder), wanted], capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
    )
    found = sorted(folder.glob("*.tar.gz"))
    if not found:
        raise RuntimeError(f"the sources of {wanted} could not be fetched:\n{done.stderr[-2000:]}")
    return found[0]


def templates() -> Path:
    """The folder of `*.jinja` files, fetched the first time. Raises RuntimeError."""
    return _kept("templates")


def vocabularies() -> Path:
    """The folder of `ggml-vocab-*.gguf` files: models without weights. Fetched the first time. Raises RuntimeError."""
    return _kept("vocabularies")


def _kept(kind: str) -> Path:
    target = CACHE / f"{kind}-{version('llama_cpp_python')}"
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=f"{kind}-") as name:
            work = Path(name)
            with tarfile.open(source_archive(work)) as archive:
                for one, pattern in _KINDS.items():  # the archive is large: what else is wanted comes along
                    _take(archive, pattern, work / one)
            for one in _KINDS:
                _place(work / one, CACHE / f"{one}-{version('llama_cpp_python')}")
    return target


def _take(archive: tarfile.TarFile, pattern: str, folder: Path) -> None:
    folder.mkdir()
    for member in archive.getmembers():
        if PurePosixPath(member.name).match(pattern) and (file := archive.extractfile(member)) is not None:
            with file, (folder / PurePosixPath(member.name).name).open("wb") as out:
                shutil.copyfileobj(file, out)


def _place(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():  # else another run was first
            raise
