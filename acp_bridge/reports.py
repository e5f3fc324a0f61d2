"""`acp-bridge models` and `acp-bridge doctor`: what an editor would show, and what works."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import msgspec

from acp_bridge.app import make_core
from acp_bridge.core import Core
from acp_bridge.doctor import findings
from shared.paths import config_file, data_root
from shared.settings import load_settings

#: How long a report waits for a complete look at the library.
LOOK_LIMIT_S = 10.0


def models(*, as_json: bool) -> int:
    """List the models of the picker; gives the exit code."""
    core = anyio.run(_looked_around)
    rows = [msgspec.to_builtins(row) for row in core.models.rows]
    if as_json:
        _print(msgspec.json.encode({"rows": rows, "reason": core.models.reason}).decode())
        return 0
    for row in core.models.rows:
        _print(f"{row.name}  {row.state}{f' ({row.reason})' if row.reason else ''}")
    if not rows:
        _print(core.models.reason)
    return 0


def doctor(*, as_json: bool) -> int:
    """Findings, each with its next step; 0 when everything works, else 1."""
    core = anyio.run(_looked_around)
    found = findings(core.daemon, core.models, core.store)
    if as_json:
        _print(msgspec.json.encode(found).decode())
    else:
        for finding in found:
            _print(f"{'ok ' if finding.good else 'NO '} {finding.about}: {finding.text}")
    return 0 if all(finding.good for finding in found) else 1


async def _looked_around() -> Core:
    core = make_core(data_root(), load_settings(file=config_file()))
    async with anyio.create_task_group() as group:
        group.start_soon(core.daemon.run)
        await core.daemon.looked.wait()
        await core.daemon.reconnect()
        await core.models.look(limit=LOOK_LIMIT_S)
        group.cancel_scope.cancel()
    return core


def _print(line: Any) -> None:
    sys.stdout.write(f"{line}\n")
