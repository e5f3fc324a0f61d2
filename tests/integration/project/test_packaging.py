"""What is installed elsewhere is the product alone."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from shared.version import __version__

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = {"acp_bridge", "modeld", "shared"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's path. It is made as an index would get it: without anything of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("modeld-*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    with zipfile.ZipFile(built) as archive:
        return archive


def test_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    modules = {name for name in names if not name.startswith(f"modeld-{__version__}.data/")}
    assert {name.split("/")[0] for name in modules} == FOLDERS
    ours = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert ours <= set(names)
    assert "shared/__init__.py" not in names, "a namespace: it must not shadow anybody's module"
    assert not [name for name in names if "test" in name.rpartition("/")[2].split("_") or name.endswith(".pyc")]


def test_wheel_brings_license_commands_and_man_pages(wheel: zipfile.ZipFile) -> None:
    infos = {name.split("/", 1)[1] for name in wheel.namelist() if ".dist-info/" in name}
    assert "licenses/LICENSE" in infos
    assert "entry_points.txt" in infos
    data = f"modeld-{__version__}.data/data/share/man/man1"
    assert {f"{data}/modeld.1", f"{data}/acp-bridge.1"} <= set(wheel.namelist())


def test_version_has_one_source(built: Path) -> None:
    assert built.name == f"modeld-{__version__}-py3-none-any.whl"
    for program in ("modeld", "acp_bridge"):
        done = subprocess.run(
            [sys.executable, "-P", "-m", program, "--version"], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [program.replace("_", "-"), __version__]


def test_both_commands_are_declared() -> None:
    import importlib.metadata

    scripts = {entry.name: entry.value for entry in importlib.metadata.distribution("modeld").entry_points}
    assert scripts == {"modeld": "modeld.__main__:main", "acp-bridge": "acp_bridge.__main__:main"}


def test_sdist_has_what_a_wheel_is_made_of(tmp_path: Path) -> None:
    """A source archive from which the same modules come."""
    uv = find_uv()
    subprocess.run([uv, "build", "--quiet", "--sdist", "--out-dir", str(tmp_path), str(ROOT)], check=True)
    (path,) = tmp_path.glob("modeld-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt", "docs/man/modeld.1"} <= names
    ours = {str(each.relative_to(ROOT)) for folder in FOLDERS for each in (ROOT / folder).rglob("*.py")}
    assert ours <= names
    assert not [name for name in names if name.startswith((".venv", ".work", "editors/vscode/node_modules"))]


def test_uv_installs_it_as_a_tool(built: Path, tmp_path: Path) -> None:
    """As `uv tool install modeld`, in a home of its own: both commands run from there, without pip."""
    uv = find_uv()
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "UV_"))},
        "HOME": str(tmp_path),
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "MODELD_DATA_ROOT": str(tmp_path / "data"),
    }
    wanted = ["--python", sys.executable, "--constraints", str(ROOT / "constraints.txt"), str(built)]
    done = subprocess.run(
        [uv, "tool", "install", "--quiet", *wanted], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for program in ("modeld", "acp-bridge"):
        command = [str(tmp_path / "bin" / program), "--version"]
        told = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
        assert told.split() == [program, __version__]
    report = subprocess.run(
        [str(tmp_path / "bin" / "modeld"), "doctor"], env=environ, capture_output=True, text=True, check=False
    )
    assert "engines: none is installed" in report.stdout, "an installation without extras says what it lacks"
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    answer = subprocess.run(
        [str(tmp_path / "bin" / "modeld"), "acp"],
        env=environ,
        input=json.dumps(hello) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout.splitlines()[0])["result"]["agentInfo"]["version"] == __version__


def find_uv() -> str:
    """The tool that comes with the tests."""
    from uv import find_uv_bin

    return str(find_uv_bin())


def test_no_licence_that_would_bind_the_user() -> None:
    """What an installation brings is listed, and none of it asks its user to open their own work."""
    text = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    named = {row[0].removeprefix("| ") for row in rows}
    required = importlib.metadata.requires("modeld") or []
    always = {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in required if "extra ==" not in line}
    assert always <= named, always - named
    for row in rows:
        assert not re.search(r"\b(A?GPL|SSPL|BUSL)", row[2]), row
