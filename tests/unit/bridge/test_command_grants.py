"""What "always allow" of one command line covers: that line to the letter, or a verb that only looks. Nothing else.

Each pair is planned by the tool itself and judged as a turn would: granted for the first line, asked for the second.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.tools.base import Plan
from acp_bridge.tools.command_tool import RunCommand, environment, looks_by
from acp_bridge.tools.consent import permission
from acp_bridge.tools.consent.grants import BUTTON_LENGTH, LOOKING, Grant, command_grant, looking_verb, tool_grant
from acp_bridge.tools.workspace import Workspace
from command_pairs import PAIRS
from shared.text.shown import code_span

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.unit,
    pytest.mark.skipif(shutil.which("git") is None, reason="the table is about git"),
]

EVERY_PAIR = [(first, later) for first, lines in PAIRS.items() for later in lines]

#: What stands in the table: allowed with the first line of its verb, and never asked again.
LOOKING_PAIRS = [
    ("git status", "git status -s"),
    ("git status -s", "git status"),
    ("git status", "git status --porcelain -b src/a.py"),
    ("git log", "git log --oneline -5"),
    ("git log --oneline", "git log --graph --all main..topic"),
    ("git log", "git log -- src/a.py"),
    ("git diff", "git diff --cached --stat"),
    ("git diff", "git diff main..HEAD"),
    ("git diff --stat", "git diff src/a.py"),
    ("git show", "git show --stat HEAD"),
    ("git show HEAD", "git show v1.0:src/a.py"),
    ("git branch", "git branch -a -vv"),
    ("git ls-files", "git ls-files --others --exclude-standard"),
    ("git blame a.py", "git blame -w src/b.py"),
]


class NoFace:
    """An editor that offers nothing."""

    client = "tester"
    reads_files = writes_files = runs_terminals = False


def workspace(root: Path) -> Workspace:
    face: Any = NoFace()
    return Workspace("c", [str(root)], face, 4000)


@cache
def planned(line: str, root: Path) -> Plan:
    return anyio.run(lambda: RunCommand().plan({"command": line}, workspace(root)))


def verdict(first: str, later: str, root: Path, mode: Any = "code") -> str:
    """What a turn does with `later` after "always" was answered to `first`."""
    grant = planned(first, root).grant
    assert grant is not None, "there is a button"
    return permission.judge(mode, planned(later, root), changes=True, allowed={grant})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


def test_there_are_enough_pairs() -> None:
    assert len(EVERY_PAIR) >= 300
    assert len(set(EVERY_PAIR)) == len(EVERY_PAIR)


@pytest.mark.parametrize("mode", ["code", "auto"])
def test_nothing_runs_unasked_but_what_was_granted_to_the_letter(root: Path, mode: Any) -> None:
    ran = [pair for pair in EVERY_PAIR if verdict(*pair, root, mode) != "ask"]
    assert ran == []


@pytest.mark.parametrize("line", list(PAIRS))
def test_the_granted_line_itself_is_not_asked_again(root: Path, line: str) -> None:
    assert verdict(line, line, root) == "allow"
    assert verdict(line, f"  {line} ", root) == "allow", "what is run is the line without the blanks around it"


@pytest.mark.parametrize(("first", "later"), LOOKING_PAIRS)
def test_a_verb_that_only_looks_is_allowed_with_its_plain_options(root: Path, first: str, later: str) -> None:
    assert verdict(first, later, root) == "allow"
    assert verdict(first, "git stash", root) == "ask"


def test_the_button_names_what_it_grants(root: Path) -> None:
    def button(line: str) -> str:
        return permission.question("c", planned(line, root), {}).answers[1].name

    assert button("git status -s") == "Always allow any `git status ...` that only looks in this session"
    assert button("rm build") == "Always allow exactly `rm build` in this session"
    assert button("echo " + "x" * 200) == "Always allow exactly this command line in this session"
    assert button("echo `date`") == "Always allow exactly this command line in this session"


@pytest.mark.parametrize(
    "line",
    ["rm x\nrm y", "rm x\u202ey", "rm\u00a0x", "rm x\u200b", "rm x\x1b[2K", "rm \ud800"]
    + [f"rm x{empty} y" for empty in "\u3164\u115f\uffa0\u2800\u034f\ufe0f\U000e0100"],
)
def test_a_line_that_cannot_be_read_as_it_is_can_be_allowed_once_only(root: Path, line: str) -> None:
    assert planned(line, root).grant is None


def test_a_line_of_any_length_can_be_allowed_to_the_letter() -> None:
    line = "echo " + "x" * 10_000
    grant = command_grant(line, looks=False)
    assert grant is not None
    assert grant.what == line


def test_a_program_in_the_workspace_is_not_the_one_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looks_by("git status", [str(tmp_path)])
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "git"
    program.write_text("#!/bin/sh\ntouch made\n")
    program.chmod(0o755)
    real = shutil.which("git")
    assert real is not None
    for path in (tmp_path / "bin", Path("bin"), Path(".")):
        monkeypatch.chdir(tmp_path / "bin" if path == Path(".") else tmp_path)
        monkeypatch.setenv("PATH", f"{path}{os.pathsep}{Path(real).parent}")
        assert looks_by("git status", [str(tmp_path)]) == ""
        found = command_grant("git status", looks=False)
        assert found is not None
        assert found.kind == "line"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "git").symlink_to(program)
    monkeypatch.setenv("PATH", str(outside))
    assert looks_by("git status", [str(tmp_path / "bin")]) == "", "nor a link to it"


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_what_only_looks_is_run_without_what_a_repository_may_name(tmp_path: Path) -> None:
    """A file watcher of the repository's settings, a repository hidden in plain folders, an index rewritten."""
    git = anyio.run_process

    async def run() -> None:
        await git(["git", "init", "-q"], cwd=tmp_path)
        await git(["git", "config", "core.fsmonitor", f"touch {tmp_path}/made; false"], cwd=tmp_path)
        plan = await RunCommand().plan({"command": "git status"}, workspace(tmp_path))
        outcome = await plan.effect(lambda items: None)
        assert "No commits yet" in outcome.text
        assert not (tmp_path / "made").exists()
        await git(["git", "status"], cwd=tmp_path)
        assert (tmp_path / "made").exists(), "the watcher would have been run"
        hidden = tmp_path / "hidden"
        await git(["git", "init", "-q", "--bare", str(hidden)])
        plan = await RunCommand().plan({"command": "git log"}, workspace(hidden))
        outcome = await plan.effect(lambda items: None)
        assert "cannot use bare repository" in outcome.text

    anyio.run(run)


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_a_hook_that_watches_the_index_is_not_run_by_what_only_looks(tmp_path: Path) -> None:
    """`git diff` refreshes the index although it was asked to take no locks."""

    async def run() -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "--allow-empty", "-m", "x"]):
            (tmp_path / "f").write_text("x")
            await anyio.run_process(["git", *words], cwd=tmp_path)
        hook = tmp_path / ".git" / "hooks" / "post-index-change"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/made\n")
        hook.chmod(0o755)
        os.utime(tmp_path / "f", (1, 1))
        plan = await RunCommand().plan({"command": "git diff"}, workspace(tmp_path))
        await plan.effect(lambda items: None)
        assert not (tmp_path / "made").exists()
        os.utime(tmp_path / "f", (2, 2))
        await anyio.run_process(["git", "diff"], cwd=tmp_path)
        assert (tmp_path / "made").exists(), "the hook would have been run"

    anyio.run(run)


def test_commands_do_not_get_the_keys_of_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_KEY", "marked-secret")
    monkeypatch.setenv("OTHER", "kept")
    face: Any = NoFace()
    place = Workspace("c", [str(tmp_path)], face, 4000, frozenset({"CLUSTER_KEY"}))

    async def run() -> str:
        plan = await RunCommand().plan({"command": "env"}, place)
        return (await plan.effect(lambda items: None)).text

    text = anyio.run(run)
    assert "marked-secret" not in text
    assert "OTHER=kept" in text
    assert "marked-secret" in str(environment.__globals__["os"].environ), "the bridge itself still has it"


@pytest.mark.parametrize(
    ("line", "verb"),
    [
        ("git status", ("git", "status")),
        ("git status a b c d", ("git", "status")),
        ("git status a b c d e", None),
        ("git log -123456", ("git", "log")),
        ("git log -1234567", None),
        ("git status -5", None),
        ("git show a", ("git", "show")),
        ("git show a b", None),
        ("git diff --stat a", ("git", "diff")),
        ("git diff a b", None),
        ("git branch -a", ("git", "branch")),
        ("git branch topic", None),
        ("git", None),
        ("git stash", None),
        ("hg status", None),
        ("git  status", None),
        ("git status ", None),
        ("git log a..b", ("git", "log")),
        ("git log ..", None),
        ("git show v1:../x", None),
        ("git show a/../b", None),
        ("git show :x", None),
        ("git show /x", None),
        ("git show C:/x", None),
        ("git show CC:/x", ("git", "show")),
        ("git log --output=x", None),
    ],
)
def test_what_stands_in_the_table_is_reported_word_by_word(line: str, verb: tuple[str, str] | None) -> None:
    assert looking_verb(line) == verb


@pytest.mark.parametrize(
    ("line", "looks", "grant"),
    [
        ("git log -3", True, Grant("looking", "git log", "any `git log ...` that only looks")),
        ("git log -3", False, Grant("line", "git log -3", "exactly `git log -3`")),
        ("git stash", True, Grant("line", "git stash", "exactly `git stash`")),
        ("x" * 80, False, Grant("line", "x" * 80, f"exactly `{'x' * 80}`")),
        ("x" * 81, False, Grant("line", "x" * 81, "exactly this command line")),
        ("a `b`", False, Grant("line", "a `b`", "exactly this command line")),
        ("", False, None),
        ("a\nb", True, None),
    ],
)
def test_a_grant_is_compared_by_its_line_and_shown_in_words(line: str, looks: bool, grant: Grant | None) -> None:
    assert command_grant(line, looks=looks) == grant


def test_a_tool_of_a_server_is_granted_by_what_tells_it_from_others() -> None:
    assert tool_grant("key", "search", "docs") == Grant("tool", "key", "`search` of docs")
    assert tool_grant("key", "x" * 200, "docs").shown == f"{code_span('x' * 200, BUTTON_LENGTH)} of docs"


# --- any lines at all --------------------------------------------------------------------------

WORDS = [
    "git",
    "status",
    "log",
    "diff",
    "show",
    "-s",
    "--stat",
    "--output=x",
    "-c",
    "..",
    "/x",
    "a/../b",
    "x",
    "'",
    '"',
]
WORDS += [";", "$(id)", "=", "@x", "--", "-5", "main..x", "C:/x", ":", "|", "GIT", "ｇｉｔ", "\n", "\t", "\u200b"]
lines = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    st.tuples(st.sampled_from(["git status", "git log", "git diff"]), st.text(max_size=12)).map("".join),
).map(str.strip)


@given(first=lines, later=lines)
def test_a_grant_covers_its_line_or_lines_of_the_table(first: str, later: str) -> None:
    granted, asked = command_grant(first, looks=True), command_grant(later, looks=True)
    if granted is None or asked != granted or first == later:
        return
    assert looking_verb(first) == looking_verb(later) is not None
    program, verb, *rest = later.split(" ")
    known = LOOKING[program][verb]
    for word in rest:
        plain = word.isascii() and not word.startswith(("-", "/")) and not set(word) & set("'\"`$;&|<>*?~\\@={}()")
        inside = plain and not any(part == ".." for part in word.replace(":", "/").split("/")) and word[1:2] != ":"
        assert word in known.options or inside or (known.counts and word[1:].isdigit())


@given(line=lines)
def test_a_granted_line_is_one_that_a_person_can_read(line: str) -> None:
    grant = command_grant(line, looks=False)
    assert grant is None or (grant.what == line and line.isprintable() and len(line.splitlines()) == 1)
