"""Two data roots, two daemons, one accelerator (a made-up one): who may load, and what ends a hold."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from frozen import freeze
from leaks import end_processes_of
from modeld_process import ENDLESS, Modeld, is_alive, write_models, write_script
from shared.errors import DeviceBusy, EngineFailed, NotOwner
from shared.paths import DataRoot
from shared.protocol import api
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture
def other_root(short_tmp: Path) -> Iterator[DataRoot]:
    root = DataRoot(short_tmp / "other")
    root.path.mkdir(mode=0o700)
    yield root
    left = end_processes_of(root.path)
    assert not left, left


def on_device(root: DataRoot, ttl: str = "4") -> Modeld:
    """A daemon whose loads go to the made-up device. Where nothing waits for a lease to run out, it is not short."""
    write_models(root, "a")
    script = write_script(root.path, [ENDLESS], token_s=0.005, devices=["FAKE:0"])
    return Modeld(root, "scripted", MODELD_DATA_ROOT=str(root.path), MODELD_LEASE_TTL=ttl, **script)


async def test_two_data_roots_on_one_accelerator(data_root: DataRoot, other_root: DataRoot) -> None:
    async with on_device(data_root) as one, on_device(other_root) as two:
        async with one.client() as client, two.client() as other:
            await client.load("a")
            with pytest.raises(DeviceBusy) as refused:
                await other.load("a")
            assert str(data_root.path) in refused.value.message
            assert f"pid {one.pid}" in refused.value.message
            await eventually(lambda: not two.workers(), "the refused worker has gone")
            await other.until_state("Failed")  # the daemon collects it a moment later
            await other.load("a", config=api.LoadConfig(device="CPU"))  # which is nobody's
            await other.unload()
            await client.unload()
            await other.load("a")
            with pytest.raises(DeviceBusy):
                await client.load("a")


async def test_a_killed_holder_gives_the_device_free_at_once(data_root: DataRoot, other_root: DataRoot) -> None:
    async with on_device(data_root) as one, on_device(other_root) as two:
        async with one.client() as client:
            await client.load("a")
            (worker,) = one.workers()
            await one.end(signal.SIGKILL)
        async with two.client() as other:
            await other.load("a")
            assert not is_alive(worker)


async def test_a_frozen_holder_is_followed_and_on_waking_its_model_is_gone(
    data_root: DataRoot, other_root: DataRoot
) -> None:
    # a refused load takes a second beside other tests: the record must still be fresh then
    async with on_device(data_root, "3") as one, on_device(other_root, "3") as two:
        async with one.client() as client, two.client() as other:
            await client.load("a")
            turn = client.turn("a", params=api.Sampling(max_tokens=10**6))
            await turn.until(api.TextDelta)
            (worker,) = one.workers()
            freeze(one.pid)
            try:
                with pytest.raises(DeviceBusy):  # its record is fresh
                    await other.load("a")
                await eventually_loads(other)
                assert not is_alive(worker)
            finally:
                os.kill(one.pid, signal.SIGCONT)
            with pytest.raises((DeviceBusy, NotOwner, EngineFailed)):  # whichever of its ends it meets first
                await turn.end()
            await eventually(lambda: not one.workers(), "the woken holder has no model")
            status = await other.status()
            assert (status.state, len(two.workers())) == ("Ready", 1)


async def eventually_loads(client: object) -> None:
    """Until the device's lease has stood still long enough."""
    from modeld_process import Client

    assert isinstance(client, Client)
    for _ in range(40):
        try:
            await client.load("a")
            return
        except DeviceBusy:
            await anyio.sleep(0.2)
    raise AssertionError("the device never came free")
