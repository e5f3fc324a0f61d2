"""The way of a person who has never heard of it: nothing is there, five commands later their editor gets an answer.

An environment as in a fresh container: a HOME with nothing in it, a PATH of the system alone, an empty cache; only the
package index is there. The wheel is what is installed, not this checkout, and into an environment without pip, as uv
makes them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from acp_bridge.install.jsonc import read
from clients.bridge import Bridge
from clients.home import SCHEMA
from clients.npm import node_modules
from clients.schema import WireCheck

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.openvino, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
#: So small a model may talk for minutes.
TURN_TOKENS = "64"
#: Settings that a person who uses Zed already has.
ZED = '// my settings\n{\n  "theme": "One Dark",\n  "vim_mode": true, // of course\n}\n'


class Newcomer:
    """A person with a HOME, and the commands they type, each with how long it took."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.project = folder / "my project"
        for made in (self.home, self.project):
            made.mkdir(mode=0o700)
        self.venv = folder / "venv"
        prefixes = ("PIP_", "UV_", "SSL_", "REQUESTS_")  # how this machine reaches its package index
        kept = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
        own = {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        self.environ = {**own, "MODELD_TURN_TOKENS": TURN_TOKENS, **kept}
        self.took: list[tuple[str, float]] = []

    def types(self, line: str, *, seconds: float = 200.0, code: int = 0) -> str:
        """Run one command line of the README; its output."""
        words = shlex.split(line)
        own = self.venv / "bin" / words[0]
        started = time.monotonic()
        done = subprocess.run(
            [str(own) if own.exists() else words[0], *words[1:]],
            env=self.environ,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        self.took.append((line, time.monotonic() - started))
        assert done.returncode == code, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def newcomer() -> Iterator[Newcomer]:
    folder = Path(tempfile.mkdtemp(prefix="md-"))
    person = Newcomer(folder)
    try:
        yield person
    finally:
        if (person.venv / "bin" / "modeld").exists():
            person.types("modeld stop")
        print("\n".join(f"{seconds:6.1f} s  {line}" for line, seconds in person.took))
        shutil.rmtree(folder, ignore_errors=True)


def test_from_nothing_to_an_answer_in_zed(newcomer: Newcomer) -> None:
    wheels = newcomer.folder / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = wheels.glob("modeld-*.whl")
    settings = newcomer.home / ".config" / "zed" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(ZED)

    newcomer.types(f"{find_uv_bin()} venv --quiet --python {sys.executable} {shlex.quote(str(newcomer.venv))}")
    newcomer.types(f'{find_uv_bin()} pip install --quiet --python {newcomer.venv}/bin/python "{wheel}[openvino]"')
    reported = newcomer.types("modeld pull starter")
    assert f"Next: `{newcomer.venv}/bin/modeld start`" in reported, "its commands are not on PATH here"
    newcomer.types("modeld start")
    newcomer.types("acp-bridge install zed")

    written = read(settings.read_text())
    assert written["theme"] == "One Dark"
    assert "// of course" in settings.read_text()
    turn = replay_zed(newcomer, written["agent_servers"]["modeld"])
    assert turn.stop_reason == turn.ended_by(TURN_TOKENS)
    assert turn.text.strip()
    assert turn.meta["modeld.turn"]["generated"] > 0, "a real model answered"
    assert "1 that can be served" in newcomer.types("acp-bridge doctor")
    newcomer.types("modeld stop")
    newcomer.types("acp-bridge install zed --remove")
    assert settings.read_text() == ZED


def replay_zed(newcomer: Newcomer, entry: dict[str, Any]) -> Any:
    """What Zed does with its settings: a plain shell in the project's root spawns the agent; then a pick, a prompt."""
    assert Path(entry["command"]).is_absolute()
    line = shlex.join([entry["command"], *entry["args"]])
    environ = {"HOME": str(newcomer.home), "PATH": "/usr/bin:/bin", **entry["env"]}
    check = WireCheck(node_modules() / SCHEMA)
    with Bridge(["/bin/sh", "-c", f"exec {line}"], environ, check, cwd=newcomer.project) as zed:
        hello = zed.request(
            "initialize",
            {
                "protocolVersion": 1,
                "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True},
                "clientInfo": {"name": "zed", "title": "Zed", "version": "1.0.0"},
            },
        )
        assert hello["authMethods"]
        session = zed.new_session(newcomer.project)
        zed.choose(session["sessionId"], "model", zed.find_model(session, "smollm2"))
        return zed.prompt(session["sessionId"], "What is the capital of France?")
