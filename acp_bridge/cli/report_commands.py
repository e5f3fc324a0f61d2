"""`acp-bridge models` and `acp-bridge doctor`: what an editor would show, and what works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec

from acp_bridge.app import make_core
from acp_bridge.core.core import Core
from acp_bridge.doctor import editor_findings, findings, provider_findings
from acp_bridge.providers.health import Health
from shared import codes
from shared.diagnosis.finding import Finding, lines, problems
from shared.errors import ModeldError
from shared.paths import DataRoot, config_file, data_root
from shared.protocol.api import LibraryRow
from shared.settings import Settings, read_settings
from shared.text.shown import one_line

#: How long a report waits for a complete look at the library.
LOOK_LIMIT_S = 10.0
#: How long an editor's interpreter may take to import the bridge.
INTERPRETER_LIMIT_S = 10.0


def advertised() -> list[LibraryRow]:
    """The local models that an editor would show."""
    core, _ = anyio.run(_looked_around)
    return list(core.models.rows)


def settings_told() -> Settings:
    """The settings; one that cannot be used costs itself and is told on standard error."""
    settings, problems = read_settings(file=config_file())
    for problem in problems:
        sys.stderr.write(f"acp-bridge: {problem.message}\n")
    return settings


def models(*, as_json: bool) -> int:
    """List the models of the picker; gives the exit code."""
    core, looked = anyio.run(_looked_around)
    rows, remotes = core.models.rows, core.models.remotes
    trouble = [one for one in looked if one.verdict == "problem"]
    if as_json:
        told = {"rows": rows, "remotes": remotes, "reason": core.models.reason, "problems": trouble}
        _print(msgspec.json.encode(told).decode())
        return codes.OK
    for row in rows:
        _print(one_line(f"{row.name}  {row.state}{f' ({row.reason})' if row.reason else ''}"))
    if not rows:
        _print(one_line(core.models.reason))
    for remote in remotes:
        window = f", window {remote.context:,}" if remote.context else ""
        _print(one_line(f"{remote.id}  remote{window}"))
    for one in trouble:
        sys.stderr.write(f"{one_line(f'{one.what}: {one.text}')}\n")
    return codes.OK


def doctor(*, as_json: bool, bundle: str | None = None) -> int:
    """Findings, each with its next step; gives the exit code: 1 when there is a problem, as `modeld doctor` does."""
    try:
        core, looked = anyio.run(_looked_around)
        found = [
            *_settings_findings(),
            *findings(core.daemon, core.models, core.store),
            *provider_findings(looked),
        ]
    except ModeldError as error:  # no data root: the rest can still be looked at
        found = [Finding(what="settings", verdict="problem", text=error.message, fix="`modeld doctor` says more")]
    found += _editors()
    if as_json:
        _print(msgspec.json.encode(found).decode())
    else:
        _print("\n".join(lines(found)))
    if bundle is not None:
        _write_bundle(Path(bundle).expanduser().absolute(), found)
    return codes.FAILED if problems(found) else codes.OK


def _settings_findings() -> list[Finding]:
    wrong = read_settings(file=config_file())[1]
    fix = "correct it; until then its default holds"
    return [Finding(what="settings", verdict="problem", text=one.message, fix=fix) for one in wrong]


def _write_bundle(path: Path, found: list[Finding]) -> None:
    """The findings as a redacted support bundle; modeld's own report has its logs."""
    from shared.diagnosis import report

    try:
        root: DataRoot | None = data_root()
    except ModeldError:
        root = None
    parts = {"report.txt": "\n".join(lines(found)), "report.json": msgspec.json.encode(found).decode()}
    names = report.write(path, parts, root)
    sys.stderr.write(f"wrote {path}: {', '.join(names)}; look through it before you send it\n")


def _editors() -> list[Finding]:
    """The editors that are here, with what they would spawn."""
    from acp_bridge.install.command import surroundings
    from acp_bridge.install.editors import CannotInstall, configured

    try:
        return editor_findings(configured(surroundings()), _interpreter_problem)
    except CannotInstall as error:
        return [Finding(what="editors", verdict="problem", text=str(error))]


def _interpreter_problem(command: str) -> str:
    """Whether the bridge can be imported there: "" or what is wrong. Bounded."""
    if not os.path.exists(command):
        return "which is not there any more"
    try:
        done = subprocess.run(
            [command, "-P", "-c", "import acp_bridge, shared.version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=INTERPRETER_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"which cannot be run ({type(error).__name__})"
    return "" if done.returncode == 0 else "which does not have modeld installed"


async def _looked_around() -> tuple[Core, list[Health]]:
    """The core after one look at everything, and what each provider answered. Bounded."""
    core = make_core(data_root(), settings_told())
    looked: list[Health] = []

    async def far() -> None:
        looked.extend(await core.providers.look())

    async with anyio.create_task_group() as group:
        group.start_soon(core.daemon.run)
        group.start_soon(core.providers.run, core.remotes_changed)
        async with anyio.create_task_group() as looks:
            looks.start_soon(far)
            await core.daemon.looked.wait()
            await core.daemon.reconnect()
            await core.models.look(limit=LOOK_LIMIT_S)
        group.cancel_scope.cancel()
    return core, looked


def _print(line: Any) -> None:
    sys.stdout.write(f"{line}\n")
