"""A process knows when the files it came from are of another version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shared.diagnosis.installed import ImportGuard, Installed
from shared.errors import Upgraded, from_wire

pytestmark = pytest.mark.unit


def write(path: Path, version: str) -> None:
    part = path.with_suffix(".new")
    part.write_text(f'__version__ = "{version}"\n')
    part.replace(path)


def test_another_version_on_disk_is_noticed_and_its_return_too(tmp_path: Path) -> None:
    path = tmp_path / "version.py"
    write(path, "1.0")
    installed = Installed(path, "1.0")
    assert installed.changed() == ""
    write(path, "1.0")
    assert installed.changed() == "", "the same version, installed again"
    write(path, "1.1")
    assert installed.changed() == "1.1"
    write(path, "1.0")
    assert installed.changed() == "", "taken back"


def test_files_that_are_being_exchanged_prove_nothing(tmp_path: Path) -> None:
    path = tmp_path / "version.py"
    write(path, "1.0")
    installed = Installed(path, "1.0")
    path.unlink()
    assert installed.changed() == ""
    path.write_text("half a")
    assert installed.changed() == ""
    write(path, "2.0")
    assert installed.changed() == "2.0"


def test_nothing_of_another_version_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "version.py"
    write(path, "1.0")
    (tmp_path / "ourpackage").mkdir()
    for name in ("early", "late"):
        (tmp_path / "ourpackage" / f"{name}.py").write_text(f"word = {name!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    ImportGuard(Installed(path, "1.0"), ("ourpackage",)).stand()
    import ourpackage.early  # type: ignore[import-not-found]

    assert ourpackage.early.word == "early"
    write(path, "1.1")
    with pytest.raises(Upgraded) as caught:
        import ourpackage.late  # type: ignore[import-not-found]
    assert (caught.value.running, caught.value.installed) == ("1.0", "1.1")
    assert "restart" in caught.value.message
    assert isinstance(from_wire(caught.value.to_wire()), Upgraded)
