"""What a load would take, by the engine's own arithmetic, against what a load takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from engine_bench import identity

from modeld.engine.dry_run import Sizes
from modeld.host.load_plan import ask_engine

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
F16_BYTES = 2


async def test_weights_and_cache_of_plain_attention_are_exact(tiny: Path) -> None:
    answer = await ask_engine(identity(tiny), [3072, 1024])
    assert answer is not None
    sizes, smaller = answer
    layers, kv_width, pool = 2, 32, 3072 + 1024  # and the cells kept for fill-in-the-middle
    assert sizes.kv == layers * 2 * kv_width * F16_BYTES * pool
    assert 0 < sizes.weights <= tiny.stat().st_size
    assert sizes.compute > 0
    assert smaller.kv == layers * 2 * kv_width * F16_BYTES * (1024 + 1024)
    assert smaller.weights == sizes.weights


async def test_a_window_caps_the_cache(tiny_window: Path) -> None:
    answer = await ask_engine(identity(tiny_window), [2048, 8192])
    assert answer is not None
    small, large = answer
    assert large.kv < 2 * small.kv


async def test_cache_types_count(tiny: Path) -> None:
    half = await ask_engine(identity(tiny), [4096])
    full = await ask_engine(identity(tiny, kv_type="f32", flash_attention=False), [4096])
    assert half is not None
    assert full is not None
    assert full[0].kv == 2 * half[0].kv


async def test_a_file_that_is_no_model_tells_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html>")
    assert await ask_engine(identity(page), [2048]) is None


async def test_an_engine_without_arithmetic_tells_nothing(tiny: Path) -> None:
    assert await ask_engine(identity(tiny, "openvino"), [2048]) is None


@pytest.mark.parametrize("program", ["import os; os.abort()", "print('not an answer')", "raise SystemExit(3)"])
async def test_a_process_that_fails_tells_nothing(tiny: Path, program: str) -> None:
    # none of them reads the question, which is more than a pipe holds
    assert await ask_engine(identity(tiny), [2048] * 100_000, [sys.executable, "-c", program]) is None


async def test_a_process_that_cannot_start_tells_nothing(tiny: Path, tmp_path: Path) -> None:
    answer: list[Sizes] | None = await ask_engine(identity(tiny), [2048], [str(tmp_path / "missing")])
    assert answer is None
