"""Descriptors, threads and clients run out on real processes: lease and model survive, and who is refused is told."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream

from modeld_process import Client, Modeld, scripted, write_models
from shared.endpoint.endpoint import connect
from shared.errors import ResourcesExhausted
from shared.lease import files
from shared.paths import DataRoot
from shared.protocol import api
from waiting import LONG, eventually

assert sys.platform != "win32"

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

SHORT = {"pieces": ["x "] * 3, "when": "short"}
TTL = {"MODELD_LEASE_TTL": "1"}
#: Of nobody: root has no limit of threads.
SOMEBODY = 54321


def few_descriptors(root: DataRoot, most: int, **environ: str) -> Modeld:
    modeld = scripted(root, SHORT, environ={**TTL, **environ})
    modeld.prefix = ("sh", "-c", f'ulimit -n {most}; exec "$@"', "sh")
    write_models(root, "a")
    return modeld


def sequence(root: DataRoot) -> tuple[str, int]:
    """Who holds the lease, and how often it was written."""
    sighting = files.sight(root)
    assert sighting is not None
    assert sighting.record is not None
    return sighting.record.instance, sighting.record.sequence


async def renewed(root: DataRoot, times: int = 3) -> None:
    """The same owner has renewed that often from now on."""
    owner, first = sequence(root)
    await eventually(lambda: sequence(root)[1] >= first + times, "the lease is renewed", LONG)
    assert sequence(root)[0] == owner


async def answers(client: Client, generation: int) -> None:
    """A turn of the model that was loaded before."""
    assert (await client.turn("a", "short").end()).generation == generation


@pytest.fixture
async def silent() -> AsyncIterator[list[ByteStream]]:
    """Connections that say nothing; closed at the end."""
    streams: list[ByteStream] = []
    yield streams
    for stream in streams:
        await stream.aclose()


async def dial(modeld: Modeld) -> ByteStream:
    view = modeld.view()
    assert view is not None
    return await connect(view.endpoint, timeout=LONG)


async def told(stream: ByteStream) -> dict[str, Any]:
    """The last that a connection hears before it is closed."""
    data = b""
    with anyio.fail_after(LONG):
        async for part in stream:
            data += part
    error: dict[str, Any] = json.loads(data)["error"]["data"]
    return error


async def test_silent_connections_cost_neither_lease_nor_model(data_root: DataRoot, silent: list[ByteStream]) -> None:
    async with few_descriptors(data_root, 64) as modeld, modeld.client() as client:
        generation = (await client.load("a")).generation
        silent.extend([await dial(modeld) for _ in range(104)])
        await renewed(data_root)
        await answers(client, generation)
        async with modeld.client("Neovim") as late:
            await answers(late, generation)
        assert (await told(silent[0]))["kind"] == "resources_exhausted"


async def test_who_says_no_hello_is_told_and_closed(data_root: DataRoot, silent: list[ByteStream]) -> None:
    async with few_descriptors(data_root, 256, MODELD_HELLO_WAIT="0.3") as modeld, modeld.client() as client:
        silent.extend([await dial(modeld) for _ in range(3)])
        await silent[0].send(b'{"jsonrpc": "2.0", "id": 1, "meth')  # nor does half a word count
        assert [(await told(stream))["kind"] for stream in silent] == ["unauthenticated"] * 3
        assert (await client.status()).clients == 1


async def test_a_client_too_many_is_refused_by_type_and_the_command_line_is_let_in(data_root: DataRoot) -> None:
    async with few_descriptors(data_root, 64) as modeld, AsyncExitStack() as stack:
        first = await stack.enter_async_context(modeld.client())
        generation = (await first.load("a")).generation
        with pytest.raises(BaseExceptionGroup) as refused:
            for number in range(64):
                await stack.enter_async_context(modeld.client(f"editor {number}"))
        (full,) = refused.value.exceptions
        assert isinstance(full, ResourcesExhausted)
        assert full.data["resource"] == "connections"
        async with modeld.client(api.COMMAND_LINE) as command:
            assert (await command.status()).clients == full.data["limit"]
        await renewed(data_root)
        await answers(first, generation)


async def test_two_hundred_slow_clients_hold_nobody_up(data_root: DataRoot, silent: list[ByteStream]) -> None:
    async with few_descriptors(data_root, 1024) as modeld, modeld.client() as client:
        generation = (await client.load("a")).generation
        over = anyio.Event()

        async def trickle(stream: ByteStream) -> None:
            with anyio.CancelScope() as scope:
                tasks.start_soon(_cancel_at, over, scope)
                while True:
                    try:
                        await stream.send(b" ")
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        return  # it had its time
                    await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                stream = await dial(modeld)
                silent.append(stream)
                tasks.start_soon(trickle, stream)
            await renewed(data_root)
            for name in ("Zed", "Neovim"):
                async with modeld.client(name) as another:
                    await answers(another, generation)
            await answers(client, generation)
            over.set()
            tasks.cancel_scope.cancel()


async def _cancel_at(over: anyio.Event, scope: anyio.CancelScope) -> None:
    await over.wait()
    scope.cancel()


# --- threads ------------------------------------------------------------------------------------


def as_user(root: DataRoot) -> tuple[str, ...]:
    """What runs a command as a user with a limit of threads, to whom the data root and all in it belong now."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here, and root has no limit of threads")
    for folder, _, names in os.walk(root.path.parent):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    caps = "-all,+dac_read_search"  # the interpreter may stand in root's home
    ids = (f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups")
    return ("setpriv", *ids, f"--inh-caps={caps}", f"--ambient-caps={caps}", f"--bounding-set={caps}")


@contextmanager
def no_more_threads(modeld: Modeld) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NPROC)
    before = ":".join("unlimited" if one == resource.RLIM_INFINITY else str(one) for one in limits)
    for number in ("1:", before):
        subprocess.run([*modeld.prefix, "prlimit", f"--pid={modeld.pid}", f"--nproc={number}"], check=True)
        if number == "1:":
            yield


@pytest.mark.timeout(120)  # a dozen commands, each a process
async def test_without_threads_the_lease_and_the_model_live_on(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    modeld = scripted(data_root, SHORT, environ=TTL)
    modeld.said.touch()
    modeld.prefix = as_user(data_root)

    async def command(*words: str) -> tuple[int, dict[str, Any]]:
        line = [*modeld.prefix, sys.executable, "-P", "-m", "modeld", *words, "--json"]
        done = await anyio.run_process(line, env=modeld.environ, stdin=subprocess.DEVNULL, check=False)
        answer: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"told": done.stderr.decode()}
        return done.returncode, answer

    async with modeld:
        with no_more_threads(modeld):
            code, answer = await command("load", "a")
            assert (code, "modeld has no threads left" in str(answer)) == (1, True), (code, answer, modeld.reported())
        code, answer = await command("load", "a")
        assert code == 0, answer
        generation = (await command("status"))[1]["generation"]
        with no_more_threads(modeld):
            await renewed(data_root)
            await command("load", "a")  # served, or refused by type: there may be a thread left
            code, answer = await command("status")
            assert (code, answer["role"], answer["state"]) == (0, "owner", "Ready")
        code, answer = await command("load", "a")
        assert code == 0, answer
        assert (await command("status"))[1]["generation"] == generation
        subprocess.run([*modeld.prefix, "prlimit", f"--pid={modeld.pid}", "--nproc=1:"], check=True)
        # and it ends in order all the same, which leaving this block sees
