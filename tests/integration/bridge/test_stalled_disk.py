"""Every end is bounded though a look at a disk never returns: a real filesystem that stalls (tests/fuse_folder.py)."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from acp_bridge.tools import paths
from acp_bridge.tools.read_tools import FindFiles, ListFolder
from acp_bridge.tools.workspace import Workspace
from bridge_world import World
from fuse_folder import FuseFolder
from modeld.limit import CODE
from modeld_process import ENDLESS, Client, Modeld, is_alive, scripted, write_models
from shared.paths import DataRoot
from shared.protocol import api
from waiting import LONG, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(120)]

Mount = Callable[[Path], FuseFolder]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Puts a filesystem that can stall on a folder."""
    mounted: list[FuseFolder] = []

    def put(folder: Path) -> FuseFolder:
        try:
            mounted.append(FuseFolder(folder))
        except OSError:
            pytest.skip("NOT PROVEN HERE: this machine does not permit mounting a FUSE filesystem")
        return mounted[-1]

    yield put
    for one in mounted:
        one.close()


async def stalled_turn(modeld: Modeld, disk: FuseFolder) -> AsyncIterator[Client]:
    """A client whose turn runs while the disk stalls."""
    await modeld.start()
    async with modeld.client() as client:
        turn = client.turn("a", allow_load=True)
        await eventually(lambda: turn.events or turn.ended.is_set(), "it runs", LONG)
        disk.stall()
        yield client


async def test_a_daemon_ends_after_its_drain_though_its_lease_cannot_be_released(
    data_root: DataRoot, mount: Mount
) -> None:
    disk = mount(data_root.owner)
    write_models(data_root, "a")
    modeld = scripted(data_root, ENDLESS, environ={"MODELD_SHUTDOWN_DRAIN": "0"})
    async with asynccontextmanager(stalled_turn)(modeld, disk):
        workers = modeld.workers()
        assert await modeld.end(signal.SIGTERM, 60.0) in (0, CODE)
    await eventually(lambda: not any(is_alive(one) for one in workers), "its worker has gone", LONG)


async def test_a_daemon_whose_loop_hangs_at_the_disk_still_hears_a_signal(data_root: DataRoot, mount: Mount) -> None:
    disk = mount(data_root.instances)
    write_models(data_root, "a")
    modeld = scripted(data_root, ENDLESS, environ={"MODELD_SHUTDOWN_DRAIN": "0"})
    async with asynccontextmanager(stalled_turn)(modeld, disk) as client:
        workers = modeld.workers()
        with pytest.raises(TimeoutError):
            while True:  # until it looks after its records
                await client.call("ping", api.Fenced(), api.Value, 3.0)
                await anyio.sleep(0.1)
        assert await modeld.end(signal.SIGTERM, 60.0) == CODE
    await eventually(lambda: not any(is_alive(one) for one in workers), "its worker has gone", LONG)


@pytest.mark.parametrize("where", ["data", "workspace"])
def test_a_bridge_ends_at_the_end_of_its_input(world: World, mount: Mount, where: str) -> None:
    project = world.work / "project"
    disk = mount(world.root.path if where == "data" else project)
    project.mkdir(exist_ok=True)
    with world.bridge() as editor:  # which sees that it has ended by itself, in order
        editor.initialize()
        editor.new_session(project)
        disk.stall()
        for _ in range(3):
            editor.begin("session/new", {"cwd": str(project), "mcpServers": []})


async def test_what_a_tool_does_at_a_disk_is_left_behind(tmp_path: Path, mount: Mount) -> None:
    (tmp_path / "project").mkdir()
    disk = mount(tmp_path / "project")
    file = tmp_path / "project" / "a.txt"
    file.write_text("text")
    face: Any = SimpleNamespace(reads_files=False, writes_files=False)
    workspace = Workspace("c", [str(tmp_path / "project")], face, 4000)
    place = paths.locate("a.txt", workspace.roots)
    listed = await ListFolder().plan({"path": "."}, workspace)
    found = await FindFiles().plan({"pattern": "**/*"}, workspace)
    disk.stall()
    looks: list[Callable[[], Any]] = [
        lambda: workspace.read(file),
        lambda: workspace.excerpt(file),
        lambda: workspace.write(place, "other"),
        lambda: listed.effect(_ignore),
        lambda: found.effect(_ignore),
    ]
    for look in looks:
        with anyio.fail_after(LONG), anyio.move_on_after(0.2) as limit:
            await look()
        assert limit.cancelled_caught
    disk.go_on()


def _ignore(shown: Any) -> None:
    del shown
