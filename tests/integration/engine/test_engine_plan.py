"""What a load would take or run into, by the engine's own word, against what a load takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_bench import identity

from modeld.engine.dry_run import Question, Sizes
from modeld.host.load_plan import NoAnswer, ask_engine
from shared.errors import ModelLoadFailed
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
F16_BYTES = 2


async def ask(path: Path, contexts: Sequence[int], backend: str = "llama", **fields: Any) -> list[Sizes] | None:
    question = Question(identity=identity(path, backend, **fields), contexts=tuple(contexts), template_deadline=0.3)
    return await ask_engine(question)


async def test_weights_and_cache_of_plain_attention_are_exact(tiny: Path) -> None:
    answer = await ask(tiny, [3072, 1024])
    assert answer is not None
    sizes, smaller = answer
    layers, kv_width, pool = 2, 32, 3072 + 1024  # and the cells kept for fill-in-the-middle
    assert sizes.kv == layers * 2 * kv_width * F16_BYTES * pool
    assert 0 < sizes.weights <= tiny.stat().st_size
    assert sizes.compute > 0
    assert smaller.kv == layers * 2 * kv_width * F16_BYTES * (1024 + 1024)
    assert smaller.weights == sizes.weights


async def test_a_window_caps_the_cache(tiny_window: Path) -> None:
    answer = await ask(tiny_window, [2048, 8192])
    assert answer is not None
    small, large = answer
    assert large.kv < 2 * small.kv


async def test_cache_types_count(tiny: Path) -> None:
    half = await ask(tiny, [4096])
    full = await ask(tiny, [4096], kv_type="f32", flash_attention=False)
    assert half is not None
    assert full is not None
    assert full[0].kv == 2 * half[0].kv


async def test_a_load_that_would_fail_fails_as_that_would(tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html>")
    with pytest.raises(ModelLoadFailed, match="invalid magic characters"):
        await ask(page, [2048])
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ModelLoadFailed, match="took too long") as caught:
        await ask(write_tiny_gguf(tmp_path / "loop.gguf", template=loop), [2048])
    assert caught.value.stage == "template"


async def test_an_engine_without_a_dry_run_tells_nothing(tiny: Path) -> None:
    assert await ask(tiny, [2048], "scripted") is None


@pytest.mark.parametrize(
    ("program", "step", "told"),
    [
        ("import os; print('weights', flush=True); os.abort()", "weights", "SIGABRT"),
        ("print('not an answer')", "", "no answer"),
        ("raise SystemExit(3)", "", "owner is gone"),
    ],
)
async def test_a_process_that_fails_is_no_answer(tiny: Path, program: str, step: str, told: str) -> None:
    # none of them reads the question, which is more than a pipe holds
    question = Question(identity=identity(tiny), contexts=(2048,) * 100_000)
    with pytest.raises(NoAnswer, match=told) as caught:
        await ask_engine(question, [sys.executable, "-c", program])
    assert caught.value.step == step


async def test_a_process_that_cannot_start_is_no_answer(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="cannot be started"):
        await ask_engine(Question(identity=identity(tiny), contexts=(2048,)), [str(tmp_path / "missing")])
