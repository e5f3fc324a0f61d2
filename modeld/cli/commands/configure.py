"""`modeld configure`: settings that every load of a model uses unless it asks for others."""

from __future__ import annotations

import argparse

from modeld.cli.commands.describe import plan_text
from modeld.cli.context import Context, load_config, print_json
from modeld.cli.naming import by_name
from modeld.client import Connection
from shared import codes
from shared.protocol import api


def main(options: argparse.Namespace) -> int:
    """Raises ModelNotFound, NotOwner and the typed daemon errors."""
    name, result = Context().with_daemon(lambda connection: _configure(connection, options))
    if options.json:
        print_json(result)
        return codes.OK
    print(f"Saved settings for {name}.")
    if result.plan is not None:
        print(f"  memory    {plan_text(result.plan)}")
    if result.pending_reload:
        print(f"  It is loaded with other ones: they wait for the next load (`modeld load {name} --switch`).")
    return codes.OK


async def _configure(connection: Connection, options: argparse.Namespace) -> tuple[str, api.ConfigureResult]:
    async def configure(name: str) -> tuple[str, api.ConfigureResult]:
        params = api.ConfigureParams(model=name, config=load_config(options))
        return name, await connection.call("model/configure", params, api.ConfigureResult)

    return await by_name(connection, options.model, configure)
