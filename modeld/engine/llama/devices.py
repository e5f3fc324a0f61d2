"""The accelerators that this build of llama.cpp knows, by its own registry, and where a load is put. Worker only."""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from shared.catalog.identity import AUTO, RequestedIdentity
from shared.errors import UnsupportedFeature
from shared.protocol import api as wire

# GGML_BACKEND_DEVICE_TYPE_*: memory of its own; an integrated one shares the host's
_DEDICATED, _INTEGRATED = 1, 2
#: Apple's GPUs name themselves as dedicated and share the host's memory.
_SHARED = ("Metal", "MTL")
#: Where the registry cannot be read: one name for all, so that two data roots still exclude each other. As a wish: all.
SOME_GPU = "GPU"
CPU = "CPU"


class _Properties(ctypes.Structure):
    """ggml_backend_dev_props, with room for flags that newer builds add at its end."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", ctypes.c_char * 64),
    )


class Accelerator(NamedTuple):
    """One device of the registry. `shared`: the same name in every process of this machine."""

    name: str
    shared: str
    dedicated: bool
    handle: int
    total: int
    free: int


class Placement(NamedTuple):
    """Where a load goes. `layers`, None: as many as fit; `handles`: these devices alone, () for all."""

    device: str
    layers: int | None
    handles: tuple[int, ...]


def discrete(api: Any, identity: RequestedIdentity, registry: Any = None) -> tuple[wire.Accelerator, ...]:
    """The dedicated devices that a load of `identity` uses, named alike in every process on this machine.

    Without its own word for fewer, llama.cpp spreads a model over all of them. `registry` is the library
    that holds the device functions; the installed one where it is not given.
    """
    if identity.device == CPU or identity.gpu_layers == 0 or not api.llama_supports_gpu_offload():
        return ()
    try:
        known = accelerators(registry)
    except (ImportError, OSError, AttributeError, RuntimeError):
        return (wire.Accelerator(name=SOME_GPU),)
    one = identity.device not in (AUTO, SOME_GPU)
    used = [each for each in known if each.dedicated and (not one or each.name == identity.device)]
    found = (wire.Accelerator(name=each.shared, total_bytes=each.total, free_bytes=each.free) for each in used)
    return tuple(sorted(found, key=lambda each: each.name))


def place(api: Any, identity: RequestedIdentity, registry: Any = None) -> Placement:
    """Where the load goes. What was asked for is used or refused, never changed. Raises UnsupportedFeature."""
    offload = bool(api.llama_supports_gpu_offload())
    try:
        known = accelerators(registry) if offload else []
    except (ImportError, OSError, AttributeError, RuntimeError):
        known = []
    found = (CPU, *((SOME_GPU, *(one.name for one in known)) if offload else ()))
    device = identity.device
    if device not in (AUTO, *found):
        raise UnsupportedFeature(feature=f"device {device} (found: {', '.join(found)})")
    if not offload or device == CPU:
        _refuse_accelerators(identity)
        return Placement(CPU, 0, ())
    handles = tuple(one.handle for one in known if one.name == device)
    _check_split(identity.tensor_split, len(handles) or len(known))
    layers = None if identity.gpu_layers == AUTO else int(identity.gpu_layers)
    return Placement(SOME_GPU if device == AUTO else device, layers, handles)


def _refuse_accelerators(identity: RequestedIdentity) -> None:
    if identity.gpu_layers not in (AUTO, 0):
        raise UnsupportedFeature(feature=f"gpu_layers {identity.gpu_layers} (on the CPU: 0)")
    if identity.tensor_split not in (AUTO, ()):
        raise UnsupportedFeature(feature="tensor_split (it divides a model over accelerators; on the CPU: none)")


def _check_split(split: tuple[float, ...] | str, count: int) -> None:
    if isinstance(split, str) or not split:
        return
    if len(split) > count or not all(math.isfinite(part) and part >= 0 for part in split) or not sum(split):
        told = ", ".join(f"{part:g}" for part in split[: count + 1])
        raise UnsupportedFeature(feature=f"tensor_split {told} (at most {count} parts of 0 or more, not all 0)")


def accelerators(registry: Any = None) -> list[Accelerator]:
    """Every device with a processor of its own for graphics. Raises ImportError, OSError, AttributeError."""
    return list(_listed(registry if registry is not None else _registry()))


def _listed(registry: Any) -> Iterator[Accelerator]:
    registry.ggml_backend_dev_count.restype = ctypes.c_size_t
    registry.ggml_backend_dev_get.restype = ctypes.c_void_p
    registry.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    registry.ggml_backend_dev_get_props.restype = None
    registry.ggml_backend_dev_get_props.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for index in range(registry.ggml_backend_dev_count()):
        facts, handle = _Properties(), registry.ggml_backend_dev_get(index)
        registry.ggml_backend_dev_get_props(handle, ctypes.byref(facts))
        name = (facts.name or b"").decode("utf-8", "replace")
        address = (facts.device_id or b"").decode("utf-8", "replace")
        if facts.type in (_DEDICATED, _INTEGRATED):
            dedicated = facts.type == _DEDICATED and not name.startswith(_SHARED)
            shared = f"pci-{address.lower()}" if address else name
            yield Accelerator(name, shared, dedicated, handle, facts.memory_total, facts.memory_free)


def _registry() -> Any:
    return importlib.import_module("llama_cpp._ggml").libggml
