"""`acp-bridge install` as a person runs it: in a home folder of its own, on real files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import anyio.to_thread
import pytest

from acp_bridge.install import change
from acp_bridge.install.change import FileChange, Moved
from acp_bridge.install.jsonc import read
from modeld_process import scripted, write_models
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.anyio]

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


# --- the models over HTTP ----------------------------------------------------------------------


@pytest.fixture
def with_models(data_root: DataRoot) -> DataRoot:
    write_models(data_root, "alpha", "beta")
    (data_root.path / "http").mkdir(mode=0o700)
    (data_root.path / "http" / "service.key").write_text("sk-never-to-be-seen-anywhere")
    return data_root


@pytest.mark.timeout(90)
async def test_zed_gets_the_models_over_http_and_loses_them_byte_for_byte(with_models: DataRoot, zed: Path) -> None:
    async with scripted(with_models):
        done = await anyio.to_thread.run_sync(lambda: run("zed", "--http", "--yes", "--port", "8200"))
        assert done.returncode == 0, done.stderr
        entry = read(zed.read_text())["language_models"]["openai_compatible"]["modeld"]
        assert entry["api_url"] == "http://127.0.0.1:8200/v1"
        assert [one["name"] for one in entry["available_models"]] == ["alpha", "beta"]
        assert entry["available_models"][0]["max_tokens"] == 4096
        assert "MODELD_API_KEY" in done.stdout
        assert "service.key" in done.stdout
        assert "never-to-be-seen" not in done.stdout + zed.read_text()
    back = run("zed", "--http", "--remove", "--yes")
    assert back.returncode == 0, back.stderr
    assert zed.read_text() == SETTINGS


@pytest.mark.timeout(90)
async def test_continue_gets_a_file_of_its_own_and_for_jetbrains_it_says_what_to_type(
    with_models: DataRoot, private_home: Path
) -> None:
    file = private_home / ".continue" / "models" / "modeld.yaml"
    async with scripted(with_models):
        done = await anyio.to_thread.run_sync(lambda: run("continue", "--http", "--yes"))
        assert done.returncode == 0, done.stderr
        text = file.read_text()
        assert 'apiKey: "${{ secrets.MODELD_API_KEY }}"' in text
        assert text.count("provider: ") == 2
        assert 'apiBase: "http://127.0.0.1:8199/v1"' in text
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        shown = await anyio.to_thread.run_sync(lambda: run("jetbrains", "--http", "--yes"))
        assert "Providers & API keys" in shown.stdout
        assert "http://127.0.0.1:8199/v1" in shown.stdout
    assert run("continue", "--http", "--remove", "--yes").returncode == 0
    assert not file.exists()
    file.write_text("name: mine\n")
    refused = run("continue", "--http", "--remove", "--yes")
    assert (refused.returncode, "not written by acp-bridge" in refused.stderr) == (1, True)
    assert file.read_text() == "name: mine\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
@pytest.mark.parametrize(("answer", "changed"), [("y", True), ("n", False), ("", False)])
def test_the_change_is_asked_for_first(zed: Path, data_root: DataRoot, answer: str, changed: bool) -> None:
    added = zed.read_text().replace("}", '  "language_models": { "openai_compatible": { "modeld": {} } }\n}')
    zed.write_text(added)
    ours, theirs = os.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-m", "acp_bridge", "install", "zed", "--http", "--remove"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(ours)
    os.close(theirs)
    assert "Make this change? [y/N]" in done.stdout
    assert (zed.read_text() != added) is changed
    silent = run("zed", "--http", "--remove")
    assert ("nothing to change" in silent.stdout) is changed
    assert ("add --yes" in silent.stderr) is not changed


def test_what_has_no_provider_says_so(data_root: DataRoot) -> None:
    assert "--http is for zed, jetbrains, continue" in run("neovim", "--http", "--remove").stderr
    assert "add --http" in run("continue").stderr
