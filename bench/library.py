"""A library of 200 models with headers of real size (5 MB each)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.headers import make_library
from bench.table import MIB, Table
from clients.bridge import Bridge, model_values
from clients.home import Home
from shared.catalog import cachefile
from waiting import until

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
        (folder / "none").mkdir()
        without = _bridge(folder / "none", 0)
        reading = _bridge(folder / "models", FILES) - without
        knowing = _bridge(folder / "models", FILES, cache=folder / "data" / "library.cache") - without
    assert cold["rows"] >= FILES, cold
    table.at_most(f"library of {FILES} headers, cold: first rows ({cold['early']:.0f})", [cold["first"]], 1, "s")
    table.at_most("the same, cold: complete", [cold["whole"]], 8, "s")
    table.at_most("the same, in the memory of a bridge that read them all itself", [reading / MIB], 5, "MiB")
    table.at_most("the same, of one that found them in the cache", [knowing / MIB], 5, "MiB")
    table.at_most("the same, cached: all rows", [each["first"] for each in cached], 50, "ms", scale=1000)


def _bridge(models: Path, count: int, cache: Path | None = None) -> float:
    """Resident bytes of a bridge whose picker shows that many models, once every header has been read."""
    with Home(MODELD_MODEL_FOLDERS=str(models)) as home:
        home.root.mkdir(mode=0o700)
        if cache is not None:
            shutil.copy(cache, home.root / cache.name)
        with home.bridge() as editor:
            editor.initialize()
            made = editor.new_session(home.work)
            home.start("llama")
            until(lambda: _shown(editor, made["sessionId"]) == count, f"{count} models in the picker", 60)
            until(lambda: not count or _is_complete(home), "every header is read", 60)
            time.sleep(1.0)  # what is known is written down, and shown, behind that
            return float(psutil.Process(editor.process.pid).memory_info().rss)


def _shown(editor: Bridge, session: str) -> int:
    return len([value for value in model_values(editor.choose(session, "mode", "ask")) if value != "none"])


def _is_complete(home: Home) -> bool:
    content = cachefile.read(home.root / "library.cache")
    return bool(content.files) and all(record.finished for record in content.files.values())


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
