"""Runs a foreign client against a bridge through the wiretap, and judges every message afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from clients.home import command
from clients.npm import tool
from clients.schema import WireCheck

HERE = Path(__file__).parent
CLIENT_SECONDS = 240


class Place(Protocol):
    """Where a client runs: a home with a real modeld, or a world with a scripted one."""

    folder: Path
    work: Path
    environ: dict[str, str]
    schema: Path

    def logs(self) -> str:
        """For a test that failed."""
        ...


def tapped(home: Place, log: Path) -> list[str]:
    """The command a client spawns instead of the bridge: the bridge behind the wiretap."""
    return [sys.executable, str(HERE / "wiretap.py"), str(log), "--", command("acp-bridge"), "acp"]


def judge(home: Place, log: Path) -> WireCheck:
    """Fails on any message the bridge sent that the schema or the order rules do not allow."""
    check = WireCheck(home.schema)
    check.feed_log(log)
    assert not check.problems, "\n".join(check.problems)
    assert check.seen, "the bridge sent nothing"
    return check


def converse(home: Place, script: str, sdk: Path, plan: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each step of the plan brought in a JavaScript client, the agent's exit last."""
    log = home.folder / f"{sdk.name}.log"
    done = subprocess.run(
        [tool("node"), str(HERE / script), str(sdk), json.dumps(plan), "--", *tapped(home, log)],
        env=home.environ,
        cwd=home.work,
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{home.logs()}"
    judge(home, log)
    return [json.loads(line) for line in done.stdout.splitlines()]
