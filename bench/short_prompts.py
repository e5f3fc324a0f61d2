"""Whether short questions get short answers: `python -m bench.short_prompts [--backend NAME] [--seed N]`.

24 greetings and small questions to the starter with the settings that a person gets, on each engine: how many answers
end by themselves within 100 tokens, and how the others end.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import anyio

from acp_bridge.tools.builtin import PLAIN_SYSTEM
from modeld.host.worker_host import WorkerHost
from modeld.pipe.messages import Done, Load, Turn
from shared.catalog.fingerprint import fingerprint
from shared.catalog.identity import RequestedIdentity
from shared.protocol.api import Sampling
from shared.settings import Settings
from weights import SMOLLM2, fetch

PROMPTS = (
    *("hi", "hello", "2+2?", "say hi in one word", "good morning", "thanks", "Name a fruit.", "Name a planet."),
    *("What is the capital of France?", "What is the capital of Italy?", "Who wrote Hamlet?", "Is the sun hot?"),
    *("What color is the sky?", "What is the color of grass?", "How many days are in a week?", "What is 10-3?"),
    *("What is the opposite of hot?", "What is the largest ocean?", "What sound does a cat make?"),
    *("How many legs does a dog have?", "What day comes after Monday?", "Yes or no: is ice cold?"),
    *("Which is bigger, a mouse or an elephant?", "What do bees make?"),
)
SHORT, MOST = 100, 260


async def measure(backend: str, seed: int) -> str:
    """One row: counts, and the prompts that were not answered shortly with how they ended."""
    path = fetch(SMOLLM2)
    with tempfile.TemporaryDirectory(prefix="short-prompts-") as folder:
        root = Path(folder, "root")
        root.mkdir(mode=0o700)
        environ = {**os.environ, "MODELD_DATA_ROOT": str(root)}
        host = await WorkerHost.start(backend, Settings(), Path(folder, "worker.log"), environ)
        try:
            await host.imported()
            digest = fingerprint([str(path)])
            identity = RequestedIdentity(backend=backend, name=path.stem, digest=digest, path=str(path))
            message = Load(turn=host.next_turn(), identity=identity, model={}, num_ctx=1024, threads=2, parked_bytes=0)
            await host.load(message, lambda fraction: None)
            ended = [(prompt, await _ask(host, prompt, seed)) for prompt in PROMPTS]
        finally:
            await host.close(2)
    short = [prompt for prompt, done in ended if done.finish_reason == "stop" and done.usage.generated < SHORT]
    others = [
        f"{prompt} ({done.ended_by or done.finish_reason}, {done.usage.generated})"
        for prompt, done in ended
        if prompt not in short
    ]
    return f"| {backend} | {seed} | {len(short)} of {len(PROMPTS)} | {'; '.join(others)} |"


async def _ask(host: WorkerHost, prompt: str, seed: int) -> Done:
    messages = [{"role": "system", "content": PLAIN_SYSTEM}, {"role": "user", "content": prompt}]
    params = Sampling(seed=seed, max_tokens=MOST)
    return await host.run(Turn(turn=host.next_turn(), messages=messages, tools=[], params=params), lambda events: None)


def main() -> int:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", nargs="+", default=["llama", "openvino"])
    parser.add_argument("--seed", nargs="+", type=int, default=[1, 2])
    arguments = parser.parse_args()
    for backend in arguments.backend:
        for seed in arguments.seed:
            print(anyio.run(measure, backend, seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
