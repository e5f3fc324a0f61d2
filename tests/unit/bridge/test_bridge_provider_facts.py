"""What servers say of their models, of a prompt that is too long and of a wait, in each one's own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.models.picker import RemoteModel
from acp_bridge.providers import listing, requests, retry
from acp_bridge.providers.config import ModelFacts, Provider
from acp_bridge.providers.counting import Calibration, apportioned, plain_text
from acp_bridge.providers.learned import Learned
from acp_bridge.providers.refusals import Overflow, overflow_of, request_id, retry_after, without_refused
from shared.errors import ContextOverflow
from shared.protocol import api

pytestmark = pytest.mark.unit

LAB = Provider(name="lab", base_url="http://lab/v1")

# --- lists --------------------------------------------------------------------------------------

WINDOWS: dict[str, tuple[dict[str, Any], int]] = {
    "vLLM": ({"owned_by": "vllm", "max_model_len": 2048}, 2048),
    "Ray Serve": ({"metadata": {"max_request_context_length": 2048, "num_gpus": 0}}, 2048),
    "llama-server": ({"owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_ctx_train": 131072}}, 4096),
    "llama-server of before": ({"owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}, 0),
    "LM Studio": ({"type": "llm", "loaded_context_length": 8192, "max_context_length": 131072}, 8192),
    "LM Studio, not loaded": ({"type": "llm", "max_context_length": 131072}, 131072),
    "OpenRouter": ({"context_length": 200000, "top_provider": {"context_length": 128000}}, 128000),
    "OpenRouter without its own": ({"context_length": 200000, "top_provider": {"context_length": None}}, 200000),
    "Together": ({"context_length": 32768}, 32768),
    "Groq": ({"context_window": 131072}, 131072),
    "Mistral": ({"max_context_length": 32768, "capabilities": {"vision": True}}, 32768),
    "LiteLLM": ({"model_info": {"max_input_tokens": 16384}}, 16384),
    "OpenAI": ({"owned_by": "openai", "created": 1}, 0),
    "a text": ({"max_model_len": "2048"}, 0),
    "true": ({"max_model_len": True}, 0),
    "less than nothing": ({"max_model_len": -1}, 0),
    "a list for an object": ({"meta": [1], "metadata": "x", "top_provider": 3}, 0),
}


@pytest.mark.parametrize("server", WINDOWS)
def test_a_window_is_read_as_each_server_states_it(server: str) -> None:
    entry, window = WINDOWS[server]
    assert listing.window_of(entry) == window


def test_windows_that_a_list_leaves_out_stand_elsewhere() -> None:
    llama = [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}]
    assert listing.look_further(llama) == listing.LLAMA_SERVER
    props = {"default_generation_settings": {"n_ctx": 2048}, "modalities": {"vision": True}}
    [model] = listing.listed_models(LAB, llama, listing.from_props(llama, props), str)
    assert (model.context, model.vision) == (2048, True)
    assert listing.look_further([{"id": "m", "owned_by": "organization_owner"}]) == listing.LM_STUDIO
    studio = {"data": [{"id": "m", "loaded_context_length": 4096, "type": "vlm"}, {"id": "e", "type": "embeddings"}]}
    assert listing.from_lm_studio(studio)["m"] == {"loaded_context_length": 4096, "type": "vlm"}
    told = {"parameters": 'stop "x"\nnum_ctx    16384', "capabilities": ["completion", "vision"]}
    shown = listing.from_ollama_show(told)
    assert shown == {"capabilities": ["completion", "vision"], "type": "", "max_model_len": 16384}
    loaded = listing.from_ollama_ps({"models": [{"name": "m", "context_length": 4096}, {"name": "n"}]})
    assert loaded == {"m": {"max_model_len": 4096}}
    assert listing.look_further([{"id": "m", "owned_by": "vllm"}]) == "", "strangers are not asked for routes of others"
    assert listing.look_further([{"id": "m", "owned_by": "llamacpp", "max_model_len": 1}]) == ""


def test_what_a_model_can_do_is_read_from_the_list_and_set_by_the_file() -> None:
    entries: list[dict[str, Any]] = [
        {
            "id": "org/sees",
            "architecture": {"input_modalities": ["text", "image"]},
            "supported_parameters": ["reasoning"],
        },
        {"id": "org/plain"},
        {"id": "org/embed", "type": "embeddings"},
        {"id": "/srv/models/SmolLM2-135M.gguf", "owned_by": "llamacpp"},
    ]
    facts = {
        "org/pl*": ModelFacts(context=1000, vision=True, thinking="template"),
        "org/plain": ModelFacts(context=2000),
    }
    provider = Provider(
        name="lab", base_url="http://lab/v1", exclude=("org/embed",), alias={"quick": "org/plain"}, model=facts
    )
    models = {model.served: model for model in listing.listed_models(provider, entries, {}, str)}
    assert set(models) == {"org/sees", "org/plain", "/srv/models/SmolLM2-135M.gguf"}
    assert (models["org/sees"].vision, models["org/sees"].thinking) == (True, "effort")
    plain = models["org/plain"]
    assert (plain.id, plain.name, plain.context, plain.vision, plain.thinking) == (
        "lab/quick", "quick", 2000, True, "template",
    )  # fmt: skip
    assert models["/srv/models/SmolLM2-135M.gguf"].name == "SmolLM2-135M"
    learned = Learned(provider)
    learned.know(list(models.values()))
    assert learned.served("lab/quick") == "org/plain"
    assert Learned(provider).served("lab/quick") == "org/plain", "before anything was listed too"


def test_an_alias_hides_a_model_of_that_name_and_may_be_one_of_several() -> None:
    provider = Provider(name="lab", base_url="http://lab/v1", alias={"coder": "org/x", "quick": "org/x"})
    models = listing.listed_models(provider, [{"id": "coder"}, {"id": "org/x"}, {"id": "org/y"}], {}, str)
    assert {model.id: model.served for model in models} == {
        "lab/coder": "org/x", "lab/quick": "org/x", "lab/org/y": "org/y",
    }  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["owned_by", "meta", "metadata", "top_provider", "architecture", "capabilities", "type", "max_model_len",
          "supported_parameters", "model_info"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), JSON)
def test_a_list_of_anything_is_read_without_a_fault(entry: dict[str, Any], other: Any) -> None:
    entries = [{**entry, "id": "m"}]
    for more in ({}, listing.from_props(entries, other), listing.from_lm_studio(other), listing.from_ollama_ps(other)):
        assert [model.served for model in listing.listed_models(LAB, entries, more, str)] == ["m"]
    listing.look_further(entries)
    listing.from_ollama_show(other)
    requests.filled(other)
    requests.embedded(other)


# --- overflow -----------------------------------------------------------------------------------

#: As servers say it: by server, what is said (a text, or a whole body), the window and the prompt in tokens.
OVERFLOWS = json.loads((Path(__file__).parents[2] / "data" / "overflows.json").read_text(encoding="utf-8"))
OTHERS = [
    "max_tokens must be at least 1",
    "Rate limit reached for x on tokens per minute (TPM): Limit 6000, Used 5000, Requested 8000.",
    "You exceeded your current quota, please check your plan and billing details.",
    "Invalid value for 'temperature'",
    "model not found",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "image too large: 30 MB",
    "suffix is not currently supported",
    "",
]


@pytest.mark.parametrize("server", OVERFLOWS)
def test_a_prompt_that_is_too_long_is_recognised_in_each_servers_words(server: str) -> None:
    said = OVERFLOWS[server]["said"]
    for body in (said,) if isinstance(said, dict) else (said, {"error": {"message": said}}, {"message": said}):
        text = body if isinstance(body, str) else json.dumps(body)
        assert overflow_of(text) == Overflow(OVERFLOWS[server]["window"], OVERFLOWS[server]["prompt"])


@pytest.mark.parametrize("text", OTHERS)
def test_other_refusals_are_no_overflow(text: str) -> None:
    assert overflow_of(json.dumps({"error": {"message": text}})) is None


@given(st.text())
def test_whatever_is_said_is_read_without_a_fault(text: str) -> None:
    overflow_of(text)
    retry_after({"retry-after": text, "retry-after-ms": text}, 0.0)
    without_refused({"max_tokens": 1, "model": "m"}, text)
    request_id({"x-request-id": text}, "sent")


# --- waiting ------------------------------------------------------------------------------------


def test_a_wait_that_is_asked_for_is_kept_and_bounded() -> None:
    assert retry_after({"retry-after": "3"}, 0.0) == 3.0
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}, 0.0) == 1.5
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60.0) == 40.0
    assert retry_after({"retry-after": "soon"}, 0.0) is None
    assert [retry.pause(attempt, None, 0.0) for attempt in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    for chance in (0.0, 0.3, 1.0):
        assert 3.0 <= (retry.pause(1, 3.0, chance) or 0.0) <= 3.0 * (1 + retry.JITTER)
    assert len({retry.pause(1, None, chance / 10) for chance in range(10)}) == 10, "not all at once"
    assert retry.pause(1, 600.0, 0.0) is None


def test_a_field_that_is_refused_is_left_out_once() -> None:
    body = {"model": "m", "max_tokens": 5, "stream_options": {}}
    refused = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    assert without_refused(body, refused) == {"model": "m", "max_completion_tokens": 5, "stream_options": {}}
    assert without_refused(body, "unknown field stream_options") == {"model": "m", "max_tokens": 5}
    assert without_refused(body, "max_tokens must be at least 10") is None
    assert without_refused({"model": "m", "temperature": 2}, "temperature") is None


# --- counting -----------------------------------------------------------------------------------

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "word " * 400}]},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "read", "arguments": '{"path": "a"}'}}]},
    {"role": "tool", "content": "\u4e2d\u6587" * 50},
]


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_a_count_of_the_endpoint_sets_the_next_ones_right(factor: float) -> None:
    calibration = Calibration()
    told = int(sum(calibration.count(TALK, []).each) * factor)
    calibration.learn(TALK, [], told)
    longer = [*TALK, *TALK[1:]]
    true = told * 2
    assert true * 0.95 <= calibration.count(longer, []).total <= true * 1.15
    calibration.learn_more_than(TALK, [], 100_000)
    assert calibration.count(TALK, []).total > 100_000 or calibration.ratio == 5.0


def test_a_sum_is_spread_over_the_messages() -> None:
    counted = apportioned(TALK, [], 1000)
    assert counted.total == 1000
    assert 1000 <= sum(counted.each) <= 1000 + len(TALK)
    assert counted.each[1] > counted.each[0]
    assert "read" in plain_text(TALK)


def test_what_a_refusal_says_of_the_window_is_remembered_until_the_list_says_another() -> None:
    learned = Learned(LAB)
    big = RemoteModel(id="lab/big", name="big", provider="lab", served="big")
    learned.know([big])
    params = api.TurnParams(model="lab/big", messages=TALK)
    learned.overflowed(params, ContextOverflow(context=2048, resident=0, additional=None))
    assert learned.window("lab/big") == 2048
    assert learned.calibration("lab/big").count(TALK, []).total > 2048 or learned.calibration("lab/big").ratio == 5.0
    learned.know([big])
    assert learned.window("lab/big") == 2048
    learned.answered(params, 3000, 3100)
    assert learned.window("lab/big") == 0, "more has been used than was said"
    learned.overflowed(params, ContextOverflow(context=2048, resident=0, additional=None))
    learned.know([RemoteModel(id="lab/big", name="big", provider="lab", served="big", context=4096)])
    assert learned.window("lab/big") == 4096


# --- requests -----------------------------------------------------------------------------------


def body(how: str = "", **sampling: Any) -> dict[str, Any]:
    params = api.TurnParams(model="lab/m", messages=[], params=api.Sampling(**sampling))
    return requests.chat_body(params, "m", how)


def test_no_option_of_a_turn_is_dropped() -> None:
    sent = body(
        temperature=0.1, top_k=3, top_p=0.5, min_p=0.1, repeat_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.3,
        seed=7, stop=["x"], max_tokens=9, logit_bias={"1": -100.0}, json_schema={"type": "object"},
    )  # fmt: skip
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    for name in api.Sampling.__struct_fields__:
        if name not in ("thinking", "tool_choice", "json_schema", "loop_stop"):
            assert name in sent, name
    assert sent["repetition_penalty"] == 1.1


def test_thinking_is_told_as_the_model_takes_it() -> None:
    assert "reasoning_effort" not in body()
    assert body("effort", thinking="high")["reasoning_effort"] == "high"
    assert body("effort", thinking="off")["reasoning_effort"] == "none"
    assert body("template", thinking="off")["chat_template_kwargs"] == {"enable_thinking": False}
    assert body("template", thinking="low")["chat_template_kwargs"]["enable_thinking"] is True
    assert "reasoning_effort" not in body("effort")
    assert "chat_template_kwargs" not in body("", thinking="low")


def test_a_conversation_keeps_its_name_for_a_router() -> None:
    def named(conversation: str | None, *said: str) -> str:
        messages = [{"role": "user", "content": text} for text in said]
        return requests.affinity(api.TurnParams(model="lab/m", messages=messages, conversation=conversation))

    assert named("c1", "a") == named("c1", "b")
    assert named("c1", "a") != named("c2", "a")
    assert named(None, "sys", "hi") == named(None, "sys", "hi", "more", "and more")
    assert named(None, "sys", "hi") != named(None, "sys", "ho")
    assert "c1" not in named("c1")
    assert len(named(None, "\ud83d")) == 32
