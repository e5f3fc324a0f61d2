"""Client processes that are killed in each stage of what they asked for, and what the daemon's status says of it.

Used by the tests (a tenth) and by `tests/soak/soak_slot.py` (a hundred rounds). The seconds are the daemon's own: its
`uptime_s` before the kill and in the first status that shows nothing of the client any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from modeld_process import ENDLESS, Client, Modeld, Turn, write_script
from shared.paths import DataRoot
from shared.protocol import api

NAME = "goes"  # and a number
STAGES = ("queued", "loading", "prefix", "prefill", "thinking", "generating", "held", "any moment")
PATIENCE = 20.0
#: Where a client that is killed at any moment may be by then, in seconds.
MOMENTS = 0.15
SLOW_LOAD_S = 10.0
ENDLESS_TOKENS = 10**6
#: The thoughts are distinguished from the answer because the template knows of them.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'].split('</think>')[-1] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THOUGHT: dict[str, Any] = {"pieces": ["<think>", *["hm "] * 5000], "when": "ponder"}
SHORT: dict[str, Any] = {"pieces": ["x "] * 3, "when": "short"}
LONG_PROMPT = "long " * 700


def script(root: DataRoot, *, load_s: float = 0.0) -> dict[str, str]:
    """The environment of the daemon. Rewritten, it holds for the next worker."""
    fields = {"token_s": 0.002, "prefill_token_s": 0.001, "chunk": 1024, "template": TEMPLATE, "load_s": load_s}
    return write_script(root.path, [ENDLESS, THOUGHT, SHORT], **fields) | {"MODELD_LOAD_ROLLBACK": "0"}


class NotFree(AssertionError):
    """Something of a killed client is left."""


class KilledClients:
    """Rounds of one client process each, beside a client that stays. `seconds` by stage: kill to free."""

    def __init__(self, modeld: Modeld, stays: Client, random: Callable[[], float]) -> None:
        self.modeld = modeld
        self.stays = stays
        self.seconds: dict[str, list[float]] = {stage: [] for stage in STAGES}
        self._random = random
        self._resident, self._other = "a", "b"
        self._waiting: Turn | None = None
        self._count = 0
        self._name = ""

    async def settle(self) -> None:
        """Loaded, idle, nobody else connected."""
        script(self.modeld.root)
        await self.stays.load(self._resident, on_busy="wait", allow_switch=True)
        await self.stays.turn(self._resident, "short").end(PATIENCE)
        await self._until(lambda status: self._nothing_left(status) and status.state == "Ready", "settled")

    async def round(self, stage: str) -> None:
        """One client gets to `stage`, as the daemon's status says, and is killed there."""
        await self._prepare(stage)
        self._count += 1
        self._name = f"{NAME} {self._count}"
        child = self._spawn(self._steps(stage))
        try:
            await self._reach(stage, child)
            before = await self.stays.status()
            child.kill()
            after = await self._until(lambda status: self._is_free(status, stage), f"free after {stage}")
            self.seconds[stage].append(max(after.uptime_s - before.uptime_s, 0.0))
        finally:
            child.kill()
            _, complaint = child.communicate()
        if complaint:
            raise NotFree(f"{stage}: the client said {complaint.decode()}\n{self.modeld.reported()}")
        await self._conclude(stage)

    # --- a round -------------------------------------------------------------------------------

    async def _prepare(self, stage: str) -> None:
        if stage == "loading":
            await self.stays.unload(on_busy="wait")
            script(self.modeld.root, load_s=SLOW_LOAD_S)
        elif stage == "queued":
            self._waiting = self.stays.turn(self._resident, params=_params())
            await self._waiting.until(api.TextDelta)

    async def _reach(self, stage: str, child: subprocess.Popen[bytes]) -> None:
        """It is there, as the status says; that it holds the model is said by a switch that waits for it."""
        if stage == "any moment":
            await anyio.sleep(self._random() * MOMENTS)
        elif stage == "held":
            assert child.stdout is not None
            await anyio.to_thread.run_sync(child.stdout.readline)
            self._waiting = self.stays.turn(self._other, "short", allow_switch=True, consent=True)
            await self._until(lambda status: bool(status.queue), "a switch waits for the hold", child)
        else:
            await self._until(lambda status: self._is_in(status, stage), f"a client is {stage}", child)

    def _steps(self, stage: str) -> list[tuple[str, dict[str, Any]]]:
        words = {"prefix": LONG_PROMPT, "prefill": LONG_PROMPT, "thinking": "ponder", "held": "short"}
        number = len(self.seconds[stage])
        message = {"role": "user", "content": f"{number} {stage} {words.get(stage, 'hello')}"}
        asked: dict[str, Any] = {"model": self._resident, "messages": [message], "allow_load": True}
        turn = ("session/turn", {**asked, "params": {"max_tokens": ENDLESS_TOKENS, "temperature": 0.0}})
        return [turn, ("run/hold", {"model": self._resident, "run": "tools"})] if stage == "held" else [turn]

    def _spawn(self, steps: list[tuple[str, dict[str, Any]]]) -> subprocess.Popen[bytes]:
        view = self.modeld.view()
        assert view is not None
        program = Path(__file__).parent / "clients" / "doomed.py"
        command = [sys.executable, "-I", "-S", str(program)]
        command += [view.endpoint, view.token_file, self._name, json.dumps(steps)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    async def _conclude(self, stage: str) -> None:
        waiting, self._waiting = self._waiting, None
        if stage == "loading":
            if self.modeld.workers():
                raise NotFree(f"the worker of a load outlived its caller\n{self.modeld.reported()}")
            script(self.modeld.root)
            await self.stays.load(self._resident)
        elif stage == "queued" and waiting is not None:
            if waiting.ended.is_set():
                raise NotFree(f"the turn of another client was touched: {waiting.error!r}\n{self.modeld.reported()}")
            self.stays.cancel(waiting)
            await waiting.end(PATIENCE)
        elif stage == "held" and waiting is not None:
            await waiting.end(PATIENCE)
            self._resident, self._other = self._other, self._resident
        if len(self.modeld.workers()) != 1:
            raise NotFree(f"{stage}: {len(self.modeld.workers())} workers\n{self.modeld.reported()}")

    # --- what the daemon says ------------------------------------------------------------------

    async def _until(
        self, what: Callable[[api.Status], bool], label: str, child: subprocess.Popen[bytes] | None = None
    ) -> api.Status:
        status = await self.stays.status()
        with suppress(TimeoutError), anyio.fail_after(PATIENCE):
            while not what(status):
                if child is not None and child.poll() is not None:
                    break
                await anyio.sleep(0.002)
                status = await self.stays.status()
        if what(status):
            return status
        ended = "" if child is None or child.poll() is None else ", and the client has ended by itself"
        busy, queue, clients = status.busy, status.queue, status.clients
        raise NotFree(
            f"never: {label}{ended}; {status.state}, {busy}, waiting {queue}, {clients} clients"
            f"\n{self.modeld.reported()}"
        )

    def _is_in(self, status: api.Status, stage: str) -> bool:
        if stage == "queued":
            return any(waiting.client == self._name for waiting in status.queue)
        busy = status.busy
        return busy is not None and (busy.holder, busy.stage) == (self._name, stage)

    @staticmethod
    def _nothing_left(status: api.Status) -> bool:
        holder = status.busy.holder if status.busy is not None else ""
        gone = not any(name.startswith(NAME) for name in (holder, *(waiting.client for waiting in status.queue)))
        return gone and (status.clients, status.sessions, status.jobs) == (1, 0, [])

    def _is_free(self, status: api.Status, stage: str) -> bool:
        if not self._nothing_left(status) or status.queue:
            return False
        if stage == "queued":
            return status.state == "Busy"  # the turn of the client that stays
        if stage == "held":
            return True  # the switch has been granted
        return status.state == ("Empty" if stage == "loading" else "Ready")


def _params() -> api.Sampling:
    return api.Sampling(max_tokens=ENDLESS_TOKENS, temperature=0.0)
