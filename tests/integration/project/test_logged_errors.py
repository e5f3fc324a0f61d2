"""What a library logs of an error while a program serves is its type and place, never its words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]
SECRET = "the-words-of-a-prompt"
#: A library that logs an error as soon as the loop of the program runs.
SITE = f"""
import asyncio.events, logging, sys
if "serve" in sys.orig_argv or "acp" in sys.orig_argv:
    asked = asyncio.events.new_event_loop
    def new_event_loop():
        loop = asked()
        def fail():
            try:
                raise ValueError("{SECRET}")
            except ValueError:
                logging.getLogger("a.library").exception("while sending {SECRET}")
        loop.call_later(0.5, fail)
        return loop
    asyncio.events.new_event_loop = asyncio.new_event_loop = new_event_loop
    import asyncio.runners
    asyncio.runners.events.new_event_loop = new_event_loop
"""


@pytest.mark.parametrize("words", [("modeld", "serve", "--quiet", "--backend", "none"), ("acp_bridge", "acp")])
def test_a_serving_program_tells_type_and_place_alone(short_tmp: Path, words: tuple[str, ...]) -> None:
    (short_tmp / "site").mkdir()
    (short_tmp / "site" / "sitecustomize.py").write_text(SITE)
    environ = {**os.environ, "PYTHONPATH": str(short_tmp / "site"), "MODELD_DATA_ROOT": str(short_tmp / "data")}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", *words], env=environ, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        reported = process.stderr.readline()
    finally:
        process.terminate()
        rest = process.communicate()[1]
    assert "ValueError in a.library at " in reported
    assert SECRET not in reported + rest
