"""Many clients that ask one daemon for anything at any moment, and vanish, while its worker is killed and frozen.

Every call must end, with its result or with a typed error, and afterwards the slot is as good as new. What is asked
comes from a seed, so that a failure can be looked for again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import psutil

from modeld_process import ENDLESS, Client, Modeld, write_script
from shared.errors import ModeldError
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import InternalFault, PeerGone

MODELS = ("a", "b")
#: Longer than any bound of the daemon in the storm's settings. Seconds.
CALL_SECONDS = 60.0
#: What shortens the daemon's own patience, so that a storm of a minute meets all of it.
ENVIRON = {
    "MODELD_CANCEL_LIMIT": "0.5",
    "MODELD_STEP_GAP": "0.5",
    "MODELD_HOLD_TTL": "0.5",
    "MODELD_AFFINITY_BOUND": "0.5",
    "MODELD_AFFINITY_LOAD_FACTOR": "0",
    "MODELD_LOAD_ROLLBACK": "0.2",
    "MODELD_REAPER_SILENCE": "0.5",
    "MODELD_REAPER_INTERVAL": "0.1",
    "MODELD_QUEUE_LIMIT": "16",
    "MODELD_QUEUE_WAIT": "20",
}
#: What a model takes here: twice a worker without one.
BALLAST = 64 << 20
REPLIES: list[dict[str, Any]] = [ENDLESS, {"pieces": ["x "] * 3, "when": "short"}]
FREE_STATES = ("Empty", "Ready", "Failed")


def environ(root: DataRoot) -> dict[str, str]:
    """Of the daemon."""
    times = {"token_s": 0.005, "prefill_token_s": 0.001, "load_s": 0.1}
    return write_script(root.path, REPLIES, ballast_bytes=BALLAST, **times) | ENVIRON


class Storm:
    """`run` once. `outcomes` counts what became of each call by its method; `problems` is what must not have been."""

    def __init__(self, modeld: Modeld, *, clients: int, calls: int, seed: int) -> None:
        self.modeld = modeld
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []
        self._clients = clients
        self._left = calls
        self._random = random.Random(seed)
        self._over = anyio.Event()

    async def run(self) -> None:
        """All calls, then the proof that the slot is sound."""
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._watch_workers)
            watching.start_soon(self._hurt_workers)
            async with anyio.create_task_group() as tasks:
                for number in range(self._clients):
                    tasks.start_soon(self._live, f"client {number}")
            self._over.set()
        async with self.modeld.client("last") as last:
            await last.until_state(*FREE_STATES, seconds=CALL_SECONDS)
            params = api.Sampling(max_tokens=8, temperature=0.0)
            end = await last.turn("a", "short", params=params, allow_switch=True, consent=True).end(CALL_SECONDS)
            status = await last.status()
            sound = (end.finish_reason, status.state, status.queue, status.sessions, status.clients, status.jobs)
            if sound != ("stop", "Ready", [], 0, 1, []):
                self.problems.append(f"behind the storm: {sound}")

    # --- clients -------------------------------------------------------------------------------

    async def _live(self, name: str) -> None:
        """Connects again and again; a few calls each time, some of them at once, some never waited for."""
        while self._left > 0 and not self.problems:
            async with self.modeld.client(name) as client, anyio.create_task_group() as calls:
                for _ in range(self._random.randrange(1, 6)):
                    self._left -= 1
                    wish = self._random.choice(_WISHES)
                    if self._random.random() < 0.3:
                        calls.start_soon(self._ask, client, wish)
                    else:
                        await self._ask(client, wish)
                if self._random.random() < 0.3:
                    client.vanish()

    async def _ask(self, client: Client, wish: Callable[[Storm, Client], Awaitable[Any]]) -> None:
        what = wish.__name__
        try:
            with anyio.fail_after(CALL_SECONDS):
                await wish(self, client)
        except InternalFault as error:
            self.problems.append(f"{what}: a defect, {error}")
        except ModeldError as error:
            self.outcomes[f"{what}: {error.kind}"] += 1
        except PeerGone:
            self.outcomes[f"{what}: vanished"] += 1
        except TimeoutError:
            self.problems.append(f"{what}: it never ended")
        else:
            self.outcomes[f"{what}: done"] += 1

    async def _turn(self, client: Client) -> None:
        chance = self._random.random
        endless = chance() < 0.4
        turn = client.turn(
            self._model(),
            "go on" if endless else "short" + " words" * self._random.randrange(60),
            params=api.Sampling(max_tokens=10**6 if endless else 8, temperature=0.0),
            allow_load=chance() < 0.9,
            on_busy=self._random.choice(("wait", "wait", "fail", "cancel")),
            wait_s=self._random.choice((None, 0.2, 5.0)),
            **self._permission(),
        )
        if endless or chance() < 0.2:
            await anyio.sleep(chance() * 0.4)
            if turn.id is not None:
                client.cancel(turn)
        await turn.end(CALL_SECONDS)

    async def _load(self, client: Client) -> None:
        fields: dict[str, Any] = {"config": self._config(), "on_busy": self._on_busy(), "wait_s": 5.0}
        if self._random.random() < 0.2:
            fields["expect"] = api.Expect(generation=self._random.randrange(5))
        params = api.LoadParams(model=self._model(), allow_switch=self._random.random() < 0.7, **fields)
        await client.call("model/load", params, api.LoadResult, CALL_SECONDS)

    async def _unload(self, client: Client) -> None:
        params = api.UnloadParams(on_busy=self._on_busy(), wait_s=5.0)
        await client.call("model/unload", params, api.UnloadResult, CALL_SECONDS)

    async def _configure(self, client: Client) -> None:
        params = api.ConfigureParams(model=self._model(), config=self._config())
        await client.call("model/configure", params, api.ConfigureResult, CALL_SECONDS)

    async def _look(self, client: Client) -> None:
        await client.status()
        await client.call("model/describe", api.DescribeParams(model=self._model()), api.ModelInfo, CALL_SECONDS)

    async def _count(self, client: Client) -> None:
        params = api.CountParams(model=self._model(), text=["x"])
        await client.call("model/count", params, api.CountResult, CALL_SECONDS)

    async def _embed(self, client: Client) -> None:
        params = api.EmbedParams(model=self._model(), texts=["x"], allow_load=True, allow_switch=True)
        await client.call("model/embed", params, api.EmbedResult, CALL_SECONDS)

    async def _fill(self, client: Client) -> None:
        params = api.FillParams(model=self._model(), prefix="short", suffix="y", params=api.Sampling(max_tokens=8))
        await client.call("completion/fill", params, api.FillResult, CALL_SECONDS)

    async def _warm(self, client: Client) -> None:
        params = api.WarmParams(model=self._model(), messages=[{"role": "user", "content": "short"}])
        await client.call("session/warm", params, api.Usage, CALL_SECONDS)

    async def _hold(self, client: Client) -> None:
        params = api.HoldParams(model=self._model(), run="run", release=self._random.random() < 0.5)
        await client.call("run/hold", params, api.Value, CALL_SECONDS)

    async def _remove(self, client: Client) -> None:
        """Nothing here was pulled, so nothing may be removed."""
        await client.call("library/remove", api.RemoveParams(name=self._model()), api.RemoveResult, CALL_SECONDS)

    async def _steps(self, client: Client) -> None:
        """A turn step by step, left off anywhere."""
        asked = api.OpenParams(model=self._model(), allow_load=True, allow_switch=self._random.random() < 0.3)
        opened = await client.call("session/open", asked, api.OpenResult, CALL_SECONDS)
        begin = api.BeginParams(handle=opened.handle, on_busy=self._on_busy(), wait_s=5.0)
        turn = (await client.call("turn/begin", begin, api.BeginResult, CALL_SECONDS)).turn
        messages = [{"role": "user", "content": "short"}]
        params = api.Sampling(max_tokens=8, temperature=0.0)
        prefix = api.PrefixParams(turn=turn, messages=messages, params=params)
        steps: list[tuple[str, api.Fenced, Any]] = [
            ("session/ensure_prefix", prefix, api.PrefixResult),
            ("session/prefill_suffix", api.StepParams(turn=turn), api.Usage),
            ("session/decode", api.StepParams(turn=turn), api.TurnResult),
            ("turn/end", api.StepParams(turn=turn), api.EndResult),
        ]
        for method, step, kind in steps[: self._random.randrange(len(steps) + 1)]:
            await client.call(method, step, kind, CALL_SECONDS)
        if self._random.random() < 0.5:
            await client.call("session/close", api.HandleParams(handle=opened.handle), api.Value, CALL_SECONDS)

    def _model(self) -> str:
        return self._random.choice(MODELS)

    def _on_busy(self) -> Any:
        return self._random.choice(("fail", "wait", "cancel"))

    def _config(self) -> api.LoadConfig:
        return api.LoadConfig(num_ctx=self._random.choice((None, None, 1024)))

    def _permission(self) -> dict[str, bool]:
        return {"allow_switch": self._random.random() < 0.5, "consent": self._random.random() < 0.8}

    # --- workers -------------------------------------------------------------------------------

    async def _watch_workers(self) -> None:
        """Processes that hold a model, as their memory shows: at most one. Others are about to begin or to end."""
        while not self._over.is_set() and not self.problems:
            heavy = sum(_resident(worker) >= BALLAST for worker in self.modeld.workers())
            if heavy > 1:
                self.problems.append(f"{heavy} workers hold a model")
            await anyio.sleep(0.02)

    async def _hurt_workers(self) -> None:
        while not await self._over_within(0.2 + self._random.random() * 2):
            for worker in self.modeld.workers()[:1]:
                try:
                    await self._hurt(worker)
                except psutil.NoSuchProcess:
                    continue

    async def _hurt(self, worker: psutil.Process) -> None:
        if self._random.random() < 0.6:
            worker.kill()
            self.outcomes["a worker was killed"] += 1
            return
        worker.suspend()
        self.outcomes["a worker was frozen for a while"] += 1
        await self._over_within(self._random.random() * 2)
        worker.resume()

    async def _over_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._over.wait()
        return self._over.is_set()


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


_WISHES: tuple[Callable[[Storm, Client], Awaitable[Any]], ...] = (
    *(Storm._turn,) * 6,
    *(Storm._load,) * 2,
    Storm._unload,
    Storm._configure,
    Storm._look,
    Storm._count,
    Storm._embed,
    Storm._fill,
    Storm._warm,
    Storm._hold,
    Storm._remove,
    *(Storm._steps,) * 2,
)
