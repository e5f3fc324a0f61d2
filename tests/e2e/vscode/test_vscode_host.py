"""What other extensions see: tests that run inside the extension host of a real editor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from clients.home import Home
from clients.vscode import VIEWPORT, Editor, Window, run_node, tools, vsix

pytestmark = [pytest.mark.e2e, pytest.mark.editor]


@pytest.fixture(scope="module")
def results(scripted: Home) -> Path:
    """Where the tests in the host write."""
    path = scripted.folder / "host.jsonl"
    scripted.environ["MODELD_HOST_RESULTS"] = str(path)
    return path


@pytest.fixture(scope="module")
def host(scripted: Home, results: Path) -> Iterator[Editor]:
    """An editor that may run tests in its host."""
    vsix()  # the development copy is run from its folder: its bundles must be those of now
    with Editor(scripted, options=["--vscode-option", "enable-smoke-test-driver"]) as served:
        yield served


def test_the_models_as_other_extensions_use_them(scripted: Home, host: Editor, results: Path, browser: Any) -> None:
    bundle = scripted.folder / "host.cjs"
    flags = ["--bundle", "--platform=node", "--format=cjs", "--external:vscode", f"--outfile={bundle}"]
    done = run_node("node_modules/esbuild/bin/esbuild", "test/host/index.ts", *flags)
    assert done.returncode == 0, done.stderr
    page = browser.new_page(viewport=VIEWPORT)
    for name in ("codeAutomationExit", "codeAutomationLog"):  # the editor calls them
        page.expose_function(name, lambda *values: None)
    at = f"vscode-remote://{urlsplit(host.url).netloc}"
    payload = [["extensionDevelopmentPath", f"{at}{tools()['extension']}"], ["extensionTestsPath", f"{at}{bundle}"]]
    window = Window(host, page).open(payload=json.dumps(payload))
    window.until(lambda: results.exists() and _ended(results), "the tests in the host end", 120)
    outcomes = {one["name"]: one["outcome"] for one in _read(results)}
    page.close()
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "ok"} == {}
    assert len(outcomes) > 5
    assert scripted.status()["state"] == "Ready"


def _read(results: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in results.read_text().splitlines() if line.endswith("}")]


def _ended(results: Path) -> bool:
    return any(one["name"] == "" for one in _read(results))
