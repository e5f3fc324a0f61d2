"""The list of methods and the folder of handlers are one list: a method without a file would fail at its first call."""

from __future__ import annotations

from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path

import pytest

from modeld.rpc import methods
from shared.protocol import api

pytestmark = pytest.mark.unit
#: Answered by the server itself, before it knows who calls.
GREETING = {"hello"}


def test_every_method_has_its_file_and_every_file_its_method() -> None:
    (folder,) = map(Path, methods.__path__)
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == {method.replace("/", "_") for method in api.METHODS if method not in GREETING}


@pytest.mark.parametrize("method", sorted({*api.METHODS} - GREETING))
def test_a_handler_is_awaited(method: str) -> None:
    assert iscoroutinefunction(import_module(f"modeld.rpc.methods.{method.replace('/', '_')}").handle)


def test_all_but_the_greeting_carry_a_fence() -> None:
    unfenced = {method for method, (params, _) in api.METHODS.items() if not issubclass(params, api.Fenced)}
    assert unfenced == GREETING
