"""A short form of `make fuzz` for headers, and the cases that once crashed or are kept as hard ones."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from counts import scaled
from fuzz.fuzz_gguf import CORPUS, CORPUS_COUNT, CORPUS_SEED, corpus, run, try_case

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SAVED = sorted(CORPUS.glob("*.bin"))


def test_no_damaged_header_crashes_the_reader() -> None:
    """The regression corpus: each case read or rejected as before, within two seconds and 64 MiB."""
    known = corpus()
    assert len(known) == CORPUS_COUNT
    outcomes, crashes = run(scaled(CORPUS_COUNT), CORPUS_SEED, keep=False, known=known)
    assert crashes == []
    # all kinds of cases really occur
    assert set(outcomes) >= {"read", "not_gguf", "version", "truncated", "limit", "malformed"}


def test_there_is_a_corpus() -> None:
    assert len(SAVED) >= 12


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_cases_of_the_corpus(path: Path) -> None:
    """`NAME.OUTCOME.bin` has that outcome; a case that `make fuzz` saved just must not crash any more."""
    tracemalloc.start()
    try:
        outcome = try_case(path.read_bytes())
    finally:
        tracemalloc.stop()
    _, dot, wanted = path.stem.rpartition(".")
    assert not dot or outcome == wanted
