"""Which accelerators this build of llama.cpp would put a model on, by the native registry of devices. Worker only."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from shared.catalog.identity import RequestedIdentity

_DEDICATED = 1  # GGML_BACKEND_DEVICE_TYPE_GPU: memory of its own; 2 is an integrated one, which shares the host's
#: Apple's GPUs name themselves as dedicated and share the host's memory.
_SHARED = ("Metal", "MTL")
#: Where the registry cannot be read: one name for all, so that two data roots still exclude each other.
SOME_GPU = "GPU"


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


def discrete(api: Any, identity: RequestedIdentity, registry: Any = None) -> tuple[str, ...]:
    """Names of the dedicated devices that a load of `identity` uses, the same in every process on this machine.

    Without its own word for fewer, llama.cpp spreads a model over all of them. `registry` is the library
    that holds the device functions; the installed one where it is not given.
    """
    if identity.device == "CPU" or identity.gpu_layers == 0 or not api.llama_supports_gpu_offload():
        return ()
    try:
        return _listed(registry if registry is not None else _registry())
    except (ImportError, OSError, AttributeError, RuntimeError):
        return (SOME_GPU,)


def _listed(registry: Any) -> tuple[str, ...]:
    registry.ggml_backend_dev_count.restype = ctypes.c_size_t
    registry.ggml_backend_dev_get.restype = ctypes.c_void_p
    registry.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    registry.ggml_backend_dev_get_props.restype = None
    registry.ggml_backend_dev_get_props.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    names = []
    for index in range(registry.ggml_backend_dev_count()):
        facts = _Properties()
        registry.ggml_backend_dev_get_props(registry.ggml_backend_dev_get(index), ctypes.byref(facts))
        name = (facts.name or b"").decode("utf-8", "replace")
        if facts.type == _DEDICATED and not name.startswith(_SHARED):
            address = (facts.device_id or b"").decode("utf-8", "replace")
            names.append(f"pci-{address.lower()}" if address else name)
    return tuple(sorted(names))


def _registry() -> Any:
    return importlib.import_module("llama_cpp._ggml").libggml
