"""`modeld doctor`: what could keep modeld from working, each finding with what to do."""

from __future__ import annotations

import argparse
import os
from typing import Literal

import anyio
import msgspec

from modeld.cli import codes
from modeld.cli.client import reach
from modeld.cli.context import Context, print_json, size_text
from shared.errors import ModeldError
from shared.protocol import api

Verdict = Literal["ok", "note", "problem"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One look. `what` names it, `text` says what was found and what to do."""

    what: str
    verdict: Verdict
    text: str


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when there is a problem."""
    context = Context()
    findings = [*_root(context), *_engines(), *_memory(context), *_models(context), anyio.run(_daemon, context)]
    if options.json:
        print_json(findings)
    else:
        for finding in findings:
            print(f"{finding.verdict:>8}  {finding.what}: {finding.text}")
    return codes.FAILED if any(finding.verdict == "problem" for finding in findings) else codes.OK


def _root(context: Context) -> list[Finding]:
    from shared.lease.files import prepare

    try:
        prepare(context.root)
    except ModeldError as error:
        return [Finding(what="data root", verdict="problem", text=error.message)]
    facts = os.statvfs(context.root.path) if hasattr(os, "statvfs") else None
    free = f", {size_text(facts.f_bavail * facts.f_frsize)} free" if facts is not None else ""
    return [Finding(what="data root", verdict="ok", text=f"{context.root.path}{free}")]


def _engines() -> list[Finding]:
    from modeld.engine.backends import available

    found = available()
    rows: list[Finding] = []
    for one in found:
        text = f"usable on {', '.join(one.devices)}" if one.importable else f"{one.reason}"
        rows.append(Finding(what=f"engine {one.backend}", verdict="ok" if one.importable else "note", text=text))
    if not any(one.importable for one in found):
        text = "none is installed: `pip install 'modeld[llama]'` or `pip install 'modeld[openvino]'`"
        rows.append(Finding(what="engines", verdict="problem", text=text))
    return rows


def _memory(context: Context) -> list[Finding]:
    from modeld.memory.policy import reserve_bytes, under_pressure
    from modeld.memory.probe import host_memory

    memory = host_memory()
    reserve = reserve_bytes(memory.total, context.settings)
    text = f"{size_text(memory.free)} of {size_text(memory.total)} free, {size_text(reserve)} kept"
    verdict: Verdict = "note" if under_pressure(memory, context.settings) else "ok"
    return [Finding(what="memory", verdict=verdict, text=text)]


def _models(context: Context) -> list[Finding]:
    from modeld.cli.library import offline

    result = offline(context)
    rows = [Finding(what="library", verdict="note", text=problem) for problem in result.problems]
    if not result.rows:
        rows.append(Finding(what="library", verdict="note", text="no models: `modeld pull starter` fetches one"))
    else:
        rows.append(Finding(what="library", verdict="ok", text=f"{len(result.rows)} models"))
    return rows


async def _daemon(context: Context) -> Finding:
    try:
        async with await reach(context.root, context.settings) as connection:
            status = await connection.call("status", api.Fenced(), api.Status)
    except ModeldError as error:
        return Finding(what="modeld", verdict="note", text=error.message)
    return Finding(what="modeld", verdict="ok", text=f"{status.role}, pid {status.pid}, slot {status.state}")
