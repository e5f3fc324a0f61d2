"""`modeld load`: load a model into memory, and say first what that costs."""

from __future__ import annotations

import argparse
import shlex
import sys

from modeld.cli.context import Context, Progress, config_words, load_config, on_busy, print_json, show_event
from modeld.cli.naming import by_name
from modeld.client import Connection
from shared import codes
from shared.diagnosis.remedy import called
from shared.errors import ModelSwitchRequired
from shared.protocol import api
from shared.text.shown import one_line
from shared.text.words import size_text, switch_sentence, use_sentence


def main(options: argparse.Namespace) -> int:
    """Raises ModelBusy, ModelLoadFailed, InsufficientMemory, ModelNotFound and the typed daemon errors."""
    progress = Progress()
    try:
        result = Context().with_daemon(lambda connection: _load(connection, options, progress))
    except ModelSwitchRequired as error:
        progress.end()
        sys.stderr.write(f"modeld: {switch_sentence(str(error.active), str(error.requested))}.\n")
        if error.in_use_by:
            sys.stderr.write(f"modeld: {use_sentence(str(error.active), error.in_use_by)}.\n")
        again = shlex.join(["load", str(error.requested), *config_words(load_config(options)), "--switch"])
        sys.stderr.write(one_line(f"modeld: run `{called('modeld')} {again}` to do it") + "\n")
        return codes.REFUSED
    finally:
        progress.end()
    if options.json:
        print_json(result)
        return codes.OK
    active = result.active
    took = f" in {result.load_seconds:.1f} s" if result.loaded else " (it was loaded already)"
    print(f"{active.name} is loaded{took}: context {active.num_ctx}, {size_text(active.reserved_bytes)}")
    for warning in result.warnings:
        sys.stderr.write(f"modeld: {one_line(warning)}\n")
    return codes.OK


async def _load(connection: Connection, options: argparse.Namespace, progress: Progress) -> api.LoadResult:
    announced: list[str] = []

    def seen(event: api.Event) -> None:
        if isinstance(event, api.Loading) and event.unloads and not announced and not options.json:
            # said when it is about to happen: the model was found, checked and has room
            announced.append(f"{switch_sentence(event.unloads, event.model)}.")
            progress.end()
            print(announced[0], flush=True)
        show_event(progress, event)

    busy, wait = on_busy(options)

    async def load(name: str) -> api.LoadResult:
        params = api.LoadParams(
            model=name, config=load_config(options), allow_switch=options.switch, on_busy=busy, wait_s=wait
        )
        return await connection.call("model/load", params, api.LoadResult, seen, limit=None)

    return await by_name(connection, options.model, load)
