"""Real sockets: who gets in, what each failure proves, and what is left behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream

from shared.endpoint.endpoint import connect, listen
from shared.endpoint.faults import NobodyListens
from shared.endpoint.folder import RuntimeFolder

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.skipif(os.name == "nt", reason="Unix sockets")]

INSTANCE = "0a1b2c3d-0000-4000-8000-000000000000"


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> RuntimeFolder:
    return RuntimeFolder(tmp_path_factory.mktemp("r") / "s")


async def echo(stream: ByteStream) -> None:
    async for data in stream:
        await stream.send(data)


async def test_listens_when_it_returns_and_leaves_nothing(folder: RuntimeFolder) -> None:
    listener = listen(folder, INSTANCE)
    path = Path(listener.address.removeprefix("unix:"))
    assert path.name == "m-0a1b2c3d.sock"
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.lstat().st_mode) == 0o700
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        async with await connect(listener.address, timeout=1.0) as stream:
            await stream.send(b"x" * 1_000_000)
            got = 0
            while got < 1_000_000:
                got += len(await stream.receive())
        listener.close()
    assert not path.exists()
    with pytest.raises(NobodyListens) as nobody:
        await connect(listener.address, timeout=1.0)
    assert not nobody.value.refused
