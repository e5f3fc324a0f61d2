"""Our rendering and reading of seventy chat templates against llama-server's, field by field.

Its answers are recorded (`bench/oracle.py`, oracle.json beside this file). Where we differ on purpose, or know
that we do, stands in `differences.json` with the reason: what is not there must agree, and what is there must differ.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from bench.compare import compare, differing
from bench.template_table import NEXT, PAGE, rows, table

pytestmark = [pytest.mark.integration, pytest.mark.model, pytest.mark.timeout(600)]
HERE = Path(__file__).parent


def test_every_field_agrees_but_for_the_known_differences() -> None:
    golden: dict[str, Any] = json.loads((HERE / "oracle.json").read_text(encoding="utf-8"))
    known: dict[str, dict[str, str]] = json.loads((HERE / "differences.json").read_text(encoding="utf-8"))
    found = differing(compare(golden))
    assert found == {name: sorted(fields) for name, fields in known.items()}


def test_the_recorded_prompts_are_digests_only() -> None:
    golden: dict[str, Any] = json.loads((HERE / "oracle.json").read_text(encoding="utf-8"))
    length = len(hashlib.sha256().hexdigest()[:24])
    for record in golden.values():
        assert all(len(one) == length or one == "refused" for one in record.get("prompts", {}).values())


def test_the_page_of_templates_says_what_is_found_now() -> None:
    told, heading, _ = PAGE.read_text(encoding="utf-8").partition(NEXT)
    assert heading
    assert told.rstrip() == table(rows()).rstrip(), "repeat `python -m bench.template_table --report`"
