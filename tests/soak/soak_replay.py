"""Every answer is sampled from the prompt that was shown: 2,000 mixed turns under load, each replayed cold.

    python tests/soak/soak_replay.py [--parts editor tiny llama openvino] [--tiny 2000] [--llama 400] [--openvino 400]
        [--seed N] [--out docs/soak/replay.md]

A real modeld with several clients; its engine is wrapped by the test and writes down the tokens that it is given and
those that it samples. Then each turn is evaluated alone, from nothing, by the engine's own library without any of the
product's code. `editor` asks whether a small model gives a strange answer by itself. Ends with 1 when anything is off.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))
from cold_replay import ColdLlama, ColdOpenVino, chance
from converted import converted, share
from mixed_turns import rendered
from replayed import Found, Text, recorded_turns, replayed
from shared.paths import DataRoot
from soak_page import Line, kept, page
from tiny_gguf import write_tiny_gguf
from weights import SMOLLM2, fetch

CLIENTS = 6
#: One record in so many is held against a prompt that is not its own: else nobody knows what the check is worth.
CROSS = 10
SYSTEM = "You are a helpful assistant in a code editor. Put code in fenced Markdown blocks."
SHORT = "What is the capital of France? Answer in one word."
LONG = "Write the numbers from 1 to 1000, each on its own line."
ANSWER = "The capital of France is Paris."


def editor() -> tuple[list[Line], list[str]]:
    """How likely the answer to the first question is behind the second, with the history that an editor's chat has:
    a cancelled question stands before the next one, without an answer.
    """
    path = fetch(SMOLLM2)
    cold, text = ColdLlama(path), Text(path)
    pair = [{"role": "user", "content": SHORT}, {"role": "assistant", "content": ANSWER}]
    cancelled = [{"role": "user", "content": f"{LONG}\n\n{SHORT}"}, {"role": "assistant", "content": ANSWER}]
    histories = {
        "asked once before": pair,
        "asked twice": pair * 2,
        "asked three times": pair * 3,
        "asked four times": pair * 4,
        "asked once, and once behind the cancelled second": pair + cancelled,
        "asked twice, and once behind the cancelled second": pair + cancelled + pair,
        "asked three times, and once behind the cancelled second": pair + cancelled + pair * 2,
    }
    lines = []
    for what, history in histories.items():
        messages = [{"role": "system", "content": SYSTEM}, *history, {"role": "user", "content": LONG}]
        logprob, sampled = chance(cold, text.ids(rendered(messages)), text.ids(f"{ANSWER}<|im_end|>"))
        name = f'"{ANSWER}" as the answer to "{LONG[:35]}...", the capital of France {what}'
        lines.append(Line(name, f"log-probability {logprob:.2f}; the usual sampler gives it in {sampled:.1%} of turns"))
    return lines, []


def turns(part: str, root: DataRoot, count: int, seed: int) -> tuple[list[Line], list[str]]:
    """One engine's turns and their replay."""
    backend = "openvino" if part == "openvino" else "llama"
    path = write_tiny_gguf(root.path / "tiny.gguf") if part == "tiny" else fetch(SMOLLM2)
    if backend == "openvino":
        share(converted(path), root.path)
    run = partial(recorded_turns, root, backend, path, turns=count, clients=CLIENTS, seed=seed)
    environ = {"MODELD_PARKED_FRACTION": "0.0005"} if part == "tiny" else {}  # else nothing is ever pushed out
    mixed, records = anyio.run(partial(run, environ=environ))
    cold = ColdOpenVino(converted(path)) if backend == "openvino" else ColdLlama(path)
    found = replayed(cold, records, mixed.shown, Text(path), CROSS)
    what = {"tiny": "llama.cpp, f32 weights of a few hundred kilobytes", "llama": "llama.cpp, SmolLM2 Q4_1"}
    return _lines(what.get(part, "OpenVINO, SmolLM2 Q4_1"), found, mixed.done), found.problems


def _lines(what: str, found: Found, done: Counter[str]) -> list[Line]:
    told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in done.most_common())
    nudges = ", ".join(f"{count} within {nudge:g}" for nudge, count in sorted(found.nudges.items()) if nudge)
    verdict = "; ".join(found.problems[:5]) if found.problems else "each a candidate of its own prompt"
    return [
        Line(f"{what}: turns recorded and replayed cold", f"{found.turns} ({CLIENTS} clients: {told})"),
        Line(f"{what}: prompt tokens, of these reused", f"{found.prompt}, {found.reused / max(found.prompt, 1):.0%}"),
        Line(f"{what}: sampled tokens", f"{found.tokens}, {verdict}"),
        Line(f"{what}: candidates only with rounding (in logits)", nudges or "none"),
        Line(
            f"{what}: answers held against another turn's prompt, of these seen to be foreign",
            f"{found.crossed}, {found.foreign}",
        ),
    ]


def main() -> int:
    """Exit 1 when something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", choices=("editor", "tiny", "llama", "openvino"))
    parser.add_argument("--tiny", type=int, default=2000)
    parser.add_argument("--llama", type=int, default=400)
    parser.add_argument("--openvino", type=int, default=400)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/soak/replay.md")
    arguments = parser.parse_args()
    began, lines, problems = time.monotonic(), list[Line](), list[str]()
    with tempfile.TemporaryDirectory(prefix="md-") as name:
        for part in arguments.parts or ("editor", "tiny", "llama", "openvino"):
            made, bad = editor() if part == "editor" else _in_world(Path(name) / part, part, arguments)
            for line in made:
                print(f"{line.what}: {line.result}", flush=True)
            lines += made
            problems += [f"{part}, seed {arguments.seed}: {one}" for one in bad]
    if arguments.parts:
        lines = kept(arguments.out, lines) + lines
    seconds = time.monotonic() - began
    told = page(lines, seconds, "an answer is sampled from the prompt that was shown", "soak_replay.py")
    arguments.out.write_text(told, encoding="utf-8")
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


def _in_world(folder: Path, part: str, arguments: argparse.Namespace) -> tuple[list[Line], list[str]]:
    folder.mkdir()
    for variable in ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        os.environ[variable] = str(folder / variable.lower())
        (folder / variable.lower()).mkdir(mode=0o700)
    root = DataRoot(folder / "data")
    root.path.mkdir(mode=0o700)
    os.environ["MODELD_DATA_ROOT"] = str(root.path)
    count: Callable[[str], int] = partial(getattr, arguments)
    return turns(part, root, count(part), arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
