"""Commands that are reported to people work where they are shown."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.backends import BACKENDS
from shared.diagnosis import remedy

pytestmark = pytest.mark.unit


def has(*packages: str) -> Callable[[str], bool]:
    return lambda package: package in packages


def test_by_name_where_the_name_finds_this_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, elsewhere, linked = tmp_path / "ours", tmp_path / "elsewhere", tmp_path / "linked"
    for folder in (ours, elsewhere, linked):
        folder.mkdir()
    name = "modeld.exe" if os.name == "nt" else "modeld"
    for folder in (ours, elsewhere):
        (folder / name).write_text("")
        (folder / name).chmod(0o755)
    (linked / name).symlink_to(ours / name)
    monkeypatch.setattr(sys, "executable", str(ours / "python"))
    assert remedy.called("modeld", str(ours)) == "modeld"
    assert remedy.called("modeld", str(linked)) == "modeld", "as pipx and uv put it on PATH"
    assert remedy.called("modeld", str(elsewhere)) == str(ours / name), "another installation is not this one"
    assert remedy.called("modeld", str(tmp_path)) == str(ours / name)
    assert remedy.called("acp-bridge", str(ours)) == "acp-bridge"


def test_a_path_with_spaces_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my tools"
    folder.mkdir()
    (folder / "modeld").write_text("")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    if os.name != "nt":
        assert remedy.called("modeld", "") == f"'{folder / 'modeld'}'"


def test_pip_where_pip_installed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    pip = tmp_path / "bin" / "pip"
    pip.write_text("")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert remedy.install_command("openvino", prefix=tmp_path, has=has("pip")) == "pip install 'modeld[openvino]'"
    monkeypatch.setenv("PATH", "")
    reported = remedy.install_command("openvino", prefix=tmp_path, has=has("pip"))
    assert reported == f"{sys.executable} -m pip install 'modeld[openvino]'"


def test_uv_where_the_environment_has_no_pip(tmp_path: Path) -> None:
    reported = remedy.install_command("mcp", prefix=tmp_path, has=has())
    assert reported == f"uv pip install --python {sys.executable} 'modeld[mcp]'"


@pytest.mark.parametrize(
    ("sign", "tool"), [("uv-receipt.toml", "uv tool install"), ("pipx_metadata.json", "pipx install --force")]
)
def test_the_tool_that_made_the_environment_keeps_what_is_there(tmp_path: Path, sign: str, tool: str) -> None:
    (tmp_path / sign).write_text("")
    assert remedy.install_command("openvino", prefix=tmp_path, has=has()) == f"{tool} 'modeld[openvino]'"
    both = remedy.install_command("mcp", prefix=tmp_path, has=has("openvino_genai", "httpx2"))
    assert both == f"{tool} 'modeld[mcp,openvino,remote]'"


def test_nothing_is_added_to_what_uvx_throws_away(tmp_path: Path) -> None:
    reported = remedy.install_command("openvino", prefix=tmp_path / "archive-v0" / "x1", has=has())
    assert reported == "uv tool install 'modeld[openvino]'"


def test_every_extra_that_is_reported_can_be_installed() -> None:
    project = Path(__file__).resolve().parents[3] / "pyproject.toml"
    extras = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {*BACKENDS} < {*remedy.EXTRAS} < {*extras}
