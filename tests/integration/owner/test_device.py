"""One accelerator and two data roots: a refusal that names the holder, and what ends a hold."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from modeld.owner.device import DeviceEvent, DeviceLease, named_worker
from modeld.owner.devices import Devices
from shared.clock import SystemClock
from shared.errors import DeviceBusy
from shared.lease import files
from shared.lease.process import identity
from shared.lease.record import Worker, encode
from shared.paths import DataRoot
from shared.settings import Settings

pytestmark = pytest.mark.integration
TTL = 1.0
DEVICE = "pci-0000:01:00.0"
SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
ME = named_worker(1, "1")


class Holder:
    """One data root's claim of a device, and what it was answered."""

    def __init__(self, folder: Path, name: str, device: str = DEVICE) -> None:
        self.reported: list[DeviceEvent] = []
        self.lost = threading.Event()
        self.root = DataRoot(folder / name)
        self.lease = DeviceLease(folder / "run", device, name, ttl=TTL, root=self.root, heard=self._hear)

    def _hear(self, event: DeviceEvent) -> None:
        self.reported.append(event)
        if event == "lost":
            self.lost.set()


Make = Callable[..., Holder]


@pytest.fixture
def holder(short_tmp: Path) -> Iterator[Make]:
    made: list[Holder] = []

    def make(name: str, device: str = DEVICE) -> Holder:
        made.append(Holder(short_tmp, name, device))
        return made[-1]

    yield make
    for one in made:
        one.lease.release("stop")


def place(folder: Path) -> DataRoot:
    return DataRoot(folder / "run" / "devices" / DEVICE.replace(":", "_"))


def test_two_data_roots_on_one_device(holder: Make) -> None:
    one, two = holder("one"), holder("two")
    one.lease.take(ME)
    one.lease.take(ME)
    with pytest.raises(DeviceBusy) as refused:
        two.lease.take(ME)
    assert str(one.root.path) in refused.value.message
    assert f"pid {identity.current().pid}" in refused.value.message
    assert DEVICE in refused.value.message
    one.lease.release("unload")
    two.lease.take(ME)
    assert two.lease.valid()
    assert not one.lease.valid()
    two.lease.release("unload")
    one.lease.take(ME)  # a device, unlike the root, is held as often as it is needed
    assert one.reported == two.reported == []


def test_two_devices_do_not_meet(holder: Make) -> None:
    one, two = holder("one"), holder("two", "pci-0000:02:00.0")
    one.lease.take(ME)
    two.lease.take(ME)
    assert one.lease.valid()
    assert two.lease.valid()


def test_a_killed_holder_is_followed_at_once_and_its_worker_is_gone_first(short_tmp: Path, holder: Make) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, 'tests')\n"
        "from integration.owner.test_device import Holder\nfrom modeld.owner.device import named_worker\n"
        "from shared.lease.process.identity import start_token\npid = int(sys.argv[2])\n"
        "Holder(Path(sys.argv[1]), 'killed').lease.take(named_worker(pid, start_token(pid)))\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(SLEEPER) as worker:
        command = [sys.executable, "-c", program, str(short_tmp), str(worker.pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == b"held"
            two = holder("two")
            with pytest.raises(DeviceBusy):
                two.lease.take(ME)
            process.kill()
            process.wait()
            two.lease.take(ME)
        assert worker.wait(5) != 0  # ended by the next holder before it may load
    assert two.lease.valid()


def test_a_holder_that_nobody_can_see_is_waited_out(short_tmp: Path, holder: Make) -> None:
    """Frozen, or in another pid namespace: its record stands still, and a person need not come."""
    one, two = holder("one"), holder("two")
    one.lease.take(ME)
    one.lease.release("unload")
    sighting = files.sight(place(short_tmp))
    assert sighting is not None
    assert sighting.record is not None
    stranger = msgspec.structs.replace(
        sighting.record, epoch=9, sequence=5, host="elsewhere", released=None, renewed=0.0, worker=None
    )
    (place(short_tmp).owner / "9.lease").write_bytes(encode(stranger))
    two.lease.take(ME)
    assert two.lease.valid()


def test_a_device_taken_by_another_is_lost_and_says_so(short_tmp: Path, holder: Make) -> None:
    one = holder("one")
    one.lease.take(ME)
    one.lease.confirm()
    (place(short_tmp).owner / "7.lease").write_bytes(b"")
    with pytest.raises(DeviceBusy):
        one.lease.confirm()
    assert one.lost.wait(5)
    assert not one.lease.valid()
    one.lease.take(ME)  # a later load tries again: nobody was there, and the empty record stood still
    assert one.lease.valid()


# --- all the devices of one instance ---


@pytest.fixture
async def devices(short_tmp: Path) -> Devices:
    folder = short_tmp / "user"
    return Devices(folder, "me", DataRoot(short_tmp / "me"), Settings(lease_ttl=TTL), SystemClock())


@pytest.mark.anyio
async def test_exactly_the_wanted_devices_are_held(devices: Devices) -> None:
    assert devices.valid()
    await devices.confirm()
    await devices.hold(["a", "b"], 1, "1")
    assert devices.held == ("a", "b")
    await devices.hold(["b", "c"], 2, "2")
    assert devices.held == ("b", "c")
    assert devices.valid()
    await devices.confirm()
    await devices.release()
    assert not devices.held


@pytest.mark.anyio
async def test_a_refusal_holds_nothing_of_the_refused_one(short_tmp: Path, devices: Devices) -> None:
    other = DeviceLease(short_tmp / "user", "b", "x", ttl=TTL, root=DataRoot(short_tmp / "x"), heard=lambda event: None)
    await devices.hold(["a"], 1, "1")
    await anyio.to_thread.run_sync(other.take, Worker(pid=1))
    with pytest.raises(DeviceBusy, match=str(short_tmp / "x")):
        await devices.hold(["a", "b"], 1, "1")
    assert devices.held == ("a",)
    await anyio.to_thread.run_sync(other.release, "stop")
    await devices.release()


@pytest.mark.anyio
async def test_a_loss_is_reported_on_the_loop(short_tmp: Path, devices: Devices) -> None:
    lost: list[DeviceBusy] = []
    reported = anyio.Event()

    def on_lost(error: DeviceBusy) -> None:
        lost.append(error)
        reported.set()

    devices.on_event(lambda doubtful: None, on_lost)
    await devices.hold(["a"], 1, "1")
    (short_tmp / "user" / "devices" / "a" / "owner" / "8.lease").write_bytes(b"")
    with anyio.fail_after(5):
        await reported.wait()
    assert lost[0].kind == "device_busy"
    assert not devices.valid()
    await devices.release()
