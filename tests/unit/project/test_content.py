"""What stays of a file whose content is replaced: its other names, links to it, mode, owner and attributes."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from acp_bridge.install.change import FileChange, apply
from acp_bridge.tools.paths import locate
from acp_bridge.tools.workspace import write_text
from modeld.cli import configfile
from shared.system.content import replace_content

pytestmark = [pytest.mark.unit, pytest.mark.skipif(sys.platform == "win32", reason="the facts are POSIX's")]


def test_another_name_of_the_file_sees_the_new_content(tmp_path: Path) -> None:
    file, other = tmp_path / "f", tmp_path / "g"
    file.write_text("a longer old text")
    os.link(file, other)
    write_text(locate("f", [str(tmp_path)]), "new")
    assert other.read_text() == "new"
    assert file.samefile(other)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "f", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    replace_content(link, b"new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_the_mode_stays_and_a_new_file_has_the_usual_one(tmp_path: Path) -> None:
    file, made = tmp_path / "f", tmp_path / "made"
    file.write_text("old")
    file.chmod(0o4751)
    replace_content(file, b"new")
    assert (file.read_text(), file.stat().st_mode & 0o7777) == ("new", 0o4751)
    umask = os.umask(0o027)
    try:
        replace_content(made, b"new")
    finally:
        os.umask(umask)
    assert made.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["f", "made"]


@pytest.mark.skipif(sys.platform != "linux", reason="Python sees attributes on Linux alone")
def test_attributes_stay(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("old")
    try:
        os.setxattr(file, "user.note", b"kept")
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("no attributes on this filesystem")
        raise
    replace_content(file, b"new")
    assert (file.read_text(), os.getxattr(file, "user.note")) == ("new", b"kept")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("old")
    os.chown(file, 12345, 54321)
    replace_content(file, b"new")
    facts = file.stat()
    assert (file.read_text(), facts.st_uid, facts.st_gid) == ("new", 12345, 54321)


@pytest.mark.parametrize("call", ["open", "replace"])
def test_where_nothing_may_be_made_beside_it_the_file_itself_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A folder without the right to write, or a file that is mounted by itself."""
    file = tmp_path / "f"
    file.write_text("old")

    really = os.open

    def refused(name: str, flags: int = os.O_CREAT, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not flags & os.O_CREAT:
            return really(name, flags, mode, dir_fd=dir_fd)
        raise OSError(errno.EACCES if call == "open" else errno.EBUSY, "no", name)

    monkeypatch.setattr(os, call, refused if call == "open" else lambda part, *_, **folders: refused(part))
    replace_content(file, b"new")
    assert file.read_text() == "new"
    assert os.listdir(tmp_path) == ["f"]


def test_a_disk_that_fills_up_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = tmp_path / "f", tmp_path / "g"
    file.write_text("old")
    os.link(file, other)
    synced: list[int] = []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:  # the copy beside it went well
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        replace_content(file, b"a longer new text")
    assert other.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["f", "g"]


def test_the_settings_of_an_editor_and_our_own_keep_their_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders of dotfiles hold both, by links of either kind."""
    settings, config = tmp_path / "settings.json", tmp_path / "config.toml"
    settings.write_text("{}")
    config.write_text("")
    os.link(settings, tmp_path / "hard")
    (tmp_path / "soft").symlink_to(config)
    apply(FileChange(path=settings, before="{}", after='{"a": 1}'))
    assert (tmp_path / "hard").read_text() == '{"a": 1}'
    monkeypatch.setenv("MODELD_CONFIG", str(tmp_path / "soft"))
    configfile.add_folder(tmp_path)
    assert (tmp_path / "soft").is_symlink()
    assert str(tmp_path) in config.read_text()
