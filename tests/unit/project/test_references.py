"""The reference pages say what the tables in the code say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from shared import errors, settings

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]


def references() -> ModuleType:
    spec = importlib.util.spec_from_file_location("references", ROOT / "scripts" / "references.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["commands.md", "errors.md", "lsp.md", "man/acp-bridge.1", "man/modeld.1", "settings.md"]
)
def test_page_is_in_step_with_the_code(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == references().PAGES[name](), "run make docs"


def test_every_setting_has_a_reason_and_every_kind_its_own_code() -> None:
    assert set(settings.REASONS) == set(settings.Settings.__struct_fields__)
    codes = [error.code for error in errors.BY_KIND.values() if error.code <= -32010 and error.code > -32100]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(("former", "kind"), errors.FORMER_KINDS.items())
def test_an_error_of_an_earlier_release_is_known_under_its_new_name(former: str, kind: str) -> None:
    code = errors.BY_KIND[kind].code
    said = errors.from_wire({"code": code, "message": "as it was", "data": {"kind": former, "index": 2}})
    assert type(said) is errors.BY_KIND[kind]
    assert (str(said), said.data["index"]) == ("as it was", 2)
    assert former not in errors.BY_KIND, "one name is said, two are understood"
