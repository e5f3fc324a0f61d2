"""`modeld/pick`: the user's intent, remembered for a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window


async def handle(window: Window, params: wire.PickParams) -> wire.Picked:
    """Nothing is loaded. Raises ModelNotFound for what is not offered."""
    folder = window.folder(params.workspace)
    await remember(window, params.model, folder)
    return wire.Picked(model=params.model, workspace=folder)


async def remember(window: Window, model: str, folder: str) -> None:
    """Raises ModelNotFound with near names."""
    from acp_bridge.models.resolve import checked_pick

    core = await window.core()
    if model not in offered(core.models.rows, core.models.remotes):
        await core.models.first_look(model)  # a pick may come before it
    ids = offered(core.models.rows, core.models.remotes)
    name = checked_pick(model, ids, core.models.rows, core.models.missing)
    core.store.remember(folder, name, core.clock.wall())
    window.touch()


def offered(rows: object, remotes: object) -> list[str]:
    """The ids that may be picked."""
    names = [row.name for row in rows if not row.embedding_only]  # type: ignore[attr-defined]
    return names + [model.id for model in remotes if not model.embedding_only]  # type: ignore[attr-defined]
