"""`modeld unload`: unload the model and say what was freed."""

from __future__ import annotations

import argparse

from modeld.cli.context import Context, on_busy, print_json
from shared import codes
from shared.protocol import api
from shared.text.words import size_text


def main(options: argparse.Namespace) -> int:
    """Idempotent. Raises ModelBusy and the typed daemon errors."""
    busy, wait = on_busy(options)
    params = api.UnloadParams(on_busy=busy, wait_s=wait)
    result = Context().with_daemon(
        lambda connection: connection.call("model/unload", params, api.UnloadResult, limit=None)
    )
    if options.json:
        print_json(result)
    elif result.freed:
        print(f"{result.freed} is unloaded, with its warm context; {size_text(result.freed_bytes)} are free again")
    else:
        print("no model was loaded")
    return codes.OK
