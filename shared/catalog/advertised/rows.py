"""Rows for the picker and the library: the models on disk with their live state and what may be done (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.catalog.advertised.capability import Servable
from shared.catalog.advertised.servable import refusal, served_by, supports_images
from shared.catalog.entry import ModelEntry
from shared.catalog.find import match
from shared.diagnosis.remedy import install_command
from shared.protocol.api import LibraryRow, RowAction, RowState, Status
from shared.text.words import NOT_IN_LIBRARY, START_MODELD, used_by

#: What may be done in each state. "away" is the gap while modeld restarts, "stopped" after a stop and
#: past the grace, "switch" a model that is not loaded while another one is.
ACTIONS: dict[str, tuple[RowAction, ...]] = {
    "loading": ("wait", "cancel"),
    "unloading": ("wait",),
    "active": ("wait", "cancel"),
    "queued": ("wait", "cancel"),
    "loaded": ("use", "unload"),
    "not loaded": ("activate",),
    "switch": ("switch",),
    "away": ("wait",),
    "stopped": ("start_modeld",),
    "no engine": ("install_engine",),
    "not servable": (),
    "rejected": (),
}
#: The backend of a modeld that found no engine.
NO_ENGINE = "none"


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the files: the graced answer, the owner's status (None while it is away),
    why the running daemon rejected models (by digest; in a gap the last one did), what fits, and the
    backends whose engines are installed (None: not known).
    """

    servable: Servable
    status: Status | None = None
    rejected: Mapping[str, str] = {}
    fits: Mapping[str, str] = {}
    engines: frozenset[str] | None = None


def picker_rows(entries: Iterable[ModelEntry], live: Live) -> list[LibraryRow]:
    """The models that may be picked: those the servable backend can serve and the daemon did not reject.

    Their names and order depend on the files and the backend alone, so that they are the same while
    modeld is away. Empty when nothing is servable; `hidden_reason` says what else there is.
    """
    backend = live.servable.backend
    if not backend:
        return []
    return [
        row
        for entry, row in _rows(entries, live)
        if entry.kind == "model" and served_by(backend, entry.backends) and row.state != "rejected"
    ]


def library_rows(entries: Iterable[ModelEntry], live: Live) -> list[LibraryRow]:
    """Everything on disk, servable or not, each with its reason."""
    return [row for _, row in _rows(entries, live)]


def hidden_reason(entries: Iterable[ModelEntry], live: Live) -> str:
    """One line on models that are here and that this daemon cannot serve, or "": they are explained, not shown."""
    backend = live.servable.backend
    others: dict[str, int] = {}
    entries = list(entries)
    for entry in entries:
        if backend and entry.kind == "model" and entry.backends and not served_by(backend, entry.backends):
            others[entry.backends[0]] = others.get(entry.backends[0], 0) + 1
    if not others:
        return _unusable(entries, live)
    other = max(others, key=lambda name: (others[name], name))
    total = sum(others.values())
    if backend == NO_ENGINE:
        return f"{total} {'model is' if total == 1 else 'models are'} here, but {no_engine_text()}"
    models = "model needs" if total == 1 else "models need"
    return f"{total} more {models} the {other} backend; modeld serves {backend} (`modeld restart --backend {other}`)"


def _unusable(entries: Iterable[ModelEntry], live: Live) -> str:
    """Why no model that is here can run under any backend, naming the first; "" when one can, or there is none."""
    models = [entry for entry in entries if entry.kind == "model"]
    reasons = [entry.problem or live.rejected.get(entry.digest, "") for entry in models]
    if not live.servable.backend or not models or not all(reasons):
        return ""
    more = f" ({len(models) - 1} more cannot run either)" if len(models) > 1 else ""
    return f"{models[0].name} cannot run: {reasons[0]}{more}; see `modeld library`"


def no_engine_text() -> str:
    """What there is to say about a modeld that found no engine."""
    add = install_command("openvino")
    return f"modeld runs without an engine: `{add}` (or [llama]), then `modeld restart`"


def missing_reason(name: str, entries: Sequence[ModelEntry], live: Live) -> str:
    """Why a remembered pick is not among the picker's rows. Call it only when it is not."""
    entry = match(name, entries)
    if entry is None:
        return NOT_IN_LIBRARY
    if entry.digest in live.rejected:
        return live.rejected[entry.digest]
    if entry.problem:
        return entry.problem
    backend = live.servable.backend
    if backend == NO_ENGINE:
        return no_engine_text()
    if backend:
        return f"{entry.reasons.get(backend, 'not servable')}; modeld serves {backend}"
    return f"modeld is stopped; {START_MODELD}" if live.servable.ever else "modeld has not been started"


def _rows(entries: Iterable[ModelEntry], live: Live) -> list[tuple[ModelEntry, LibraryRow]]:
    return [(entry, _row(entry, live)) for entry in entries]


def _row(entry: ModelEntry, live: Live) -> LibraryRow:
    backend = live.servable.backend
    state, situation, reason = _state(entry, live)
    serving = backend if served_by(backend, entry.backends) else _would_serve(entry, live)
    return LibraryRow(
        name=entry.name,
        title=entry.title,
        backend=serving,
        format=entry.format,
        path=entry.path,
        size_bytes=entry.size_bytes,
        state=state,
        architecture=entry.architecture,
        parameters=entry.parameters,
        quantization=entry.quantization,
        context_train=entry.context_train,
        digest=entry.digest,
        source=entry.source,
        # while only the first keys of a header were read, nobody knows yet: that makes no base model of it
        has_template=entry.has_template or not (entry.complete or entry.problem),
        tools=entry.tools,
        thinking=entry.thinking,
        vision=_supports_images(entry, serving, live),
        fim=entry.fim is not None,
        embedding_only=entry.embedding_only,
        parts=list(entry.parts),
        aliases=list(entry.aliases),
        reason=_with_fit(reason, live.fits.get(entry.name, "") if state == "not loaded" else ""),
        actions=list(ACTIONS[situation]),
    )


def _would_serve(entry: ModelEntry, live: Live) -> str:
    """While nothing serves it: the first of its backends whose engine is installed, else the first, "" for none."""
    installed = [one for one in entry.backends if live.engines is None or one in live.engines]
    return next(iter([*installed, *entry.backends]), "")


def _with_fit(reason: str, fit: str) -> str:
    return "; ".join(part for part in (reason, fit) if part)


def _supports_images(entry: ModelEntry, serving: str, live: Live) -> bool:
    """By its files and the engine; of the model that is loaded the engine itself says."""
    active = live.status.active if live.status is not None else None
    if active is not None and active.name == entry.name:
        return bool(active.capabilities.get("vision"))
    return supports_images(entry, serving)


def _state(entry: ModelEntry, live: Live) -> tuple[RowState, str, str]:
    """(state, key of ACTIONS, reason): what stands first in the order of precedence wins."""
    if entry.problem or not entry.backends:
        return "not servable", "not servable", entry.problem or "no engine can run it"
    servable = live.servable
    if servable.standing == "none":
        if live.engines is not None and not live.engines.intersection(entry.backends):
            return "not loaded", "no engine", "no engine that can run it is installed"
        return "not loaded", "stopped", servable.state
    if servable.backend == NO_ENGINE:
        return "not servable", "no engine", no_engine_text()
    if not served_by(servable.backend, entry.backends):
        reason = refusal(entry, servable.backend, shards=len(entry.shards) or 1)
        return "not servable", "not servable", f"{reason}; modeld serves {servable.backend}"
    if live.engines is not None and servable.backend not in live.engines:
        return "not servable", "no engine", f"the {servable.backend} engine is not installed"
    if entry.digest in live.rejected:  # before the gap is looked at: it must not come back in it
        return "rejected", "rejected", live.rejected[entry.digest]
    if servable.standing == "grace" or live.status is None:
        return _away(servable)
    return _running(entry.name, live.status)


def _away(servable: Servable) -> tuple[RowState, str, str]:
    if servable.stopped:
        return "restarting", "stopped", servable.state
    return "restarting", "away", servable.state or "restarting"


def _running(name: str, status: Status) -> tuple[RowState, str, str]:
    active = status.active.name if status.active is not None else ""
    target = str(status.busy.detail.get("model", "")) if status.busy is not None else ""
    if status.state in ("Loading", "Switching") and name == target:
        return "loading", "loading", ""
    if status.state in ("Unloading", "Switching") and name == active:
        return "unloading", "unloading", ""
    if status.state == "Busy" and name == active:
        return "active", "active", used_by([status.busy.holder]) if status.busy is not None else ""
    place = next((index for index, waiting in enumerate(status.queue, 1) if waiting.model == name), None)
    if place is not None:
        return "queued", "queued", f"place {place} in the queue"
    if name == active:
        return "loaded", "loaded", "changed settings wait for the next load" if status.pending_reload else ""
    return "not loaded", "switch" if active else "not loaded", ""
