"""`modeld rm`: remove a model that modeld fetched; never one that is in use, never somebody else's file."""

from __future__ import annotations

import argparse

import anyio

from modeld.cli.commands.library import SCAN_SECONDS
from modeld.cli.context import Context, print_json
from modeld.client import reach
from shared import codes
from shared.errors import DaemonNotRunning, DaemonStale
from shared.protocol import api
from shared.text.words import counted, size_text


def main(options: argparse.Namespace) -> int:
    """Raises ModelNotFound, ModelInUse, UnsupportedFeature; DaemonUnreachable while nobody knows what is in use."""
    context = Context()
    result = anyio.run(_by_daemon, context, options.model)
    if result is None:
        result = _alone(context, options.model)
    if options.json:
        print_json(result)
    else:
        parked = f", with {counted(result.parked, 'parked conversation')}" if result.parked else ""
        print(f"removed {', '.join(result.removed)} ({size_text(result.freed_bytes)}){parked}")
    return codes.OK


async def _by_daemon(context: Context, model: str) -> api.RemoveResult | None:
    try:
        connection = await reach(context.root, context.settings)
    except (DaemonNotRunning, DaemonStale):
        return None  # nobody runs, so nothing is in use
    async with connection:
        return await connection.call("library/remove", api.RemoveParams(name=model), api.RemoveResult)


def _alone(context: Context, model: str) -> api.RemoveResult:
    from modeld.library.removal import remove_whole
    from shared.catalog.library import Library

    library = Library(context.root, context.settings)
    try:
        entry = library.find(model, SCAN_SECONDS)
        return remove_whole(entry, library.rows(), lambda paths: None, context.root)
    finally:
        library.close()
