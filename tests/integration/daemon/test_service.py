"""`modeld service` with a stand-in for systemctl, and readiness as systemd learns it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from modeld.service import files
from modeld_process import Modeld, write_script
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(60)]


def run(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "modeld", "service", *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
def test_install_status_and_remove(data_root: DataRoot, private_home: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    tool = tmp_path / "bin" / "systemctl"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$@" >> "{said}"\n')
    tool.chmod(0o755)
    path = f"{tool.parent}:/usr/bin:/bin"
    unit = private_home / ".config" / "systemd" / "user" / "modeld.service"

    assert "no service is installed" in run("status", path=path).stdout
    for _ in range(2):
        done = run("install", path=path)
        assert done.returncode == 0, done.stderr
    assert said.read_text().splitlines() == ["--user daemon-reload", "--user enable --now modeld.service"] * 2
    assert f"MODELD_DATA_ROOT={data_root.path}" in unit.read_text()
    status = json.loads(run("status", "--json", path=path).stdout)
    assert (status["installed"], status["current"], status["active"]) == (True, True, True)
    assert run("install", "--print", path=path).stdout == unit.read_text()
    unit.write_text(unit.read_text().replace("-P -m modeld", "-m modeld"))
    assert "rewrites it" in run("status", path=path).stdout
    face = unit.with_name("modeld-http.service")
    assert run("install", "--http", "--port", "8200", path=path).returncode == 0
    assert said.read_text().splitlines()[-1] == "--user enable --now modeld-http.service"
    assert "--port 8200 --key-file" in face.read_text()
    assert run("remove", "--http", path=path).returncode == 0
    assert (face.exists(), unit.exists()) == (False, True)
    assert run("remove", path=path).returncode == 0
    assert not unit.exists()
    assert "no service is installed" in run("remove", path=path).stdout


def test_systemd_verifies_it(tmp_path: Path) -> None:
    """The tool reads the file as systemd would; the interpreter must exist for it."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("NOT PROVEN HERE: no systemd-analyze")
    unit = tmp_path / "modeld.service"

    def verified() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tool, "--user", "verify", str(unit)],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    words = [sys.executable, "-P", "-m", "modeld", "serve", 'a "b"', "50%", "$HOME", ""]
    text = files.systemd_unit(words, {"MODELD_DATA_ROOT": "/data/of mine"})
    text = text.replace("Documentation=man:modeld(1)\n", "")
    unit.write_text(text)
    done = verified()
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if "modeld.service" in line]
    assert not complaints, complaints
    unit.write_text(text.replace("Type=notify", "Type=nonsense"))
    done = verified()
    assert "nonsense" in done.stdout + done.stderr, "the tool does look"


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
def test_without_a_manager_the_file_is_written_and_the_rest_is_said(data_root: DataRoot, private_home: Path) -> None:
    done = run("install", path="")
    assert done.returncode == 1
    assert "systemctl is not on this machine" in done.stderr
    assert "systemctl --user enable --now modeld.service" in done.stderr
    assert (private_home / ".config" / "systemd" / "user" / "modeld.service").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a socket of Unix")
async def test_systemd_is_informed_once_the_socket_listens(data_root: DataRoot) -> None:
    address = data_root.path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        listener.settimeout(30.0)
        async with Modeld(data_root, "scripted", NOTIFY_SOCKET=str(address), **write_script(data_root.path)) as running:
            assert await anyio.to_thread.run_sync(listener.recv, 100) == b"READY=1"
            assert running.view() is not None, "whoever was informed can dial"
        assert await anyio.to_thread.run_sync(listener.recv, 100) == b"STOPPING=1"
