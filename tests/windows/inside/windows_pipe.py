"""A peer over a real named pipe: rights, both-way checks, ends of every kind."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ctypes import wintypes

import anyio
import pytest
from anyio.abc import ByteStream

from peer_pairs import Add, Scripted, Sum, Wire, peer_of
from shared.endpoint import winapi
from shared.endpoint.endpoint import Listener, connect, listen
from shared.endpoint.faults import EndpointBusy, EndpointForbidden, NobodyListens
from shared.endpoint.folder import RuntimeFolder
from shared.endpoint.transport import TransportStream
from shared.settings import Settings

assert sys.platform == "win32"

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

CHECKOUT = os.environ["MODELD_CHECKOUT"]
MIB = 1024 * 1024


def listener() -> Listener:
    return listen(RuntimeFolder.__new__(RuntimeFolder), "0a1b2c3d")


async def echo(stream: ByteStream) -> None:
    async for data in stream:
        await stream.send(data)


@asynccontextmanager
async def serving(handler: Callable[[ByteStream], Awaitable[None]] = echo) -> AsyncIterator[str]:
    server = listener()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, handler)
        yield server.address
        server.close()


async def dial(address: str, expected: int | None = None) -> TransportStream:
    stream = await connect(address, timeout=5.0, expected_pid=os.getpid() if expected is None else expected)
    assert isinstance(stream, TransportStream)
    return stream


async def test_calls_both_ways_and_a_large_answer() -> None:
    settings = Settings()
    scripts = Scripted(), Scripted()

    async def handler(stream: ByteStream) -> None:
        await peer_of(stream, scripts[1], settings).run()

    async with serving(handler) as address:
        peer = peer_of(await dial(address), scripts[0], settings)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.run)
            for number in range(20):
                assert await peer.request("add", Add(number, 1), Sum) == Sum(number + 1)
            assert await peer.request("talk") == {"done": 3}
            answer = await peer.request("big", Add(20 * MIB, 0))
            assert len(answer["text"]) == 20 * MIB
            peer.close()


async def test_many_connections_at_once() -> None:
    async with serving() as address, anyio.create_task_group() as tasks:

        async def one(number: int) -> None:
            async with await dial(address) as stream:
                text = b"%d" % number * 1000
                await stream.send(text)
                got = b""
                while len(got) < len(text):
                    got += await stream.receive()
                assert got == text

        for number in range(20):
            tasks.start_soon(one, number)


async def test_both_sides_see_the_process_at_the_other_end() -> None:
    seen: list[int] = []

    async def handler(stream: ByteStream) -> None:
        assert isinstance(stream, TransportStream)
        seen.append(stream.peer_pid)
        await stream.send(b"ok")

    async with serving(handler) as address:
        async with await dial(address) as stream:
            assert stream.peer_pid == os.getpid()
            assert await stream.receive() == b"ok"
        child = await anyio.run_process([sys.executable, "-c", DIAL, address, str(os.getpid())])
        assert child.stdout.split()[0] == b"ok"
        assert seen == [os.getpid(), int(child.stdout.split()[1])]


DIAL = textwrap.dedent(
    f"""
    import sys; sys.path.insert(0, {CHECKOUT!r})
    import anyio, os
    from shared.endpoint.endpoint import connect
    async def main():
        stream = await connect(sys.argv[1], timeout=5.0, expected_pid=int(sys.argv[2]))
        print((await stream.receive()).decode(), os.getpid())
        await stream.aclose()
    anyio.run(main)
    """
)


async def test_another_process_than_that_of_the_record_is_refused() -> None:
    async with serving() as address:
        with pytest.raises(EndpointForbidden, match=f"process {os.getpid()} serves it"):
            await dial(address, os.getpid() + 4)


async def test_nobody_listens_at_a_name_that_is_gone() -> None:
    async with serving() as address:
        pass
    with pytest.raises(NobodyListens) as nobody:
        await dial(address)
    assert not nobody.value.refused


async def test_addresses_of_other_kinds_prove_nothing() -> None:
    with pytest.raises(EndpointBusy):
        await dial("unix:/tmp/m-1.sock")


async def test_every_instance_admits_this_user_and_the_system_alone() -> None:
    pipes = winapi.WindowsPipes()
    user = pipes.own_user()
    assert user.startswith("S-1-5-")
    name = "\\\\.\\pipe\\modeld-test-rights"
    handles = [pipes.create(name, first=True), pipes.create(name, first=False)]
    try:
        assert [rights_of(handle.handle, user) for handle in handles] == [winapi.descriptor_for(user)] * 2
    finally:
        for handle in handles:
            pipes.close(handle)


def rights_of(handle: int, user: str) -> str:
    """The pipe's DACL as SDDL, generic rights written as such."""
    advapi = ctypes.WinDLL("advapi32")
    descriptor, text = wintypes.LPVOID(), wintypes.LPWSTR()
    dacl = 4
    assert (
        advapi.GetSecurityInfo(wintypes.HANDLE(handle), 6, dacl, None, None, None, None, ctypes.byref(descriptor)) == 0
    )
    assert advapi.ConvertSecurityDescriptorToStringSecurityDescriptorW(descriptor, 1, dacl, ctypes.byref(text), None)
    sddl = (text.value or "").replace("0x10000000", "GA").replace("FA", "GA").replace(";;0x1f01ff;", ";;GA;")
    return sddl.replace("(A;;GA;;;LA)", f"(A;;GA;;;{user})")


async def test_the_client_sees_the_end_when_the_server_is_killed() -> None:
    code = textwrap.dedent(
        f"""
        import sys; sys.path.insert(0, {CHECKOUT!r})
        import anyio
        from shared.endpoint.endpoint import listen
        from shared.endpoint.folder import RuntimeFolder
        async def main():
            server = listen(RuntimeFolder.__new__(RuntimeFolder), "x")
            print(server.address, flush=True)
            async def handler(stream):
                await stream.send(b"hello")
                await anyio.sleep_forever()
            await server.serve(handler)
        anyio.run(main)
        """
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            stream = await dial(address, server.pid)
            assert await stream.receive() == b"hello"
        finally:
            server.kill()
        with anyio.fail_after(10), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await stream.aclose()


async def test_a_client_that_stops_reading_is_given_up() -> None:
    ended: list[str | None] = []
    closed = anyio.Event()

    async def handler(stream: ByteStream) -> None:
        peer = peer_of(stream, Scripted(), Settings(stalled_seconds=0.3))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.run)
            for _ in range(40):
                peer.notify("text", {"text": "x" * 50_000})
            await peer.closed.wait()
        ended.append(peer.closed_reason)
        closed.set()

    async with serving(handler) as address:
        stream = await dial(address)
        await closed.wait()
        await stream.aclose()
    assert ended == ["client_stalled"]


async def test_a_cancelled_receive_leaves_the_pipe_usable() -> None:
    async with serving() as address, await dial(address) as stream:
        with anyio.move_on_after(0.05):
            await stream.receive()
        wire = Wire(stream)
        await wire.send({"method": "again"})
        assert await wire.receive() == {"method": "again"}
