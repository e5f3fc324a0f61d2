"""Mixed turns of a real modeld under load, then each of them again alone: what was shown, given and sampled agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cold_replay import Cold, judge, llama_class
from mixed_turns import MixedTurns, Shown, rendered
from modeld_process import Modeld
from recording_engine import Record, read_records, recording_environ
from shared.paths import DataRoot

#: Small, so that conversations are parked, restored and pushed out all the time.
ENVIRON = {"MODELD_PARKED_DISK_BYTES": str(64 << 20), "MODELD_QUEUE_WAIT": "110", "MODELD_QUEUE_LIMIT": "64"}


class Text:
    """The vocabulary's texts, from a model's file."""

    def __init__(self, path: Path) -> None:
        self._model = llama_class()(str(path), vocab_only=True, verbose=False)

    def __call__(self, tokens: Sequence[int]) -> str:
        """With special tokens in it."""
        return str(self._model.detokenize(list(tokens), special=True).decode("utf-8", "replace"))

    def ids(self, text: str) -> list[int]:
        """Special tokens are read as such."""
        found: list[int] = self._model.tokenize(text.encode(), add_bos=False, special=True)
        return found


class Found(msgspec.Struct, kw_only=True):
    """What a replay came to. `nudges`: how many sampled tokens needed which; `foreign`: of records that were held
    against another record's prompt, how many could not have been sampled from it; `problems`: what must not be.
    """

    turns: int = 0
    tokens: int = 0
    reused: int = 0
    prompt: int = 0
    nudges: dict[float, int] = {}
    foreign: int = 0
    crossed: int = 0
    problems: list[str] = []


async def recorded_turns(
    root: DataRoot, backend: str, model: Path, *, turns: int, clients: int, seed: int, environ: dict[str, str]
) -> tuple[MixedTurns, list[Record]]:
    """Run them; what the clients were shown, and what the engine was given and sampled."""
    root.models.mkdir(parents=True, exist_ok=True)
    (root.models / "m.gguf").symlink_to(model)
    path = root.path / "records.jsonl"
    async with Modeld(root, "scripted", **{**ENVIRON, **environ}, **recording_environ(backend, path)) as modeld:
        mixed = MixedTurns(modeld, "m", clients=clients, turns=turns, seed=seed)
        async with modeld.client() as first:
            await first.load("m")
        await mixed.run()
    return mixed, read_records(path)


def replayed(cold: Cold, records: list[Record], shown: list[Shown], text: Text, cross: int) -> Found:
    """Each record anew, alone and from nothing; each `cross`-th one behind another's prompt too."""
    found = Found(turns=len(records))
    for number, record in enumerate(records):
        verdict = judge(cold, record)
        found.tokens += len(record.sampled)
        found.prompt += len(record.prompt)
        found.reused += record.reused
        for nudge in verdict.nudges:
            found.nudges[nudge] = found.nudges.get(nudge, 0) + 1
        if verdict.worst == math.inf:
            found.problems.append(f"record {number} ({record.purpose}) could not come from its prompt")
        other = records[(number + len(records) // 2) % len(records)]
        if number % cross == 0 and len(record.sampled) > 3 and other.prompt != record.prompt:
            found.crossed += 1
            found.foreign += judge(cold, record, other.prompt).worst == math.inf
    found.problems += _as_shown(records, shown, text)
    return found


def _as_shown(records: list[Record], shown: list[Shown], text: Text) -> list[str]:
    """Each complete turn was given as it was shown, and its text is what was sampled for it."""
    given: dict[str, list[str]] = {}
    for record in records:
        given.setdefault(text(record.prompt), []).append(text(record.sampled))
    problems = []
    for number, one in enumerate(shown):
        answers = given.get(rendered(one.messages))
        if answers is None:
            if one.complete or one.text:
                problems.append(f"turn {number} was not given to the engine as it was shown")
        elif not any(_says(answer, one.text) for answer in answers):
            problems.append(f"turn {number} was told what was not sampled for it")
    return problems


def _says(sampled: str, told: str) -> bool:
    """Whether the text that was told is that of the tokens, but for the ends that a parser trims."""
    return sampled.replace("\ufffd", "").strip().startswith(told.replace("\ufffd", "").strip())
