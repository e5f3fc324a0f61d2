"""The books of the prefix cache, against its rules as they were measured."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeld.engine.openvino.blocks import BLOCK, BlockLedger

pytestmark = pytest.mark.unit


def run(ledger: BlockLedger, prompt: list[int], answer: list[int], chunk: int = 256, stop_after: int = 99) -> int:
    """One request as the pipeline runs it; tokens that needed no prefill."""
    reused = held = ledger.begin(prompt)
    for _ in range(stop_after):
        held = min(held + chunk, len(prompt))
        ledger.extend(held)
        if held == len(prompt):
            break
    if held == len(prompt):
        for token in answer[:-1]:
            ledger.append(token)
    ledger.release()
    return reused


def tokens(seed: int, count: int) -> list[int]:
    return [seed * 100_000 + at for at in range(count)]


def test_a_prompt_that_was_seen_needs_its_last_token_alone() -> None:
    ledger = BlockLedger(100)
    run(ledger, tokens(1, 3 * BLOCK), [])
    assert ledger.match(tokens(1, 3 * BLOCK)) == 3 * BLOCK - 1
    assert ledger.match(tokens(2, 3 * BLOCK)) == 0


def test_generated_tokens_are_reused_except_the_last() -> None:
    ledger = BlockLedger(100)
    prompt, answer = tokens(1, 40), tokens(2, 9)
    run(ledger, prompt, answer)
    assert ledger.match([*prompt, *answer, 7, 8]) == 40 + 8


def test_an_edit_keeps_the_whole_blocks_before_it() -> None:
    ledger = BlockLedger(100)
    prompt = tokens(1, 5 * BLOCK)
    run(ledger, prompt, [])
    assert ledger.match([*prompt[: 2 * BLOCK + 5], 9, 9, 9]) == 2 * BLOCK


def test_a_cancel_between_chunks_keeps_what_was_evaluated() -> None:
    ledger = BlockLedger(100)
    prompt = tokens(1, 1000)
    run(ledger, prompt, [], stop_after=2)
    assert ledger.match(prompt) == 512


def test_a_block_that_is_only_filled_up_keeps_its_name() -> None:
    """As measured: 111 tokens known, a request to 128 adds nothing, one to 160 names both blocks."""
    ledger = BlockLedger(100)
    prompt, answer = tokens(1, 100), tokens(2, 12)
    run(ledger, prompt, answer)
    longer = [*prompt, *answer, *tokens(3, 600)]
    assert ledger.match(longer) == 111
    run(ledger, longer[:128], [])
    assert ledger.match(longer) == 111
    run(ledger, longer[:160], [])
    assert ledger.match(longer) == 160


def test_the_least_recently_used_goes_first_when_the_pool_is_full() -> None:
    ledger = BlockLedger(6)
    for seed in (1, 2, 3):
        run(ledger, tokens(seed, 2 * BLOCK), [])
    assert ledger.match(tokens(1, 2 * BLOCK)) == 2 * BLOCK - 1
    run(ledger, tokens(4, 2 * BLOCK), [])
    assert ledger.match(tokens(1, 2 * BLOCK)) == 0
    assert ledger.match(tokens(3, 2 * BLOCK)) == 2 * BLOCK - 1


def test_closed_books_promise_nothing() -> None:
    ledger = BlockLedger(10)
    run(ledger, tokens(1, 64), [])
    ledger.forget()
    assert ledger.match(tokens(1, 64)) == 0
    run(ledger, tokens(1, 64), [])
    assert ledger.match(tokens(1, 64)) == 63


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 150), st.integers(1, 40), st.integers(1, 4)),
        min_size=1,
        max_size=20,
    )
)
def test_the_pool_is_never_overdrawn_and_promises_are_kept(steps: list[tuple[int, int, int, int]]) -> None:
    ledger = BlockLedger(12)
    for seed, length, said, stop in steps:
        prompt = tokens(seed, length)
        promised = ledger.match(prompt)
        assert 0 <= promised < length
        assert run(ledger, prompt, tokens(9, said), chunk=64, stop_after=stop) == promised
        assert ledger.blocks_in_use == 0
        assert len(ledger._free) + len(ledger._stored) == 12
