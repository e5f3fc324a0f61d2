"""The bridge of an LSP editor as a process: its start, its pipes, its signals, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from clients.editor import LspError
from lsp_world import World

pytestmark = pytest.mark.integration

#: What may not be in memory when initialize is answered: it is imported behind the answer.
LATER = ["acp_bridge.core.core", "acp_bridge.conversations.store", "acp_bridge.models.inventory",
         "shared.catalog.library", "sqlite3", "httpx2", "mcp", "psutil", "acp_bridge.faces.acp.server",
         "jsonrpcclient"]  # fmt: skip

PROBE = """
import json, os, sys
from shared.protocol.stream import Sender
answered = Sender.put
def after(self, *arguments, **more):
    answered(self, *arguments, **more)
    if not os.path.exists(os.environ["MODULES_FILE"]):
        with open(os.environ["MODULES_FILE"], "w") as file:
            json.dump(sorted(sys.modules), file)
Sender.put = after
sys.argv = ["acp-bridge", "lsp"]
import acp_bridge.__main__ as bridge
bridge.main()
"""

NOISY = """
import atexit, os, subprocess, sys
sys.argv = ["acp-bridge", "lsp"]
import acp_bridge.app as app
serve = app.serve_lsp
def noisy(source, output):
    print("a stray print")
    os.write(1, b"a stray write\\n")
    subprocess.run([sys.executable, "-c", "print('a chatty child')"], check=True)
    import logging
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
    logging.getLogger("asyncio").warning("a log line")
    return serve(source, output)
app.serve_lsp = noisy
atexit.register(print, "a last print")
import acp_bridge.__main__ as bridge
bridge.main()
"""

#: An editor that starts a bridge, hands the pipe to another process too, and is killed.
KILLED_EDITOR = """
import json, os, subprocess, sys, time
command = [sys.executable, "-m", "acp_bridge", "lsp"]
bridge = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
params = {"processId": os.getpid(), "capabilities": {}}
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
bridge.stdin.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
bridge.stdin.flush()
bridge.stdout.readline()
keeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[bridge.stdin.fileno()])
print(json.dumps([bridge.pid, keeper.pid]), file=sys.stderr, flush=True)
time.sleep(60)
"""


def test_initialize_is_answered_before_the_core_is_imported(world: World) -> None:
    file = world.folder / "modules.json"
    with world.window_of([sys.executable, "-c", PROBE], MODULES_FILE=str(file)) as editor:
        editor.initialize()
        loaded = set(json.loads(file.read_text()))
    assert not [name for name in LATER if name in loaded]
    assert "pygls.lsp.server" in loaded


def test_what_prints_goes_to_standard_error(world: World) -> None:
    with world.window_of([sys.executable, "-c", NOISY]) as editor:
        editor.initialize()
        assert editor.request("modeld/status")["service"]
    said = editor.errors()
    for line in ("a stray print", "a stray write", "a chatty child", "a last print"):
        assert line in said


def test_no_message_is_ever_in_a_log(world: World) -> None:
    secret = "a-secret-sentence-of-the-user"
    editor = world.window()
    try:
        editor.initialize()
        messages = [{"role": "user", "content": secret}]
        for params in ({"messages": messages}, {"messages": messages, "options": secret}, {"messages": secret}):
            with pytest.raises(LspError):
                editor.request("modeld/turn", params)
        editor.open("file:///x.py", secret)
        editor.notify("textDocument/didChange", {"textDocument": {"uri": secret}, "contentChanges": secret})
        change = {
            "textDocument": {"uri": "file:///never-opened.py", "version": 2},
            "contentChanges": [{"text": secret}],
        }
        editor.notify("textDocument/didChange", change)
        editor.request("modeld/status")
    finally:
        assert editor.close() == 0
    said = editor.errors()
    assert "in textDocument/didChange" in said, "a broken notification leaves a line, without its content"
    assert secret not in said
    logs = world.root.logs
    assert not logs.exists() or all(secret not in log.read_text() for log in logs.iterdir())


def test_shutdown_and_exit_end_it_with_0(world: World) -> None:
    editor = world.window()
    editor.initialize()
    editor.request("shutdown")
    editor.notify("exit", None)
    assert editor.wait_end() == 0


def test_exit_without_shutdown_is_1(world: World) -> None:
    editor = world.window()
    editor.initialize()
    editor.notify("exit", None)
    assert editor.wait_end() == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(world: World, number: int) -> None:
    editor = world.window()
    editor.initialize()
    editor.request("modeld/status")
    editor.process.send_signal(number)
    assert editor.wait_end() == 0
    assert "Traceback" not in editor.errors()


def test_the_end_of_input_ends_it_before_and_after_initialize(world: World) -> None:
    assert world.window().close() == 0
    editor = world.window()
    editor.begin("initialize", {"capabilities": {}})
    assert editor.close() == 0
    editor = world.window()
    editor.initialize()
    editor.begin("modeld/library", {"refresh": True})
    assert editor.close() == 0


def test_an_editor_that_stops_reading_does_not_keep_it(world: World) -> None:
    editor = world.window()
    editor.initialize()
    editor.process.send_signal(signal.SIGSTOP if sys.platform != "win32" else signal.SIGTERM)
    editor.process.send_signal(signal.SIGCONT if sys.platform != "win32" else signal.SIGTERM)
    for _ in range(50):
        editor.begin("modeld/models", {})
    assert editor.close() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="the pipe is handed on with pass_fds")
def test_the_death_of_the_editor_is_noticed_though_its_pipe_stays_open(world: World) -> None:
    editor = subprocess.Popen(
        [sys.executable, "-c", KILLED_EDITOR],
        env=world.environ,
        cwd=world.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert editor.stderr is not None
        bridge, keeper = json.loads(editor.stderr.readline())
        process = psutil.Process(bridge)
        editor.kill()
        assert psutil.wait_procs([process], timeout=10)[1] == []
    finally:
        editor.kill()
        editor.wait()
        os.kill(keeper, signal.SIGKILL)
        if editor.stderr is not None:
            editor.stderr.close()


def test_a_process_id_of_another_namespace_ends_nothing(world: World) -> None:
    with world.window() as editor:
        editor.initialize(pid=2**22 - 1)  # nobody here
        assert editor.request("modeld/status")["service"]
        assert editor.request("modeld/status")["service"]


def test_the_command_line_names_it() -> None:
    said = subprocess.run([sys.executable, "-m", "acp_bridge", "--help"], capture_output=True, text=True, check=True)
    assert "lsp" in said.stdout


def test_the_acp_face_never_loads_pygls(world: World) -> None:
    probe = (
        "import sys, acp_bridge.app, acp_bridge.core.core, acp_bridge.faces.acp.server\n"
        "print([name for name in ('pygls', 'lsprotocol', 'attrs', 'cattrs') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", probe], env=world.environ, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_it_answers_while_the_first_look_at_everything_is_going_on(world: World) -> None:
    with world.window() as editor:
        first = editor.begin("initialize", {"capabilities": {}, "processId": None})
        early = editor.begin("modeld/status", {})
        models = editor.begin("modeld/models", {"wait": False})
        assert editor.wait(first)["serverInfo"]["name"] == "modeld"
        assert editor.wait(early)["service"] in ("not_running", "looking")
        assert editor.wait(models)["models"] == []


def test_a_setting_that_cannot_be_used_is_reported_to_the_editor(world: World) -> None:
    with world.window(MODELD_LEASE_TTL="soon") as editor:
        editor.initialize()
        (notice,) = editor.until(lambda: editor.tell("modeld/notice"), "the notice")
        assert "MODELD_LEASE_TTL" in notice["text"]
        assert editor.request("modeld/models")["models"] == [], "and the rest goes on"


def test_open_after_close(world: World) -> None:
    """A window reload: the old bridge ends, the new one starts, at the same time."""
    old = world.window()
    old.initialize()
    with world.window() as new:
        new.initialize()
        assert old.close() == 0
        assert new.request("modeld/status")["service"]
