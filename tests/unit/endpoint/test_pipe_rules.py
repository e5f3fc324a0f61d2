"""The rules of the Windows pipe with the platform faked: who is let in, and what each failure proves."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream

from shared.endpoint.faults import EndpointBusy, EndpointError, EndpointForbidden, NobodyListens
from shared.endpoint.transport import StreamProtocol
from shared.endpoint.winapi import descriptor_for
from shared.endpoint.winpipe import (
    ERROR_ACCESS_DENIED,
    ERROR_FILE_NOT_FOUND,
    ERROR_PIPE_BUSY,
    PipeCallFailed,
    PipeListener,
    connect_pipe,
)

pytestmark = [pytest.mark.anyio, pytest.mark.unit]

ME, OTHER = "S-1-5-21-1", "S-1-5-21-2"
SERVER, CLIENT = 100, 200


class Handle:
    """One end of one instance."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self.connected = asyncio.Event()
        self.partner: Handle | None = None
        self.fail = 0
        self.inbox: list[bytes] = []
        self.protocol: asyncio.BufferedProtocol | None = None


class Transport(asyncio.Transport):
    """A transport between two handles, enough for the streams."""

    def __init__(self, handle: Handle, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._handle = handle
        self._closing = False
        handle.protocol = protocol
        protocol.connection_made(self)
        for data in handle.inbox:
            _arrive(protocol, data)

    def write(self, data: Any) -> None:
        partner = self._handle.partner
        assert partner is not None
        if partner.protocol is None:
            partner.inbox.append(bytes(data))
        else:
            _arrive(partner.protocol, bytes(data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._handle.closed = True
        partner = self._handle.partner
        if partner is not None and partner.protocol is not None:
            asyncio.get_running_loop().call_soon(partner.protocol.eof_received)

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def _arrive(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """As asyncio's pipes hand it over."""
    while data:
        buffer = memoryview(protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]


async def test_what_arrives_is_put_into_one_small_buffer_and_copied_out() -> None:
    protocol = StreamProtocol()
    buffer = protocol.get_buffer(1 << 20)
    assert len(buffer) <= 1 << 16
    buffer[:3] = b"one"
    protocol.buffer_updated(3)
    assert protocol.get_buffer(-1) is buffer
    buffer[:3] = b"two"
    protocol.buffer_updated(2)
    assert (list(protocol.received), protocol.buffered) == ([b"one", b"tw"], 5)


class FakePipes:
    """Windows, as far as the rules see it."""

    def __init__(self) -> None:
        self.users: dict[int, str | None] = {SERVER: ME, CLIENT: ME}
        self.waiting: list[Handle] = []
        self.created: list[tuple[str, bool]] = []
        self.handles: list[Handle] = []
        self.open_errors: list[int] = []
        self.create_error = 0
        self.client = CLIENT

    def create(self, name: str, *, first: bool) -> Handle:
        if self.create_error:
            raise PipeCallFailed(self.create_error, "create")
        self.created.append((name, first))
        handle = Handle(name)
        self.handles.append(handle)
        self.waiting.append(handle)
        return handle

    async def accept(self, handle: Handle) -> None:
        await handle.connected.wait()
        if handle.fail:
            raise PipeCallFailed(handle.fail, "accept")

    def open(self, name: str) -> Handle:
        if self.open_errors:
            raise PipeCallFailed(self.open_errors.pop(0), "open")
        free = [handle for handle in self.waiting if handle.name == name and not handle.closed]
        if not free:
            raise PipeCallFailed(ERROR_FILE_NOT_FOUND, "open")
        there, here = free[0], Handle(name)
        self.waiting.remove(there)
        self.handles.append(here)
        there.partner, here.partner = here, there
        there.connected.set()
        return here

    def transport(self, handle: Handle, protocol: asyncio.BufferedProtocol) -> asyncio.Transport:
        return Transport(handle, protocol)

    def server_pid(self, handle: Handle) -> int:
        return SERVER

    def client_pid(self, handle: Handle) -> int:
        return self.client

    def user_of(self, pid: int) -> str | None:
        return self.users.get(pid)

    def own_user(self) -> str:
        return ME

    def close(self, handle: Handle) -> None:
        handle.closed = True


async def echo(stream: ByteStream) -> None:
    async for data in stream:
        await stream.send(data)


async def dial(pipes: FakePipes, address: str, expected: int | None = SERVER) -> ByteStream:
    return await connect_pipe(pipes, address, timeout=5.0, expected_pid=expected)


async def test_each_instance_is_recreated_and_only_one_is_the_first() -> None:
    pipes = FakePipes()
    listener = PipeListener(pipes)
    assert listener.address.startswith("pipe:\\\\.\\pipe\\modeld-")
    assert listener.intact()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        for _ in range(3):
            async with await dial(pipes, listener.address) as stream:
                await stream.send(b"hello")
                assert await stream.receive() == b"hello"
        assert await listener.rebind() == listener.address
        listener.close()
    assert not listener.intact()
    assert [first for _, first in pipes.created] == [True] + [False] * (len(pipes.created) - 1)
    assert {f"pipe:{name}" for name, _ in pipes.created} == {listener.address}
    assert all(handle.closed for handle in pipes.handles)


async def test_there_is_always_an_instance_to_dial() -> None:
    pipes = FakePipes()
    listener = PipeListener(pipes)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        await anyio.wait_all_tasks_blocked()
        first = await dial(pipes, listener.address)
        second = await dial(pipes, listener.address)  # no turn of the loop between the two
        await first.aclose()
        await second.aclose()
        listener.close()


def test_names_are_never_the_same() -> None:
    assert len({PipeListener(FakePipes()).address for _ in range(20)}) == 20


async def test_a_name_that_is_taken_is_typed() -> None:
    pipes = FakePipes()
    pipes.create_error = ERROR_ACCESS_DENIED
    with pytest.raises(EndpointError):
        PipeListener(pipes)


@pytest.mark.parametrize(("user", "let_in"), [(ME, True), (OTHER, False), (None, True)])
async def test_the_clients_user_is_checked_before_the_handler_runs(user: str | None, let_in: bool) -> None:
    pipes = FakePipes()
    pipes.users[CLIENT] = user
    handled: list[int] = []

    async def handler(stream: ByteStream) -> None:
        handled.append(stream.peer_pid)  # type: ignore[attr-defined]

    listener = PipeListener(pipes)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handler)
        stream = await dial(pipes, listener.address)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
        listener.close()
    assert handled == ([CLIENT] if let_in else [])
    assert all(handle.closed for handle in pipes.handles)


async def test_a_client_gone_before_it_was_accepted_costs_nothing() -> None:
    pipes = FakePipes()
    listener = PipeListener(pipes)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        await anyio.wait_all_tasks_blocked()
        gone = pipes.waiting.pop(0)
        gone.fail = 232
        gone.connected.set()
        async with await dial(pipes, listener.address) as stream:
            await stream.send(b"x")
            assert await stream.receive() == b"x"
        listener.close()
    assert gone.closed


@pytest.mark.parametrize(
    ("server_user", "expected", "allowed"),
    [
        (ME, SERVER, True),
        (ME, None, True),
        (ME, SERVER + 1, False),
        (OTHER, SERVER, False),
        (OTHER, None, False),
        (None, SERVER, True),
        (None, None, False),
    ],
)
async def test_the_server_is_checked_before_a_byte_is_sent(
    server_user: str | None, expected: int | None, allowed: bool
) -> None:
    pipes = FakePipes()
    listener = PipeListener(pipes)
    pipes.users[SERVER] = server_user
    if allowed:
        await (await dial(pipes, listener.address, expected)).aclose()
    else:
        with pytest.raises(EndpointForbidden):
            await dial(pipes, listener.address, expected)
        assert pipes.handles[-1].closed
    listener.close()


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ([ERROR_FILE_NOT_FOUND], NobodyListens),
        ([ERROR_ACCESS_DENIED], EndpointForbidden),
        ([8], EndpointBusy),
        ([ERROR_PIPE_BUSY, ERROR_PIPE_BUSY, ERROR_FILE_NOT_FOUND], NobodyListens),
    ],
)
async def test_what_a_failed_dial_proves(codes: list[int], outcome: type[EndpointError]) -> None:
    pipes = FakePipes()
    listener = PipeListener(pipes)
    pipes.open_errors = codes
    with pytest.raises(outcome):
        await dial(pipes, listener.address)
    listener.close()


async def test_instances_all_taken_means_busy_and_ends_in_time() -> None:
    pipes = FakePipes()
    listener = PipeListener(pipes)
    pipes.open_errors = [ERROR_PIPE_BUSY] * 1000
    with pytest.raises(EndpointBusy):
        await connect_pipe(pipes, listener.address, timeout=0.05, expected_pid=SERVER)
    pipes.open_errors = [ERROR_PIPE_BUSY] * 3
    await (await dial(pipes, listener.address)).aclose()
    listener.close()


async def test_a_server_that_cannot_be_identified_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = FakePipes()
    listener = PipeListener(pipes)

    def fails(handle: Handle) -> int:
        raise PipeCallFailed(6, "invalid handle")

    monkeypatch.setattr(pipes, "server_pid", fails)
    with pytest.raises(EndpointForbidden):
        await dial(pipes, listener.address)
    assert pipes.handles[-1].closed
    listener.close()


def test_the_rights_name_the_user_and_the_system_alone() -> None:
    assert descriptor_for(ME) == f"D:P(A;;GA;;;{ME})(A;;GA;;;SY)"
