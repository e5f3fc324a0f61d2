"""The files under editors/ that people and registries read, against the rules of those who read them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from acp_bridge.faces.acp.methods.initialize import AUTH_METHODS
from acp_bridge.install.editor_paths import Surroundings
from acp_bridge.install.editors import EDITORS, Wanted
from acp_bridge.install.jsonc import read
from shared.version import __version__

pytestmark = pytest.mark.unit

EDITORS_FOLDER = Path(__file__).resolve().parents[3] / "editors"
ENTRY = EDITORS_FOLDER / "zed" / "registry" / "modeld"

#: The registry's published rules for a package entry, said in our own words. `cmd` is known to some of its versions
#: only, so it is left out here.
RULES: dict[str, Any] = {
    "type": "object",
    "required": ["id", "name", "version", "description", "distribution"],
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"},
        "name": {"type": "string", "minLength": 1},
        "version": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
        "description": {"type": "string", "minLength": 1},
        "authors": {"type": "array", "items": {"type": "string"}},
        "license": {"type": "string"},
        "distribution": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {
                "uvx": {
                    "type": "object",
                    "required": ["package"],
                    "additionalProperties": False,
                    "properties": {
                        "package": {"type": "string", "minLength": 1},
                        "args": {"type": "array", "items": {"type": "string"}},
                    },
                }
            },
        },
    },
}
#: Names that other agents have in the registry.
TAKEN = {"acp-bridge"}


@pytest.fixture(scope="module")
def agent() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ENTRY / "agent.json").read_text())
    return found


def test_the_registry_entry_keeps_the_rules(agent: dict[str, Any]) -> None:
    jsonschema.validate(agent, RULES)
    assert agent["id"] == ENTRY.name, "the folder has the entry's name"
    assert agent["id"] not in TAKEN


def test_the_registry_entry_runs_this_version_of_this_package(agent: dict[str, Any]) -> None:
    package = agent["distribution"]["uvx"]["package"]
    assert agent["version"] == __version__
    name, _, version = package.partition("==")
    assert version == __version__
    assert re.split(r"[<>=!@]", package)[0] == name == "modeld", "no extras: the registry looks this name up as it is"
    assert agent["distribution"]["uvx"]["args"] == ["acp"]


def test_the_icon_is_small_and_takes_the_editors_colour() -> None:
    text = (ENTRY / "icon.svg").read_text()
    assert "<!--" not in text
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("16", "16", "0 0 16 16")
    colours = {each.get(name) for each in root.iter() for name in ("fill", "stroke")} - {None}
    assert "currentColor" in colours
    assert colours <= {"currentColor", "none", "inherit"}
    assert not any(each.get("style") for each in root.iter())


def test_an_auth_method_of_a_kind_that_the_registry_knows() -> None:
    assert AUTH_METHODS, "a method without a type is of the kind `agent`"


@pytest.mark.parametrize(("editor", "file"), [("zed", "zed/settings.json"), ("jetbrains", "jetbrains/acp.json")])
def test_the_examples_are_what_the_command_writes(editor: str, file: str, tmp_path: Path) -> None:
    around = Surroundings(
        platform="linux",
        environ={},
        home=tmp_path,
        interpreter="/home/you/.local/share/uv/tools/modeld/bin/python",
        exists=lambda path: False,
        which=lambda name: None,
    )
    (change,) = EDITORS[editor](around, Wanted()).changes
    assert read((EDITORS_FOLDER / file).read_text()) == read(change.after or "")
