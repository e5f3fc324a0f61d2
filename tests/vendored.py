"""Chat templates out of the source distribution of the llama.cpp binding, kept between runs like the weights."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from weights import CACHE, DOWNLOAD_SECONDS

_WITHIN = "/vendor/llama.cpp/models/templates/"


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
    target = CACHE / f"templates-{version('llama_cpp_python')}"
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="templates-") as name:
        work = Path(name)
        with tarfile.open(source_archive(work)) as archive:
            members = [one for one in archive.getmembers() if _WITHIN in one.name and one.name.endswith(".jinja")]
            archive.extractall(work, members=members, filter="data")
        (made,) = work.glob(f"*{_WITHIN}")
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # else another run was first
                raise
    return target
