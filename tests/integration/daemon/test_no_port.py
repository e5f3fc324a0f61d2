"""No command opens a network port but `acp-bridge http`, and that one on loopback: this machine's web pages and other
users have nothing else to knock at.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from modeld_process import write_models, write_script
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

#: In every process of ours: a socket that is bound to an address of the network, or listens there, is written down.
WATCH = """
import socket, sys
def seen(event, arguments):
    if event in ("socket.bind", "socket.connect") and arguments[0].family != getattr(socket, "AF_UNIX", None):
        with open({log!r}, "a") as log:
            log.write(f"{event} {{arguments[1:]}} in {{sys.argv}}\\n".replace("{{event}}", event))
sys.addaudithook(seen)
"""
COMMANDS = [
    ["modeld", "library"],
    ["modeld", "start", "--backend", "scripted"],
    ["modeld", "status"],
    ["modeld", "load", "a"],
    ["modeld", "doctor"],
    ["acp_bridge", "models"],
    ["acp_bridge", "doctor"],
    ["acp_bridge", "chat", "--model", "a", "hello"],
    ["modeld", "unload"],
    ["modeld", "restart"],
]


def test_no_command_opens_a_port(data_root: DataRoot, tmp_path: Path) -> None:
    write_models(data_root, "a")
    log = tmp_path / "seen"
    log.touch()
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(WATCH.format(log=str(log), event="{event}"))
    environ = {
        **os.environ,
        **write_script(data_root.path, [{"pieces": ["one ", "two"]}]),
        "PYTHONPATH": str(hook),
        "MODELD_TEMPLATE_DEADLINE": "30",
    }
    try:
        probe = [sys.executable, "-c", "import socket; socket.socket().bind(('127.0.0.1', 0))"]
        subprocess.run(probe, env=environ, check=True)
        assert "socket.bind" in log.read_text(), "the watch sees what it should see"
        log.write_text("")
        for words in COMMANDS:
            done = subprocess.run(
                [sys.executable, "-P", "-m", *words], env=environ, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0 or words[1] == "doctor", (words, done.stdout, done.stderr)
            assert ports_of(data_root) == []
        assert log.read_text() == ""
        listens(environ, log)
    finally:
        subprocess.run([sys.executable, "-P", "-m", "modeld", "stop"], env=environ, capture_output=True, check=False)


def listens(environ: dict[str, str], log: Path) -> None:
    """The one command that does: on one port, of the loopback interface, while it runs."""
    command = [sys.executable, "-P", "-m", "acp_bridge", "http", "--json"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["url"].rpartition(":")[2].removesuffix("/v1")
        found = [each.laddr for each in psutil.Process(process.pid).net_connections(kind="inet")]
        process.terminate()
    assert [(each.ip, str(each.port)) for each in found] == [("127.0.0.1", port)]
    assert log.read_text().splitlines()[0].startswith("socket.bind (('127.0.0.1', 0),)"), log.read_text()


def ports_of(root: DataRoot) -> list[str]:
    """Network sockets of every process that lives on this data root, workers included."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("MODELD_DATA_ROOT") == str(root.path):
                found += [f"{process.name()}: {each.laddr}" for each in process.net_connections(kind="inet")]
    return found
