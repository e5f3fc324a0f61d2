"""A library of 200 models with headers of real size (5 MB each)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.headers import make_library
from bench.table import Table

FILES = 200

PROGRAM = """
import json, sys, time
from pathlib import Path
from shared.catalog.library import Library
from shared.paths import DataRoot
from shared.settings import load_settings
began = time.perf_counter()
library = Library(DataRoot(Path(sys.argv[1])), load_settings())
rows = library.rows()
first = time.perf_counter() - began
library.wait(120)
whole = time.perf_counter() - began
print(json.dumps({"first": first, "whole": whole, "early": len(rows), "rows": len(library.rows())}))
library.close()
"""


def measure(table: Table) -> None:
    """Cold first rows, cold complete, cached."""
    with tempfile.TemporaryDirectory(prefix="md-library-") as name:
        folder = Path(name)
        make_library(folder / "models", FILES)
        (folder / "data").mkdir(mode=0o700)
        cold = _look(folder)
        cached = [_look(folder) for _ in range(5)]
    assert cold["rows"] >= FILES, cold
    table.at_most(f"library of {FILES} headers, cold: first rows ({cold['early']:.0f})", [cold["first"]], 1, "s")
    table.at_most("the same, cold: complete", [cold["whole"]], 8, "s")
    table.at_most("the same, cached: all rows", [each["first"] for each in cached], 50, "ms", scale=1000)


def _look(folder: Path) -> dict[str, float]:
    environ = {"HOME": str(folder / "home"), "MODELD_MODEL_FOLDERS": str(folder / "models"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "data")],
        env=environ,
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
