"""The native library in one process: what it was given must outlive whoever gave it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.llama]

#: the second library takes the log over and is gone when the first one makes a line
TWO = """
import gc
from modeld.engine.llama.library import Library
kept, gone = Library(), Library()
del gone
gc.collect()
spread = [bytes(64) for _ in range(100_000)]
model = kept.api.llama_model_load_from_file(b"/nowhere.gguf", kept.api.llama_model_default_params())
assert model is None
print("alive")
"""


def test_the_log_survives_the_library_that_took_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr
