"""What other extensions see: tests that run inside the extension host of a real editor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from clients.home import Home
from clients.script import write_script
from clients.vscode import Editor, run_node, tools, vsix
from clients.vscode_window import VIEWPORT, Window

pytestmark = [pytest.mark.e2e, pytest.mark.editor]

#: not for the shops: with it the editor takes thoughts from an extension
PROPOSED = ["languageModelThinkingPart"]


def development_copy(target: Path) -> Path:
    """The extension as it is packed, allowed what is not yet for everyone: thoughts beside the text."""
    vsix()  # its bundles must be those of now
    made = Path(tools()["extension"])
    for name in ("dist", "media"):
        shutil.copytree(made / name, target / name)
    manifest = json.loads((made / "package.json").read_text(encoding="utf-8"))
    (target / "package.json").write_text(json.dumps({**manifest, "enabledApiProposals": PROPOSED}), encoding="utf-8")
    return target


@pytest.fixture
def results(scripted: Home) -> Path:
    """Where the tests in the host write."""
    path = scripted.folder / "host.jsonl"
    scripted.environ["MODELD_HOST_RESULTS"] = str(path)
    return path


@pytest.fixture
def host(scripted: Home, results: Path) -> Iterator[Editor]:
    """An editor that may run tests in its host; being one, it shows no notifications, so the others need their own."""
    with Editor(scripted, options=["--vscode-option", "enable-smoke-test-driver"], name="host") as served:
        yield served
        served.stop()


@pytest.mark.core_editor
def test_the_models_as_other_extensions_use_them(
    scripted: Home, host: Editor, results: Path, browser: Any, status: Callable[[], dict[str, Any]]
) -> None:
    write_script(scripted)
    scripted.run("modeld", "unload", check=False)  # nobody's model has to go
    bundle = scripted.folder / "host.cjs"
    flags = ["--bundle", "--platform=node", "--format=cjs", "--external:vscode", f"--outfile={bundle}"]
    done = run_node("node_modules/esbuild/bin/esbuild", "test/host/index.ts", *flags)
    assert done.returncode == 0, done.stderr
    page = browser.new_page(viewport=VIEWPORT)
    for name in ("codeAutomationExit", "codeAutomationLog"):  # the editor calls them
        page.expose_function(name, lambda *values: None)
    at = f"vscode-remote://{urlsplit(host.url).netloc}"
    payload = [
        ["extensionDevelopmentPath", f"{at}{development_copy(scripted.folder / 'development')}"],
        ["extensionTestsPath", f"{at}{bundle}"],
        ["enableProposedApi", ""],
    ]
    window = Window(host, page).open(payload=json.dumps(payload))
    window.until(lambda: results.exists() and _ended(results), "the tests in the host end", 300)
    outcomes = {one["name"]: one["outcome"] for one in _read(results)}
    page.close()
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "ok"} == {}
    assert len(outcomes) > 5
    assert status()["state"] == "Ready"


def _read(results: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in results.read_text().splitlines() if line.endswith("}")]


def _ended(results: Path) -> bool:
    return any(one["name"] == "" for one in _read(results))
