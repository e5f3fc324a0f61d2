"""How a bridge ends, and what it leaves behind: killed with its group, an editor that dies without closing the pipe,
one that never answers or never reads, and messages of any size. Real processes throughout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from bridge_fakes import Emit, FakeDaemon, result, says
from bridge_world import World, scripted
from clients.bridge import Bridge, BridgeError
from shared.protocol import api
from waiting import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.timeout(90),
    pytest.mark.skipif(sys.platform == "win32", reason="process groups and signals are POSIX"),
]

#: A command that nobody else runs, so that it can be found again; part of it is left behind by its own shell, and part
#: leaves its session, where that can be found.
MARK = "31415.92"
DAEMON = f"setsid -f sleep {MARK}; " if sys.platform == "linux" else ""
SLEEPS = f"{DAEMON}sleep {MARK} & sleep {MARK}"
#: Its shell, both sleeps, the server, and a reaper for each of the two.
STARTED = 7 if DAEMON else 6
STUBBORN = str(Path(__file__).parent / "mcp_stubborn.py")
BRIDGE = (sys.executable, "-m", "acp_bridge", "acp")
IMPATIENT = (
    "import acp_bridge.faces.acp.server as server; server.EDITOR_PATIENCE_S = 0.3\n"
    "import acp_bridge.__main__ as m; m.main()"
)


@pytest.fixture
async def daemon(world: World, tiny: str) -> AsyncIterator[FakeDaemon]:
    """A scripted daemon whose one model is taught tools."""
    world.environ |= {"MODELD_MODEL_FOLDERS": tiny, "MODELD_TEACH_TOOLS_FROM": "0"}
    async with scripted(world) as running:
        running.answers["run/hold"] = api.Value()
        yield running


def calls(daemon: FakeDaemon, name: str, arguments: str) -> None:
    """Every turn makes this call once, then says that it is done."""

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        if params.messages[-1]["role"] == "tool":
            emit(api.TextDelta(text="done"))
            return result(params)
        return result(params, "tool_calls", tool_calls=[api.ToolCall(id="1", name=name, arguments=arguments)])

    daemon.script = script


def marked() -> list[int]:
    """The processes whose command line holds the mark."""
    return [
        process.info["pid"]
        for process in psutil.process_iter(["pid", "cmdline"])
        if any(MARK in part for part in process.info["cmdline"] or ())
    ]


def begin(editor: Bridge, world: World, *servers: dict[str, Any], **capabilities: Any) -> str:
    editor.initialize(**capabilities)
    made = editor.request("session/new", {"cwd": str(world.work), "mcpServers": list(servers)})
    editor.find_model(made, "tiny")
    return str(made["sessionId"])


# --- nothing is left running -----------------------------------------------------------------------


async def run_a_long_command(world: World, daemon: FakeDaemon, end: Callable[[Bridge], None]) -> None:
    """A command and a server that ends for nobody run when `end` is called; then nothing of it may be left."""
    calls(daemon, "run_command", f'{{"command": "{SLEEPS}"}}')
    server = {"name": "stubborn", "command": sys.executable, "args": [STUBBORN, MARK], "env": []}

    def talk() -> None:
        editor = world.bridge(group=True)
        editor.begin_prompt(begin(editor, world, server), "sleep")
        until(lambda: len(marked()) >= STARTED, f"all of them run; there are: {marked()}")
        end(editor)
        until(lambda: not marked(), f"all of them are gone; left: {marked()}")

    await anyio.to_thread.run_sync(talk)


async def test_a_killed_group_leaves_nothing(world: World, daemon: FakeDaemon) -> None:
    def end(editor: Bridge) -> None:
        os.killpg(editor.process.pid, signal.SIGKILL)
        editor.kill()

    await run_a_long_command(world, daemon, end)


async def test_a_killed_bridge_leaves_nothing(world: World, daemon: FakeDaemon) -> None:
    await run_a_long_command(world, daemon, lambda editor: editor.kill())


async def test_end_of_input_leaves_nothing(world: World, daemon: FakeDaemon) -> None:
    def end(editor: Bridge) -> None:
        assert editor.close() == 0

    await run_a_long_command(world, daemon, end)


async def test_sigterm_leaves_nothing(world: World, daemon: FakeDaemon) -> None:
    def end(editor: Bridge) -> None:
        editor.process.terminate()
        assert editor.process.wait(10) == 0
        editor.close()

    await run_a_long_command(world, daemon, end)


# --- an editor that is gone without a word ---------------------------------------------------------

EDITOR = "import subprocess, sys; child = subprocess.Popen(sys.argv[1:]); child.wait()"


@pytest.mark.parametrize("shell", [False, True], ids=["direct", "through a shell"])
def test_a_killed_editor_whose_pipe_another_process_holds(world: World, *, shell: bool) -> None:
    # the test is that other process: it keeps the write end open throughout
    reading, writing = os.pipe()
    command = [*BRIDGE] if not shell else ["/bin/sh", "-c", '"$@"; exit $?', "sh", *BRIDGE]
    editor = subprocess.Popen(
        [sys.executable, "-c", EDITOR, *command],
        stdin=reading,
        stdout=subprocess.PIPE,
        env=world.environ,
        cwd=world.work,
        start_new_session=True,
    )
    os.close(reading)
    try:
        assert editor.stdout is not None
        os.write(writing, b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n')
        assert b'"protocolVersion":1' in editor.stdout.readline()
        (bridge,) = [
            child
            for child in psutil.Process(editor.pid).children(recursive=True)
            if "acp_bridge" in child.cmdline() and "python" in Path(child.cmdline()[0]).name
        ]
        editor.kill()
        editor.wait()
        until(lambda: not bridge.is_running() or bridge.status() == psutil.STATUS_ZOMBIE, "the bridge has ended")
        assert editor.stdout.read() == b"", "and said nothing more"
        editor.stdout.close()
    finally:
        os.close(writing)
        for left in psutil.Process().children(recursive=True):
            left.kill()
        assert editor.stdout is not None
        editor.stdout.close()
        editor.wait()


# --- an editor that does not do its part -----------------------------------------------------------


async def test_an_editor_that_never_answers_can_still_cancel_and_leave(world: World, daemon: FakeDaemon) -> None:
    calls(daemon, "read_file", '{"path": "a.txt"}')
    never = threading.Event()

    def silent(method: str, params: dict[str, Any]) -> dict[str, Any]:
        never.wait()
        raise NotImplementedError

    def talk() -> None:
        with world.bridge(answer=silent) as editor:
            session = begin(editor, world, fs={"readTextFile": True})
            pending = editor.begin_prompt(session, "read it")
            until(lambda: editor.asked, "the editor is asked")
            editor.notify("session/cancel", {"sessionId": session})
            assert editor.end_prompt(pending).stop_reason == "cancelled"
            again = editor.begin_prompt(session, "and again")
            until(lambda: len(editor.asked) == 2, "the editor is asked again")
            assert editor.close() == 0, "an answer that never comes keeps nobody"
            with pytest.raises(BridgeError):
                editor.wait(again)
        never.set()

    await anyio.to_thread.run_sync(talk)


async def test_a_slow_reader_gets_everything_in_order(world: World, daemon: FakeDaemon) -> None:
    words = [f"{number:06} {'x' * 5000} " for number in range(400)]

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        for place, word in enumerate(words):
            emit(api.TextDelta(text=word))
            if place % 20 == 0:
                await daemon.peers[-1].drain()
        return result(params)

    daemon.script = script

    def talk() -> None:
        with world.bridge() as editor:
            session = begin(editor, world)
            editor.pause_reading()
            pending = editor.begin_prompt(session, "talk")
            until(lambda: _unread(editor) > 0, "the pipe fills while nobody reads")
            editor.notify("session/cancel", {"sessionId": "somebody else"})  # it goes on listening meanwhile
            editor.go_on_reading()
            turn = editor.end_prompt(pending)
            assert turn.stop_reason == "end_turn"
            assert turn.text == "".join(words)

    await anyio.to_thread.run_sync(talk)


def _unread(editor: Bridge) -> int:
    import fcntl
    import struct
    import termios

    assert editor.process.stdout is not None
    waiting = fcntl.ioctl(editor.process.stdout.fileno(), termios.FIONREAD, struct.pack("i", 0))
    return int(struct.unpack("i", waiting)[0]) - 60_000


async def test_a_reader_that_never_reads_again_ends_the_bridge(world: World, daemon: FakeDaemon) -> None:
    gone = anyio.Event()

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        try:
            while not cancelled.is_set():
                emit(api.TextDelta(text="x" * 10_000))
                await daemon.peers[-1].drain()
                await anyio.lowlevel.checkpoint()
        finally:
            gone.set()
        return result(params, "cancelled")

    daemon.script = script

    def talk() -> None:
        editor = world.bridge(sys.executable, "-c", IMPATIENT, "acp")
        session = begin(editor, world)
        editor.pause_reading()
        editor.begin_prompt(session, "talk")
        until(lambda: editor.process.poll() is not None, "the bridge has ended by itself")
        editor.go_on_reading()
        editor.close()

    await anyio.to_thread.run_sync(talk)
    with anyio.fail_after(10):
        await gone.wait()


# --- messages of any size --------------------------------------------------------------------------


async def test_a_line_of_sixty_mebibytes_and_one_that_is_too_long(world: World, daemon: FakeDaemon) -> None:
    daemon.script = says("read it all")

    def talk() -> None:
        with world.bridge() as editor:
            session = begin(editor, world)
            turn = editor.prompt(session, "x" * (60 << 20))
            assert (turn.stop_reason, turn.text) == ("end_turn", "read it all")
            editor.request("session/close", {"sessionId": session})
            fresh = begin_again(editor, world)
            refused = editor.begin("session/prompt", {"sessionId": fresh, "prompt": "y" * (65 << 20)})
            assert editor.prompt(fresh, "short").text == "read it all", "the stream stays usable"
            with pytest.raises(BridgeError) as error:
                editor.wait(refused)
            assert error.value.kind == "message_too_large"

    await anyio.to_thread.run_sync(talk)
    assert len(daemon.turns[0].messages[-1]["content"]) == 60 << 20


def begin_again(editor: Bridge, world: World) -> str:
    return str(editor.new_session(world.work)["sessionId"])


# --- nothing of the user's in any log --------------------------------------------------------------


async def test_neither_prompts_nor_files_nor_commands_reach_a_log(world: World, daemon: FakeDaemon) -> None:
    secret = "tulip-4711"
    (world.work / "a.txt").write_text(f"file {secret}\n")
    calls(daemon, "run_command", f'{{"command": "echo out {secret}; cat a.txt; exit 3"}}')

    def talk() -> str:
        with world.bridge() as editor:
            session = begin(editor, world)
            assert "done" in editor.prompt(session, f"prompt {secret}").text
            editor.send_line(f'{{"broken": "{secret}"')
            with pytest.raises(BridgeError):
                editor.request("session/prompt", {"sessionId": session, "prompt": [{"type": secret}]})
        return editor.stderr.read_text()

    errors = await anyio.to_thread.run_sync(talk)
    assert secret not in errors
    holding = [
        path.name
        for path in world.folder.rglob("*")
        if path.is_file() and not path.is_socket() and secret.encode() in path.read_bytes()
    ]
    assert {name.partition("-")[0] for name in holding} <= {"a.txt", "bridge.db"}, "the conversation alone keeps it"
