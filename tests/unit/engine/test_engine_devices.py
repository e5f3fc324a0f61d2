"""Which accelerators a load uses, with the native libraries faked."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from modeld.engine.llama import devices as llama
from modeld.engine.openvino import devices as openvino
from shared.catalog.identity import RequestedIdentity
from shared.protocol.api import Accelerator

pytestmark = pytest.mark.unit
CPU, GPU, IGPU = 0, 1, 2


def asked(**fields: Any) -> RequestedIdentity:
    return RequestedIdentity(backend="x", name="m", digest="d", path="/m", **fields)


class Function:
    """A native function: takes `restype` and `argtypes` like one."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


class Registry:
    def __init__(self, *devices: tuple[int, bytes, bytes | None]) -> None:
        self._devices = devices
        self.ggml_backend_dev_count = Function(lambda: len(devices))
        self.ggml_backend_dev_get = Function(lambda index: index)
        self.ggml_backend_dev_get_props = Function(self._properties)

    def _properties(self, device: int, place: Any) -> None:
        facts = place._obj
        facts.type, facts.name, facts.device_id = self._devices[device]
        facts.memory_total, facts.memory_free = 8 << 30, 3 << 30


def api(*, offload: bool = True) -> Any:
    return SimpleNamespace(llama_supports_gpu_offload=lambda: offload)


def test_llama_uses_every_dedicated_device_and_names_it_by_its_place() -> None:
    registry = Registry(
        (CPU, b"CPU", None),
        (GPU, b"CUDA0", b"0000:C1:00.0"),
        (GPU, b"Vulkan1", None),
        (IGPU, b"Vulkan0", b"0000:00:02.0"),
    )
    found = llama.discrete(api(), asked(), registry)
    assert [(one.name, one.total_bytes, one.free_bytes) for one in found] == [
        ("Vulkan1", 8 << 30, 3 << 30),
        ("pci-0000:c1:00.0", 8 << 30, 3 << 30),
    ]


@pytest.mark.parametrize("fields", [{"device": "CPU"}, {"gpu_layers": 0}])
def test_llama_on_the_cpu_uses_none(fields: dict[str, Any]) -> None:
    assert llama.discrete(api(), asked(**fields), Registry((GPU, b"CUDA0", None))) == ()
    assert llama.discrete(api(offload=False), asked(), Registry((GPU, b"CUDA0", None))) == ()


def test_apples_gpu_shares_the_hosts_memory() -> None:
    assert llama.discrete(api(), asked(), Registry((GPU, b"Metal", None), (GPU, b"MTL0", None))) == ()


def test_llama_whose_registry_cannot_be_read_still_excludes_another() -> None:
    assert llama.discrete(api(), asked(), object()) == (Accelerator(name=llama.SOME_GPU),)


def test_the_room_for_properties_is_larger_than_they_are() -> None:
    assert ctypes.sizeof(llama._Properties) >= 6 * ctypes.sizeof(ctypes.c_void_p) + 64


class Core:
    def __init__(self, **known: Any) -> None:
        self._known = known

    def get_property(self, device: str, name: str) -> Any:
        if name not in self._known:
            raise RuntimeError("unsupported")
        return self._known[name]


PCI = SimpleNamespace(domain=0, bus=0xC1, device=0, function=0)


def test_openvino_on_a_dedicated_gpu_has_the_name_that_llama_gives_it() -> None:
    core = Core(DEVICE_TYPE="Type.DISCRETE", DEVICE_PCI_INFO=PCI)
    assert openvino.discrete(lambda: core, asked(device="GPU.1")) == (Accelerator(name="pci-0000:c1:00.0"),)


def test_openvino_tells_the_whole_memory_less_what_this_process_holds() -> None:
    core = Core(GPU_DEVICE_TOTAL_MEM_SIZE=8 << 30, GPU_MEMORY_STATISTICS={"usm_device": 1 << 30, "cl_mem": 1 << 20})
    (found,) = openvino.discrete(lambda: core, asked(device="GPU"))
    assert (found.total_bytes, found.free_bytes) == (8 << 30, (7 << 30) - (1 << 20))


@pytest.mark.parametrize(
    ("device", "known", "names"),
    [
        ("auto", {"DEVICE_TYPE": "Type.DISCRETE"}, ()),
        ("CPU", {"DEVICE_TYPE": "Type.DISCRETE"}, ()),
        ("GPU", {"DEVICE_TYPE": "Type.INTEGRATED"}, ()),
        ("NPU", {}, ()),
        ("GPU", {"DEVICE_UUID": "abc"}, ("openvino-abc",)),
        ("GPU.0", {}, ("openvino-GPU.0",)),
    ],
)
def test_openvino_elsewhere(device: str, known: dict[str, Any], names: tuple[str, ...]) -> None:
    assert tuple(one.name for one in openvino.discrete(lambda: Core(**known), asked(device=device))) == names


def test_openvino_on_the_cpu_is_not_even_asked() -> None:
    assert openvino.discrete(lambda: pytest.fail("asked"), asked()) == ()
