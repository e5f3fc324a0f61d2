"""The extension as it is built: its types, its unit tests, and what the package holds."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from clients.vscode import run_node, tools, vsix

pytestmark = [pytest.mark.e2e, pytest.mark.node]

LIMIT = 300_000
#: everything else in the package would be a file too many
WANTED = re.compile(
    r"\[Content_Types\]\.xml|extension\.vsixmanifest"
    r"|extension/(package\.json|readme\.md|changelog\.md|LICENSE\.txt)"
    r"|extension/dist/(extension\.js|language\.js|panel\.js|panel\.css)"
    r"|extension/media/[a-z]+\.(md|svg)"
)


def test_types_are_strict_and_sound() -> None:
    for project in (".", "src/webview"):
        done = run_node("node_modules/typescript/bin/tsc", "-p", project)
        assert done.returncode == 0, done.stdout + done.stderr


def test_unit_tests_of_the_extension() -> None:
    done = run_node("--test", "test/unit/**/*.test.ts")
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"pass (\d+)", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 50


def test_pure_modules_know_no_editor() -> None:
    """A module that says that it is pure runs in the unit tests, where no editor is."""
    source = Path(tools()["extension"]) / "src"
    pure = 0
    for file in source.rglob("*.ts"):
        text = file.read_text(encoding="utf-8")
        if "Pure." in text or "Pure:" in text:
            pure += 1
            assert "from 'vscode'" not in text, file
        assert len(text.splitlines()) <= 400 or file.name == "wire.ts", file
    assert pure >= 20


def test_the_package_holds_what_it_needs_and_nothing_else() -> None:
    with zipfile.ZipFile(vsix()) as package:
        names = package.namelist()
        manifest = json.loads(package.read("extension/package.json"))
    assert [name for name in names if not WANTED.fullmatch(name)] == []
    assert {"extension/dist/extension.js", "extension/dist/language.js", "extension/dist/panel.js"} <= set(names)
    assert vsix().stat().st_size < LIMIT
    for step in manifest["contributes"]["walkthroughs"][0]["steps"]:
        assert f"extension/{step['media']['markdown']}" in names


def test_every_command_and_setting_is_contributed_and_documented() -> None:
    folder = Path(tools()["extension"])
    manifest = json.loads((folder / "package.json").read_text(encoding="utf-8"))["contributes"]
    contributed = {one["command"] for one in manifest["commands"]}
    source = "\n".join(file.read_text(encoding="utf-8") for file in (folder / "src").rglob("*.ts"))
    for name in contributed:
        assert f"'{name}'" in source, f"{name} is contributed and does nothing"
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for setting in manifest["configuration"]["properties"]:
        assert f"`{setting}`" in readme, f"{setting} is not in the README"
