"""Notifications to the window: models, status, progress and notices, sent only when something shown changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.listing import listing, standing
from acp_bridge.faces.lsp.rows import shown
from acp_bridge.faces.lsp.state import settled, slot_progress
from acp_bridge.turn.switched import ActiveModelWatch
from shared.diagnosis.version_order import is_older
from shared.version import __version__

if TYPE_CHECKING:
    from acp_bridge.core.core import Core
    from acp_bridge.faces.lsp.window import Window
    from shared.diagnosis.installed import Installed
    from shared.protocol import api


#: A turn changes its model's state twice at least: what changes at once is listed and reported once.
MODELS_PAUSE_S = 0.1


class Pushes:
    """Watches the core for one window. `run` sends the lists of models; the rest goes out as it comes."""

    def __init__(self, window: Window, core: Core, installed: Installed) -> None:
        self._window = window
        self._core = core
        self._installed = installed
        self._moved = anyio.Event()
        self._models: wire.Models | None = None
        self._status: wire.Status | None = None
        self._progress: wire.Progress | None = None
        self._active = ActiveModelWatch()
        self._pressure = False
        self._version = ""
        self._replaced = ""
        core.models.on_change(self.touch)
        core.daemon.on_change(self.changed)

    def touch(self) -> None:
        """The models may look different now."""
        self._moved.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._moved.wait()
            await anyio.sleep(MODELS_PAUSE_S)
            self._moved = anyio.Event()
            models = await listing(self._window, self._core)
            if self._models is None or _differs(models, self._models):
                self._models = models
                self._window.tell("modeld/modelsChanged", models, latest="models")

    def changed(self) -> None:
        """The daemon's status or detection changed, or what this window knows beside it."""
        self.touch()
        status = standing(self._window, self._core)
        if self._status is None or settled(status) != settled(self._status):
            self._status = status
            self._window.tell("modeld/statusChanged", status, latest="status")
        self._tell_replaced()
        raw = self._core.daemon.status
        self._tell_progress(slot_progress(raw, self._window.name))
        if raw is not None:
            self._tell_switched(raw)
            self._tell_pressure(raw)
            self._tell_version(raw)

    def _tell_progress(self, progress: wire.Progress | None) -> None:
        if progress is not None and progress.mine and self._window.busy:
            progress = None  # its own events tell more
        before, self._progress = self._progress, progress
        if before is not None and (progress is None or progress.model != before.model):
            ended = wire.Progress(
                operation=before.operation, model=before.model, text="", mine=before.mine, fraction=None, done=True
            )
            self._window.tell("modeld/progress", ended)
        if progress is not None and progress != before:
            self._window.tell("modeld/progress", progress, latest="progress")

    def _tell_switched(self, status: api.Status) -> None:
        """Another client replaced the model that this window used: reported once."""
        window = self._window
        replaced = self._active.see(status)
        if replaced is not None and replaced.concerns(window.last_model, busy=window.busy, me=window.name):
            window.last_model = ""
            self._notice("switched_away", replaced.text(), replaced.before)

    def _tell_pressure(self, status: api.Status) -> None:
        before, self._pressure = self._pressure, status.memory.pressure
        if self._pressure and not before and status.active is not None:
            name = status.active.name
            self._notice("memory_pressure", f"Memory is short. Unload {name} to free what it takes.", name)

    def _tell_version(self, status: api.Status) -> None:
        before, self._version = self._version, status.version or self._version
        if self._version not in ("", before, __version__):
            text = f"modeld {self._version} runs and this window's bridge is {__version__}: {_match(self._version)}."
            self._notice("other_version", text, "")

    def _tell_replaced(self) -> None:
        """The files of this program were exchanged: the process goes on with what it has in memory."""
        before, self._replaced = self._replaced, self._installed.changed() or self._replaced
        if self._replaced != before:
            text = f"acp-bridge was replaced by version {self._replaced} on disk. Reload the window to use it."
            self._notice("other_version", text, "")

    def _notice(self, kind: wire.NoticeKind, text: str, model: str) -> None:
        self._window.tell("modeld/notice", wire.Notice(kind=kind, text=text, model=model))


def _differs(one: wire.Models, other: wire.Models) -> bool:
    same = (one.picked, one.default, one.reason, one.complete) == (
        other.picked,
        other.default,
        other.reason,
        other.complete,
    )
    return not same or shown(one.models) != shown(other.models)


def _match(version: str) -> str:
    """What brings both to one version; a version that cannot be compared may be either."""
    return "run `modeld restart` to match" if is_older(version) else "reload the window to match"
