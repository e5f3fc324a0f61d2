"""`modeld describe`: a model's abilities, and the arithmetic of loading it."""

from __future__ import annotations

import argparse

from modeld.cli.context import Context, lined, load_config, print_json
from modeld.cli.naming import by_name
from modeld.client import Connection
from shared import codes
from shared.catalog.advertised.fit import SOURCES
from shared.protocol import api
from shared.text.words import counted, size_text


def main(options: argparse.Namespace) -> int:
    """Raises ModelNotFound and the typed daemon errors."""
    info = Context().with_daemon(lambda connection: _describe(connection, options))
    if options.json:
        print_json(info)
        return codes.OK
    info = lined(info)
    able = [name for name in ("tools", "thinking", "vision", "fim", "embedding_only") if getattr(info, name)]
    print(f"{info.name}: {info.architecture}, {info.parameters / 1e6:.0f} M parameters, {size_text(info.size_bytes)}")
    print(f"  backend   {info.backend}" if info.servable else f"  not servable: {info.reason}")
    print(f"  context   trained on {counted(info.context_train, 'token')}")
    print(f"  abilities {', '.join(able) or 'chat'}")
    if info.plan is not None:
        print(f"  memory    {plan_text(info.plan)}")
    for warning in info.warnings:
        print(f"  note      {warning}")
    return codes.OK


async def _describe(connection: Connection, options: argparse.Namespace) -> api.ModelInfo:
    async def describe(name: str) -> api.ModelInfo:
        params = api.DescribeParams(model=name, config=load_config(options))
        return await connection.call("model/describe", params, api.ModelInfo)

    return await by_name(connection, options.model, describe)


def plan_text(plan: api.MemoryPlan) -> str:
    """The sum in one line."""
    parts = " + ".join(
        f"{name} {size_text(value)}"
        for name, value in (("weights", plan.weights_bytes), ("KV", plan.kv_bytes), ("compute", plan.compute_bytes))
    )
    room = f"{size_text(plan.free_bytes)} free, {size_text(plan.reserve_bytes)} reserved for other programs"
    needed = f"{size_text(plan.required_bytes)} ({SOURCES[plan.source]})"
    return f"context {plan.num_ctx}: {parts} = {needed}; {room} on {plan.device}"
