"""Weights as OpenVINO reads them, made once and kept between runs: a conversion costs more than the load behind it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

from modeld.engine.openvino import convert
from modeld.engine.openvino.gguf_support import check_gguf
from modeld.engine.openvino.library import Library
from shared.catalog.fingerprint import fingerprint
from weights import CACHE

CONVERT_SECONDS = 300


def converted(source: Path) -> Path:
    """The folder of our own conversion of `source`, by this version of the engine and of our converter."""
    cache = CACHE / f"openvino-{version('openvino-genai')}-{convert.VERSION}"
    target = cache / fingerprint([str(source)])
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as folder:
            # in a process of its own: nothing native stays in this one
            command = [sys.executable, __file__, str(source), folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=CONVERT_SECONDS, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{source.name} could not be converted:\n{done.stderr[-2000:]}")
            try:
                (Path(folder) / target.name).rename(target)
            except OSError:
                if not target.is_dir():  # another run was first
                    raise
    return target


def share(folder: Path, root: Path) -> None:
    """Put a conversion into the data root `root`, where a load of the same weights finds it."""
    target = root / "cache" / "openvino" / folder.name
    for made in (root, root / "cache", target.parent):
        made.mkdir(mode=0o700, exist_ok=True)
    if not target.is_symlink():
        target.symlink_to(folder)


@pytest.fixture(scope="session")
def smollm2_ir(smollm2: Path) -> Path:
    """SmolLM2 as OpenVINO reads it; `share` puts it into a data root."""
    return converted(smollm2)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    header = check_gguf(file, "weights")
    convert.converted(Library(), file, fingerprint(sys.argv[1:2]), Path(sys.argv[2]), "weights", header)
