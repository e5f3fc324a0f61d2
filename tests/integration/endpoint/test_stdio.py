"""The editor's pipes, with real processes: stdout stays pure, nothing blocks, nothing hangs at the end."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import anyio
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

ROOT = Path(__file__).resolve().parents[3]
MIB = 1024 * 1024

PRELUDE = """
from shared.endpoint.stdio import claim_stdin, claim_stdout, stdio_stream
import sys
early = set(sys.modules)
output = claim_stdout()
"""

AGENT = (
    PRELUDE
    + """
import anyio, ctypes, json, os, subprocess
from shared.protocol.framing import LineFramer
from shared.protocol.peer import Peer
from shared.settings import Settings

ticks = 0

async def answer(call):
    if call.method == "pollute":
        print("from print")
        sys.stdout.write("from sys.stdout"); sys.stdout.flush()
        sys.__stdout__.flush()
        os.write(1, b"from os.write\\n")
        libc = ctypes.CDLL(None)
        libc.puts(b"from a C library")
        libc.printf(b"buffered in C until exit")
        libc.fflush(None)
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        return {"done": True}
    if call.method == "flood":
        for number in range(400):
            call.peer.notify("text", {"text": "x" * 10_000})
        return {}
    if call.method == "child":
        return {"read": subprocess.run(["cat"], capture_output=True).stdout.decode()}
    return {"echo": call.method}

async def tick():
    global ticks
    while True:
        await anyio.sleep(0.01)
        ticks += 1

async def main():
    source = claim_stdin()
    settings = Settings(stalled_seconds=float(os.environ.get("STALL", "10")))
    peer = Peer(stdio_stream(output, source), LineFramer(settings.message_limit), on_request=answer,
                on_notification=lambda note: None, settings=settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await peer.run()
        tasks.cancel_scope.cancel()
    print(f"reason={peer.closed_reason} ticking={ticks > 10}", file=sys.stderr)

anyio.run(main)
print("at exit")
"""
)


async def start(code: str, **environ: str) -> anyio.abc.Process:
    return await anyio.open_process(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, env={**environ, "PATH": "/usr/bin:/bin"}
    )


def call(number: int, method: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method}).encode() + b"\n"


async def read_all(stream: anyio.abc.ByteReceiveStream | None) -> bytes:
    assert stream is not None
    return b"".join([data async for data in stream])


async def finish(process: anyio.abc.Process) -> tuple[bytes, str]:
    """What the process still wrote, and its standard error; it has ended."""
    out: list[bytes] = []
    err: list[bytes] = []

    async def collect(stream: anyio.abc.ByteReceiveStream | None, into: list[bytes]) -> None:
        into.append(await read_all(stream))

    async with process, anyio.create_task_group() as tasks:
        tasks.start_soon(collect, process.stdout, out)
        tasks.start_soon(collect, process.stderr, err)
        await process.wait()
    return out[0], err[0].decode()


async def test_stdout_is_pure_whoever_prints() -> None:
    process = await start(AGENT)
    assert process.stdin is not None
    await process.stdin.send(call(1, "pollute") + call(2, "child") + call(3, "last"))
    lines: list[bytes] = []
    assert process.stdout is not None
    while len(lines) < 3:
        lines += (await process.stdout.receive()).splitlines()
    await process.stdin.aclose()
    rest, err = await finish(process)
    answers = {message["id"]: message["result"] for message in map(json.loads, lines)}
    assert answers == {1: {"done": True}, 2: {"read": ""}, 3: {"echo": "last"}}
    assert rest == b""
    for text in ("print", "sys.stdout", "os.write", "a C library", "buffered in C", "a child"):
        assert text in err
    assert "at exit" in err
    assert "reason=eof" in err
    assert process.returncode == 0


async def test_requests_before_the_end_of_input_are_answered() -> None:
    process = await start(AGENT)
    assert process.stdin is not None
    await process.stdin.send(call(1, "a") + call(2, "b"))
    await process.stdin.aclose()
    out, _ = await finish(process)
    assert [json.loads(line)["result"]["echo"] for line in out.splitlines()] == ["a", "b"]


async def test_a_stalled_editor_blocks_neither_the_loop_nor_the_end() -> None:
    process = await start(AGENT, STALL="0.5")
    assert process.stdin is not None
    assert process.stderr is not None
    await process.stdin.send(call(1, "flood"))  # 4 MB of answers that nobody reads
    err = (await read_all(process.stderr)).decode()
    await process.wait()
    await process.aclose()
    assert "reason=client_stalled" in err
    assert "ticking=True" in err


async def test_a_reader_thread_that_waits_does_not_hold_the_process() -> None:
    process = await start(
        PRELUDE
        + """
import anyio
async def main():
    stream = stdio_stream(output, claim_stdin())
    with anyio.move_on_after(0.05):
        await stream.receive()
    await stream.send(b"still here")
anyio.run(main)
"""
    )
    out, err = await finish(process)  # standard input stays open all the time
    assert (out, err, process.returncode) == (b"still here", "", 0)


@pytest.mark.parametrize("missing", [2, 0])
async def test_a_missing_descriptor_is_survived(missing: int) -> None:
    code = PRELUDE + "import os\nprint('lost')\nos.write(output, b'kept')\n"
    program = f"import os\nos.close({missing})\n" + textwrap.dedent(code)
    process = await anyio.open_process([sys.executable, "-c", program], cwd=ROOT)
    out, err = await finish(process)
    assert out == b"kept"
    assert err == ("" if missing == 2 else "lost\n")


async def test_descriptors_that_the_editor_made_non_blocking_work() -> None:
    process = await start(
        """
import os
os.set_blocking(0, False)
os.set_blocking(1, False)
"""
        + PRELUDE
        + """
import anyio
async def main():
    stream = stdio_stream(output, claim_stdin())
    size = 0
    async for data in stream:
        size += len(data)
    await stream.send(b"y" * 3_000_000)
    await stream.send(str(size).encode())
anyio.run(main)
"""
    )
    assert process.stdin is not None
    for _ in range(3):
        await process.stdin.send(b"x" * MIB)
    await process.stdin.aclose()
    out, err = await finish(process)
    assert (err, out.lstrip(b"y")) == ("", str(3 * MIB).encode())
    assert len(out) == 3_000_000 + len(str(3 * MIB))


async def test_claiming_imports_next_to_nothing() -> None:
    program = (
        "import os, sys; before = set(sys.modules); sys.path.insert(0, '.'); import shared.endpoint.stdio;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            program,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    ours = ["shared", "shared.endpoint", "shared.endpoint.stdio", "shared.system", "shared.system.descriptors"]
    assert done.stdout.strip() == str(["__future__", *ours])
