"""What is installed elsewhere is the product alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = {"acp_bridge", "modeld", "shared"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("modeld-*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive


def test_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == FOLDERS
    ours = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert ours <= set(names)
    assert "shared/__init__.py" not in names, "a namespace: it must not shadow anybody's module"


def test_wheel_brings_license_and_both_commands(wheel: zipfile.ZipFile) -> None:
    infos = {name.split("/", 1)[1] for name in wheel.namelist() if ".dist-info/" in name}
    assert "licenses/LICENSE" in infos
    assert "entry_points.txt" in infos


def test_both_commands_are_declared() -> None:
    import importlib.metadata

    scripts = {entry.name: entry.value for entry in importlib.metadata.distribution("modeld").entry_points}
    assert scripts == {"modeld": "modeld.__main__:main", "acp-bridge": "acp_bridge.__main__:main"}
