"""One user's world: a private data root and home, the installed commands in it, and its processes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from clients.bridge import Answerer, Bridge, allow_once, private_environment
from clients.npm import node_modules
from clients.schema import WireCheck
from leaks import end_processes_of, processes_of
from waiting import until

COMMAND_SECONDS = 120.0
SCHEMA = Path("sdk-2.4/schema/v1/schema.json")


def command(name: str) -> str:
    """An installed command of this environment."""
    return str(Path(sys.executable).parent / name)


def open_to_others(root: Path) -> list[str]:
    """Files and folders under a data root that anybody but their owner may open; what models link to is not ours."""
    if os.name == "nt":
        return []
    found = [root, *root.rglob("*")] if root.exists() else []
    modes = {path: path.lstat().st_mode for path in found}
    return [
        f"{path.relative_to(root)} ({stat.S_IMODE(mode):o})"
        for path, mode in modes.items()
        if mode & 0o077 and not stat.S_ISLNK(mode)
    ]


class Home:
    """Where a test's modeld and bridges live. Leaves no process behind, or fails."""

    def __init__(self, **environ: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="md-"))
        self.root = self.folder / "data"
        self.work = self.folder / "work"
        self.work.mkdir()
        self.environ = private_environment(self.folder, **environ)
        self.schema = node_modules() / SCHEMA

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run("modeld", "stop", check=False)
        left = end_processes_of(self.root)
        if kind is None:
            assert not left, f"left behind after modeld stop: {left}\n{self.logs()}"
            assert not (seen := open_to_others(self.root)), f"others may read {seen}"
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *arguments: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        """One command to its end, with its output."""
        done = subprocess.run(
            [command(arguments[0]), *arguments[1:]],
            env={**self.environ, **environ},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done

    def json(self, *arguments: str) -> Any:
        """The `--json` output of a reading command."""
        return json.loads(self.run(*arguments, "--json").stdout)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.json("modeld", "status")
        return status

    def wait_queue(self, length: int) -> None:
        """Return when that many turns wait."""
        until(lambda: len(self.status()["queue"]) == length, f"{length} turns waiting", 10)

    def start(self, backend: str) -> None:
        self.run("modeld", "start", "--backend", backend)

    def model(self, part: str) -> str:
        """The library's name of the one model whose name contains `part`."""
        rows = self.json("modeld", "library")
        rows = rows["rows"] if isinstance(rows, dict) else rows
        found = [row["name"] for row in rows if part.lower() in row["name"].lower()]
        assert len(found) == 1, (part, found, [row["name"] for row in rows])
        return str(found[0])

    def bridge(self, *, answer: Answerer = allow_once, check: type[WireCheck] = WireCheck, **environ: str) -> Bridge:
        """A bridge as an editor spawns it."""
        return Bridge(
            [command("acp-bridge"), "acp"],
            {**self.environ, **environ},
            check(self.schema),
            cwd=self.work,
            answer=answer,
        )

    def processes(self) -> list[psutil.Process]:
        return processes_of(self.root)

    def logs(self) -> str:
        """The end of every log, for a test that failed."""
        logs = [log for log in sorted((self.root / "logs").glob("*")) if log.is_file()]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)
