"""One place never decides about another: what is unreadable, dead, hanging or gone costs its own rows alone."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fuse_folder import FuseFolder
from model_stores import HubCache, put
from shared.catalog.library import Library
from shared.errors import ModelLoadFailed
from shared.paths import DataRoot
from shared.settings import Settings, load_settings
from waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]
WAIT = 15.0


def opened(root: DataRoot, *folders: Path, **environ: str) -> Library:
    settings = Settings(model_folders=tuple(map(str, folders)))
    return Library(root, settings, {"HOME": str(root.path / "home"), **environ})


def names_of(library: Library) -> list[str]:
    return [row.name for row in library.rows() if not row.problem]


@pytest.fixture
def share(short_tmp: Path) -> Iterator[FuseFolder]:
    """A drive whose server can be stopped."""
    try:
        mounted = FuseFolder(short_tmp / "share")
    except OSError:
        pytest.skip("NOT PROVEN HERE: this machine does not permit mounting a FUSE filesystem")
    yield mounted
    mounted.close()


@pytest.fixture
def far(share: FuseFolder, short_tmp: Path) -> Path:
    put(short_tmp / "share" / "deep" / "far.gguf")
    return short_tmp / "share"


def test_a_drive_that_hangs_is_named_and_the_rest_is_there(data_root: DataRoot, share: FuseFolder, far: Path) -> None:
    put(data_root.models / "near.gguf")
    share.stall()
    library = opened(data_root, far)
    rows = library.rows(WAIT)
    assert [row.name for row in rows] == ["near"], "before the drive has been waited for"
    assert library.wait(WAIT)
    assert any(line.startswith(f"{far}: it does not answer") for line in library.problems)
    assert library.find("near", WAIT).name == "near"
    share.go_on()
    until(lambda: names_of(library) == ["far", "near"], "the drive is seen again without being asked for")
    library.close()


def test_what_was_known_of_it_stays_listed_with_the_reason(data_root: DataRoot, share: FuseFolder, far: Path) -> None:
    put(data_root.models / "near.gguf")
    first = opened(data_root, far)
    assert first.wait(WAIT)
    entry = first.find("far")
    share.stall()
    with pytest.raises(ModelLoadFailed, match="does not answer"):
        first.checked(entry)
    for library in (first, opened(data_root, far)):
        assert library.refresh(WAIT)
        rows = {row.name: row for row in library.rows()}
        assert sorted(rows) == ["far", "near"]
        assert (rows["far"].backends, "does not answer" in rows["far"].problem) == ((), True)
        assert not rows["near"].problem
        library.compute_checksums()
    share.go_on()
    until(lambda: names_of(first) == ["far", "near"], "it can be used again")


def test_a_hanging_folder_inside_of_a_place(data_root: DataRoot, share: FuseFolder, far: Path, short_tmp: Path) -> None:
    """By a link to the drive, to one of its folders, and to its files."""
    folder = short_tmp / "mixed"
    put(folder / "z" / "good.gguf")
    (folder / "drive").symlink_to(far)
    for index in range(12):
        put(far / f"one-{index}.gguf")
        (folder / f"linked-{index}.gguf").symlink_to(far / f"one-{index}.gguf")
    share.stall()
    library = opened(data_root, folder)
    assert library.wait(WAIT)
    assert names_of(library) == ["good"]
    assert [line for line in library.problems if "does not answer" in line] == [f"{far}: it does not answer"]


def test_a_drive_whose_server_was_killed(data_root: DataRoot, share: FuseFolder, far: Path) -> None:
    put(data_root.models / "near.gguf")
    put(far / "models--o--r" / "snapshots" / "1" / "hub.gguf")
    first = opened(data_root, HF_HUB_CACHE=str(far))
    assert first.wait(WAIT)
    assert len(first.rows()) == 3
    os.kill(share._process.pid, 9)
    share._process.wait()
    second = opened(data_root, HF_HUB_CACHE=str(far))
    assert second.wait(WAIT)
    assert names_of(second) == ["near"]
    assert any("not connected" in line for line in second.problems)
    subprocess.run(["umount", "-l", str(far)], check=True)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="another user is played")
def test_a_place_of_another_user_costs_only_itself(data_root: DataRoot, short_tmp: Path) -> None:
    """As a user who may not look into the home of Ollama's service."""
    closed = short_tmp / "ollama"
    put(closed / "models" / "blobs" / "x", b"")
    put(data_root.models / "near.gguf")
    script = (
        "import sys, os\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, os.getcwd())\n"
        "from shared.catalog.library import Library\n"
        "from shared.paths import DataRoot\n"
        "from shared.settings import Settings\n"
        "os.seteuid(65534)\n"
        f"library = Library(DataRoot(Path({str(data_root.path)!r})), Settings(), "
        f"{{'HOME': '/nowhere', 'OLLAMA_MODELS': {str(closed / 'models')!r}}})\n"
        "assert library.wait(15)\n"
        "print([row.name for row in library.rows()], library.problems)\n"
    )
    for folder in (short_tmp, data_root.path, data_root.models):
        folder.chmod(0o755)
    closed.chmod(0o700)
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert said.startswith("['near']")
    assert "Permission denied; join the group `ollama`" in said


@pytest.mark.skipif(os.pathsep == ";", reason="a colon parts no folders there")
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("/a:/b c:", ["/a", "/b c"]),
        ("http://host:8080/models:/a", ["http://host:8080/models", "/a"]),
        ("/a:https://user:secret@host/x", ["/a", "https://user:secret@host/x"]),
        ("smb://nas/share", ["smb://nas/share"]),
    ],
)
def test_folders_of_the_environment(written: str, read: list[str]) -> None:
    assert list(load_settings({"MODELD_MODEL_FOLDERS": written}).model_folders) == read


def test_an_address_among_the_folders_is_called_one(data_root: DataRoot) -> None:
    put(data_root.models / "near.gguf")
    settings = Settings(model_folders=("https://user:secret@host:8080/models",))
    library = Library(data_root, settings, {"HOME": "/nowhere"})
    assert library.wait(WAIT)
    assert names_of(library) == ["near"]
    assert ["an address is no folder" in line and "secret" not in line for line in library.problems] == [True]


def test_a_file_that_could_not_be_read_is_read_when_it_can_be(
    data_root: DataRoot, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Giving a right changes nothing by which a file is known to have changed."""
    path = put(short_tmp / "m" / "one.gguf")
    real = open

    def refusing(file: object, *args: object, **options: object) -> object:
        if file == str(path):
            raise PermissionError(13, "Permission denied")
        return real(file, *args, **options)  # type: ignore[call-overload]

    library = opened(data_root, path.parent)
    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", refusing)
        assert library.wait(WAIT)
        assert library.find("one").problem == "Permission denied"
    assert library.refresh(WAIT)
    assert not library.find("one").problem


@pytest.mark.parametrize("code", ["EACCES", "EIO", "ESTALE", "ENOTCONN", "EPERM", "ETIMEDOUT"])
def test_whatever_the_system_says_costs_its_own_rows(
    data_root: DataRoot, short_tmp: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    put(data_root.models / "near.gguf")
    put(short_tmp / "share" / "far.gguf")
    library = opened(data_root, short_tmp / "share")
    assert library.wait(WAIT)
    number = getattr(errno, code)

    def refusing(path: object, *, real: Any) -> Any:
        if str(path).startswith(str(short_tmp / "share")):
            raise OSError(number, os.strerror(number))
        return real(path)

    with monkeypatch.context() as patched:
        for name in ("scandir", "stat"):
            patched.setattr(os, name, partial(refusing, real=getattr(os, name)))
        assert library.refresh(WAIT)
        rows = {row.name: row.problem for row in library.rows()}
    assert rows == {"near": "", "far": f"{short_tmp / 'share'}: {os.strerror(number)}"}
    assert library.refresh(WAIT)
    assert names_of(library) == ["far", "near"]
    library.close()


def test_a_repository_is_not_searched_twice_for_its_revisions(data_root: DataRoot, short_tmp: Path) -> None:
    hub = HubCache(short_tmp / "hub")
    hub.snapshot("o/r", "a" * 40, {"m.gguf": put(short_tmp / "m").read_bytes()})
    library = opened(data_root, short_tmp / "hub", HF_HUB_CACHE=str(hub.folder))
    assert library.wait(WAIT)
    assert names_of(library) == ["m"]
