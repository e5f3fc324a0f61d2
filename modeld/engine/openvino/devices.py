"""Which accelerator a load on OpenVINO would use. Worker only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.catalog.identity import AUTO, RequestedIdentity
from shared.protocol.api import Accelerator

_PCI = ("domain", "bus", "device", "function")


def discrete(make_core: Callable[[], Any], identity: RequestedIdentity) -> tuple[Accelerator, ...]:
    """The device, named alike in every process on this machine, if it has memory of its own; else ().

    `auto` is the CPU here. A device that does not say what it is counts as dedicated when it is a GPU. The runtime's
    core is made only where it must be asked.
    """
    device = "CPU" if identity.device == AUTO else str(identity.device)
    if device.partition(".")[0] not in ("GPU", "NPU"):
        return ()
    core = make_core()
    kind = _ask(core, device, "DEVICE_TYPE")
    dedicated = str(kind).upper().endswith("DISCRETE") if kind is not None else device.startswith("GPU")
    return (_accelerator(core, device),) if dedicated else ()


def _accelerator(core: Any, device: str) -> Accelerator:
    """Its whole memory, and that less what this process holds: of other processes the runtime tells nothing."""
    total = _ask(core, device, "GPU_DEVICE_TOTAL_MEM_SIZE")
    held = _ask(core, device, "GPU_MEMORY_STATISTICS")
    whole = total if isinstance(total, int) else 0
    own = sum(one for one in held.values() if isinstance(one, int)) if isinstance(held, dict) else 0
    return Accelerator(name=_name(core, device), total_bytes=whole, free_bytes=max(whole - own, 0))


def _name(core: Any, device: str) -> str:
    """By its place on the bus, as llama.cpp names it too; else by its unique id, else by the runtime's name."""
    place = _ask(core, device, "DEVICE_PCI_INFO")
    numbers = [number for part in _PCI if isinstance(number := getattr(place, part, None), int)]
    if len(numbers) == len(_PCI):
        return "pci-{:04x}:{:02x}:{:02x}.{:x}".format(*numbers)
    unique = _ask(core, device, "DEVICE_UUID")
    return f"openvino-{unique if unique is not None else device}"


def _ask(core: Any, device: str, what: str) -> Any:
    try:
        return core.get_property(device, what)
    except (RuntimeError, TypeError):
        return None  # this device does not say
