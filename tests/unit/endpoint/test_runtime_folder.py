"""Which folder is chosen, and what makes one private or refused."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from shared.endpoint.faults import FolderUnusable
from shared.endpoint.folder import PATH_LIMIT, RuntimeFolder, runtime_folder, user_folder
from shared.paths import DataRoot

assert sys.platform != "win32"

pytestmark = pytest.mark.unit


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_private_runtime_dir_comes_first(short_tmp: Path) -> None:
    run = short_tmp / "run"
    run.mkdir(mode=0o700)
    folder = runtime_folder(DataRoot(short_tmp / "data"), {"XDG_RUNTIME_DIR": str(run)})
    assert folder.path == run / "modeld"
    assert not folder.path.exists()
    folder.ensure()
    assert mode(folder.path) == 0o700
    assert folder.intact()


@pytest.mark.parametrize("bad", ["missing", "open", "link", "relative", "empty", "file"])
def test_a_runtime_dir_that_is_not_private_is_passed_over(short_tmp: Path, bad: str) -> None:
    run = short_tmp / "run"
    declared = str(run)
    if bad == "open":
        run.mkdir(mode=0o755)
    elif bad == "link":
        (short_tmp / "real").mkdir(mode=0o700)
        run.symlink_to(short_tmp / "real")
    elif bad == "relative":
        declared = "run"
    elif bad == "empty":
        declared = ""
    elif bad == "file":
        run.write_text("x")
    folder = runtime_folder(DataRoot(short_tmp / "data"), {"XDG_RUNTIME_DIR": declared})
    assert folder.path == short_tmp / "data" / "run"


def test_a_data_root_too_long_for_a_socket_gives_a_folder_of_the_user(short_tmp: Path) -> None:
    deep = short_tmp / ("ü" * 40) / "data"
    assert runtime_folder(DataRoot(deep), {}).path == Path("/tmp") / f"modeld-{os.geteuid()}"


def test_the_limit_counts_bytes() -> None:
    fits = Path("/" + "a" * (PATH_LIMIT - 16 - 2 - 4))
    assert runtime_folder(DataRoot(fits), {}).path == fits / "run"
    long = Path("/" + "a" * (PATH_LIMIT - 16 - 2 - 4 + 1))
    assert runtime_folder(DataRoot(long), {}).path.parent == Path("/tmp")
    with pytest.raises(FolderUnusable, match="bytes"):
        RuntimeFolder(long / "run").ensure()


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o177, 0o777])
def test_the_mode_does_not_depend_on_the_umask(short_tmp: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        RuntimeFolder(short_tmp / "s").ensure()
    finally:
        os.umask(before)
    assert mode(short_tmp / "s") == 0o700


def test_a_wider_mode_is_repaired(short_tmp: Path) -> None:
    folder = RuntimeFolder(short_tmp / "s")
    folder.path.mkdir()
    folder.path.chmod(0o775)
    assert not folder.intact()
    folder.ensure()
    assert mode(folder.path) == 0o700
    assert folder.intact()


def test_a_link_or_a_file_in_its_place_is_refused(short_tmp: Path) -> None:
    (short_tmp / "real").mkdir(mode=0o700)
    (short_tmp / "s").symlink_to(short_tmp / "real")
    with pytest.raises(FolderUnusable, match="symbolic link"):
        RuntimeFolder(short_tmp / "s").ensure()
    (short_tmp / "f").write_text("x")
    with pytest.raises(FolderUnusable, match="not a folder"):
        RuntimeFolder(short_tmp / "f").ensure()
    with pytest.raises(FolderUnusable):
        RuntimeFolder(short_tmp / "f" / "below").ensure()


def test_two_data_roots_of_a_user_meet_in_one_folder(short_tmp: Path) -> None:
    run = short_tmp / "run"
    run.mkdir(mode=0o700)
    assert user_folder({"XDG_RUNTIME_DIR": str(run)}) == run / "modeld"
    usual = user_folder({})  # ssh, cron: the variable is missing, the login session's folder may be there
    assert usual in (Path(f"/run/user/{os.geteuid()}/modeld"), Path("/tmp") / f"modeld-{os.geteuid()}")
    run.chmod(0o755)
    assert user_folder({"XDG_RUNTIME_DIR": str(run)}) == usual


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(short_tmp: Path) -> None:
    folder = short_tmp / "s"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    with pytest.raises(FolderUnusable, match="uid 65534"):
        RuntimeFolder(folder).ensure()
    run = short_tmp / "run"
    run.mkdir(mode=0o700)
    os.chown(run, 65534, 65534)
    assert runtime_folder(DataRoot(short_tmp / "d"), {"XDG_RUNTIME_DIR": str(run)}).path == short_tmp / "d" / "run"
