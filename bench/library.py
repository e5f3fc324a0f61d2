"""A library of 200 models with headers of real size (5 MB each)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

from bench.table import Table

FILES = 200
#: a real vocabulary of 128,000 tokens takes about this much
HEADER_TOKENS = 128_000

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
        _write(folder / "models")
        (folder / "data").mkdir(mode=0o700)
        cold = _look(folder)
        cached = [_look(folder) for _ in range(5)]
    assert cold["rows"] >= FILES, cold
    table.at_most(f"library of {FILES} headers, cold: first rows ({cold['early']:.0f})", [cold["first"]], 1, "s")
    table.at_most("the same, cold: complete", [cold["whole"]], 8, "s")
    table.at_most("the same, cached: all rows", [each["first"] for each in cached], 50, "ms", scale=1000)


def _write(folder: Path) -> None:
    folder.mkdir()
    first = folder / "model-000.gguf"
    writer = gguf.GGUFWriter(first, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    tokens = [f"token-{number:024d}" for number in range(HEADER_TOKENS)]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * HEADER_TOKENS)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    writer.add_tensor("token_embd.weight", np.zeros((64, 64), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    content = first.read_bytes()
    for number in range(1, FILES):
        (folder / f"model-{number:03d}.gguf").write_bytes(content)


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
