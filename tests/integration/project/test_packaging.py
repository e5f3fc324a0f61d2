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


#: What entry points and environments are known to drag in, besides what the bridge itself must not import early.
COSTLY = {"importlib.metadata", "pkg_resources", "setuptools", "jinja2", "lsprotocol", "psutil", "pygls", "sqlite3"}
HELLO = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}) + "\n"


def alone(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has nothing yet: no environment of this one, a home of their own."""
    ours = ("VIRTUAL_ENV", "UV_", "PIPX_", "PYTHON", "MODELD_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "HOME": str(home), "XDG_DATA_HOME": str(home / "share"), "PATH": "/usr/bin:/bin", **more}


def installed(bin_folder: Path, environ: dict[str, str], adds: str) -> None:
    """Both commands run from there, as a person and as an editor call them; what is missing is named with its cure."""

    def reported(*command: str, given: str = "") -> str:
        done = subprocess.run(command, env=environ, input=given, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    for program in ("modeld", "acp-bridge"):
        assert reported(str(bin_folder / program), "--version").split() == [program, __version__]
    report = reported(str(bin_folder / "modeld"), "doctor")
    assert "engines: none is installed" in report, "an installation without extras says what it lacks"
    assert f"`{adds} 'modeld[openvino]'`" in report, "by the tool that made it"
    for command in (["modeld", "acp"], ["acp-bridge", "acp"]):
        answer = json.loads(reported(str(bin_folder / command[0]), *command[1:], given=HELLO).splitlines()[0])
        assert answer["result"]["agentInfo"]["version"] == __version__
    settings = reported(str(bin_folder / "acp-bridge"), "install", "zed", "--print")
    command = json.loads(settings[settings.index("{") :])["agent_servers"]["modeld"]
    answer = json.loads(reported(command["command"], *command["args"], given=HELLO).splitlines()[0])
    assert answer["result"]["protocolVersion"] == 1, "what an editor's settings name starts from there too"
    script = str((bin_folder / "acp-bridge").resolve())
    line = [command["command"], "-X", "importtime", script, "acp"]
    done = subprocess.run(line, env=environ, input=HELLO, capture_output=True, text=True, check=True)
    imported = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines() if row.startswith("import time:")}
    assert "acp_bridge.faces.acp.server" in imported
    assert not imported & COSTLY, "the installed command starts as quickly as `python -m acp_bridge`"


def test_uv_installs_it_as_a_tool(built: Path, tmp_path: Path) -> None:
    """As `uv tool install modeld`, in a home of its own."""
    tools, folder = tmp_path / "tools", tmp_path / "bin"
    environ = alone(tmp_path, UV_TOOL_DIR=str(tools), UV_TOOL_BIN_DIR=str(folder))
    wanted = ["--python", sys.executable, "--constraints", str(ROOT / "constraints.txt"), str(built)]
    run(find_uv(), "tool", "install", "--quiet", *wanted, environ=environ)
    installed(folder, environ, "uv tool install")
    run(find_uv(), "tool", "uninstall", "--quiet", "modeld", environ=environ)
    assert not (folder / "modeld").exists()


def test_pipx_installs_it(built: Path, tmp_path: Path) -> None:
    """As `pipx install modeld`, in a home of its own."""
    folder = tmp_path / "bin"
    environ = alone(
        tmp_path, PIPX_HOME=str(tmp_path / "pipx"), PIPX_BIN_DIR=str(folder), PIPX_MAN_DIR=str(tmp_path / "man")
    )
    pipx = [sys.executable, "-P", "-m", "pipx"]
    options = ["--quiet", "--python", sys.executable, "--pip-args=--constraint=constraints.txt"]
    run(*pipx, "install", *options, str(built), environ=environ)
    installed(folder, environ, "pipx install --force")
    assert (tmp_path / "man" / "man1" / "modeld.1").exists(), "`man modeld` works"
    run(*pipx, "uninstall", "--quiet", "modeld", environ=environ)
    assert not (folder / "modeld").exists()


def test_uvx_runs_it_without_installing(built: Path, tmp_path: Path) -> None:
    """As an editor's registry has it: the agent is the package's own name, out of uv's cache."""
    environ = alone(tmp_path)
    line = [find_uv(), "tool", "run", "--quiet", "--python", sys.executable]
    line += ["--constraints", str(ROOT / "constraints.txt"), "--from", str(built), "modeld"]
    answer = run(*line, "acp", environ=environ, given=HELLO)
    assert json.loads(answer.splitlines()[0])["result"]["agentInfo"]["version"] == __version__
    assert "`uv tool install 'modeld[openvino]'`" in run(*line, "doctor", environ=environ, code=1)


def run(*command: str, environ: dict[str, str], given: str = "", code: int = 0) -> str:
    """One command to its end, its output; fails with its words."""
    done = subprocess.run(command, env=environ, cwd=ROOT, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


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
