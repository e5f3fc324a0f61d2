"""The starter can be fetched also where this Python has no pip of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shared.fetch.pip_command import pip_command, pip_environment

pytestmark = pytest.mark.unit


def test_the_first_way_that_is_there() -> None:
    wheel = Path("/usr/lib/python3.11/ensurepip/_bundled/pip-24.0-py3-none-any.whl")
    assert pip_command(lambda: True) == [sys.executable, "-m", "pip"]
    assert pip_command(lambda: False, bundled=lambda: wheel) == [sys.executable, f"{wheel}/pip"]
    tools = {"uv": "/bin/uv", "pip3": "/bin/pip3"}
    assert pip_command(lambda: False, tools.get, lambda: None) == ["/bin/uv", "tool", "run", "--quiet", "pip"]
    assert pip_command(lambda: False, {"pip3": "/bin/pip3"}.get, lambda: None) == ["/bin/pip3"]
    assert pip_command(lambda: False, lambda name: None, lambda: None) == ["pip"], "and its absence is said"


def test_the_index_of_uv_counts_for_pip() -> None:
    assert pip_environment({"UV_DEFAULT_INDEX": "https://a"})["PIP_INDEX_URL"] == "https://a"
    assert pip_environment({"UV_INDEX_URL": "https://b", "PIP_INDEX_URL": "https://c"})["PIP_INDEX_URL"] == "https://c"
    assert "PIP_INDEX_URL" not in pip_environment({})
