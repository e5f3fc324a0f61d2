"""Several clients that go on, edit, begin anew, cancel, vanish and step, beside a model that is unloaded and loaded.

What each was shown is kept, to be held against what a recording engine was given (`recording_engine`). What is asked
comes from a seed; how the clients meet in the queue is up to the machine.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec

from modeld_process import Client, Modeld
from shared.errors import ModeldError
from shared.protocol import api
from shared.protocol.faults import PeerGone

CALL_SECONDS = 120.0
SYSTEM = "You answer in a few words."
#: What repeats itself is drafted, what is alike shares its prefix with others.
QUESTIONS = (
    "What is the capital of France?",
    "Name three colours.",
    "Say again, word for word: one two three four five six seven eight nine ten.",
    "Write the numbers from 1 to 20.",
    "What did I ask before this?",
    "List the days of the week, one a line.",
)
PARAMS = (
    api.Sampling(temperature=0.0),
    api.Sampling(),
    api.Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    api.Sampling(temperature=1.0, top_k=20, top_p=0.9, min_p=0.0),
    api.Sampling(temperature=0.7, top_k=0, top_p=1.0, min_p=0.1, seed=7),
)
MOST_MESSAGES = 7
MOST_TOKENS = 20

Message = dict[str, Any]


class Shown(msgspec.Struct, frozen=True):
    """What a client sent and what it was told; `complete` when the turn came to its end."""

    messages: list[Message]
    text: str
    complete: bool


def rendered(messages: list[Message]) -> str:
    """As ChatML writes it, which the models of these tests speak."""
    said = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
    return said + "<|im_start|>assistant\n"


class MixedTurns:
    """`run` once; `shown` and `done` (deeds by name) are what came of it."""

    def __init__(self, modeld: Modeld, model: str, *, clients: int, turns: int, seed: int) -> None:
        self.shown: list[Shown] = []
        self.done: Counter[str] = Counter()
        self._modeld = modeld
        self._model = model
        self._clients = clients
        self._turns = turns
        self._asked = 0
        self._random = random.Random(seed)

    async def run(self) -> None:
        """All turns. Raises what no client should ever be told."""
        async with anyio.create_task_group() as tasks:
            for number in range(self._clients):
                tasks.start_soon(self._live, f"client {number}")

    async def _live(self, name: str) -> None:
        talk: list[Message] = []
        while self._asked < self._turns:
            async with self._modeld.client(name) as client:
                while self._asked < self._turns:
                    deed = self._random.choice(_DEEDS)
                    self.done[deed.__name__.removeprefix("_")] += 1
                    try:
                        await deed(self, client, talk)
                    except PeerGone:
                        break
                    except ModeldError as error:
                        self.done[f"refused: {error.kind}"] += 1

    def _ask(self, talk: list[Message]) -> None:
        """A question that nobody else asks in these words."""
        self._asked += 1
        if not talk or len(talk) > MOST_MESSAGES:
            talk[:] = [{"role": "system", "content": SYSTEM}]
        if talk[-1]["role"] == "user":
            talk.pop()
        question = self._random.choice(QUESTIONS)
        talk.append({"role": "user", "content": f"{question} (note {self._asked})"})

    def _params(self) -> api.Sampling:
        chosen = self._random.choice(PARAMS)
        return msgspec.structs.replace(chosen, max_tokens=self._random.randrange(1, MOST_TOKENS), loop_stop=False)

    async def _go_on(self, client: Client, talk: list[Message]) -> None:
        self._ask(talk)
        conversation = self._random.choice((None, f"talk {client.hello.instance[:4]} {id(talk)}"))
        messages = list(talk)
        turn = client.turn(self._model, messages=messages, params=self._params(), conversation=conversation)
        try:
            await turn.end(CALL_SECONDS)
        finally:
            self.shown.append(Shown(messages, turn.text, turn.result is not None))
        if turn.text:
            talk.append({"role": "assistant", "content": turn.text})

    async def _edit(self, client: Client, talk: list[Message]) -> None:
        """Something in the middle was said otherwise, and what came after it is gone."""
        if len(talk) > 2:
            at = self._random.randrange(1, len(talk))
            del talk[at + 1 :]
            talk[at] = {**talk[at], "content": f"{talk[at]['content']} or so"}
            if talk[at]["role"] == "user":
                talk.append({"role": "assistant", "content": "As you like."})
        await self._go_on(client, talk)

    async def _begin_anew(self, client: Client, talk: list[Message]) -> None:
        talk.clear()
        await self._go_on(client, talk)

    async def _cancel(self, client: Client, talk: list[Message]) -> None:
        """At any moment: queued, in prefill, in the answer, or just behind it."""
        self._ask(talk)
        messages = list(talk)
        turn = client.turn(self._model, messages=messages, params=api.Sampling(max_tokens=60, loop_stop=False))
        kind = self._random.choice((None, api.Prefix, api.Prefill, api.TextDelta))
        with anyio.move_on_after(self._random.random()):
            while kind is not None and not turn.seen(kind) and not turn.ended.is_set():
                await anyio.sleep(0.002)
        if turn.id is not None:
            client.cancel(turn)
        try:
            await turn.end(CALL_SECONDS)
        finally:
            self.shown.append(Shown(messages, turn.text, complete=False))
        if turn.text:
            talk.append({"role": "assistant", "content": turn.text})

    async def _vanish(self, client: Client, talk: list[Message]) -> None:
        self._ask(talk)
        turn = client.turn(self._model, messages=list(talk), params=self._params())
        with anyio.move_on_after(self._random.random() * 0.3):
            await turn.ended.wait()
        client.vanish()
        raise PeerGone("closed")

    async def _step(self, client: Client, talk: list[Message]) -> None:
        """The same by the steps of a turn."""
        self._ask(talk)
        messages, params = list(talk), self._params()
        opened = await self._call(client, "session/open", api.OpenParams(model=self._model), api.OpenResult)
        begun = await self._call(client, "turn/begin", api.BeginParams(handle=opened.handle), api.BeginResult)
        prefix = api.PrefixParams(turn=begun.turn, messages=messages, params=params)
        await self._call(client, "session/ensure_prefix", prefix, api.PrefixResult)
        await self._call(client, "session/prefill_suffix", api.StepParams(turn=begun.turn), api.Usage)
        await self._call(client, "session/decode", api.StepParams(turn=begun.turn), api.TurnResult)
        await self._call(client, "turn/end", api.StepParams(turn=begun.turn), api.EndResult)
        await self._call(client, "session/close", api.HandleParams(handle=opened.handle), api.Value)
        self.shown.append(Shown(messages, "", complete=False))

    async def _warm(self, client: Client, talk: list[Message]) -> None:
        messages = [*talk, {"role": "user", "content": self._random.choice(QUESTIONS)}]
        await self._call(client, "session/warm", api.WarmParams(model=self._model, messages=messages), api.Usage)

    async def _fill(self, client: Client, talk: list[Message]) -> None:
        del talk
        prefix = f"def add{self._random.randrange(9)}(a, b):\n    "
        asked = api.FillParams(model=self._model, prefix=prefix, suffix="\n", params=api.Sampling(max_tokens=6))
        await self._call(client, "completion/fill", asked, api.FillResult)

    async def _reload(self, client: Client, talk: list[Message]) -> None:
        """What is warm goes to the disk and comes back with the next load."""
        del talk
        await self._call(client, "model/unload", api.UnloadParams(on_busy="wait", wait_s=60.0), api.UnloadResult)

    async def _call(self, client: Client, method: str, params: api.Fenced, kind: Any) -> Any:
        return await client.call(method, params, kind, CALL_SECONDS)


_DEEDS: tuple[Callable[[MixedTurns, Client, list[Message]], Awaitable[None]], ...] = (
    *(MixedTurns._go_on,) * 22,
    *(MixedTurns._edit,) * 6,
    *(MixedTurns._begin_anew,) * 4,
    *(MixedTurns._cancel,) * 5,
    *(MixedTurns._step,) * 3,
    *(MixedTurns._warm,) * 2,
    *(MixedTurns._fill,) * 2,
    MixedTurns._vanish,
    MixedTurns._reload,
)
