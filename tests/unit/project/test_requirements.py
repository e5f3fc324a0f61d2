"""The requirements page names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8"))


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_named_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^\s*(async )?def {test}\(|^{test} = ", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
