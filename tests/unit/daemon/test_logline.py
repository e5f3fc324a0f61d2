"""A log line is read by people and by programs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.log.logline import fields_line, parsed, turn_line
from shared.protocol import api

pytestmark = pytest.mark.unit


def test_a_turn_is_one_line_with_its_times() -> None:
    result = api.TurnResult(
        finish_reason="stop",
        model="smollm2 135m",
        usage=api.Usage(reused=3, prefilled=59, generated=7),
        timings=api.Timings(first_token_s=2.594, tokens_per_s=12.43),
        generation=4,
    )
    line = turn_line("Zed", result)
    assert line.startswith('turn client=Zed model="smollm2 135m" finish=stop reused=3 prefilled=59 generated=7 ')
    reported = parsed(f"2026-11-29T20:55:19 [23773] {line}")
    assert (reported["event"], reported["pid"], reported["time"]) == ("turn", 23773, "2026-11-29T20:55:19")
    assert reported["fields"]["model"] == "smollm2 135m"
    assert reported["fields"]["generated"] == 7
    assert reported["fields"]["first_token_s"] == 2.59


def test_other_lines_are_text() -> None:
    assert parsed("2026-11-29T20:55:19 [1] this instance owns the hardware") == {
        "time": "2026-11-29T20:55:19",
        "pid": 1,
        "text": "this instance owns the hardware",
    }
    assert parsed("what an engine printed") == {"text": "what an engine printed"}


@given(st.text(max_size=20))
def test_any_name_survives(name: str) -> None:
    reported = parsed(f"2026-11-29T20:55:19 [1] {fields_line('turn', client=name, n=1)}")
    assert str(reported["fields"]["client"]) == " ".join(name.split()) or reported["fields"]["client"] in (
        int(name) if name.strip().lstrip("+-").isdecimal() else None,
        float(name) if "." in name and name.replace(".", "", 1).strip().isdecimal() else None,
    )
    assert reported["fields"]["n"] == 1
