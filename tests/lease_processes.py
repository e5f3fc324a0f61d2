"""Starting and driving the instances of lease_instance.py."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from shared.paths import DataRoot

PROGRAM = Path(__file__).parent / "lease_instance.py"
REPO = Path(__file__).parents[1]
PATIENCE = 15.0


class Instance:
    """One running instance. `ready` is its UUID."""

    def __init__(self, root: DataRoot, *, ttl: float = 1.0, wrap: tuple[str, ...] = (), **environ: str) -> None:
        self.process = subprocess.Popen(
            [*wrap, sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MODELD_DATA_ROOT": str(root.path), "MODELD_LEASE_TTL": str(ttl), **environ},
            cwd=REPO,
        )
        self._said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._kept: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(json.loads(line))
        self._said.put(None)

    def ready(self) -> str:
        message = self.wait("ready")
        self.pid = message["pid"]
        self.name: str = message["ready"]
        return str(self.name)

    def send(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def ask(self, command: str) -> dict[str, Any]:
        self.send(command)
        return self.wait("answer", command.split(maxsplit=1)[0])

    def wait(self, key: str, value: str | None = None, patience: float = PATIENCE) -> dict[str, Any]:
        """The next message with `key` (and value); others are kept for later waits."""
        for message in self._kept:
            if _fits(message, key, value):
                self._kept.remove(message)
                return message
        while True:
            said = self._said.get(timeout=patience)
            if said is None:
                raise EOFError(f"ended while waiting for {key} {value}")
            if _fits(said, key, value):
                return said
            self._kept.append(said)

    def events(self) -> list[str]:
        """Events reported so far, in order."""
        self.ask("status")
        return [message["event"] for message in self._kept if "event" in message]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Close it, politely unless it is dead already; collect it."""
        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        if self.process.poll() is None:
            try:
                os.kill(self.process.pid, signal.SIGCONT)
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


def _fits(message: dict[str, Any], key: str, value: str | None) -> bool:
    return key in message and (value is None or message[key] == value)
