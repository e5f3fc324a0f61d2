"""The tools: paths that stay inside, edits that match exactly once, what "always" covers, who is asked."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from acp_bridge.conversations.events import Change, FileLocation, PlanSet, TextItem
from acp_bridge.conversations.face import Answer, Command, Finished, Question, ToolFailed
from acp_bridge.process import child_process as child
from acp_bridge.tools.base import Plan
from acp_bridge.tools.command_tool import RunCommand, run_here, split
from acp_bridge.tools.consent import permission
from acp_bridge.tools.consent.grants import EDITS, Grant
from acp_bridge.tools.edit_tools import EditFile, WriteFile, replaced
from acp_bridge.tools.paths import locate, resolve
from acp_bridge.tools.plan_tool import UpdatePlan
from acp_bridge.tools.read_tools import FindFiles, ListFolder, ReadFile, SearchText
from acp_bridge.tools.workspace import Workspace, write_text

pytestmark = pytest.mark.anyio


class PlainFace:
    """An editor that offers nothing."""

    client = "tester"
    reads_files = False
    writes_files = False
    runs_terminals = False

    def show(self, conversation: str, event: object) -> None: ...


class BufferFace(PlainFace):
    """An editor with an unsaved buffer."""

    reads_files = True
    writes_files = True

    def __init__(self, text: str) -> None:
        self.text = text

    async def read_file(self, conversation: str, path: str) -> str:
        return self.text

    async def write_file(self, conversation: str, path: str, text: str) -> None:
        self.text = text


def workspace(root: Path, face: Any = None, limit: int = 4000) -> Workspace:
    found: Any = face or PlainFace()
    return Workspace("c", [str(root)], found, limit)


async def run(tool: Any, place: Workspace, **arguments: Any) -> str:
    plan = await tool.plan(arguments, place)
    outcome = await plan.effect(lambda items: None)
    return str(outcome.text)


# --- paths -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "link/x", "loop", "", "a\0b"])
def test_nothing_leaves_the_workspace(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to(tmp_path / "outside" / "file")
    with pytest.raises(ToolFailed):
        resolve(path, [str(root)])


def test_a_root_that_is_a_link_is_still_the_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    assert resolve("new.txt", [str(tmp_path / "root")]) == tmp_path / "real" / "new.txt"


def test_a_name_may_begin_like_a_home_folder(tmp_path: Path) -> None:
    assert resolve("~nobody-of-this-name.txt", [str(tmp_path)]) == tmp_path / "~nobody-of-this-name.txt"


def test_additional_folders_are_inside(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert resolve(str(tmp_path / "b" / "x"), [str(tmp_path / "a"), str(tmp_path / "b")]).name == "x"


# --- looking -----------------------------------------------------------------------------------


async def test_reading_by_lines(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("one\ntwo\nthree\n")
    assert await run(ReadFile(), workspace(tmp_path), path="f.txt", line="2", limit=1) == (
        "2\ttwo\n[1 more lines; read from line 3]"
    )


async def test_unsaved_text_is_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("saved")
    assert "unsaved" in await run(ReadFile(), workspace(tmp_path, BufferFace("unsaved")), path="f.txt")


@pytest.mark.parametrize("name", ["missing", "folder", "binary"])
async def test_what_cannot_be_read_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"a\0b")
    with pytest.raises(ToolFailed, match=name):
        await run(ReadFile(), workspace(tmp_path), path=name)


async def test_listing_finding_and_searching(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.py").write_text("needle")
    (tmp_path / "src" / "a.py").write_text("x\nneedle here\n")
    (tmp_path / "src" / "deep" / "b.py").write_text("other")
    place = workspace(tmp_path)
    assert await run(ListFolder(), place, path="src") == "a.py\ndeep/"
    assert await run(FindFiles(), place, pattern="**/*.py") == "src/a.py\nsrc/deep/b.py"
    assert await run(SearchText(), place, pattern="need.e") == "src/a.py:2:needle here"
    with pytest.raises(ToolFailed, match="regular expression"):
        await run(SearchText(), place, pattern="(")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are Unicode")
async def test_names_that_are_no_text_are_shown_all_the_same(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff.txt")).write_text("needle")
    place = workspace(tmp_path)
    for tool, arguments in (
        (ListFolder(), {}),
        (FindFiles(), {"pattern": "*.txt"}),
        (SearchText(), {"pattern": "need"}),
    ):
        assert (await run(tool, place, **arguments)).encode().startswith(b"a")


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 5000 + ")" * 5000])
async def test_what_is_no_pattern_is_said(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ToolFailed, match="regular expression"):
        await run(SearchText(), workspace(tmp_path), pattern=pattern)


@pytest.mark.parametrize("ripgrep", [False, True])
async def test_a_search_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ripgrep: bool) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent) if ripgrep else str(tmp_path))
    (tmp_path / "outside").write_text("needle")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    assert await run(SearchText(), workspace(tmp_path / "root"), pattern="needle") == "(nothing matches)"


async def test_a_pattern_that_matches_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no ripgrep
    monkeypatch.setattr("acp_bridge.tools.read_tools.SEARCH_LIMIT_S", 1.0)
    (tmp_path / "f").write_text("a" * 60 + "b")
    with pytest.raises(ToolFailed, match="longer than"):
        await run(SearchText(), workspace(tmp_path), pattern="(a+)+$")


@pytest.mark.parametrize("ripgrep", [False, True])
async def test_searching_every_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ripgrep: bool) -> None:
    beside = Path(sys.executable).parent / "rg"
    assert beside.exists(), "the dev extra brings it"
    monkeypatch.setenv("PATH", str(beside.parent) if ripgrep else str(tmp_path))
    first, second = tmp_path / "one", tmp_path / "two"
    for folder in (first, second):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "a.py").write_text("x = 1\nneedle = 2\n")
        (folder / "b.txt").write_text("no needles but one needle\n")
    found: Any = PlainFace()
    place = Workspace("c", [str(first), str(second)], found, 4000)
    lines = (await run(SearchText(), place, pattern=r"needle\b", files="*.py")).splitlines()
    assert lines[0] == "deep/a.py:2:needle = 2"
    assert lines[1].endswith("deep/a.py:2:needle = 2")
    assert len(lines) == 2
    assert len((await run(SearchText(), place, pattern=r"needle\b")).splitlines()) == 4
    assert await run(SearchText(), place, pattern="(?<=needle) =", files="*.py"), "what only Python knows is found too"


async def test_long_results_say_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 5000)
    text = await run(ReadFile(), workspace(tmp_path, limit=100), path="f")
    assert "characters left out" in text
    assert len(text) < 200


# --- changing ----------------------------------------------------------------------------------


def test_an_edit_matches_exactly_once() -> None:
    assert replaced("a\nb\nc", "b", "B") == ("a\nB\nc", 2)
    for before, old in [("a", "x"), ("aa", "a"), ("aaa", "aa")]:
        with pytest.raises(ToolFailed):
            replaced(before, old, "y")
    with pytest.raises(ToolFailed, match="same"):
        replaced("a", "a", "a")


def test_windows_line_ends_stay() -> None:
    assert replaced("a\r\nb\r\n", "a\nb", "x\ny")[0] == "x\r\ny\r\n"
    assert replaced("a\r\nb\r\n", "a\r\nb", "x\ny")[0] == "x\r\ny\r\n"
    assert replaced("a\r\nb\r\n", "b", "x\ny")[0] == "a\r\nx\r\ny\r\n"
    assert replaced("a\nb\n", "a\r\nb", "x\r\ny")[0] == "x\ny\n"
    assert replaced("a\nb\nc\r\n", "a\nb", "x\ny")[0] == "x\ny\nc\r\n", "a file of both kinds"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        ("a\r\nb\r\n", "x\ny\n", "x\r\ny\r\n"),
        ("a\nb\n", "x\ny\n", "x\ny\n"),
        ("a\nb\n", "x\r\ny\r\n", "x\r\ny\r\n"),
        ("\ufeffa\r\n", "x\n", "\ufeffx\r\n"),
        ("\ufeffa", "\ufeffx", "\ufeffx"),
        ("", "x\n", "x\n"),
    ],
)
async def test_a_file_rewritten_keeps_its_line_ends_and_its_mark(
    tmp_path: Path, before: str, content: str, after: str
) -> None:
    (tmp_path / "f").write_bytes(before.encode())
    plan = await WriteFile().plan({"path": "f", "content": content}, workspace(tmp_path))
    await plan.effect(lambda items: None)
    assert (tmp_path / "f").read_bytes() == after.encode()


def test_a_file_that_nobody_may_write_is_not_moved_over(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text("kept")
    file.chmod(0o444)
    with pytest.raises(ToolFailed, match="read-only"):
        write_text(locate("f.py", [str(tmp_path)]), "lost")
    assert file.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [file]


async def test_an_edit_shows_its_diff_before_it_is_done(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text("x = 1\n")
    file.chmod(0o755)
    plan = await EditFile().plan({"path": "f.py", "old": "1", "new": "2"}, workspace(tmp_path))
    assert plan.items == [Change(path=str(file), old="x = 1\n", new="x = 2\n")]
    assert file.read_text() == "x = 1\n"
    await plan.effect(lambda items: None)
    assert file.read_text() == "x = 2\n"
    assert file.stat().st_mode & 0o777 == 0o755


async def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text("x = 1\n")
    plan = await EditFile().plan({"path": "f.py", "old": "1", "new": "2"}, workspace(tmp_path))
    file.write_text("y = 1\n")
    with pytest.raises(ToolFailed, match="changed meanwhile"):
        await plan.effect(lambda items: None)
    assert file.read_text() == "y = 1\n"


@pytest.mark.parametrize("path", ["file/below", "n" * 300])
async def test_what_cannot_be_written_is_said(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ToolFailed, match="cannot be"):
        await run(WriteFile(), workspace(tmp_path), path=path, content="new")


async def test_a_file_in_another_encoding_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("caf\xe9\none\n".encode("latin-1"))
    with pytest.raises(ToolFailed, match="not UTF-8"):
        await run(EditFile(), workspace(tmp_path), path="f", old="one", new="two")
    assert (tmp_path / "f").read_bytes() == b"caf\xe9\none\n"


async def test_a_new_file_in_a_new_folder(tmp_path: Path) -> None:
    plan = await WriteFile().plan({"path": "new/f.txt", "content": "hi"}, workspace(tmp_path))
    assert plan.title == "Create new/f.txt"
    await plan.effect(lambda items: None)
    assert (tmp_path / "new" / "f.txt").read_text() == "hi"
    assert os.listdir(tmp_path / "new") == ["f.txt"]


async def test_editing_through_the_editor(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("saved")
    face = BufferFace("unsaved 1")
    await run(EditFile(), workspace(tmp_path, face), path="f", old="1", new="2")
    assert face.text == "unsaved 2"
    assert (tmp_path / "f").read_text() == "saved"


# --- running -----------------------------------------------------------------------------------


async def test_a_command_runs_in_the_workspace(tmp_path: Path) -> None:
    text = await run(RunCommand(), workspace(tmp_path), command="pwd")
    assert text == f"The command ended with 0.\n{tmp_path}\n"


async def test_a_missing_program_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="no-such-program"):
        await run(RunCommand(), workspace(tmp_path), command="no-such-program x")


async def test_a_zero_byte_in_a_command_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="zero byte"):
        await run(RunCommand(), workspace(tmp_path), command="echo a\0b")


async def test_output_is_bounded(tmp_path: Path) -> None:
    done = await run_here(
        Command(program="/bin/sh", arguments=["-c", "yes | head -c 100000"], cwd=str(tmp_path), output_limit=500),
        lambda output: None,
    )
    assert len(done.output) == 500
    assert done == Finished(output=done.output, code=0)


async def test_output_is_shown_while_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acp_bridge.tools.command_tool.SHOWN_EVERY_S", 0.0)
    seen: list[str] = []

    def on_output(output: str) -> None:
        seen.append(output)
        (tmp_path / "go").touch()

    line = "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two"
    done = await run_here(
        Command(program="/bin/sh", arguments=["-c", line], cwd=str(tmp_path), output_limit=500), on_output
    )
    assert seen[0] == "one\n", "it is shown before the command ends, or this test would not end"
    assert done.output == "one\ntwo\n"


#: Runs a program as another platform would.
AS_ON = """
import runpy, sys
sys.platform, path = sys.argv[1:3]
del sys.argv[:2]
runpy.run_path(path, run_name="__main__")
"""


@pytest.fixture(params=["linux", "darwin"])
def reaper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are kept as on each POSIX platform."""
    if os.name == "nt":
        pytest.skip("there are job objects on Windows")
    if sys.platform != "linux" and request.param == "linux":
        pytest.skip("this is not Linux")
    path = child.REAPER[-1]
    monkeypatch.setattr(child, "REAPER", (sys.executable, "-I", "-S", "-c", AS_ON, request.param, path))


@pytest.mark.usefixtures("reaper")
async def test_a_command_is_over_when_it_ends_and_what_it_left_running_ends_too(tmp_path: Path) -> None:
    """A server in the background holds the output open for as long as it runs."""
    line = "sleep 600 & echo $! > pid; echo started"
    done = await run_here(
        Command(program="/bin/sh", arguments=["-c", line], cwd=str(tmp_path), output_limit=500), lambda output: None
    )
    assert done.code == 0
    assert done.output.startswith("started\n")
    assert "left running" in done.output
    left = int((tmp_path / "pid").read_text())
    with anyio.fail_after(10):
        while _runs(left):
            await anyio.sleep(0.005)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


#: A daemon as daemons are made: in a session of its own, nobody's child, its name and environment not the command's.
DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for stream in range(3):
    os.dup2(os.open(os.devnull, os.O_RDWR), stream)
if len(sys.argv) < 2:
    os.execve(sys.executable, [sys.executable, "-c", sys.orig_argv[2], "again"], {})
open("pid.new", "w").write(str(os.getpid()))
os.rename("pid.new", "pid")
time.sleep(600)
"""


def daemon_line(then: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(DAEMON)}; until [ -e pid ]; do sleep 0.01; done; {then}"


@pytest.mark.skipif(sys.platform != "linux", reason="nowhere else can what left its session be found")
async def test_a_daemon_that_a_command_started_ends_with_it(tmp_path: Path) -> None:
    line = daemon_line("echo started; exit 3")
    done = await run_here(
        Command(program="/bin/sh", arguments=["-c", line], cwd=str(tmp_path), output_limit=500), lambda output: None
    )
    assert (done.output, done.code) == ("started\n", 3)
    assert not _runs(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="nowhere else can what left its session be found")
async def test_a_daemon_ends_with_a_cancelled_command(tmp_path: Path) -> None:
    command = Command(program="/bin/sh", arguments=["-c", daemon_line("sleep 600")], cwd=str(tmp_path), output_limit=9)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_here, command, lambda output: None)
        with anyio.fail_after(10):
            while not (tmp_path / "pid").exists():
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    assert not _runs(int((tmp_path / "pid").read_text()))


@pytest.mark.usefixtures("reaper")
@pytest.mark.parametrize(
    ("line", "output", "code"),
    [("kill 0; echo on", "", None), ("trap 'echo asked; exit 4' TERM; kill 0", "asked\n", 4), ("./none", None, 127)],
)
async def test_how_a_command_ended(tmp_path: Path, line: str, output: str | None, code: int | None) -> None:
    """Signals to its own group, that every shell script may send, reach the command alone."""
    done = await run_here(
        Command(program="/bin/sh", arguments=["-c", line], cwd=str(tmp_path), output_limit=500), lambda output: None
    )
    assert done.code == code
    assert output is None or done.output == output


@pytest.mark.usefixtures("reaper")
async def test_what_a_helper_prints_behind_a_command_is_kept(tmp_path: Path) -> None:
    line = "(until [ -e ended ]; do sleep 0.01; done; echo late) & touch ended"
    done = await run_here(
        Command(program="/bin/sh", arguments=["-c", line], cwd=str(tmp_path), output_limit=500), lambda output: None
    )
    assert done.output == "late\n"


async def test_a_plan_is_shown_whole(tmp_path: Path) -> None:
    steps: Any = [{"step": "look", "status": "completed"}, {"step": "edit"}, "test"]
    plan = await UpdatePlan().plan({"steps": steps}, workspace(tmp_path))
    outcome = await plan.effect(lambda items: None)
    assert outcome.steps == PlanSet(
        entries=[("look", "medium", "completed"), ("edit", "medium", "pending"), ("test", "medium", "pending")]
    )


@pytest.mark.parametrize(
    "steps", [None, [], "look", [{}], [{"step": ""}], [{"step": "a", "status": "soon"}], ["a"] * 31]
)
async def test_a_plan_that_is_none_is_said(tmp_path: Path, steps: Any) -> None:
    with pytest.raises(ToolFailed, match=r"step|status"):
        await UpdatePlan().plan({"steps": steps}, workspace(tmp_path))


def test_a_line_with_shell_signs_is_the_shells() -> None:
    assert split("git status") == ("git", ["status"])
    assert split("git status | wc -l")[1][-1] == "git status | wc -l"
    with pytest.raises(ToolFailed):
        split("echo 'open")


# --- permission --------------------------------------------------------------------------------


async def _nothing(show: Any) -> Any:
    return None


MAKE = Grant("line", "make", "exactly `make`")


def plan(grant: Grant | None) -> Plan:
    return Plan(title="t", kind="edit", effect=_nothing, grant=grant)


@pytest.mark.parametrize(
    ("mode", "grant", "changes", "allowed", "verdict"),
    [
        ("ask", None, False, set(), "allow"),
        ("ask", EDITS, True, {EDITS}, "refuse"),
        ("code", EDITS, True, set(), "ask"),
        ("code", EDITS, True, {EDITS}, "allow"),
        ("auto", EDITS, True, set(), "allow"),
        ("auto", MAKE, True, {EDITS}, "ask"),
        ("auto", MAKE, True, {MAKE}, "allow"),
        ("code", None, True, {EDITS, MAKE}, "ask"),
        ("auto", None, True, {EDITS, MAKE}, "ask"),
    ],
)
def test_who_is_asked(mode: Any, grant: Grant | None, changes: bool, allowed: set[Grant], verdict: str) -> None:
    assert permission.judge(mode, plan(grant), changes=changes, allowed=allowed) == verdict


@pytest.mark.parametrize(
    ("grant", "always"),
    [
        (None, []),
        (MAKE, [Answer(id="allow_always", name="Always allow exactly `make` in this session", kind="allow_always")]),
    ],
)
def test_a_question_shows_what_would_be_done_and_what_always_means(grant: Grant | None, always: list[Answer]) -> None:
    """What cannot be named can only be allowed once."""
    locations, item, detail = [FileLocation(path="/a", line=3)], TextItem(text="shown"), TextItem(text="more")
    asked = Plan(
        title="Run make", kind="edit", effect=_nothing, locations=locations, items=[item], details=[detail], grant=grant
    )
    assert permission.question("c1", asked, {"command": "make"}) == Question(
        card="c1",
        title="Run make",
        kind="edit",
        items=[item, detail],
        locations=locations,
        input={"command": "make"},
        answers=[
            Answer(id="allow_once", name="Allow", kind="allow_once"),
            *always,
            Answer(id="reject_once", name="Reject", kind="reject_once"),
        ],
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
async def test_a_search_runs_nothing_out_of_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search asks nobody, and PATH may hold a folder that is relative to where one is."""
    (tmp_path / "f").write_text("needle")
    program = tmp_path / "rg"
    program.write_text("#!/bin/sh\ntouch made\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".{os.pathsep}{tmp_path / 'nothing'}")
    assert "f:1:needle" in await run(SearchText(), workspace(tmp_path), pattern="needle", files="f")
    assert not (tmp_path / "made").exists()
