"""Real sockets: who gets in, what each failure proves, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import stat
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream

from shared.endpoint import unix
from shared.endpoint.endpoint import connect, listen
from shared.endpoint.faults import EndpointBusy, EndpointError, EndpointForbidden, FolderUnusable, NobodyListens
from shared.endpoint.folder import RuntimeFolder

assert sys.platform != "win32"

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

INSTANCE = "0a1b2c3d-0000-4000-8000-000000000000"
NOBODY = 65534


@pytest.fixture
def folder(short_tmp: Path) -> RuntimeFolder:
    return RuntimeFolder(short_tmp / "s")


def path_of(address: str) -> Path:
    return Path(address.removeprefix("unix:"))


async def echo(stream: ByteStream) -> None:
    async for data in stream:
        await stream.send(data)


async def echoes(address: str, text: bytes = b"hello") -> bool:
    async with await connect(address, timeout=5.0) as stream:
        await stream.send(text)
        return await stream.receive() == text


async def test_listens_when_it_returns_and_leaves_nothing(folder: RuntimeFolder) -> None:
    listener = listen(folder, INSTANCE)
    path = path_of(listener.address)
    assert path.name == "m-0a1b2c3d.sock"
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.lstat().st_mode) == 0o700
    assert listener.intact()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        async with await connect(listener.address, timeout=5.0) as stream:
            tasks.start_soon(stream.send, b"x" * 3_000_000)
            got = 0
            while got < 3_000_000:
                got += len(await stream.receive())
        listener.close()
        listener.close()
    assert not path.exists()
    with pytest.raises(NobodyListens) as nobody:
        await connect(listener.address, timeout=5.0)
    assert not nobody.value.refused


async def test_closing_ends_the_handlers_that_run(folder: RuntimeFolder) -> None:
    listener = listen(folder, INSTANCE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        stream = await connect(listener.address, timeout=5.0)
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        listener.close()
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await stream.aclose()


async def test_a_failing_handler_ends_its_own_connection_only(folder: RuntimeFolder) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def handler(stream: ByteStream) -> None:
        if await stream.receive() == b"fail":
            raise ZeroDivisionError
        await stream.send(b"fine")

    listener = listen(folder, INSTANCE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handler)
        async with (
            await connect(listener.address, timeout=5.0) as bad,
            await connect(listener.address, timeout=5.0) as good,
        ):
            await bad.send(b"fail")
            with pytest.raises(anyio.EndOfStream):
                await bad.receive()
            await good.send(b"x")
            assert await good.receive() == b"fine"
        listener.close()
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


async def test_only_a_refused_connection_proves_that_nobody_listens(folder: RuntimeFolder) -> None:
    folder.ensure()
    path = folder.path / "m-dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NobodyListens) as nobody:
        await connect(f"unix:{path}", timeout=5.0)
    assert nobody.value.refused
    assert path.exists()


async def test_a_full_backlog_is_busy_and_gets_through_later(folder: RuntimeFolder) -> None:
    folder.ensure()
    path = folder.path / "m-full.sock"
    waiting: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(0)
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            waiting.append(client)
            try:
                client.connect(str(path))
            except BlockingIOError:
                break
        with pytest.raises(EndpointBusy):
            await connect(f"unix:{path}", timeout=0.1)
        async with anyio.create_task_group() as tasks:

            async def free() -> None:
                server.accept()[0].close()

            tasks.start_soon(free)
            stream = await connect(f"unix:{path}", timeout=5.0)
            await stream.aclose()
        for client in waiting:
            client.close()


async def test_no_descriptors_left_is_not_death(folder: RuntimeFolder) -> None:
    listener = listen(folder, INSTANCE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(EndpointBusy):
            await connect(listener.address, timeout=0.1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        listener.close()


@pytest.mark.parametrize("address", ["pipe:\\\\.\\pipe\\modeld-1", "tcp:127.0.0.1:1", ""])
async def test_addresses_of_other_kinds_prove_nothing(address: str) -> None:
    with pytest.raises(EndpointBusy):
        await connect(address, timeout=0.1)


async def test_a_listener_that_never_accepts_is_reached(folder: RuntimeFolder) -> None:
    listener = listen(folder, INSTANCE)  # nobody calls serve: the kernel completes the connection
    stream = await connect(listener.address, timeout=5.0)
    await stream.aclose()
    listener.close()


async def test_never_takes_or_removes_what_is_not_its_own(folder: RuntimeFolder) -> None:
    first = listen(folder, INSTANCE)
    second = listen(folder, INSTANCE)
    assert first.address != second.address
    path = path_of(first.address)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))
        assert not first.intact()
        first.close()
        assert path.exists()
    second.close()
    assert not path_of(second.address).exists()


@pytest.mark.parametrize("loss", ["socket", "folder", "mode", "taken"])
async def test_a_lost_path_is_noticed_and_bound_again_while_connections_live(folder: RuntimeFolder, loss: str) -> None:
    listener = listen(folder, INSTANCE)
    path = path_of(listener.address)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        async with await connect(listener.address, timeout=5.0) as old:
            await old.send(b"before")
            assert await old.receive() == b"before"
            if loss == "socket":
                path.unlink()
            elif loss == "folder":
                shutil.rmtree(folder.path)
            elif loss == "mode":
                folder.path.chmod(0o777)
            else:
                path.unlink()
                path.write_text("somebody else's")
            assert not listener.intact()
            address = await listener.rebind()
            assert listener.intact()
            assert (address == f"unix:{path}") == (loss != "taken")
            assert await echoes(address)
            await old.send(b"after")
            assert await old.receive() == b"after"
        listener.close()
    if loss == "taken":
        assert path.read_text() == "somebody else's"
        path.unlink()
    assert list(folder.path.iterdir()) == []


async def test_the_sweep_removes_proven_dead_sockets_only(folder: RuntimeFolder) -> None:
    live = listen(folder, INSTANCE)
    for name in ("m-dead.sock", "m-young.sock", "other.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder.path / name))
    (folder.path / "m-file.sock").write_text("no socket")
    old = time.time() - 3600
    for name in ("m-dead.sock", "other.sock", "m-file.sock", path_of(live.address).name):
        os.utime(folder.path / name, (old, old))
    assert await unix.sweep(folder, time.time()) == [folder.path / "m-dead.sock"]
    assert {path.name for path in folder.path.iterdir()} == {
        "m-0a1b2c3d.sock",
        "m-young.sock",
        "other.sock",
        "m-file.sock",
    }
    live.close()


async def test_a_folder_that_cannot_be_private_is_refused(short_tmp: Path) -> None:
    (short_tmp / "real").mkdir(mode=0o700)
    (short_tmp / "s").symlink_to(short_tmp / "real")
    with pytest.raises(FolderUnusable):
        unix.UnixListener(RuntimeFolder(short_tmp / "s"), INSTANCE)
    assert list((short_tmp / "real").iterdir()) == []


async def test_a_bind_that_fails_is_typed(folder: RuntimeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.ensure()
    monkeypatch.setattr(folder, "path", folder.path / "missing" / "deeper")
    monkeypatch.setattr(folder, "ensure", lambda: None)
    before = os.umask(0o022)
    os.umask(before)
    with pytest.raises(EndpointError):
        unix.UnixListener(folder, INSTANCE)
    assert os.umask(before) == before


DIAL_AS_OTHER = """
    import os, socket, sys  # before the change: the other user may not be able to read the library
    os.setgroups([]); os.setgid({uid}); os.setuid({uid})
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    try:
        client.connect(sys.argv[1])
        client.sendall(b"hello")
        answer = client.recv(100)
    except OSError as error:
        answer = type(error).__name__.encode()
    print(answer.decode() or "closed")
"""


async def as_other_user(code: str, *arguments: str) -> str:
    program = textwrap.dedent(code).format(uid=NOBODY)
    done = await anyio.run_process([sys.executable, "-I", "-c", program, *arguments])
    return done.stdout.decode().strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_cannot_even_see_the_socket(folder: RuntimeFolder) -> None:
    listener = listen(folder, INSTANCE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        assert await as_other_user(DIAL_AS_OTHER, str(path_of(listener.address))) == "PermissionError"
        listener.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_who_gets_to_the_socket_is_turned_away_unread(folder: RuntimeFolder) -> None:
    handled: list[bytes] = []

    async def handler(stream: ByteStream) -> None:
        handled.append(await stream.receive())

    listener = listen(folder, INSTANCE)
    folder.path.parent.chmod(0o755)
    folder.path.chmod(0o755)  # every barrier but the last one down
    path_of(listener.address).chmod(0o666)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handler)
        answer = await as_other_user(DIAL_AS_OTHER, str(path_of(listener.address)))
        assert answer in ("closed", "ConnectionResetError", "BrokenPipeError")
        listener.close()
    assert handled == []


SERVE_AS_OTHER = """
    import os, socket, sys  # before the change: the other user may not be able to read the library
    os.setgroups([]); os.setgid({uid}); os.setuid({uid})
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o666)
    server.listen()
    print("ready", flush=True)
    client = server.accept()[0]
    print("read", len(client.recv(100)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_a_client_sends_nothing_to_another_users_socket(short_tmp: Path) -> None:
    short_tmp.chmod(0o777)
    path = short_tmp / "m-trap.sock"
    program = textwrap.dedent(SERVE_AS_OTHER).format(uid=NOBODY)
    async with await anyio.open_process([sys.executable, "-I", "-c", program, str(path)], stderr=None) as trap:
        assert trap.stdout is not None
        assert (await trap.stdout.receive()).strip() == b"ready"
        with pytest.raises(EndpointForbidden, match=f"uid {NOBODY}"):
            await connect(f"unix:{path}", timeout=5.0)
        assert (await trap.stdout.receive()).strip() == b"read 0"


async def test_the_bsd_way_of_asking_for_the_peer_is_used_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        asked: list[int] = []

        def getpeereid(descriptor: int) -> int:
            asked.append(descriptor)
            return 501

        monkeypatch.setattr(unix, "_getpeereid", getpeereid)
        monkeypatch.setattr(sys, "platform", "darwin")
        assert unix.peer_identity(left) == (0, 501)
        assert asked == [left.fileno()]


async def test_getpeereid_by_ctypes(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    class Libc:
        result = 0

        def getpeereid(self, descriptor: int, uid: Any, gid: Any) -> int:
            uid._obj.value, gid._obj.value = 501, 20
            return self.result

    libc = Libc()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: libc)
    assert unix._getpeereid(3) == 501
    libc.result = -1
    ctypes.set_errno(9)
    with pytest.raises(OSError, match="Bad file descriptor"):
        unix._getpeereid(3)
