"""A user with a private data root: real bridges, a real modeld on the scripted engine, or a daemon in the test."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bridge_fakes import TOKEN, FakeDaemon
from clients.bridge import private_environment
from clients.editor import Editor
from modeld_process import Modeld, write_models, write_script
from shared.lease.presence import Presence
from shared.lease.process import identity
from shared.lease.record import PresenceRecord
from shared.paths import DataRoot


class World:
    """Where a test's windows and daemons live."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = private_environment(folder)
        self.root = DataRoot(folder / "data")
        self.root.path.mkdir(mode=0o700)

    def window(self, name: str = "work", **environ: str) -> Editor:
        """One editor window, not yet initialized."""
        work = self.folder / name
        work.mkdir(exist_ok=True)
        return Editor({**self.environ, **environ}, work)

    def window_of(self, command: list[str], **environ: str) -> Editor:
        """A window whose bridge is started by another command."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        return Editor({**self.environ, **environ}, work, command)

    def scripted(self, *models: str, replies: Any = (), **script: Any) -> Modeld:
        """A real modeld whose engine says what the script says, with tiny real models."""
        write_models(self.root, *(models or ("alpha", "beta")))
        named = write_script(self.folder, replies, **script)
        self.environ.update(named)
        return Modeld(self.root, "scripted", **self.environ)

    def publish(self, daemon: FakeDaemon) -> Presence:
        """The presence record of a daemon that lives in the test's own process."""
        me = identity.current()
        self.root.instances.mkdir(exist_ok=True)
        presence = Presence(self.root, daemon.instance)
        presence.make_token()
        Path(presence.token_file).write_text(TOKEN)
        presence.publish(
            PresenceRecord(
                instance=daemon.instance, endpoint=daemon.target.address, token_file=str(presence.token_file),
                pid=me.pid, start_token=me.start_token, boot_id=me.boot_id, pid_namespace=me.pid_namespace,
                host=me.host, backend="llama", protocol_min=1, protocol_max=1, version="1", started=time.time(),
            )
        )  # fmt: skip
        return presence
