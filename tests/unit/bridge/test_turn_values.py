"""The pure rules of a turn: what is said, what is sent, and whom a switch concerns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from acp_bridge.models.thinking import level_of
from acp_bridge.turn.history import GivenHistory
from acp_bridge.turn.sentences import images_left_out_text, left_out_text, rounds_text
from acp_bridge.turn.switched import ActiveModelWatch, Replaced
from bridge_fakes import active, row
from shared.errors import UnsupportedFeature
from shared.protocol import api

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (images_left_out_text(1, "a"), "The image is left out: a does not see images."),
        (images_left_out_text(2, "a"), "The 2 images are left out: a does not see images."),
        (left_out_text(1, 4096), "The first message no longer fits the window of 4,096 tokens and is left out."),
        (left_out_text(2, 9, "Do."), "The first 2 messages no longer fit the window of 9 tokens and are left out. Do."),
        (rounds_text(30), "Stopped after 30 rounds of tools. Send a message to go on."),
    ],
)
def test_sentences(text: str, said: str) -> None:
    assert text == said


def test_thinking_levels() -> None:
    for nothing in (None, "", "default"):
        assert level_of(row("a"), nothing, "a") is None
    assert level_of(row("a", thinking=True), "high", "a") == "high"
    with pytest.raises(UnsupportedFeature, match=r"a has no thinking level 'high' \(it has: none\)") as refused:
        level_of(row("a"), "high", "a")
    assert refused.value.feature == "thinking level 'high'"
    with pytest.raises(UnsupportedFeature, match=r"\(it has: default, off, low, medium, high\)"):
        level_of(row("a", thinking=True), "huge", "a")
    with pytest.raises(UnsupportedFeature):
        level_of(None, "off", "remote/model")


def test_a_given_history_is_rendered_once_and_cut_behind_the_system() -> None:
    rendered: list[bool] = []

    def render(supports_images: bool) -> list[dict[str, Any]]:
        rendered.append(supports_images)
        return [{"role": role, "content": role} for role in ("system", "user", "assistant", "user")]

    history = GivenHistory(render, trims=True)
    assert [message["role"] for message in history.messages(supports_images=False)] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert history.leave_out(1) == 1
    assert history.leave_out(1) == 2
    assert [message["role"] for message in history.messages(supports_images=False)] == ["system", "user"]
    assert rendered == [False]
    history.messages(supports_images=True)
    assert rendered == [False, True]


def status(name: str | None, holder: str | None = None) -> api.Status:
    busy = None if holder is None else api.BusyOperation(operation="turn", stage="decode", holder=holder, age_s=0.0)
    made = api.Status(instance="i", role="owner", pid=1, backend="llama", state="Ready", generation=1, active=None)
    return msgspec.structs.replace(made, active=None if name is None else active(name), busy=busy)


def test_only_another_model_in_place_of_one_is_a_switch() -> None:
    watch = ActiveModelWatch()
    assert watch.see(status(None)) is None
    assert watch.see(status("a")) is None, "the first model replaces nothing"
    assert watch.see(status("a", "Zed")) is None
    assert watch.see(status(None)) is None, "an unload is no switch"
    assert watch.see(status("b", "Zed")) == Replaced(before="a", now="b", by="Zed")
    assert watch.see(status("b", "Zed")) is None, "reported once"
    assert watch.see(status("a")) == Replaced(before="b", now="a", by="")


def test_whom_a_switch_concerns() -> None:
    replaced = Replaced(before="a", now="b", by="Zed")
    assert replaced.concerns("a", busy=False, me="Code")
    assert not replaced.concerns("b", busy=False, me="Code")
    assert not replaced.concerns("a", busy=True, me="Code")
    assert not replaced.concerns("a", busy=False, me="Zed")
    assert replaced.text().startswith("Zed switched from a to b.")
    assert msgspec.structs.replace(replaced, by="").text().startswith("Another client switched")
