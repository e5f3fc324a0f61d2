"""`modeld configure`: settings that every load of a model uses unless it asks for others."""

from __future__ import annotations

import argparse

from modeld.cli import codes
from modeld.cli.context import Context, load_config, print_json
from modeld.cli.describe import plan_text
from shared.protocol import api


def main(options: argparse.Namespace) -> int:
    """Raises ModelNotFound, NotOwner and the typed daemon errors."""
    params = api.ConfigureParams(model=options.model, config=load_config(options))
    result = Context().with_daemon(lambda connection: connection.call("model/configure", params, api.ConfigureResult))
    if options.json:
        print_json(result)
        return codes.OK
    print(f"The settings of {options.model} are kept.")
    if result.plan is not None:
        print(f"  memory    {plan_text(result.plan)}")
    if result.pending_reload:
        print(f"  It is loaded with other ones: they wait for the next load (`modeld load {options.model} --switch`).")
    return codes.OK
