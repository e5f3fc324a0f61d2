"""The measurements behind the llama engine's defaults: `python -m bench.choices [PART...]`, for docs/design/engines.md.

Everything is compared within one run, in rounds that begin with another candidate each time; the best of the rounds
counts, since other programs only ever slow one down.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.bare import Bare
from bench.table import MIB, Table
from modeld.engine.contract import DecodeOptions
from modeld.engine.llama.engine import LlamaEngine
from modeld.engine.llama.model import LoadedContext
from weights import GEMMA3, SMOLLM2, fetch

ROUNDS = 4
BEHIND = 800
TOKENS = 48
_salt = itertools.count(1)


def main(parts: Sequence[str]) -> int:
    """All parts, or the named ones."""
    table = Table()
    for name, part in PARTS.items():
        if not parts or name in parts:
            for weights in (SMOLLM2, GEMMA3):
                part(table, fetch(weights))
    return 0


def _rates(table: Table, model: Path, what: str, candidates: dict[str, dict[str, Any]]) -> None:
    """Prefill of 800 tokens and decode behind them, each candidate beside the first."""
    prefill: dict[str, list[float]] = {name: [] for name in candidates}
    decode: dict[str, list[float]] = {name: [] for name in candidates}
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(Bare(model, speculation=False, **given)) for name, given in candidates.items()
        }
        for number in range(ROUNDS):
            names = list(engines)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                turn = engines[name].turn(_words(engines[name], BEHIND), DecodeOptions(max_tokens=TOKENS))
                prefill[name].append(turn.prefilled / turn.prefill_s)
                decode[name].append(turn.rate)
    first = next(iter(candidates))
    for name in candidates:
        rates = [max(rates[name]) for rates in (prefill, decode)]
        beside = [max(rates[name]) / max(rates[first]) for rates in (prefill, decode)]
        table.add(
            f"{model.stem}: {what} {name}",
            f"prefill {rates[0]:.0f} ({beside[0]:.2f}), decode {rates[1]:.1f} ({beside[1]:.2f}) tokens/s",
        )


def _words(bare: Bare, count: int) -> list[int]:
    """A prompt that nothing is warm of."""
    words = f"{next(_salt)} " + "the keeper wrote down the weather of the day and looked at the sea again. " * (
        count // 8
    )
    return bare.engine.tokenize(words, special=False)[:count]


def threads(table: Table, model: Path) -> None:
    """Physical cores, less, and more."""
    cores = psutil.cpu_count(logical=False) or 2
    _rates(
        table,
        model,
        "threads",
        {str(count): {"threads": count} for count in sorted({cores, 1, 2 * cores}, key=lambda one: one != cores)},
    )


def batch(table: Table, model: Path) -> None:
    """Tokens evaluated together in a prefill."""
    _rates(table, model, "batch", {str(count): {"num_batch": count} for count in (512, 128, 256, 1024)})


def flash(table: Table, model: Path) -> None:
    """Flash attention."""
    _rates(
        table,
        model,
        "flash attention",
        {"auto": {}, "off": {"flash_attention": False}, "on": {"flash_attention": True}},
    )


def cache(table: Table, model: Path) -> None:
    """Types of the KV memory."""
    _rates(table, model, "KV type", {kind: {"kv_type": kind} for kind in ("f16", "f32", "q8_0")})


def ahead(table: Table, model: Path) -> None:
    """What evaluating guessed tokens beside one costs, behind 500 tokens."""
    with _guessed_for_everything(), Bare(model) as bare:
        engine = bare.engine
        prompt = _words(bare, 500)
        engine.ensure_prefix(prompt)
        engine.prefill_suffix(None, lambda done, total: None)
        lane = engine._lane_of()
        took: dict[int, list[float]] = {}
        for _ in range(4 * ROUNDS):
            for guessed in (0, 1, 2, 4, 8):
                began = time.perf_counter()
                engine._evaluate(lane, prompt[: guessed + 1], logits=True, every=True)
                engine._native_of().api.llama_synchronize(engine._native_of().context)
                took.setdefault(guessed, []).append(time.perf_counter() - began)
                engine._warm_of().memory.cut(lane, len(prompt))
        engine.end_turn()
    one = min(took[0])
    for guessed, seconds in took.items():
        cost = min(seconds)
        table.add(f"{model.stem}: {guessed} guessed beside one", f"{1000 * cost:.2f} ms, {cost / one:.2f} times one")


@contextmanager
def _guessed_for_everything() -> Iterator[None]:
    """Room for logits also where the product would not guess."""
    real = LoadedContext._guesses
    LoadedContext._guesses = lambda self: True  # type: ignore[method-assign]
    try:
        yield
    finally:
        LoadedContext._guesses = real  # type: ignore[method-assign]


def mapping(table: Table, model: Path) -> None:
    """The file mapped or read: load (file in the page cache), resident memory, first evaluation."""
    for name, mode in (("mapped", None), ("read", "LLAMA_LOAD_MODE_NONE")):
        loads, firsts, resident = [], [], []
        for _ in range(ROUNDS):
            before = psutil.Process().memory_full_info().uss
            with _load_mode(mode), Bare(model) as bare:
                loads.append(1000 * bare.load_s)
                turn = bare.turn(_words(bare, 32), DecodeOptions(max_tokens=2))
                firsts.append(1000 * (turn.prefill_s + turn.first_s))
                resident.append((psutil.Process().memory_full_info().uss - before) / MIB)
        values = [min(each) for each in (loads, firsts, resident)]
        table.add(
            f"{model.stem}: weights {name}",
            f"load {values[0]:.0f} ms, first 32 tokens {values[1]:.0f} ms, {values[2]:.0f} MiB of its own",
        )


@contextmanager
def _load_mode(name: str | None) -> Iterator[None]:
    if name is None:
        yield
        return
    from modeld.engine.llama.library import Library, set_fields

    api = Library().api
    real: Callable[[], Any] = api.llama_model_default_params

    def changed() -> Any:
        params = real()
        set_fields(params, load_mode=getattr(api, name))
        return params

    api.llama_model_default_params = changed
    try:
        yield
    finally:
        api.llama_model_default_params = real


def warm_up(table: Table, model: Path) -> None:
    """One token evaluated at load, or not: what the load and the first turn take."""
    real = LlamaEngine._warm_up
    for name in ("with a warm-up", "without"):
        loads, firsts = [], []
        for _ in range(2 * ROUNDS):
            if name == "without":
                LlamaEngine._warm_up = lambda *given: None  # type: ignore[method-assign]
            try:
                with Bare(model) as bare:
                    loads.append(1000 * bare.load_s)
                    turn = bare.turn(_words(bare, 32), DecodeOptions(max_tokens=2))
                    firsts.append(1000 * (turn.prefill_s + turn.first_s))
            finally:
                LlamaEngine._warm_up = real  # type: ignore[method-assign]
        table.add(
            f"{model.stem}: {name}",
            f"load {min(loads):.0f} ms, first 32 tokens {min(firsts):.0f} ms",
        )


PARTS = {
    "threads": threads,
    "batch": batch,
    "flash": flash,
    "cache": cache,
    "ahead": ahead,
    "mapping": mapping,
    "warm_up": warm_up,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
