"""A file is written where it was when the person was asked, on Windows: folders held."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from acp_bridge.conversations.face import Command, ToolFailed
from acp_bridge.process.child_process import on_path
from acp_bridge.tools.command_tool import environment
from acp_bridge.tools.consent.protected_places import reason_to_ask
from acp_bridge.tools.parent_folder_windows import parent_folder
from acp_bridge.tools.paths import locate
from acp_bridge.tools.workspace import write_text

assert sys.platform == "win32"

pytestmark = pytest.mark.integration


@pytest.fixture
def root(short_tmp: Path) -> Path:
    (short_tmp / "outside").mkdir()
    (short_tmp / "root" / "src").mkdir(parents=True)
    (short_tmp / "root" / "src" / "a.py").write_text("old")
    return Path(os.path.realpath(short_tmp / "root"))


@pytest.mark.parametrize("path", ["src/a.py", "src/new.py", "new/more/new.py", "SRC/A.py"])
def test_what_did_not_move_is_written(root: Path, path: str) -> None:
    write_text(locate(path, [str(root)]), "new")
    assert (root / path).read_text() == "new"
    assert not list(root.rglob("*.part"))


def test_another_folder_in_its_place_is_refused(root: Path) -> None:
    place = locate("src/a.py", [str(root)])
    root.rename(root.with_name("moved"))
    (root / "src").mkdir(parents=True)
    with pytest.raises(ToolFailed, match="was replaced after it was checked"):
        write_text(place, "new")
    assert os.listdir(root / "src") == []


def test_a_folder_that_is_held_cannot_be_moved_away(root: Path) -> None:
    with parent_folder(locate("src/a.py", [str(root)])):
        with pytest.raises(OSError):
            (root / "src").rename(root / "moved")
        with pytest.raises(OSError):
            root.rename(root.with_name("moved"))
    (root / "src").rename(root / "moved")


@pytest.mark.parametrize(
    "path", [r".git\config", r".GIT\hooks\x", ".envrc.", r"src\..\.vscode\tasks.json", ".envrc::$DATA"]
)
def test_spellings_of_windows_ask(root: Path, path: str) -> None:
    assert reason_to_ask(path, root / path, [str(root)])
    assert not reason_to_ask(r"src\a.py", root / "src" / "a.py", [str(root)])


def test_a_program_in_the_current_folder_is_not_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "git.bat").write_text("echo evil")
    (root / "bin").mkdir()
    (root / "bin" / "tool.BAT").write_text("echo good")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", str(root / "bin") + os.pathsep + ".")
    assert on_path("git", None) is None
    found = on_path("tool", None)
    assert found is not None
    assert os.path.samefile(found, root / "bin" / "tool.BAT")


def test_keys_are_withheld_whatever_their_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_KEY", "marked")
    given = environment(
        Command(program="x", arguments=[], cwd=".", output_limit=1, withheld=frozenset({"Cluster_Key"}))
    )
    assert "marked" not in given.values()
    assert given["NoDefaultCurrentDirectoryInExePath"] == "1"
