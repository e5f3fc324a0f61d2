"""One server and one daemon for the tests of a file: a program is never the only client of either."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from http_world import HttpServer, modeld, serving
from leaks import Children, end_processes_of
from lsp_world import World
from scripted_engine import CHATML

TOOL_CALL = '<tool_call>\n{"name": "look", "arguments": {"path": "a.txt"}}\n</tool_call>'
#: Of a model that thinks.
TEMPLATE = CHATML + "{% if never %}<think></think>{% endif %}"
REPLIES = [
    {"pieces": ["Hello ", "there"]},
    {"when": "count for ever", "pieces": ["on ", "and "], "endless": True},
    {"when": "a flood", "pieces": ["x" * 20_000], "endless": True},
    {"when": "look at it", "pieces": [TOOL_CALL[:30], TOOL_CALL[30:50], TOOL_CALL[50:]]},
    {"when": "look twice", "pieces": [TOOL_CALL, "\n", TOOL_CALL]},
    {"when": "think first", "pieces": ["<think>", "hm", "</think>", "so"]},
    {"when": "fail now", "pieces": ["half "], "crash_after": 1},
]


@pytest.fixture(autouse=True)
def no_child_left() -> None:
    """The daemon of a file loads and unloads while its tests run: what is left is looked for at the file's end."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="md-"))
    before = Children.now()
    yield World(folder)
    left = [*end_processes_of(folder / "data"), *Children.now().wait_gone(before)]
    shutil.rmtree(folder, ignore_errors=True)
    assert not left, f"processes left behind: {left}"


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[HttpServer]:
    daemon = world.scripted("alpha", "beta", replies=REPLIES, token_s=0.002, template=TEMPLATE)
    with modeld(daemon), serving(world, MODELD_STALLED_SECONDS="1") as server:
        yield server
