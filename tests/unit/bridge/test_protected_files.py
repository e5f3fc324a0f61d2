"""Files that make tools run code ask each time, in every mode and spelling; plain files do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.tools.consent import permission
from acp_bridge.tools.consent.grants import EDITS
from acp_bridge.tools.consent.protected import (
    AGENT,
    CI,
    EDITOR,
    ENTERED,
    GIT,
    HOOK,
    LOGIN,
    SHELL,
    TOOL,
    plain_name,
    runs_code,
)
from acp_bridge.tools.edit_tools import EditFile, WriteFile
from acp_bridge.tools.workspace import Workspace
from protected_names import PLAIN, RUNS_CODE, SPELLINGS

pytestmark = [pytest.mark.anyio, pytest.mark.unit]


class NoFace:
    """An editor that offers nothing."""

    client = "tester"
    reads_files = writes_files = runs_terminals = False


def workspace(*roots: Path) -> Workspace:
    face: Any = NoFace()
    return Workspace("c", [str(root) for root in roots], face, 4000)


async def verdict(place: Workspace, path: str, mode: Any = "auto") -> str:
    """With "all edits" allowed for the session already."""
    plan = await WriteFile().plan({"path": path, "content": "x"}, place)
    found = permission.judge(mode, plan, changes=True, allowed={EDITS})
    assert (found == "ask") == (len(permission.question("c", plan, {}).answers) == 2), (
        "what asks each time has no always"
    )
    assert (found == "ask") == ("run" in plan.title.partition(" (")[2] or "start" in plan.title.partition(" (")[2])
    return found


@pytest.mark.parametrize("mode", ["code", "auto"])
@pytest.mark.parametrize("path", RUNS_CODE)
async def test_a_file_that_runs_code_asks_in_every_mode(tmp_path: Path, path: str, mode: str) -> None:
    assert await verdict(workspace(tmp_path), path, mode) == "ask"


@pytest.mark.parametrize("path", SPELLINGS)
def test_every_spelling_of_it_asks(path: str) -> None:
    assert runs_code(path.split("/"))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a/.git/config", GIT),
        ("x/HEAD", GIT),
        ("HEAD/x", ""),
        (".idea/x", EDITOR),
        ("x.code-workspace", EDITOR),
        (".claude/x", AGENT),
        (".envrc.local", ENTERED),
        ("lefthook.yml", HOOK),
        (".github/workflows/x", CI),
        ("workflows/.github/x", ""),
        ("github/workflows/x", ""),
        (".github/x/workflows", ""),
        ("Start Menu/Programs/x", LOGIN),
        (".npmrc", TOOL),
        ("a.pth", SHELL),
        ("VSCODE~1/x", EDITOR),
        ("LEFTHO~1.YML", HOOK),
        ("JENKIN~1", CI),
        ("NVIM~1.LUA", EDITOR),
        ("JENKINS~1", ""),
        ("VS12AB~1", EDITOR),
        ("ZZ12AB~1", ""),
        ("VS12AG~1", ""),
        ("X~1.COD", EDITOR),
        ("X~1.SUB", EDITOR),
        ("X~123456.COD", EDITOR),
        ("X~1234567.COD", ""),
        ("X~1.PS1", SHELL),
        ("X~1.TXT", ""),
        ("X~1", ""),
        ("", ""),
    ],
)
def test_the_reason_is_of_the_name_that_runs_code(path: str, why: str) -> None:
    assert runs_code(path.split("/")) == why


def test_nothing_is_no_file_that_runs_code() -> None:
    assert runs_code([]) == ""


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Plain.TXT", "plain.txt"),
        ("name. . .", "name"),
        ("name:stream", "name"),
        ("a.:b", "a"),
        (":b", ""),
        ("ｇｉｔ", "git"),
        ("g\u200ci\u0301\u0000t\u20dd", "gít"),
        ("STRASSE ß", "strasse ss"),
        (" lead", " lead"),
    ],
)
def test_spellings_come_down_to_one(name: str, plain: str) -> None:
    assert plain_name(name) == plain


@pytest.mark.parametrize("path", PLAIN)
async def test_a_plain_file_is_written_unasked(tmp_path: Path, path: str) -> None:
    assert await verdict(workspace(tmp_path), path) == "allow"


async def test_the_question_names_what_the_file_does(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("a")
    plan = await EditFile().plan({"path": ".git/config", "old": "a", "new": "b"}, workspace(tmp_path))
    assert permission.question("c", plan, {}).title == "Edit .git/config (git, which can run programs)"


@pytest.mark.parametrize("path", ["sub/../.git/config", "./.vscode/tasks.json", "x/./../.envrc"])
async def test_a_way_round_asks(tmp_path: Path, path: str) -> None:
    assert await verdict(workspace(tmp_path), path) == "ask"


@given(
    name=st.sampled_from([name for name in RUNS_CODE if name.isascii()]),
    upper=st.lists(st.booleans(), min_size=60, max_size=60),
    joiner=st.sampled_from(["", "\u200b", "\u200c", "\u200d", "\ufeff", "\u00ad", "\u2060", "\ufe0f", "\u202e"]),
    place=st.integers(0, 30),
    end=st.sampled_from(["", ".", " ", "...", ". .", "::$DATA", ":x", ":x:$DATA"]),
    before=st.sampled_from([(), ("src",), ("a", "b.c")]),
)
def test_no_mix_of_spellings_gets_by(
    name: str, upper: list[bool], joiner: str, place: int, end: str, before: tuple[str, ...]
) -> None:
    spelled = "".join(letter.upper() if up else letter for letter, up in zip(name, upper, strict=False))
    spelled = spelled[:place] + joiner + spelled[place:]
    parts = spelled.split("/")
    parts[-1] += end
    assert runs_code([*before, *parts])


async def test_links_are_seen_from_both_ends(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "settings").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "check.sh").write_text("")
    (tmp_path / "scripts" / "other.sh").write_text("")
    (tmp_path / "shared.env").write_text("")
    (tmp_path / "way").symlink_to(".git")
    (tmp_path / ".vscode").symlink_to("settings")
    (tmp_path / ".git" / "hooks" / "pre-commit").symlink_to("../../scripts/check.sh")
    os.link(tmp_path / "shared.env", tmp_path / ".envrc")
    place = workspace(tmp_path)
    for path in ("way/config", ".vscode/tasks.json", "settings/tasks.json", "scripts/check.sh", "shared.env"):
        assert await verdict(place, path) == "ask", path
    for path in ("scripts/other.sh", "settings.json"):
        assert await verdict(place, path) == "allow", path


@pytest.mark.skipif(sys.platform == "win32", reason="it makes a pipe, too")
async def test_the_folders_that_git_names_ask(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "a")], check=True)
    subprocess.run(["git", "-C", str(tmp_path / "a"), "config", "core.hooksPath", "tools/run"], check=True)
    (tmp_path / "b" / "data").mkdir(parents=True)
    (tmp_path / "b" / ".git").write_text("gitdir: data\n")
    for path in ("tools/run/pre-commit", "tools/run/post-merge"):
        assert await verdict(workspace(tmp_path / "a"), path) == "ask"
    assert await verdict(workspace(tmp_path / "a"), "tools/x") == "allow"
    (tmp_path / "a" / ".git" / "config").write_text('[core]hooksPath = "tools/run" ; ours\n')
    assert await verdict(workspace(tmp_path / "a"), "tools/run/pre-commit") == "ask", "on the line of its section"
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / ".git")
    assert await verdict(workspace(tmp_path / "c"), "x.py") == "allow", "a pipe is not waited for"
    (tmp_path / "a" / "part" / "run").mkdir(parents=True)
    subprocess.run(["git", "-C", str(tmp_path / "a"), "config", "core.hooksPath", "part/run"], check=True)
    assert await verdict(workspace(tmp_path / "a" / "part"), "run/pre-commit") == "ask", "the repository begins above"
    assert await verdict(workspace(tmp_path / "a" / "part"), "other/pre-commit") == "allow"
    assert await verdict(workspace(tmp_path / "b"), "data/config") == "ask"
    assert await verdict(workspace(tmp_path / "b"), "other/config") == "allow"


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
async def test_git_folders_and_files_that_lead_elsewhere_ask_there(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for folder in ("run", "ci", ".github"):
        (tmp_path / folder).mkdir()
    shutil.rmtree(tmp_path / ".git" / "hooks")
    (tmp_path / ".git" / "hooks").symlink_to("../run")
    (tmp_path / ".github" / "workflows").symlink_to("../ci")
    os.link(tmp_path / ".git" / "config", tmp_path / "notes.txt")
    (tmp_path / "head.txt").write_text((tmp_path / ".git" / "description").read_text())
    (tmp_path / ".git" / "description").unlink()
    (tmp_path / ".git" / "description").symlink_to("../head.txt")
    place = workspace(tmp_path)
    for path in ("run/pre-commit", "ci/x.yml", "notes.txt", "head.txt"):
        assert await verdict(place, path) == "ask", path
    assert await verdict(place, "other/pre-commit") == "allow"


async def test_files_that_settings_of_git_name_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (home / ".gitconfig").write_text("[core]\n\thooksPath = mine # each project's\n")
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    for key, value in (
        ("include.path", "../tools/settings"),
        ("core.fsmonitor", "./tools/watch.sh"),
        ("filter.x.clean", 'python "tools/clean up.py" %f'),
        ("diff.x.textconv", "!sh tools/show.sh"),
    ):
        subprocess.run(["git", "-C", str(work), "config", key, value], check=True)
    (work / "tools").mkdir()
    (work / "tools" / "settings").write_text("[core]hooksPath=tools/run;ours\n[include]\npath = settings\n")
    place = workspace(work)
    named = ("tools/settings", "tools/watch.sh", "tools/show.sh", "tools/run/pre-commit", "mine/pre-push")
    for path in named:
        assert await verdict(place, path) == "ask", path
    for path in ("tools/other.sh", "tools/x/pre-commit"):
        assert await verdict(place, path) == "allow", path


async def test_settings_of_git_that_include_each_other_are_read_once_each(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    circle = "path = config\npath = other\n" * 20
    (tmp_path / ".git" / "config").write_text(f"[include]\n{circle}")
    (tmp_path / ".git" / "other").write_text(f"[include]\n{circle}[core]\n\thooksPath = to\\\nols\r\n")
    assert await verdict(workspace(tmp_path), "tools/pre-commit") == "ask"
    assert await verdict(workspace(tmp_path), "app.py") == "allow"


async def test_a_repository_asks_whatever_its_folder_is_called(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "sub" / "data")], check=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "HEAD").write_text("a file of this name alone")
    for path in ("sub/data/config", "sub/data/hooks/update"):
        assert await verdict(workspace(tmp_path), path) == "ask", path
    for path in ("sub/config", "docs/config"):
        assert await verdict(workspace(tmp_path), path) == "allow", path


async def test_a_folder_of_programs_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    place = workspace(tmp_path)
    assert await verdict(place, "venv/bin/git") == "ask"
    assert await verdict(place, "venv/lib/x.py") == "allow"


async def test_a_workspace_inside_such_a_folder_asks_and_a_checkout_below_one_does_not(tmp_path: Path) -> None:
    for folder in (".git/hooks", ".vscode", ".github/workflows", ".claude/worktrees/one"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in (".git/hooks", ".vscode", ".github/workflows"):
        assert await verdict(workspace(tmp_path / folder), "x") == "ask", folder
    assert await verdict(workspace(tmp_path / ".claude/worktrees/one"), "x.py") == "allow"
    outer = workspace(tmp_path / ".claude/worktrees/one", tmp_path)
    assert await verdict(outer, str(tmp_path / ".vscode" / "x")) == "ask", "a second root"


@pytest.mark.skipif(sys.platform == "win32", reason="the bit is POSIX's")
async def test_what_is_asked_for_is_asked_for_once_each(tmp_path: Path) -> None:
    """There is no grant: the second edit of the same file asks again."""
    plan = await WriteFile().plan({"path": ".envrc", "content": "x"}, workspace(tmp_path))
    assert plan.grant is None
