"""A whole instance without a model: Presence, Ownership and Store in a process that tests drive.

One command a line on stdin, one JSON object a line on stdout. Its "resident state" is a counter that
moves while `valid` says that it may: what a test watches to see whether an owner still acts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from typing import Any

import anyio
import anyio.to_thread

from modeld.owner.ownership import Ownership
from modeld.store.store import Store
from shared.clock import SystemClock
from shared.errors import ModeldError
from shared.lease import disk
from shared.lease.presence import Presence
from shared.lease.process import identity
from shared.lease.record import Meta, PresenceRecord
from shared.paths import data_root
from shared.settings import load_settings


class ShiftedClock(SystemClock):
    """The wall clock a test can set; awake time is the machine's."""

    shift = 0.0

    def wall(self) -> float:
        return time.time() + self.shift


def say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


class Instance:
    def __init__(self) -> None:
        self.root = data_root()
        self.clock = ShiftedClock()
        self.clock.shift = float(os.environ.get("TEST_WALL_SHIFT", "0"))
        self.name = str(uuid.uuid4())
        self.store = Store(self.root, self.clock)
        meta = Meta(endpoint=f"unix:/{self.name[:8]}", backend="none")
        self.ownership = Ownership(self.root, load_settings(), self.name, meta=meta, store=self.store, clock=self.clock)
        self.ownership.subscribe(self.tell)
        self.acts = 0

    def tell(self, event: str) -> None:
        if event != "renewed":
            say(event=event, at=time.monotonic())

    def publish(self) -> None:
        self.root.instances.mkdir(mode=0o700, parents=True, exist_ok=True)
        presence = Presence(self.root, self.name)
        presence.make_token()
        me = identity.current()
        presence.publish(
            PresenceRecord(
                instance=self.name,
                endpoint=f"unix:/{self.name[:8]}",
                token_file=str(presence.token_file),
                pid=me.pid,
                start_token=me.start_token,
                boot_id=me.boot_id,
                pid_namespace=me.pid_namespace,
                host=me.host,
                started=self.clock.wall(),
            )
        )

    def act_forever(self) -> None:
        """What the resident state would do, in a thread that asks before each step."""
        while True:
            if self.ownership.valid():
                self.acts += 1
            time.sleep(0.002)

    async def command(self, name: str, *words: str) -> dict[str, Any]:
        if name == "ensure":
            epoch = await self.ownership.ensure()
            return {"epoch": epoch.number, "before": epoch.before}
        if name == "confirm":
            return {"epoch": (await self.ownership.confirm()).number}
        if name == "worker":
            await self.ownership.name_worker(int(words[0]), identity.start_token(int(words[0])) or "")
            return {}
        if name == "release":
            return {"written": await self.ownership.release(words[0])}
        if name == "shift":
            self.clock.shift = float(words[0])
            return {}
        if name == "stall":
            _stall()
            return {}
        if name == "register":
            await self.store.register_backend(words[0], {"url": words[1]}, by="test")
            return {}
        if name == "backends":
            return {"backends": await self.store.backends()}
        if name == "turn":
            return {"turn": await self.store.begin_turn("client", "model")}
        if name == "lock":
            # sent to the thread itself: one sent to the process may reach another, and this one would commit first
            await self.store.write(lambda _db, _i, _e: signal.pthread_kill(threading.get_ident(), signal.SIGSTOP))
            return {}
        if name == "recovered":
            found = self.store.recovered
            return {"abandoned": found.abandoned if found else None, "backends": found.backends if found else None}
        return {"role": self.ownership.role, "valid": self.ownership.valid(), "acts": self.acts}

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.ownership.run)
            threading.Thread(target=self.act_forever, daemon=True).start()
            say(ready=self.name, pid=os.getpid())
            while True:
                line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
                if not line:
                    break
                await self.answer(line.split())
            tasks.cancel_scope.cancel()

    async def answer(self, words: list[str]) -> None:
        started = time.monotonic()
        try:
            result = await self.command(*words)
        except ModeldError as error:
            result = {"error": error.kind, "data": error.data}
        say(answer=words[0], took=time.monotonic() - started, at=time.monotonic(), **result)


def _stall() -> None:
    """From now on writing hangs, as on a filesystem whose server is away."""

    def hang(*args: object) -> None:
        threading.Event().wait()

    setattr(disk, "replace", hang)  # noqa: B010  mypy sees the plain assignment as a mistake


if __name__ == "__main__":
    instance = Instance()
    instance.publish()
    anyio.run(instance.run)
