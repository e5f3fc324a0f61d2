"""`modeld library`: everything on disk, with the live state where a daemon answers, and without one too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import anyio

from modeld.cli import model_folders
from modeld.cli.context import Context, lined, print_json
from modeld.client import reach
from shared import codes
from shared.diagnosis.remedy import called, install_command
from shared.errors import DaemonUnreachable, ModeldError
from shared.protocol import api
from shared.text.shown import one_line
from shared.text.words import counted, few, size_text

#: A command waits this long for a cold scan of a big library to finish.
SCAN_SECONDS = 20.0


def main(options: argparse.Namespace) -> int:
    """Lists, refreshes, or changes which folders are searched."""
    context = Context()
    if options.action in ("add", "remove"):
        return (model_folders.add if options.action == "add" else model_folders.remove)(options.folder)
    result = anyio.run(_asked, context, options.action == "refresh")
    if result is None:
        result = offline(context)
    if options.json:
        print_json(result)
        return codes.OK
    print(table(result.rows) if result.rows else f"no models: `{called('modeld')} pull starter` fetches a small one")
    for line in [*next_steps(result.rows, called("modeld")), *_unfinished(context)]:
        print(line)
    for line in few(result.problems, f"`{called('modeld')} library --json`"):
        print(f"modeld: {one_line(line)}", file=sys.stderr)
    return codes.OK


def _unfinished(context: Context) -> list[str]:
    """A word on downloads that did not end: they fill the disk and are no models."""
    from shared.fetch.partial import partials

    found = partials(context.root.models)
    size = size_text(sum(one.size_bytes for one in found))
    modeld = called("modeld")
    line = f"{counted(len(found), 'unfinished download')} ({size}): `{modeld} pull --partial` lists, `--clean` removes."
    return [line] if found else []


async def _asked(context: Context, refresh: bool) -> api.LibraryResult | None:
    """The daemon's answer, None when there is none to be had."""
    try:
        async with await reach(context.root, context.settings) as connection:
            method = "library/refresh" if refresh else "library/list"
            result = await connection.call(method, api.LibraryParams(), api.LibraryResult)
            with anyio.move_on_after(SCAN_SECONDS):
                while not result.complete:
                    await anyio.sleep(0.1)
                    result = await connection.call("library/list", api.LibraryParams(), api.LibraryResult)
            return result
    except DaemonUnreachable:
        raise  # it is there: what it holds is not known, and it is not to be started
    except ModeldError:
        return None


def offline(context: Context) -> api.LibraryResult:
    """The inventory by this process alone: no daemon, no engine."""
    from modeld.engine.backends import available
    from modeld.library.inventory import fit_texts
    from shared.catalog.advertised.capability import Servable
    from shared.catalog.advertised.rows import Live, library_rows
    from shared.catalog.library import Library

    library = Library(context.root, context.settings)
    library.wait(SCAN_SECONDS)
    rows = library.rows()
    live = Live(
        servable=Servable(backend="", standing="none", stopped=True),
        engines=frozenset(one.backend for one in available() if one.importable),
        fits=fit_texts(rows, context.settings),
    )
    result = api.LibraryResult(rows=library_rows(rows, live), complete=library.complete, problems=library.problems)
    library.close()
    return result


def table(rows: Sequence[api.LibraryRow]) -> str:
    """Columns for people."""
    head = ("NAME", "STATE", "BACKEND", "SIZE", "CONTEXT", "QUANT", "")
    body = [
        (
            row.name,
            row.state,
            row.backend or "-",
            size_text(row.size_bytes),
            str(row.context_train or "-"),
            row.quantization or "-",
            row.reason,
        )
        for row in map(lined, rows)
    ]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in (head, *body)]
    return "\n".join(line.rstrip() for line in lines)


def next_steps(rows: Sequence[api.LibraryRow], modeld: str = "modeld") -> list[str]:
    """What can be done with them, and what it costs, from the actions that each row allows. `modeld`: its name here."""
    allowed: dict[str, list[str]] = {}
    for row in rows:
        for action in row.actions:
            allowed.setdefault(action, []).append(row.name)
    loaded = next(iter(allowed.get("unload", ())), "")
    lines = []
    if allowed.get("activate"):
        lines.append(f"`{modeld} load NAME` loads one into memory.")
    if allowed.get("switch"):
        held = loaded or "the model that is resident"
        lines.append(f"`{modeld} load NAME --switch` unloads {held} and drops its warm context.")
    if loaded:
        lines.append(f"`{modeld} unload` frees the memory of {loaded}, with its warm context.")
    if allowed.get("start_modeld"):
        lines.append(f"modeld is not running. Start it (`{modeld} start`) to use these models.")
    if allowed.get("install_engine"):
        lines.append(f"No engine is installed: `{install_command('openvino')}`, or the same with [llama].")
    return ["", *lines] if lines else []
