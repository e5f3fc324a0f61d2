"""The values of the HTTP face: requests in, turns out, and errors as programs read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.faces.http.metrics import Counters, page
from acp_bridge.faces.http.protocol import errors, sampling, wire
from acp_bridge.faces.http.protocol.errors import Refusal, reply_to
from acp_bridge.faces.http.protocol.messages import chat_messages
from shared.errors import BY_KIND, DaemonRestarting, ModelBusy, ModelSwitchRequired, QueueFull
from shared.protocol import api

pytestmark = pytest.mark.unit
ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def read(**fields: Any) -> wire.ChatRequest:
    return wire.read(json.dumps({**ASKED, **fields}).encode(), wire.ChatRequest)[0]


def options(**fields: Any) -> api.Sampling:
    return sampling.of_chat(read(**fields), thinks=fields.pop("thinks", True))


def test_every_kind_of_error_has_a_shape_and_a_status() -> None:
    for kind, cls in BY_KIND.items():
        reply = reply_to(cls("what happened"))
        body = reply.body["error"]
        assert 400 <= reply.status <= 503, kind
        assert (body["kind"], body["message"]) == (kind, "what happened")
        assert {"type", "param", "code"} <= set(body)
        repeats = reply.status in (409, 429) or reply.status >= 500
        assert ("x-should-retry" in reply.headers) is repeats, kind
        assert ("retry-after" in reply.headers) is (reply.headers.get("x-should-retry") == "true"), kind


@pytest.mark.parametrize(("wait", "seconds"), [(0.0, "2"), (0.3, "1"), (7.2, "8"), (4000.0, "120")])
def test_the_time_to_wait_is_that_of_what_is_ahead(wait: float, seconds: str) -> None:
    for error in (QueueFull(position=2, waited_s=0.0), ModelBusy(operation="turn", holder="Zed", since=1, queued=0)):
        assert reply_to(error, wait).headers["retry-after"] == seconds
    assert reply_to(DaemonRestarting(retryable=True)).headers["retry-after"] == "2"
    assert (
        "retry-after" not in reply_to(ModelSwitchRequired(active="a", requested="b", in_use_by=["Zed"]), wait).headers
    )


def test_options_become_those_of_a_turn() -> None:
    made = options(stop="x", max_tokens=5, max_completion_tokens=7, seed=3, logit_bias={"5": -100}, top_k=4)
    assert (made.stop, made.max_tokens, made.seed, made.logit_bias, made.top_k) == (["x"], 7, 3, {"5": -100.0}, 4)
    assert options(stop=["", "y"]).stop == ["y"]
    assert options(response_format={"type": "json_object"}).json_schema == {"type": "object"}
    assert options(response_format={"type": "text"}).json_schema is None
    assert options(tool_choice="none").tool_choice == "none"
    assert options(tool_choice="auto").tool_choice is None
    assert options().temperature is None, "the model's own holds where none is asked for"


@pytest.mark.parametrize(
    ("effort", "thinks", "level"),
    [("none", True, "off"), ("minimal", True, "low"), ("high", True, "high"), ("none", False, None),
     ("minimal", False, None), ("high", False, "high")],
)  # fmt: skip
def test_an_effort_is_a_level_and_none_is_met_by_a_model_that_does_not_think(
    effort: str, thinks: bool, level: str | None
) -> None:
    assert sampling.of_chat(read(reasoning_effort=effort), thinks=thinks).thinking == level


@pytest.mark.parametrize("name", sorted(wire.NEUTRAL))
def test_a_value_that_asks_for_nothing_is_taken_and_any_other_refused(name: str) -> None:
    for value in wire.NEUTRAL[name]:
        read(**{name: value})
    for value in (2, True, ["audio"], "x", 1.5):
        with pytest.raises(Refusal) as refused:
            read(**{name: value})
        assert refused.value.reply.body["error"]["param"] == name


@given(st.dictionaries(st.text(min_size=1), st.none() | st.booleans() | st.integers() | st.text(), min_size=1))
def test_no_parameter_is_ever_dropped(extra: dict[str, Any]) -> None:
    """Whatever its name: it is a field, it is listed, it asks for nothing, or the request is refused by its name."""
    body = json.dumps({**ASKED, **{name: value for name, value in extra.items() if name not in ASKED}})
    known = {*wire.ChatRequest.__struct_fields__, *wire.IGNORED, *wire.NEUTRAL}
    try:
        _, ignored = wire.read(body.encode(), wire.ChatRequest)
    except Refusal:
        return
    assert set(ignored) <= wire.IGNORED
    assert all(name in known for name, value in extra.items() if value is not None)


@given(st.binary())
def test_no_body_is_more_than_a_refusal(body: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        wire.read(body, wire.ChatRequest)
    assert refused.value.reply.status == 400


def test_half_of_a_surrogate_pair_costs_no_request() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a \\ud83d b"}]}'
    asked, _ = wire.read(body, wire.ChatRequest)
    assert asked.messages[0]["content"].encode("utf-8").startswith(b"a ")


def test_messages_become_what_templates_take() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    given_messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "one"},
        {"role": "system", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": [], "audio": None},
        {"role": "tool", "tool_call_id": "c", "content": "found"},
        {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": []},
    ]
    assert chat_messages(given_messages) == [
        {"role": "system", "content": "one\n\ntwo"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "found", "tool_call_id": "c", "name": "f"},
        {"role": "assistant", "content": "so", "reasoning_content": "hm"},
    ]


@pytest.mark.parametrize(
    "message",
    [{"role": "user", "content": 5}, {"role": "user", "content": [5]}, {"role": "user", "content": [{"type": "file"}]},
     {"role": "assistant"}, {"role": "assistant", "tool_calls": [5]}, {"role": "tool", "content": "x"},
     {"role": "user", "content": "x", "weight": 1}, {"role": "assistant", "content": "x", "audio": {"id": "1"}},
     {"role": "system", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}, {}],
)  # fmt: skip
def test_a_message_that_cannot_be_taken_whole_is_refused_with_its_place(message: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        chat_messages([{"role": "user", "content": "x"}, message])
    assert str(refused.value.reply.body["error"]["param"]).startswith("messages.1")


def test_an_answer_that_somebody_else_ended_is_none() -> None:
    def ended(reason: Any, by: str = "") -> api.TurnResult:
        return api.TurnResult(
            finish_reason=reason, model="m", usage=api.Usage(), timings=api.Timings(), generation=1, by=by
        )

    assert errors.unfinished(ended("stop")) is None
    other = errors.unfinished(ended("cancelled_by_other", "Zed"))
    assert other is not None
    assert (other.status, "Zed" in other.body["error"]["message"]) == (409, True)
    own = errors.unfinished(ended("cancelled"))
    assert own is not None
    assert (own.status, own.headers["retry-after"]) == (503, "2")


def test_metrics_without_a_daemon_say_that_it_is_away() -> None:
    text = page(Counters(), None)
    assert "modeld_up 0\n" in text
    assert "modeld_slot_state" not in text
