"""`modeld pull`: by the daemon where one runs (the job survives this command), else by this process."""

from __future__ import annotations

import argparse

import anyio
import msgspec

from modeld.cli.commands.library import SCAN_SECONDS
from modeld.cli.context import Context, Progress, lined, print_json, show_event
from modeld.client import Connection, reach
from shared import codes
from shared.catalog.names import is_address
from shared.diagnosis.remedy import called
from shared.errors import DaemonError
from shared.protocol import api
from shared.text.words import size_text


def main(options: argparse.Namespace) -> int:
    """Raises DownloadError, DiskFull, RootUnusable."""
    context = Context()
    progress = Progress()
    params = api.PullParams(source=_absolute(options.source), name=options.name, digest=options.digest)
    try:
        result = asked = anyio.run(_by_daemon, context, params, progress)
        if result is None:
            result = _alone(context, params, progress)
    finally:
        progress.end()
    if options.json:
        print_json(result)
    else:
        added = lined(result)
        print(f"Added {added.name} ({size_text(added.size_bytes)}): {added.path}")
        if asked is None:
            start, install = called("modeld"), called("acp-bridge")
            print(f"Next: `{start} start`, then `{install} install zed` (or jetbrains, vscode, neovim).")
    return codes.OK


def _absolute(source: str) -> str:
    """A file is named from here, the daemon lives elsewhere."""
    from pathlib import Path

    if source == "starter" or source.startswith("hf:") or is_address(source):
        return source
    return str(Path(source).expanduser().absolute())


async def _by_daemon(context: Context, params: api.PullParams, progress: Progress) -> api.PullResult | None:
    """None when there is no daemon to ask."""
    try:
        connection: Connection = await reach(context.root, context.settings)
    except DaemonError:
        return None
    async with connection:
        return await connection.call(
            "library/pull", params, api.PullResult, lambda event: show_event(progress, event), limit=None
        )


def _alone(context: Context, params: api.PullParams, progress: Progress) -> api.PullResult:
    from shared.catalog.library import Library
    from shared.fetch.pull import pull

    result = pull(
        params.source,
        context.root,
        progress=lambda event: show_event(
            progress, api.JobProgress(done=event.done, total=event.total, label=event.stage)
        ),
        digest=params.digest,
        name=params.name,
    )
    library = Library(context.root, context.settings)
    try:
        name = library.name_at(result.path, SCAN_SECONDS)
    finally:
        library.close()
    return msgspec.structs.replace(result, name=name or result.name)
