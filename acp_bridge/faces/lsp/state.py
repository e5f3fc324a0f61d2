"""Where the service stands, as an editor shows it: from the daemon's status and the detection. Pure."""

from __future__ import annotations

import msgspec

from acp_bridge.faces.lsp import wire
from shared.client.locate import Detection
from shared.protocol import api
from shared.text.words import used_by

#: States in which a person's word starts modeld.
STARTABLE = frozenset({"not_running", "stale"})


def service_status(
    status: api.Status | None, detection: Detection, *, looked: bool, speed: float, me: str
) -> wire.Status:
    """`looked`: the records have been read; `speed` of the last turn in tokens a second; `me` this window's name."""
    if status is None:
        return _away(detection, looked=looked)
    active = status.active
    return wire.mirrored(
        wire.Status,
        status,
        service="running",
        text=_text(status, me),
        slot=status.state,
        model=active.name if active is not None else "",
        device=active.device if active is not None else "",
        context=active.num_ctx if active is not None else 0,
        tokens_per_s=speed,
        busy=_busy(status, me),
        queue=[wire.mirrored(wire.Waiting, waiting, mine=waiting.client == me) for waiting in status.queue],
        memory=wire.mirrored(wire.Memory, status.memory),
        last_error=str((status.last_error or {}).get("message", "")),
    )


def _away(detection: Detection, *, looked: bool) -> wire.Status:
    if not looked or detection.state == "running":
        return wire.Status(service="looking", text="looking for modeld")
    return wire.Status(service=detection.state, text=detection.error().message, startable=detection.state in STARTABLE)


def _text(status: api.Status, me: str) -> str:
    active = status.active
    busy = status.busy
    if busy is not None and busy.operation in ("load", "switch"):
        return progress_text(busy)
    if active is None:
        return "modeld is running; no model is loaded"
    text = f"{active.name} on {active.device}, context {active.num_ctx:,}"
    if busy is None:
        return text
    return f"{text}, {'answering here' if busy.holder == me else used_by([busy.holder])}"


def _busy(status: api.Status, me: str) -> wire.Busy | None:
    busy = status.busy
    if busy is None:
        return None
    fraction = busy.detail.get("fraction")
    active = status.active.name if status.active is not None else ""
    return wire.mirrored(
        wire.Busy,
        busy,
        mine=busy.holder == me,
        model=str(busy.detail.get("model", "") or active),
        fraction=float(fraction) if isinstance(fraction, (int, float)) else None,
    )


def settled(status: wire.Status) -> wire.Status:
    """The status without what moves by itself: when two of these are equal, nobody need be informed."""
    busy = None if status.busy is None else msgspec.structs.replace(status.busy, age_s=0.0)
    queue = [msgspec.structs.replace(waiting, waited_s=0.0) for waiting in status.queue]
    memory = wire.Memory(pressure=status.memory.pressure, measured_bytes=status.memory.measured_bytes)
    return msgspec.structs.replace(status, busy=busy, queue=queue, memory=memory)


def progress_text(busy: api.BusyOperation) -> str:
    """A line on a load or switch that runs."""
    model, unloads = str(busy.detail.get("model", "")), str(busy.detail.get("unloads", ""))
    fraction = busy.detail.get("fraction")
    percent = f" ({int(fraction * 100)} %)" if isinstance(fraction, (int, float)) else ""
    return f"loading {model}{percent}" + (f", unloading {unloads}" if unloads else "")


def slot_progress(status: api.Status | None, me: str) -> wire.Progress | None:
    """The load or switch that runs now, whoever asked for it."""
    busy = status.busy if status is not None else None
    if busy is None or busy.operation not in ("load", "switch"):
        return None
    fraction = busy.detail.get("fraction")
    return wire.Progress(
        operation="switch" if busy.operation == "switch" else "load",
        model=str(busy.detail.get("model", "")),
        text=progress_text(busy),
        mine=busy.holder == me,
        fraction=float(fraction) if isinstance(fraction, (int, float)) else None,
    )
