"""Two conversations that take turns in one worker for a long time: what its memory does meanwhile."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from modeld.host.worker_host import WorkerHost
from modeld.pipe.messages import Account, Turn
from shared.protocol.api import Event, Sampling, TextDelta

WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")
ANSWER_TOKENS = 12
#: Each waits a second: a worker on a busy machine may be late, and one that never answers is a fault.
SAMPLES = 30


class Sample(NamedTuple):
    """After one turn, in bytes and tokens."""

    rss: int
    parked_bytes: int
    reused: int
    prefilled: int


class Alternation:
    """`words` new ones a turn, `answer` tokens back; a conversation starts over when it has `most` messages."""

    def __init__(
        self, host: WorkerHost, *, words: int = 20, answer: int = ANSWER_TOKENS, most: int = 12, seed: int = 1
    ) -> None:
        self._host = host
        self._words = words
        self._answer = answer
        self._most = most
        self._random = random.Random(seed)
        self._all: list[list[dict[str, Any]]] = [[], []]
        self._turns = 0

    async def turn(self) -> Sample:
        """The next turn of the conversation whose turn it is."""
        messages = self._all[self._turns % 2]
        self._turns += 1
        if len(messages) >= self._most:
            messages.clear()
        said = " ".join(self._random.choice(WORDS) for _ in range(self._words))
        messages.append({"role": "user", "content": f"{self._turns} {said}"})
        text: list[str] = []

        def take(events: list[Event]) -> None:
            text.extend(event.text for event in events if isinstance(event, TextDelta))

        params = Sampling(temperature=0.0, max_tokens=self._answer)
        job = Turn(turn=self._host.next_turn(), messages=list(messages), tools=[], params=params)
        done = await self._host.run(job, take)
        messages.append({"role": "assistant", "content": "".join(text)})
        account = await self._account()
        return Sample(account.rss_bytes, account.parked_bytes, done.usage.reused, done.usage.prefilled)

    async def _account(self) -> Account:
        for _ in range(SAMPLES):
            account = await self._host.sample()
            if account is not None:
                return account
        raise AssertionError(f"{SAMPLES} samples without an answer: {self._host.exit_reason or 'the worker runs'}")


def growth(samples: list[Sample]) -> float:
    """How far the memory of the last quarter lies above that after the warm-up (a tenth left out): 0.03 is 3 %."""
    begin, quarter = len(samples) // 10, len(samples) // 4
    early = sorted(one.rss for one in samples[begin : begin + quarter])
    late = sorted(one.rss for one in samples[-quarter:])
    return late[len(late) // 2] / early[len(early) // 2] - 1
