"""What it costs to watch an answer for loops, beside what its tokens cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bench.bare import Bare
from bench.speculation import story
from bench.table import Table
from modeld.output.repetition import RepetitionWatch
from repetitive_texts import wanted

ROUNDS = 6
#: Of a turn, in percent.
SHARE = 0.5


def measure(table: Table, model: Path) -> None:
    """Shares of the time that the same number of tokens took to decode: stories, and tables, code and songs."""
    reported, repeated = [], []
    with Bare(model) as engine:
        texts = [engine.engine.tokenize(answer.text, special=False) for answer in wanted()]
        pieces = [[engine.engine.piece(token, special=False) for token in text] for text in texts]
        count = sum(map(len, pieces))
        for number in range(ROUNDS + 1):
            messages, options = story(number)
            turn = engine.turn(engine.tokens(messages), options)
            said = [engine.engine.piece(token, special=False) for token in turn.said]
            token_s = turn.decode_s / (len(said) - 1)
            if number:  # the first one warms the processor's caches
                reported.append(_seconds([said]) / (turn.decode_s))
                repeated.append(_seconds(pieces) / (token_s * count))
    table.at_most("watching a story for loops, of its decode", reported, SHARE, "%", scale=100)
    table.at_most("the same of texts that repeat themselves", repeated, SHARE, "%", scale=100)


def _seconds(answers: Sequence[Sequence[bytes]]) -> float:
    began = time.perf_counter()
    for pieces in answers:
        feed = RepetitionWatch("Go on.").feed
        for piece in pieces:
            feed(piece)
    return time.perf_counter() - began
