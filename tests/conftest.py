"""What every test shares: the loop it runs on, a private data root, and proof that it left nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from leaks import Children, end_processes_of
from shared.paths import DataRoot

pytest_plugins = ["beside", "weights", "marked_weights", "converted"]


# `make test` is bounded in time, `make fuzz` is not; neither judges an example by the clock
hypothesis.settings.register_profile("default", max_examples=100, deadline=None)
hypothesis.settings.register_profile("fuzz", max_examples=5000, deadline=None)
hypothesis.settings.load_profile("default")

#: what `make test` could not install on this machine, said in its first lines and in the summary
UNTESTED = tuple(name for name in os.environ.get("MODELD_UNTESTED", "").split(",") if name)


#: For a test of many examples: it computes all the time, and beside others it gets a part of one processor.
PROPERTY_SECONDS = 120


def pytest_configure() -> None:
    """A shell starts what runs in its background deaf to interrupts, and every child would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only what the set-up itself gave up is left out; anything else that is missing fails."""
    for item in items:
        asked = item.get_closest_marker("timeout") is not None or config.getoption("timeout") is not None
        if not asked and hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.timeout(PROPERTY_SECONDS))
        for name in UNTESTED:
            if item.get_closest_marker(name) is not None:
                item.add_marker(pytest.mark.skip(reason=f"NOT TESTED: {name} could not be installed here"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Loud, since a green line hides what was left out."""
    for name in UNTESTED:
        terminalreporter.write_line(f"NOT TESTED on this machine: everything that needs {name}", red=True, bold=True)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """modeld runs on asyncio alone: Windows pipes exist nowhere else."""
    return "asyncio"


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A private folder whose path leaves room for a socket name (tmp_path is too long on macOS)."""
    folder = Path(tempfile.mkdtemp(prefix="md-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def private_home(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME and every XDG folder private, so that no test sees the models or settings of the user."""
    for variable, name in {
        "HOME": "home",
        "XDG_RUNTIME_DIR": "run",
        "XDG_CACHE_HOME": "home/.cache",
        "XDG_CONFIG_HOME": "home/.config",
        "XDG_DATA_HOME": "home/.local/share",
        "XDG_STATE_HOME": "home/.local/state",
    }.items():
        folder = short_tmp / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        monkeypatch.setenv(variable, str(folder))
    for variable in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "MODELD_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    return short_tmp / "home"


@pytest.fixture
def data_root(short_tmp: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataRoot]:
    """A private data root in MODELD_DATA_ROOT; afterwards no process that lives on it may be left."""
    del private_home
    root = DataRoot(short_tmp / "data")
    root.path.mkdir(mode=0o700)
    monkeypatch.setenv("MODELD_DATA_ROOT", str(root.path))
    yield root
    left = end_processes_of(root.path)
    assert not left, f"processes left behind on this test's data root: {left}"


@pytest.fixture(autouse=True)
def no_child_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test ends every process it started; unit tests start none."""
    if request.node.get_closest_marker("unit"):
        yield
        return
    before = Children.now()
    yield
    left = Children.now().wait_gone(before)
    assert not left, f"child processes left behind: {left}"
