"""Memory of an accelerator that this machine does not have, told by the scripted engine of real workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from subprocess import DEVNULL

import anyio
import pytest

from modeld_process import Modeld, write_models, write_script
from shared.errors import InsufficientMemory
from shared.paths import DataRoot
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(120)]

GIB = 1 << 30
DEVICES = ["FAKE:0", "FAKE:1"]


@pytest.fixture
def tell(data_root: DataRoot) -> Callable[..., None]:
    """Says what the devices answer from now on: total and free bytes, in order."""

    def told(*memory: tuple[int, int]) -> None:
        (data_root.path / "memory.json").write_text(json.dumps(dict(zip(DEVICES, memory, strict=False))))

    return told


def on_devices(root: DataRoot) -> Modeld:
    write_models(root, "a", "b")
    memory = str(root.path / "memory.json")
    return Modeld(root, "scripted", **write_script(root.path, devices=DEVICES, memory=memory))


async def test_free_memory_of_the_devices_is_read_before_each_load_and_decides(
    data_root: DataRoot, tell: Callable[..., None]
) -> None:
    tell((GIB, GIB), (GIB, GIB // 2))
    async with on_devices(data_root) as modeld, modeld.client() as client:
        first = await client.load("a")
        tell((GIB, 0), (GIB, 0))
        with pytest.raises(InsufficientMemory) as refused:
            await client.load("b", allow_switch=True)
        assert refused.value.data["device"] == "FAKE:0, FAKE:1"
        status = await client.status()
        assert (status.state, status.generation) == ("Ready", first.generation), "the model that is there stays"
        told = [(one.name, one.total_bytes, one.free_bytes) for one in status.memory.devices]
        assert told == [("FAKE:0", GIB, GIB), ("FAKE:1", GIB, GIB // 2)]
        tell((GIB, GIB), (GIB, GIB))
        await client.load("b", allow_switch=True)
        assert {one.free_bytes for one in (await client.status()).memory.devices} == {GIB}
        for command in ("status", "doctor"):
            line = [sys.executable, "-P", "-m", "modeld", command]
            done = await anyio.run_process(line, env=modeld.environ, stdin=DEVNULL, check=False)
            shown = " ".join(done.stdout.decode().split())
            assert "FAKE:1: 1.1 GB of 1.1 GB were free" in shown, (command, shown, done.stderr)


async def test_the_first_load_is_refused_by_the_device_too(data_root: DataRoot, tell: Callable[..., None]) -> None:
    tell((GIB, 1), (GIB, 1))
    async with on_devices(data_root) as modeld, modeld.client() as client:
        with pytest.raises(InsufficientMemory) as refused:
            await client.load("a")
        assert (refused.value.data["device"], refused.value.data["free_bytes"]) == ("FAKE:0, FAKE:1", 2)
        await client.load("a", config=api.LoadConfig(device="CPU"))
        assert not (await client.status()).memory.devices


async def test_a_device_that_does_not_tell_its_memory_is_planned_for_in_main_memory(
    data_root: DataRoot, tell: Callable[..., None]
) -> None:
    tell((GIB, GIB))
    async with on_devices(data_root) as modeld, modeld.client() as client:
        await client.load("a")
        told = {one.name: one.total_bytes for one in (await client.status()).memory.devices}
        assert told == {"FAKE:0": GIB, "FAKE:1": 0}
