"""The live view shows what holds the slot, in any width."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.cli.statusview import View, sparkline
from shared.protocol import api

pytestmark = pytest.mark.unit


def active() -> api.ActiveModel:
    return api.ActiveModel(
        name="smollm2-135m", backend="llama", digest="d", path="/m", device="CPU", num_ctx=8192, num_batch=512,
        gpu_layers=0, flash_attention=False, kv_type="f16", template_digest="t", bos_policy="", reasoning_format="",
        runtime_digest="r",
    )  # fmt: skip


def turn(rate: float = 12.5, generated: int = 7) -> api.TurnResult:
    return api.TurnResult(
        finish_reason="stop", model="m", generation=1, usage=api.Usage(reused=1, prefilled=59, generated=generated),
        timings=api.Timings(first_token_s=0.25, tokens_per_s=rate, decode_s=generated / rate),
    )  # fmt: skip


def status(**fields: Any) -> api.Status:
    return api.Status(
        instance="i", role="owner", pid=7, backend="llama", state="Busy", generation=3, version="0.1.0", **fields
    )


BUSY = status(
    active=active(),
    busy=api.BusyOperation(
        operation="turn", stage="prefill", holder="Zed", age_s=2.0, detail={"done": 256, "total": 1024}
    ),
    queue=[api.Waiting(client="VS Code", model="gemma3-270m", waited_s=1.5)],
    memory=api.MemoryStatus(required_bytes=10**8, free_bytes=3 * 10**8, reserve_bytes=5 * 10**7, measured_bytes=10**8),
    last_turn=turn(),
)


def bare(line: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", line)


def test_what_runs_for_whom_who_waits_and_what_it_costs() -> None:
    view = View(colour=False)
    view.note(BUSY)
    text = "\n".join(view.lines(BUSY, width=100, since=1.0))
    for words in (
        "● Busy  smollm2-135m", "turn prefill for Zed, 3.0 s", " 25%", "1. VS Code", "gemma3-270m", "waits 2.5 s",
        "model 100 MB, free 300 MB", "12.5 tokens/s, first after 0.25 s", "█",
    ):  # fmt: skip
        assert words in text, text
    assert "\x1b" not in text


def test_a_turn_counts_once_and_the_highest_is_fullest() -> None:
    view = View(colour=False)
    for rate in (5.0, 5.0, 10.0):
        view.note(status(last_turn=turn(rate)))
    (chart,) = [line for line in view.lines(status(last_turn=turn(10.0)), width=80) if line.startswith("turns")]
    assert chart.removeprefix("turns").strip() == "▅█"
    assert sparkline([]) == ""
    assert sparkline([0.0]) == "▁"


def test_a_modeld_that_is_gone_is_said_and_the_live_view_stays() -> None:
    lines = View(colour=False).lines(BUSY, width=80, away="stopped; waiting for it to come back")
    assert "waiting for it to come back" in lines[0]
    assert any("smollm2" in line for line in lines)


@given(st.integers(1, 200), st.booleans(), st.text(max_size=80))
def test_no_line_is_wider_than_the_terminal(width: int, colour: bool, name: str) -> None:
    holder = "".join(letter for letter in name if letter.isprintable())
    busy = api.BusyOperation(operation="turn", stage="generating", holder=holder, age_s=1.0, detail={"fraction": 0.5})
    shown = status(active=active(), busy=busy, queue=[api.Waiting(client=holder, model=holder, waited_s=9.0)] * 2)
    view = View(colour=colour)
    for line in view.lines(shown, width=width):
        assert len(bare(line)) <= max(width, 40)
        assert "\x1b" not in bare(line), "no colour is cut in two"
