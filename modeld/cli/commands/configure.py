"""`modeld configure`: settings that every load of a model uses unless it asks for others."""

from __future__ import annotations

import argparse

from modeld.cli.commands.describe import plan_text
from modeld.cli.context import CONFIG_OPTIONS, Context, config_words, load_config, print_json
from modeld.cli.naming import by_name
from modeld.client import Connection
from shared import codes
from shared.protocol import api
from shared.text.shown import one_line


def main(options: argparse.Namespace) -> int:
    """Shows, sets or resets. Raises ModelNotFound, NotOwner, UnsupportedFeature and the typed daemon errors."""
    name, result = Context().with_daemon(lambda connection: _configure(connection, options))
    if options.json:
        print_json(result)
        return codes.OK
    changes = options.reset is not None or bool(config_words(load_config(options)))
    words = " ".join(config_words(result.config))
    if changes:
        print(one_line(f"Saved settings for {name}: {words}" if words else f"{name} has no settings of its own now."))
    else:
        print(one_line(f"Settings of {name}: {words}" if words else f"{name} has no settings of its own."))
    if result.plan is not None:
        print(f"  memory    {plan_text(result.plan)}")
    if result.pending_reload:
        print(f"  It is loaded with other ones: they wait for the next load (`modeld load {name} --switch`).")
    return codes.OK


def reset_fields(names: list[str] | None) -> list[str]:
    """The fields that `--reset` gives back: all where it names none."""
    if names is None:
        return []
    return [CONFIG_OPTIONS[f"--{name}"] for name in names] or ["*"]


async def _configure(connection: Connection, options: argparse.Namespace) -> tuple[str, api.ConfigureResult]:
    async def configure(name: str) -> tuple[str, api.ConfigureResult]:
        params = api.ConfigureParams(model=name, config=load_config(options), reset=reset_fields(options.reset))
        return name, await connection.call("model/configure", params, api.ConfigureResult)

    return await by_name(connection, options.model, configure)
