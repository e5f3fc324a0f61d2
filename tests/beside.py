"""How `make test` spreads the tests over processes: whole files, those that take longest first."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

#: One editor serves the whole folder.
TOGETHER = ("tests/e2e/vscode/",)
#: What begins last ends last: a long file must not be what everybody waits for.
LONGEST_FIRST = ("tests/e2e/vscode/", "tests/windows/", "tests/e2e/", "tests/integration/engine/", "tests/integration/")


class ByFile(LoadFileScheduling):  # type: ignore[misc]  # it has no type information
    """Tests of one file follow each other in one process: they share engines and daemons."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Only asked where there are several processes."""
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The order in which files are handed out."""
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    return next(
        (turn for turn, folder in enumerate(LONGEST_FIRST) if item.nodeid.startswith(folder)), len(LONGEST_FIRST)
    )
