"""The first answer that a person gets: the starter model, the question of `make chat`, as the bridge asks it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from engine_bench import Engines, user

from acp_bridge.tools.builtin import PLAIN_SYSTEM
from modeld.worker.sampling import DEFAULTS
from shared.protocol.api import Sampling

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(300)]

MAKEFILE = Path(__file__).resolve().parents[3] / "Makefile"
#: Runs with the sampling that a person gets, and how many of them must be right.
RUNS = 10
RIGHT = 9


@pytest.mark.parametrize(
    ("backend", "weights"),
    [
        pytest.param("llama", "smollm2", marks=pytest.mark.llama, id="llama"),
        pytest.param("openvino", "converted_smollm2", marks=pytest.mark.openvino, id="openvino"),
    ],
)
async def test_the_starter_knows_the_answer(
    engines: Engines, backend: str, weights: str, request: pytest.FixtureRequest
) -> None:
    question = re.search(r"(?m)^PROMPT \?= (.*)$", MAKEFILE.read_text(encoding="utf-8"))
    assert question is not None
    messages = [{"role": "system", "content": PLAIN_SYSTEM}, user(question.group(1))]
    engine = await engines.load(backend, request.getfixturevalue(weights), num_ctx=512)
    best = await engine.ask(messages, Sampling(temperature=0.0, max_tokens=24))
    assert "Paris" in best.text
    assert best.done.finish_reason == "stop", "and it stops when it has answered"
    drawn = [(await engine.ask(messages, Sampling(max_tokens=24, seed=seed))).text for seed in range(RUNS)]
    right = sum("Paris" in text for text in drawn)
    assert right >= RIGHT, f"{right} of {RUNS} at temperature {DEFAULTS.temperature}: {drawn}"
