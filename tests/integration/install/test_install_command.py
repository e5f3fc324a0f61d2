"""`acp-bridge install` as a person runs it: in a home folder of its own, on real files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from acp_bridge.install import change
from acp_bridge.install.change import FileChange, Moved
from acp_bridge.install.jsonc import read

pytestmark = pytest.mark.integration

SETTINGS = '// mine\n{\n  "theme": "One Dark", // dark\n}\n'


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "acp_bridge", "install", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def zed(private_home: Path) -> Path:
    file = private_home / ".config" / "zed" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(SETTINGS)
    file.chmod(0o640)
    return file


def test_install_again_and_remove(zed: Path) -> None:
    first = run("zed", MODELD_DATA_ROOT="/data/of mine")
    assert first.returncode == 0, first.stderr
    assert '+    "modeld": {' in first.stdout, "the change is shown"
    entry = read(zed.read_text())["agent_servers"]["modeld"]
    assert Path(entry["command"]).is_absolute()
    assert entry["env"] == {"MODELD_DATA_ROOT": "/data/of mine"}
    assert "// dark" in zed.read_text()
    assert stat.S_IMODE(zed.stat().st_mode) == 0o640
    (backup,) = zed.parent.glob("*.backup")
    assert backup.read_text() == SETTINGS
    assert backup.name in first.stdout

    again = run("zed", MODELD_DATA_ROOT="/data/of mine")
    assert again.stdout.splitlines()[0] == "nothing to change"
    assert len(list(zed.parent.glob("*.backup"))) == 1

    assert run("zed", "--remove").returncode == 0
    assert zed.read_text() == SETTINGS
    assert "nothing to change" in run("zed", "--remove").stdout


def test_dry_run_and_print_change_nothing(zed: Path) -> None:
    dry = run("zed", "--dry-run")
    assert dry.returncode == 0
    assert "+" in dry.stdout
    assert "nothing was changed" in dry.stdout
    printed = run("zed", "--print")
    assert json.loads(printed.stdout)["agent_servers"]["modeld"]["args"] == ["-P", "-m", "acp_bridge", "acp"]
    assert str(zed) in printed.stderr
    assert zed.read_text() == SETTINGS
    assert list(zed.parent.iterdir()) == [zed]


def test_a_link_to_dotfiles_stays_a_link(zed: Path, tmp_path: Path) -> None:
    dotfile = tmp_path / "zed.json"
    dotfile.write_text(SETTINGS)
    zed.unlink()
    zed.symlink_to(dotfile)
    assert run("zed").returncode == 0
    assert zed.is_symlink()
    assert "modeld" in read(dotfile.read_text())["agent_servers"]


def test_broken_settings_are_left_as_they_are(zed: Path) -> None:
    zed.write_text('{ "theme": }')
    done = run("zed")
    assert done.returncode == 1
    assert "line 1" in done.stderr
    assert str(zed) in done.stderr
    assert zed.read_text() == '{ "theme": }'
    zed.write_bytes(b'{ "theme": "\xff" }')
    assert "UTF-8" in run("zed").stderr


def test_an_editor_that_saves_meanwhile_is_not_overwritten(zed: Path) -> None:
    with pytest.raises(Moved):
        change.apply(FileChange(path=zed, before="{}", after='{"a": 1}'))
    assert zed.read_text() == SETTINGS


def test_the_settings_of_every_editor_start_a_bridge(private_home: Path) -> None:
    """What JetBrains' and Zed's files name answers as an editor would ask it, from a folder that shadows modules."""
    project = private_home / "project"
    (project / "shared").mkdir(parents=True)
    (project / "shared" / "__init__.py").write_text("raise SystemExit('the open project shadows us')")
    (project / "anyio.py").write_text("raise SystemExit('the open project shadows us')")
    for editor, name in (("zed", ".config/zed/settings.json"), ("jetbrains", ".jetbrains/acp.json")):
        assert run(editor).returncode == 0
        entry = read((private_home / name).read_text())["agent_servers"]["modeld"]
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        done = subprocess.run(
            [entry["command"], *entry["args"]],
            env={"HOME": str(private_home), "PATH": "/usr/bin:/bin", **entry["env"]},
            cwd=project,
            input=json.dumps(hello) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert json.loads(done.stdout.splitlines()[0])["result"]["protocolVersion"] == 1, done.stderr


def test_no_home_is_said(private_home: Path) -> None:
    done = run("zed", HOME="")
    if done.returncode != 0:
        assert "HOME" in done.stderr
    else:
        pytest.fail("settings must not be written to the root of the disk")


def test_vscode_by_its_own_command(private_home: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = tmp_path / "bin" / "code"
    code.parent.mkdir()
    code.write_text(f'#!/bin/sh\necho "$@" >> "{said}"\n')
    code.chmod(0o755)
    vsix = tmp_path / "modeld.vsix"
    vsix.write_bytes(b"PK")
    path = f"{code.parent}:/usr/bin:/bin"
    done = run("vscode", "--vsix", str(vsix), PATH=path, MODELD_DATA_ROOT="/data")
    assert done.returncode == 0, done.stderr
    assert said.read_text().split() == ["--install-extension", str(vsix), "--force"]
    settings = private_home / ".config" / "Code" / "User" / "settings.json"
    assert Path(read(settings.read_text())["modeld.python"]).is_absolute()
    assert read(settings.read_text())["modeld.environment"] == {"MODELD_DATA_ROOT": "/data"}
    assert run("vscode", "--remove", PATH=path).returncode == 0
    assert "modeld.python" not in read(settings.read_text())
    assert "--uninstall-extension modeld.modeld" in said.read_text()


def test_the_bridges_doctor_writes_a_report_to_show(private_home: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "report.zip"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "acp_bridge", "doctor", "--bundle", str(bundle)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "look through it" in done.stderr, done.stderr
    with zipfile.ZipFile(bundle) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(texts) == {"report.txt", "report.json", "versions.txt"}
    assert "modeld" in texts["report.txt"]
    assert not any(str(private_home) in text for text in texts.values())
