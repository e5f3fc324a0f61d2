"""`modeld pull`: by the daemon where one runs (the job survives this command), else by this process."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import anyio
import msgspec

from modeld.cli.commands.library import SCAN_SECONDS
from modeld.cli.context import Context, Progress, lined, print_json, show_event
from modeld.client import Connection, reach
from shared import codes
from shared.diagnosis.remedy import called
from shared.errors import DaemonError
from shared.protocol import api
from shared.system.foreign import ask, is_missing
from shared.text.shown import one_line
from shared.text.words import size_text


def main(options: argparse.Namespace) -> int:
    """Raises DownloadError, DiskFull, RootUnusable."""
    if options.partial or options.clean:
        return _partial(options)
    if options.cancel:
        return _cancel(Context(), options.source or "", json=options.json)
    if options.source is None:
        sys.stderr.write("modeld pull: name what to fetch: starter, hf:owner/repo[:pattern], an address or a file\n")
        return codes.USAGE
    return _pull(Context(), options)


def _pull(context: Context, options: argparse.Namespace) -> int:
    params = api.PullParams(source=_source(options.source), name=options.name, digest=options.digest)
    told = _Told(Progress(), context.root.models)
    try:
        result = asked = anyio.run(_by_daemon, context, params, told)
        if result is None:
            result = _alone(context, params, told)
    except KeyboardInterrupt:
        told.progress.end()
        if told.by_daemon:
            _interrupted(context, params.source)
        raise
    finally:
        told.progress.end()
    if options.json:
        print_json(result)
    else:
        added = lined(result)
        print(f"Added {added.name} ({size_text(added.size_bytes)}): {added.path}")
        if asked is None:
            start, install = called("modeld"), called("acp-bridge")
            print(f"Next: `{start} start`, then `{install} install zed` (or jetbrains, vscode, neovim).")
    return codes.OK


def _source(typed: str) -> str:
    """The source as the daemon takes it: a file is named from here, it lives elsewhere. Raises DownloadFailed."""
    from shared.fetch.source import kind_of, understood

    path = Path(typed).expanduser()
    source = understood(typed, exists=kind_of(typed) == "path" and _exists(path))
    return source if kind_of(source) != "path" else str(Path(source).expanduser().absolute())


def _exists(path: Path) -> bool:
    try:
        ask(path, path.stat)
    except OSError as error:
        return not is_missing(error)
    return True


class _Told:
    """What the person sees of it: once how much is fetched and how much room there is, then the progress."""

    def __init__(self, progress: Progress, models: Path) -> None:
        self.progress = progress
        self.by_daemon = False
        self._models = models
        self._announced = False

    def show(self, event: api.Event) -> None:
        """Draw an event."""
        if isinstance(event, api.JobProgress) and event.total and not self._announced:
            self._announced = True
            free = shutil.disk_usage(self._models).free
            self.progress.end()
            sys.stderr.write(f"modeld: {size_text(event.total)} to fetch, {size_text(free)} free\n")
        show_event(self.progress, event)


async def _by_daemon(context: Context, params: api.PullParams, told: _Told) -> api.PullResult | None:
    """None when there is no daemon to ask."""
    try:
        connection: Connection = await reach(context.root, context.settings)
    except DaemonError:
        return None
    async with connection:
        told.by_daemon = True
        return await connection.call("library/pull", params, api.PullResult, told.show, limit=None)


def _alone(context: Context, params: api.PullParams, told: _Told) -> api.PullResult:
    from shared.catalog.library import Library
    from shared.fetch.pull import pull

    result = pull(
        params.source,
        context.root,
        progress=lambda event: told.show(api.JobProgress(done=event.done, total=event.total, label=event.stage)),
        digest=params.digest,
        name=params.name,
    )
    library = Library(context.root, context.settings)
    try:
        name = library.name_at(result.path, SCAN_SECONDS)
    finally:
        library.close()
    return msgspec.structs.replace(result, name=name or result.name)


# --- ending one, and what is left of it -----------------------------------------------------------


def _interrupted(context: Context, source: str) -> None:
    """Ctrl-C ended this command; the download is the daemon's, so the person says what becomes of it."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write("\nmodeld goes on with the download. Cancel it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            _cancel(context, source, json=False)
            return
    pull = f"{called('modeld')} pull"
    sys.stderr.write(f"modeld goes on with the download; `{pull} --cancel` ends it, the same `pull` shows it again\n")


def _cancel(context: Context, source: str, *, json: bool) -> int:
    """End downloads of the daemon. Raises the typed daemon errors but for one that does not run."""
    from shared.fetch.source import kind_of, understood

    if source:
        source = understood(source, exists=True)
        source = source if kind_of(source) != "path" else str(Path(source).expanduser().absolute())

    async def cancel() -> api.PullCancelResult:
        try:
            async with await reach(context.root, context.settings) as connection:
                params = api.PullCancelParams(source=source)
                return await connection.call("library/pull_cancel", params, api.PullCancelResult)
        except DaemonError:
            return api.PullCancelResult()  # none runs, so nothing is fetched by one

    result = anyio.run(cancel)
    if json:
        print_json(result)
        return codes.OK
    for one in result.cancelled:
        print(one_line(f"Cancelled {one}; what was fetched is kept, `{called('modeld')} pull --clean` removes it"))
    if not result.cancelled:
        print("modeld fetches nothing now")
    return codes.OK


def _partial(options: argparse.Namespace) -> int:
    """List the downloads that did not end, or remove them. Raises OSError."""
    from shared.fetch.partial import clean, partials

    models = Context().root.models
    result = clean(models) if options.clean else api.PartialResult(busy=partials(models))
    if options.json:
        print_json(result if options.clean else result.busy)
        return codes.OK
    for one in map(lined, result.removed):
        print(f"Removed {one.name} ({size_text(one.size_bytes)})")
    for one in map(lined, result.busy):
        whole = f" of {size_text(one.total_bytes)}" if one.total_bytes else ""
        state = "is fetched now" if options.clean else "can be resumed" if one.resumable else "starts again"
        print(f"{one.name}: {size_text(one.size_bytes)}{whole}, {state}{f', from {one.source}' if one.source else ''}")
    if not (result.removed or result.busy):
        print("no unfinished downloads")
    return codes.OK
