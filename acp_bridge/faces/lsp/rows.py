"""The rows an editor shows of the models: one list for every surface. Pure.

Ids, names, groups, order and what may be picked depend on the files, the servable backend and the model active last,
so they stay as they are while modeld restarts; states, details and actions tell what is going on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from acp_bridge.faces.lsp import wire
from acp_bridge.models.picker import RemoteModel, describe
from acp_bridge.models.thinking import thinking_levels
from shared.catalog.advertised.fit import Fit
from shared.protocol.api import LibraryRow, Status
from shared.text.shown import NAME_MOST, one_line

RESIDENT_STATES = frozenset({"loading", "unloading", "active", "loaded"})


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one moment.

    `advertised` are the local models that may be picked, `library` all rows on disk in the library's order, `active`
    the model that stands as active (in a gap: that stood so), `fits` the forecasts by name, `speeds` the last tokens a
    second by name; `me` is this window's name at modeld.
    """

    advertised: Sequence[LibraryRow] = ()
    library: Sequence[LibraryRow] = ()
    remotes: Sequence[RemoteModel] = ()
    status: Status | None = None
    active: str = ""
    fits: Mapping[str, Fit] = {}
    speeds: Mapping[str, float] = {}
    me: str = ""


def picker_models(seen: Seen, picked: str, reason: str) -> list[wire.Model]:
    """Everything, in order: local models, remote ones, and a pick that is gone with the `reason`."""
    offered = {row.name: row for row in seen.advertised}
    listed = {row.name for row in seen.library}
    local = [_local(offered.get(row.name, row), seen, offered=row.name in offered) for row in seen.library]
    local += [_local(row, seen, offered=True) for row in seen.advertised if row.name not in listed]
    models = [*local, *(_remote(model, seen) for model in seen.remotes)]
    if picked and picked not in [model.id for model in models]:
        models.append(_gone(picked, reason))
    return models


def library_models(seen: Seen) -> list[wire.Model]:
    """Every model on disk."""
    offered = {row.name for row in seen.advertised}
    return [_local(row, seen, offered=row.name in offered) for row in seen.library]


def shown(models: Sequence[wire.Model]) -> list[wire.Model]:
    """The rows without what moves by itself: when two of these are equal, nobody need be informed."""
    return [
        msgspec.structs.replace(
            model, tokens_per_s=0.0, fit=None if model.fit is None else wire.Fit(verdict=model.fit.verdict, text="")
        )
        for model in models
    ]


def wire_fit(fit: Fit) -> wire.Fit:
    """A forecast as the editor sees it."""
    return wire.mirrored(wire.Fit, fit, text=fit.text, context=fit.num_ctx, source=fit.source_text)


def _local(row: LibraryRow, seen: Seen, *, offered: bool) -> wire.Model:
    active = seen.status.active if seen.status is not None else None
    running = active.num_ctx if active is not None and active.name == row.name else 0
    fit = seen.fits.get(row.name)
    vision = row.vision
    if active is not None and running:
        vision = vision and bool(active.capabilities.get("vision"))
    selectable = offered and not row.embedding_only and row.state not in ("not servable", "rejected")
    fits = 0 if fit is None or running else fit.num_ctx
    return wire.mirrored(
        wire.Model,
        row,
        id=row.name,
        name=row.title or row.name,
        group=_group(row, seen, selectable),
        detail=describe(row),
        selectable=selectable,
        reason=row.reason or ("it makes embeddings and does not chat" if row.embedding_only else ""),
        actions=_actions(row, seen),
        context=running,
        context_own=row.context_train,
        window=running or fits or row.context_train,
        thinking_levels=thinking_levels(row),
        vision=vision,
        fit=wire_fit(fit) if fit is not None and not running else None,
        tokens_per_s=seen.speeds.get(row.name, 0.0),
    )


def _group(row: LibraryRow, seen: Seen, selectable: bool) -> wire.Group:
    """In a gap the model that was active keeps its place."""
    if row.state in RESIDENT_STATES or (selectable and row.name == seen.active):
        return "active"
    if row.state in ("not servable", "rejected") or row.embedding_only:
        return "unavailable"
    return "installed"


def _actions(row: LibraryRow, seen: Seen) -> list[wire.Action]:
    """Those of the state; `cancel` only for what this window runs or waits for."""
    status = seen.status
    mine = status is not None and (
        (status.busy is not None and status.busy.holder == seen.me and row.state in ("active", "loading"))
        or any(waiting.client == seen.me and waiting.model == row.name for waiting in status.queue)
    )
    return [action for action in row.actions if action != "cancel" or mine]


def _remote(model: RemoteModel, seen: Seen) -> wire.Model:
    context = f", context {model.context:,}" if model.context else ""
    return wire.Model(
        id=model.id,
        name=one_line(model.name, NAME_MOST),
        group="remote",
        state="remote",
        detail=f"remote, {model.provider}{context}",
        selectable=not model.embedding_only,
        reason="it makes embeddings and does not chat" if model.embedding_only else "",
        actions=[] if model.embedding_only else ["use"],
        provider=model.provider,
        context=model.context,
        context_own=model.context,
        window=model.context,
        tools=True,
        thinking=bool(model.thinking),
        thinking_levels=thinking_levels(model),
        vision=model.vision,
        fim=model.fills,
        embedding_only=model.embedding_only,
        has_template=True,
        tokens_per_s=seen.speeds.get(model.id, 0.0),
    )


def _gone(picked: str, reason: str) -> wire.Model:
    return wire.Model(
        id=picked,
        name=picked,
        group="unavailable",
        state="not available",
        detail=f"not available: {reason or 'not found'}",
        selectable=False,
        reason=reason or "not found",
    )
