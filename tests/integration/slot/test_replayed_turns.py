"""Every answer is sampled from the prompt that was shown, whatever runs before, beside and after it.

2,000 turns on both engines: `tests/soak/soak_replay.py`.
"""

from __future__ import annotations

import pytest

from cold_replay import ColdLlama
from counts import scaled
from replayed import Text, recorded_turns, replayed
from shared.paths import DataRoot
from tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.llama, pytest.mark.timeout(180)]


async def test_every_sampled_token_is_a_candidate_of_the_prompt_that_was_shown(data_root: DataRoot) -> None:
    path = write_tiny_gguf(data_root.path / "tiny.gguf")
    mixed, records = await recorded_turns(data_root, "llama", path, turns=scaled(400), clients=4, seed=17, environ={})
    found = replayed(ColdLlama(path), records, mixed.shown, Text(path), cross=5)
    assert not found.problems, found.problems
    assert set(found.nudges) <= {0.0, 0.01}, "f32 weights round alike"
    assert sum(one.complete for one in mixed.shown) > len(records) // 2, mixed.done
    assert found.reused > found.prompt // 4, "warm conversations are what this is about"
    assert found.foreign > found.crossed // 2, "most replays behind a foreign prompt must be seen"
