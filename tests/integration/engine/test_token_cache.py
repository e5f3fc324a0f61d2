"""A conversation that goes on has the ids that tokenising it whole gives, at the cost of what is new."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeld.engine.contract import AbortFlag, LoadRequest
from modeld.engine.llama import token_cache
from modeld.engine.llama.engine import LlamaEngine
from modeld.engine.llama.library import Library
from modeld.engine.llama.token_cache import TokenCache
from shared.catalog.identity import RequestedIdentity

pytestmark = [pytest.mark.integration]
MARKS = {1: "<end>", 2: "</s>"}
PIECES = ("a", "b", " ", "\n", "<end>", "</s>", "<en", "d>", "word ", "<start>")


class Counted:
    """A tokenizer as they all are: marks first, then what is between them; pairs of letters are one id."""

    def __init__(self) -> None:
        self.characters = 0

    def __call__(self, text: str) -> list[int]:
        self.characters += len(text)
        ids: list[int] = []
        at = 0
        while at < len(text):
            mark = next((token for token, written in MARKS.items() if text.startswith(written, at)), None)
            if mark is not None:
                ids.append(mark)
                at += len(MARKS[mark])
                continue
            ids.append(hash(text[at : at + 2]) if not any(text.startswith(w, at + 1) for w in MARKS.values()) else 7)
            at += 2 if ids[-1] != 7 else 1
        return ids


@pytest.fixture(autouse=True)
def nothing_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "LEAST_CHARACTERS", 0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.lists(st.sampled_from(PIECES), max_size=12)), max_size=12))
def test_ids_are_those_of_the_whole_text(steps: list[tuple[int, list[str]]]) -> None:
    plain = Counted()
    known, text = TokenCache(Counted(), MARKS), ""
    for keep, pieces in steps:
        text = text[: keep * len(text) // 30] + "".join(pieces)  # an edit anywhere, then more
        assert known.tokens(text) == plain(text)


def test_a_conversation_that_goes_on_costs_what_is_new() -> None:
    counted = Counted()
    known = TokenCache(counted, MARKS)
    text = "a question of some length<end>" * 100
    known.tokens(text)
    counted.characters = 0
    known.tokens(text + "and more<end>")
    assert counted.characters == len("<end>and more<end>")


def test_several_conversations_are_remembered_and_not_without_end() -> None:
    counted = Counted()
    known = TokenCache(counted, MARKS)
    talks = [f"{number} " * 50 + "<end>" * 3 for number in range(token_cache.MOST + 1)]
    for talk in talks:
        known.tokens(talk)
    counted.characters = 0
    known.tokens(talks[-1])
    assert counted.characters == len("<end>")
    known.tokens(talks[0])
    assert counted.characters > len(talks[0])


@functools.cache
def library() -> Library:
    """One for all engines here: native code keeps its log callback, which must not go with one of them."""
    return Library()


def vocabulary(path: Path) -> LlamaEngine:
    """A model without its weights."""
    engine = LlamaEngine(AbortFlag())
    engine._library = library()
    identity = RequestedIdentity(backend="llama", name="m", digest="test", path=str(path))
    request = LoadRequest(identity=identity, model={}, num_ctx=512, vocabulary_only=True)
    engine.load(request, lambda done, of: None)
    return engine


@pytest.mark.model
@pytest.mark.timeout(120)
@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_real_vocabularies_agree(model: str, request: pytest.FixtureRequest) -> None:
    engine = vocabulary(request.getfixturevalue(model))
    whole = engine._vocabulary_of()._ids
    ends = [engine.piece(token, special=True).decode() for token in sorted(engine.special.end)]
    chance, text = random.Random(5), ""
    words = (
        "time",
        " year",
        "\n",
        "  ",
        "é",
        "日本",
        "🙂",
        "\n\n",
        " ",
        "'s",
        "1234",
        "<|im_start|>user\n",
        "<start_of_turn>",
    )
    try:
        for _ in range(150):
            text = text[: chance.randint(len(text) // 2, len(text))]
            text += "".join(chance.choice((*words, *ends)) for _ in range(chance.randint(1, 40)))
            assert engine.tokenize(text, special=True) == whole(text, True)
    finally:
        engine.close()
