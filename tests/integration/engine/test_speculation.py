"""Speculating from the context changes the cost of an answer and never the answer."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.speculation import edit
from counts import FULL
from modeld.engine import prompt_lookup as lookup
from modeld.engine.contract import Aborted, AbortFlag, DecodeOptions, LoadRequest
from modeld.engine.llama.engine import LlamaEngine
from modeld.engine.llama.lanes import Lane
from modeld.engine.llama.library import Library
from modeld.template.render import Template
from shared.catalog.identity import RequestedIdentity

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
#: Tokens of one batch and tokens alone go through other kernels: only full precision shows no difference.
EXACT: dict[str, Any] = {"kv_type": "f32", "flash_attention": False}
CONTEXT = 2048
SEEDS = 6 if FULL else 3
#: Logits of SmolLM2 in Q4_1 move by 0.7 at 600 tokens where batches differ (test_reuse_defaults.py).
NOISE = 1.5
FILE = "".join(f"    value_{name} = read_value(source, '{name}')\n" for name in ("first", "second", "third", "fourth"))
EDIT = f"def read(source):\n{FILE}    return values\n"


@functools.cache
def library() -> Library:
    """One for all engines here: native code keeps its log callback, which must not go with one of them."""
    return Library()


class Counted(LlamaEngine):
    """Counts what was evaluated beside a token, and what of it was taken back."""

    def __init__(self) -> None:
        super().__init__(AbortFlag())
        self._library = library()
        self.drafted = self.refused = 0
        self.template = ""

    def _evaluate(self, lane: Lane, tokens: Sequence[int], *, logits: bool, every: bool = False) -> None:
        if every:
            self.drafted += len(tokens) - 1
        super()._evaluate(lane, tokens, logits=logits, every=every)

    def _take_back(self, lane: Lane) -> None:
        self.refused += self._ahead
        super()._take_back(lane)

    def stop(self) -> None:
        """A cancel, from whatever thread."""
        self._abort.set()

    def go_on(self) -> None:
        """The next turn."""
        self._abort.clear()

    def lane_is_as_counted(self) -> bool:
        """The memory holds what the lane says and nothing else."""
        warm = self._warm_of()
        return warm.memory.length(warm._chat) == len(warm._chat.state.tokens)

    def answer(
        self, prompt: Sequence[int], options: DecodeOptions, each: Callable[[], None] | None = None
    ) -> list[int]:
        """One turn in tokens."""
        said: list[int] = []
        try:
            self.ensure_prefix(prompt)
            self.prefill_suffix(options, lambda done, of: None)
            for token in self.decode(options):
                said.append(token)
                if each is not None:
                    each()
        finally:
            self.end_turn()
        assert self.lane_is_as_counted()
        return said

    def logits(self, tokens: Sequence[int]) -> list[float]:
        """Behind a prompt."""
        self.ensure_prefix(tokens)
        self.prefill_suffix(DecodeOptions(max_tokens=1), lambda done, of: None)
        pointer = self._native_of().api.llama_get_logits_ith(self._native_of().context, -1)
        size = self._vocabulary_of().size
        found = list((ctypes.c_float * size).from_address(ctypes.addressof(pointer.contents)))
        self.end_turn()
        return found


class Countdown:
    """Does something at one of its calls."""

    def __init__(self, calls: int, do: Callable[[], None]) -> None:
        self._left = calls
        self._do = do

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._do()


def opened(path: Path, *, speculation: bool = True, **asked: Any) -> Counted:
    """An engine in this process."""
    engine = Counted()
    identity = RequestedIdentity(backend="llama", name="m", digest="test", path=str(path), **asked)
    request = LoadRequest(
        identity=identity, model={}, num_ctx=CONTEXT, threads=1, parked_bytes=64 << 20, speculation=speculation
    )
    engine.template = engine.load(request, lambda done, of: None).template
    return engine


@pytest.fixture(scope="module")
def pair(tiny: Path) -> Iterator[tuple[Counted, Counted]]:
    """With drafts and without, in full precision."""
    engines = opened(tiny, **EXACT), opened(tiny, speculation=False, **EXACT)
    yield engines
    for engine in engines:
        engine.close()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token is drafted from whatever is found: most drafts are wrong."""
    monkeypatch.setattr(lookup, "TRUST", 0)


def repeating(engine: Counted, seed: int) -> list[int]:
    """A prompt that holds the same lines again and again."""
    return engine.tokenize(f"edit {seed}: " + EDIT * 3, special=False)


@pytest.mark.parametrize(
    "options",
    [
        DecodeOptions(max_tokens=120),
        DecodeOptions(max_tokens=120, temperature=0.3, seed=11),
        DecodeOptions(max_tokens=120, temperature=0.9, top_k=40, top_p=0.95, min_p=0.05, seed=12),
        DecodeOptions(max_tokens=120, temperature=0.4, repeat_penalty=1.05, frequency_penalty=0.05, seed=13),
        DecodeOptions(max_tokens=120, repeat_penalty=1.02, logit_bias=((70, 3.0), (80, -5.0))),
        DecodeOptions(max_tokens=90, json_schema='{"type": "array", "minItems": 9, "items": {"const": "value"}}'),
    ],
    ids=["greedy", "seeded", "usual sampling", "penalties", "bias", "held to a schema"],
)
@pytest.mark.usefixtures("eager")
def test_an_answer_is_the_same_with_and_without_drafts(pair: tuple[Counted, Counted], options: DecodeOptions) -> None:
    speculating, plain = pair
    speculating.drafted = speculating.refused = 0
    for seed in range(SEEDS):
        prompt = repeating(speculating, seed)
        assert speculating.answer(prompt, options) == plain.answer(prompt, options)
    assert speculating.drafted > speculating.refused > 0
    assert plain.drafted == 0


def test_a_model_that_repeats_itself_is_drafted_with_the_usual_trust(pair: tuple[Counted, Counted]) -> None:
    speculating, plain = pair
    speculating.drafted = speculating.refused = 0
    prompt, options = repeating(speculating, 7), DecodeOptions(max_tokens=400)
    assert speculating.answer(prompt, options) == plain.answer(prompt, options)
    assert speculating.drafted > 2 * speculating.refused


@pytest.mark.usefixtures("eager")
def test_drafts_are_made_and_refused_ones_leave_nothing_behind(pair: tuple[Counted, Counted]) -> None:
    speculating, plain = pair
    speculating.drafted = speculating.refused = 0
    talk, other = repeating(speculating, 20), repeating(speculating, 20)
    for seed in range(8):
        options = DecodeOptions(max_tokens=60, temperature=0.5, seed=seed)
        talk += speculating.answer(talk, options)
        other += plain.answer(other, options)
        assert talk == other, "what was kept warm behind a refused draft answers as if it had never been"
    assert speculating.drafted > speculating.refused > 0


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("stop_after", [1, 7, 30, 31, 32, 33, 34, 35, 36, 60])
def test_an_answer_that_is_ended_within_a_draft_is_cut_there(pair: tuple[Counted, Counted], stop_after: int) -> None:
    speculating, plain = pair
    prompt = repeating(speculating, 40)
    options = DecodeOptions(max_tokens=stop_after)
    said = speculating.answer(prompt, options)
    assert said == plain.answer(prompt, options)
    longer = DecodeOptions(max_tokens=20)
    assert speculating.answer([*prompt, *said], longer) == plain.answer([*prompt, *said], longer)


@pytest.mark.usefixtures("eager")
def test_a_reader_that_leaves_early_leaves_a_lane_that_is_as_counted(pair: tuple[Counted, Counted]) -> None:
    speculating, _ = pair
    prompt = repeating(speculating, 41)
    left = 0
    for leave_after in range(20, 60):
        speculating.ensure_prefix(prompt)
        speculating.prefill_suffix(DecodeOptions(max_tokens=120), lambda done, of: None)
        for number, _ in enumerate(speculating.decode(DecodeOptions(max_tokens=120))):
            if number == leave_after:
                break
        left += speculating._ahead > 0
        speculating.end_turn()
        assert speculating.lane_is_as_counted()
        assert speculating._ahead == 0
    assert left > 0, "some left between a draft and what came of it"


@pytest.mark.usefixtures("eager")
def test_a_cancel_within_a_draft_leaves_the_next_answer_as_a_fresh_one(pair: tuple[Counted, Counted]) -> None:
    speculating, plain = pair
    prompt, options = repeating(speculating, 42), DecodeOptions(max_tokens=120)
    for cancelled_after in range(30, 50):
        with pytest.raises(Aborted):
            speculating.answer(prompt, options, Countdown(cancelled_after, speculating.stop))
        speculating.go_on()
        assert speculating.valid()
    assert speculating.answer(prompt, options) == plain.answer(prompt, options)


@pytest.mark.usefixtures("eager")
def test_a_window_that_cannot_be_cut_is_never_drafted_for(tiny_window: Path) -> None:
    engine = opened(tiny_window)
    try:
        engine.answer(repeating(engine, 1), DecodeOptions(max_tokens=120))
        assert engine.drafted == 0
    finally:
        engine.close()


@pytest.mark.usefixtures("eager")
def test_a_window_full_to_the_last_token_is_never_drafted_beyond(tiny: Path) -> None:
    engine = opened(tiny, **EXACT)
    try:
        prompt = (repeating(engine, 1) * 9)[: CONTEXT - 40]
        assert len(engine.answer(prompt, DecodeOptions(max_tokens=40))) == 40
        assert engine.drafted > 0
    finally:
        engine.close()


@pytest.mark.model
@pytest.mark.timeout(600)
def test_with_the_defaults_a_drafted_answer_differs_only_where_two_tokens_were_as_good(smollm2: Path) -> None:
    speculating, plain = opened(smollm2), opened(smollm2, speculation=False)
    try:
        prompt = speculating.tokenize(Template(speculating.template).render(edit(1)), special=True)
        options = DecodeOptions(max_tokens=120)
        ours, theirs = speculating.answer(prompt, options), plain.answer(prompt, options)
        assert speculating.drafted > 2 * speculating.refused
        parted = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if parted is not None:
            logits = plain.logits([*prompt, *theirs[:parted]])
            assert logits[theirs[parted]] - logits[ours[parted]] < NOISE
    finally:
        speculating.close()
        plain.close()
