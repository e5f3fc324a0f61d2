"""A user's world around a spawned bridge: a private data root and home, and a scripted daemon at a real socket."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from bridge_fakes import FakeDaemon
from clients.bridge import Answerer, Bridge, allow_once, private_environment
from clients.npm import node_modules
from clients.schema import WireCheck
from shared.lease.presence import Presence
from shared.lease.process import identity
from shared.lease.record import PresenceRecord
from shared.paths import DataRoot


class World:
    """A private data root, home and weights folder for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = private_environment(folder)
        self.root = DataRoot(folder / "data")
        self.root.path.mkdir(mode=0o700)
        self.work = folder / "work"
        self.work.mkdir()
        self.schema = node_modules() / "sdk-2.4/schema/v1/schema.json"

    def bridge(
        self, *command: str, group: bool = False, text_ids: bool = False, answer: Answerer = allow_once, **environ: str
    ) -> Bridge:
        """A spawned bridge; `group` gives it a process group of its own, as editors do."""
        line = command or (sys.executable, "-m", "acp_bridge", "acp")
        check = WireCheck(self.schema)
        return Bridge(
            line, {**self.environ, **environ}, check, cwd=self.work, answer=answer, group=group, text_ids=text_ids
        )

    def logs(self) -> str:
        """A scripted daemon writes none."""
        return ""

    def publish(self, daemon: FakeDaemon, token: str) -> Presence:
        """The presence record of a daemon that lives in the test's own process."""
        me = identity.current()
        self.root.instances.mkdir(exist_ok=True)
        presence = Presence(self.root, daemon.instance)
        presence.make_token()
        token_file = str(presence.token_file)
        Path(token_file).write_text(token)
        presence.publish(
            PresenceRecord(
                instance=daemon.instance, endpoint=daemon.target.address, token_file=token_file, pid=me.pid,
                start_token=me.start_token, boot_id=me.boot_id, pid_namespace=me.pid_namespace, host=me.host,
                backend="llama", protocol_min=1, protocol_max=1, version="1", started=time.time(),
            )
        )  # fmt: skip
        return presence


@asynccontextmanager
async def scripted(world: World, instance: str = "bbbbbbbb-1111") -> AsyncIterator[FakeDaemon]:
    """A daemon that the bridges of this world find by its records; stopped in order at the end of the block."""
    folder = world.folder / "sock"
    folder.mkdir(mode=0o700, exist_ok=True)
    daemon = FakeDaemon(folder, instance)
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.serve)
        presence = world.publish(daemon, "secret")
        yield daemon
        presence.withdraw("stop", time.time())
        daemon.close()
        group.cancel_scope.cancel()
