"""A file is written where it was when the person was asked, or nowhere: folders and links swapped in between."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.conversations.face import ToolFailed
from acp_bridge.tools.edit_tools import EditFile, WriteFile
from acp_bridge.tools.paths import locate
from acp_bridge.tools.workspace import Workspace, write_text

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.unit,
    pytest.mark.skipif(sys.platform == "win32", reason="windows_files has them"),
]


class Buffers:
    """An editor that has files; `reads` is whether it gives them."""

    client = "tester"
    writes_files = True
    runs_terminals = False

    def __init__(self, texts: dict[str, str] | None = None, *, reads: bool = True) -> None:
        self.reads_files = reads
        self.texts = texts or {}
        self.written: dict[str, str] = {}

    async def read_file(self, conversation: str, path: str) -> str:
        file = Path(path)
        if file.name in self.texts:
            return self.texts[file.name]
        if not file.exists():
            raise ToolFailed("no such file")
        return file.read_text()

    async def write_file(self, conversation: str, path: str, text: str) -> None:
        self.written[path] = text


class NoFace:
    """An editor that offers nothing."""

    client = "tester"
    reads_files = writes_files = runs_terminals = False


def swapped_parent(root: Path, outside: Path) -> None:
    (root / "src").rename(root / "moved")
    (root / "src").symlink_to(outside)


def swapped_above(root: Path, outside: Path) -> None:
    (root / "src" / "deep").rename(root / "deep")
    (outside / "deep").mkdir()
    (outside / "deep" / "a.py").write_text("old")
    (root / "src").rename(root / "moved")
    (root / "src").symlink_to(outside)


def swapped_file(root: Path, outside: Path) -> None:
    (root / "src" / "deep" / "a.py").unlink()
    (root / "src" / "deep" / "a.py").symlink_to(outside / "a.py")


def swapped_root(root: Path, outside: Path) -> None:
    root.rename(root.with_name("moved"))
    root.symlink_to(outside)
    (outside / "src" / "deep").mkdir(parents=True)
    (outside / "src" / "deep" / "a.py").write_text("old")


def another_root(root: Path, outside: Path) -> None:
    """No link: a folder that is another one in its place."""
    root.rename(root.with_name("moved"))
    shutil.copytree(root.with_name("moved"), root)


def swapped_new_folder(root: Path, outside: Path) -> None:
    (root / "new").symlink_to(outside)


def swapped_new_file(root: Path, outside: Path) -> None:
    (root / "src" / "new.py").symlink_to(outside / "a.py")


def dangling_new_file(root: Path, outside: Path) -> None:
    (root / "src" / "new.py").symlink_to(outside / "made.py")


def within(root: Path, outside: Path) -> None:
    """Not outside, but not where the person saw it either."""
    (root / "other").mkdir()
    (root / "src" / "deep").rename(root / "moved")
    (root / "src" / "deep").symlink_to(root / "other")


Swap = Callable[[Path, Path], None]
SWAPS: list[tuple[str, Swap]] = [
    ("src/deep/a.py", swapped_parent),
    ("src/deep/a.py", swapped_above),
    ("src/deep/a.py", swapped_file),
    ("src/deep/a.py", swapped_root),
    ("src/deep/a.py", another_root),
    ("src/deep/a.py", within),
    ("src/new.py", swapped_parent),
    ("src/more/new.py", swapped_parent),
    ("src/deep/new.py", within),
    ("new/new.py", swapped_new_folder),
    ("new/more/new.py", swapped_new_folder),
    ("src/new.py", swapped_new_file),
    ("src/new.py", dangling_new_file),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.py").write_text("old")
    (tmp_path / "root" / "src" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "src" / "deep" / "a.py").write_text("old")
    return tmp_path / "root"


def contents(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("editor", [False, True])
@pytest.mark.parametrize(("path", "swap"), SWAPS)
async def test_nothing_is_written_where_a_swapped_folder_leads(
    root: Path, path: str, swap: Swap, *, editor: bool
) -> None:
    outside = root.with_name("outside")
    face: Any = Buffers({"a.py": "old"} if Path(path).name == "a.py" else {}) if editor else NoFace()
    plan = await WriteFile().plan({"path": path, "content": "new"}, Workspace("c", [str(root)], face, 4000))
    swap(root, outside)
    before = contents(outside), contents(root)
    with pytest.raises(ToolFailed):
        await plan.effect(lambda items: None)
    assert (contents(outside), contents(root)) == before
    assert not editor or face.written == {}


@pytest.mark.parametrize("path", ["src/deep/a.py", "src/new.py", "new/more/new.py", "link/a.py", "link/new.py"])
async def test_what_did_not_move_is_written(root: Path, path: str) -> None:
    (root / "link").symlink_to("src/deep")
    face: Any = NoFace()
    plan = await WriteFile().plan({"path": path, "content": "new"}, Workspace("c", [str(root)], face, 4000))
    (root / "unrelated").symlink_to(root.with_name("outside"))
    await plan.effect(lambda items: None)
    assert (root / path).read_text() == "new"
    assert (root.with_name("outside") / "a.py").read_text() == "old"
    assert not list(root.rglob("*.part"))


#: Makes the folder a link and a folder again for ever, also where a writer has made it in between.
FLIP = """
import contextlib, os, shutil, sys
while True:
    try:
        os.rename("src", "aside")
        os.symlink(sys.argv[1], "src")
        os.unlink("src")
        os.rename("aside", "src")
    except OSError:
        if os.path.isdir("aside"):
            shutil.rmtree("src", ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rename("aside", "src")
"""


def test_a_folder_that_is_swapped_again_and_again_leads_nowhere(root: Path) -> None:
    """While files are written, another process makes the folder a link and a folder, as fast as it can."""
    outside = root.with_name("outside")
    places = [locate("src/deep/a.py", [str(root)]), locate("src/made.py", [str(root)])]
    places.append(locate("src/more/made.py", [str(root)]))
    with subprocess.Popen([sys.executable, "-c", FLIP, str(outside)], cwd=root) as other:
        try:
            written = 0
            for number in range(600):
                with contextlib.suppress(ToolFailed):
                    write_text(places[number % 3], f"{number}")
                    written += 1
        finally:
            other.kill()
    assert contents(outside) == {"a.py": "old"}
    assert os.listdir(outside) == ["a.py"]
    assert written, "and some of it was written"


async def test_the_error_says_what_was_replaced(root: Path) -> None:
    face: Any = NoFace()
    arguments = {"path": "src/new.py", "content": "new"}
    plan = await WriteFile().plan(arguments, Workspace("c", [str(root)], face, 4000))
    swapped_parent(root, root.with_name("outside"))
    with pytest.raises(ToolFailed, match=r"new.py was not written: src was replaced after it was checked"):
        await plan.effect(lambda items: None)


async def test_a_workspace_that_is_gone_is_said(root: Path) -> None:
    face: Any = NoFace()
    shutil.rmtree(root)
    with pytest.raises(ToolFailed, match="cannot be used"):
        await WriteFile().plan({"path": "a", "content": "x"}, Workspace("c", [str(root)], face, 4000))


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() == 0, reason="root may list every folder")
async def test_folders_that_may_be_entered_and_not_listed_are_no_bar(root: Path) -> None:
    (root / "src").chmod(0o311)
    face: Any = NoFace()
    plan = await WriteFile().plan({"path": "src/new.py", "content": "x"}, Workspace("c", [str(root)], face, 4000))
    await plan.effect(lambda items: None)
    (root / "src").chmod(0o755)
    assert (root / "src" / "new.py").read_text() == "x"


# --- text that only the editor has -------------------------------------------------------------


async def test_a_file_that_was_never_saved_is_no_new_file(root: Path) -> None:
    face: Any = Buffers({"draft.py": "hours of work"})
    plan = await WriteFile().plan({"path": "draft.py", "content": "x"}, Workspace("c", [str(root)], face, 4000))
    assert plan.title == "Write draft.py"
    assert plan.items[0].old == "hours of work"  # type: ignore[union-attr]


async def test_what_the_editor_does_not_have_is_a_new_file(root: Path) -> None:
    for face in (Buffers(), Buffers({"new.py": ""})):
        anybody: Any = face
        place = Workspace("c", [str(root)], anybody, 4000)
        plan = await WriteFile().plan({"path": "new.py", "content": "x"}, place)
        assert plan.title == "Create new.py"
        await plan.effect(lambda items: None)
        assert list(face.written.values()) == ["x"]


async def test_an_editor_that_gives_no_text_is_not_written_through(root: Path) -> None:
    face: Any = Buffers({"a.py": "unsaved"}, reads=False)
    arguments = {"path": "src/deep/a.py", "old": "old", "new": "new"}
    plan = await EditFile().plan(arguments, Workspace("c", [str(root)], face, 4000))
    await plan.effect(lambda items: None)
    assert face.written == {}
    assert (root / "src" / "deep" / "a.py").read_text() == "new"
