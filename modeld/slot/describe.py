"""`model/describe`: what a model is and what loading it would take. Of engines, asks a resident one its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeld.memory import policy
from modeld.slot.request import identity_of, merged, require_servable
from shared.catalog.advertised.servable import supports_images
from shared.errors import BackendError, ModeldError, ModelLoadFailed
from shared.protocol import api

if TYPE_CHECKING:
    from modeld.slot.driver import Slot
    from shared.catalog.entry import ModelEntry


async def describe(slot: Slot, params: api.DescribeParams) -> api.ModelInfo:
    """Advice: free memory is read again before a load. Raises ModelNotFound."""
    entry = await slot.find(params.model)
    reason = entry.problem
    try:
        require_servable(entry, slot.loads.backend)
    except BackendError as error:
        reason = reason or error.message
    plan: api.MemoryPlan | None = None
    warnings: list[str] = []
    try:
        config = merged(params.config, await slot.loads.config(entry))
        target = identity_of(entry, config, slot.loads.backend)
        plan = await slot.loads.planner.plan(entry, target, await slot.loads.devices_now(target))
    except ModeldError as error:
        warnings.append(error.message)
    if plan is not None and (stretched := policy.stretched(entry, plan.num_ctx)):
        warnings.append(stretched)
    if plan is not None and plan.required_bytes + plan.reserve_bytes > plan.free_bytes:
        fits = f"{plan.fits} tokens would fit" if plan.fits else "no context would fit"
        warnings.append(f"not enough free memory now for {plan.num_ctx} tokens; {fits}")
    active = slot.state.active
    if active is not None and active.name == entry.name:
        warnings += [*slot.loads.warnings, *slot.loads.notes]
    elif not entry.has_template:
        warnings.append("the file brings no chat template; ChatML is used")
    serving = slot.loads.backend if not reason else next(iter(entry.backends), "")
    return api.ModelInfo(
        name=entry.name,
        backend=serving,
        servable=not reason,
        reason=reason,
        architecture=entry.architecture,
        parameters=entry.parameters,
        size_bytes=entry.size_bytes,
        context_train=entry.context_train,
        has_template=entry.has_template,
        tools=entry.tools,
        thinking=entry.thinking,
        vision=supports_images(entry, serving),
        fim=entry.fim is not None,
        embedding_only=entry.embedding_only,
        warnings=warnings,
        plan=plan,
    )


async def require_usable(slot: Slot, entry: ModelEntry, config: api.LoadConfig) -> None:
    """Raises UnsupportedFeature for settings that no load of the model could use, whatever memory there is."""
    try:
        await slot.loads.planner.plan(entry, identity_of(entry, config, slot.loads.backend))
    except ModelLoadFailed:
        return  # the file's own fault: a repaired one may have them
