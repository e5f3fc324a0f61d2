"""The soak of cancels in prefill on a model of one billion weights' shape: no worker is killed for a slow chunk.

`python tests/soak/soak_prefill.py [--cancels 30]` cancels a long prompt on OpenVINO at many moments, through the
daemon, and writes docs/soak/prefill.md. The weights are random and are removed at the end (1.2 GB meanwhile).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from large_gguf import write_large_gguf
from modeld_process import Modeld
from shared.paths import DataRoot
from shared.protocol import api
from soak_page import Line, page

PAGE = Path(__file__).parents[2] / "docs" / "soak" / "prefill.md"
#: Of bytes, which are the tokens of the tiny vocabulary.
PROMPT = "many words " * 180
LONGEST = 5.0
SECONDS = 1200.0


async def soak(cancels: int) -> list[Line]:
    """What was measured. Raises AssertionError where a cancel cost the model."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="md-") as name:
        root = DataRoot(Path(name) / "data")
        root.path.mkdir(mode=0o700)
        write_large_gguf(root.models / "large.gguf")
        async with Modeld(root, "openvino", MODELD_DATA_ROOT=str(root.path)) as modeld, modeld.client() as client:
            params = api.LoadParams(model="large", config=api.LoadConfig(num_ctx=4096))
            loaded = await client.call("model/load", params, api.LoadResult, SECONDS)
            (worker,) = modeld.workers()
            answered: list[float] = []
            for number in range(cancels):
                turn = client.turn("large", f"{number}: {PROMPT}", params=api.Sampling(max_tokens=2))
                await turn.until(api.Prefix, SECONDS)
                await anyio.sleep(chance.uniform(0.0, LONGEST))
                began = time.monotonic()
                client.cancel(turn)
                result = await turn.end(SECONDS)
                assert result.finish_reason == "cancelled", "the prompt is too short for this machine"
                answered.append(time.monotonic() - began)
            status = await client.status()
            assert [one.pid for one in modeld.workers()] == [worker.pid], "a worker was killed"
            assert status.generation == loaded.generation
            turn = client.turn("large", "hello", params=api.Sampling(max_tokens=2))
            assert (await turn.end(SECONDS)).usage.generated == 2, "and the next turn works"
    return [
        Line("openvino, 1 billion weights (Q4_0): cancels in prefill", f"{cancels}; 0 workers killed, one generation"),
        Line("answered after", f"median {median(answered):.2f} s, longest {max(answered):.2f} s"),
    ]


def main() -> int:
    """0, or an AssertionError with what did not hold."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cancels", type=int, default=30)
    began = time.monotonic()
    lines = anyio.run(soak, options.parse_args().cancels)
    text = page(lines, time.monotonic() - began, "cancels in a slow prefill", "soak_prefill.py")
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
