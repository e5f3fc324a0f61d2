"""Evaluates recorded turns anew, each alone and from nothing, and asks whether its sampler could have chosen so."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from modeld.engine.contract import Capabilities, DecodeOptions
from modeld.worker.sampling import decode_options
from recording_engine import Record
from shared.protocol.api import Sampling

#: What a logit may be off before the token counts as none of the prompt's: reuse, batches of other sizes and drafts
#: round otherwise, most where weights are quantised to four bits. A token of another prompt is off by whole units.
NUDGES = (0.0, 0.01, 0.1, 0.2, 0.5, 1.0)


class Cold(Protocol):
    """One model that keeps nothing from one evaluation to the next. `warm_first`: temperature before the filters."""

    warm_first: bool

    def logits(self, tokens: Sequence[int], start: int) -> Any:
        """Of every position from `start` on, shape (tokens - start, vocabulary)."""
        ...


def llama_class() -> Any:
    """The package's own class, also where the product has left the package without its names in this process."""
    import llama_cpp

    whole = llama_cpp if hasattr(llama_cpp, "Llama") else importlib.reload(llama_cpp)
    return whole.Llama


class ColdLlama:
    """llama.cpp by its own Python class: none of the product's code."""

    warm_first = False

    def __init__(self, path: Path, context: int = 1024) -> None:
        self._model = llama_class()(
            str(path), n_ctx=context, n_threads=1, n_threads_batch=1, verbose=False, logits_all=True
        )

    def logits(self, tokens: Sequence[int], start: int) -> Any:
        self._model.reset()
        self._model.eval(list(tokens))
        return np.array(self._model.scores[start : len(tokens)], dtype=np.float64)


class ColdOpenVino:
    """The converted graph by OpenVINO itself, without GenAI's pipeline, cache and sampler."""

    warm_first = True

    def __init__(self, folder: Path) -> None:
        from modeld.engine.openvino.library import Library, properties

        core = Library().openvino.Core()
        made = core.compile_model(str(folder / "openvino_model.xml"), "CPU", properties(1, "f16"))
        self._request = made.create_infer_request()
        self._inputs = {name for port in made.inputs for name in port.names}

    def logits(self, tokens: Sequence[int], start: int) -> Any:
        ids = np.array([tokens], dtype=np.int64)
        given = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "position_ids": np.arange(len(tokens), dtype=np.int64)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        self._request.reset_state()
        found = self._request.infer({name: value for name, value in given.items() if name in self._inputs})
        return np.array(found["logits"][0, start:], dtype=np.float64)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One record: for each sampled token the nudge that its logit needs to be a candidate, infinite beyond all."""

    nudges: list[float]

    @property
    def worst(self) -> float:
        return max(self.nudges, default=0.0)


def judge(cold: Cold, record: Record, prompt: Sequence[int] | None = None) -> Verdict:
    """Replay the record's tokens behind its own prompt, or behind another one."""
    before = list(record.prompt if prompt is None else prompt)
    rows = cold.logits([*before, *record.sampled[:-1]], len(before) - 1) if record.sampled else []
    pairs = zip(rows, record.sampled, strict=True)
    return Verdict(nudges=[_nudge(row, token, record.options, warm_first=cold.warm_first) for row, token in pairs])


def _nudge(row: Any, token: int, options: DecodeOptions, *, warm_first: bool) -> float:
    for nudge in NUDGES:
        nudged = row.copy()
        nudged[token] += nudge
        if is_candidate(nudged, token, options, warm_first=warm_first):
            return nudge
    return math.inf


def chance(cold: Cold, prompt: Sequence[int], answer: Sequence[int]) -> tuple[float, float]:
    """The log-probability of a whole answer, and how likely the sampler of an editor's chat gives it."""
    options = decode_options(Sampling(), Sampling(), Capabilities(), len(answer))
    logprob, sampled = 0.0, 1.0
    for row, token in zip(cold.logits([*prompt, *answer[:-1]], len(prompt) - 1), answer, strict=True):
        spread = row - row.max()
        logprob += float(spread[token] - np.log(np.exp(spread).sum()))
        kept = candidates(row, options, warm_first=cold.warm_first)
        weights = np.exp(spread[kept] / options.temperature)
        sampled *= float(weights[kept == token].sum() / weights.sum())
    return logprob, sampled


def is_candidate(logits: Any, token: int, options: DecodeOptions, *, warm_first: bool) -> bool:
    """Whether the sampler of these options could choose `token`."""
    if options.temperature <= 0:
        return bool(logits[token] >= logits.max())
    return token in candidates(logits, options, warm_first=warm_first)


def candidates(logits: Any, options: DecodeOptions, *, warm_first: bool) -> Any:
    """What a sampler may choose from, likeliest first. Penalties and biases are not replayed.

    llama.cpp: top-k, top-p, min-p, then temperature. OpenVINO: temperature, top-p, top-k, min-p.
    """
    if warm_first:
        logits = logits / options.temperature
    order = np.argsort(-logits, kind="stable")
    if options.top_k > 0 and not warm_first:
        order = order[: options.top_k]
    share = np.exp(logits[order] - logits[order[0]])
    share /= share.sum()
    kept = int(np.searchsorted(np.cumsum(share), options.top_p)) + 1 if options.top_p < 1.0 else len(order)
    if options.top_k > 0:
        kept = min(kept, options.top_k)
    kept = min(kept, int((share >= options.min_p * share[0]).sum()))
    return order[: max(kept, 1)]
