"""Chat-completion streams as events, and the config file's providers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.providers.answers.stream import StreamReader
from acp_bridge.providers.answers.think import ThinkSplitter
from acp_bridge.providers.config import Configured, Provider, read_configured
from acp_bridge.providers.keys import key_of
from acp_bridge.providers.listing import listed_entries
from acp_bridge.providers.requests import chat_body
from shared.errors import SettingInvalid
from shared.protocol import api
from shared.text.secret import Cleaner

pytestmark = pytest.mark.unit


def chunk(reader: StreamReader, **choice: Any) -> list[api.Event]:
    return reader.event(json.dumps({"choices": [choice]}))


def test_text_reasoning_and_the_end() -> None:
    reader = StreamReader(Cleaner())
    assert chunk(reader, delta={"role": "assistant", "content": ""}) == []
    assert chunk(reader, delta={"reasoning_content": "hm"}) == [api.ReasoningDelta(text="hm")]
    assert chunk(reader, delta={"content": "Hel"}) == [api.Generating(), api.TextDelta(text="Hel")]
    assert chunk(reader, delta={"content": "lo"}, finish_reason="length") == [api.TextDelta(text="lo")]
    reader.event('{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}')
    assert reader.event("[DONE]") == []
    assert (reader.reason(), reader.prompt_tokens, reader.generated, reader.ended) == ("length", 7, 2, True)
    assert reader.warnings("lab") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "index", "id",
             "finish_reason", "error", "usage", "prompt_tokens", "refusal", "reasoning", "type", "text", "thinking"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=30,
)  # fmt: skip


@given(st.lists(JSON.map(json.dumps) | st.text(max_size=20), max_size=5))
def test_whatever_a_server_sends_is_read_or_reported_and_raises_nothing(pieces: list[str]) -> None:
    reader = StreamReader(Cleaner())
    shown = [event for piece in pieces for event in reader.event(piece)] + reader.end()
    calls, warnings = reader.tool_calls(), reader.warnings("lab")
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls)
    assert shown or calls or warnings or reader.error, "an answer of nothing is reported"


@given(st.text(alphabet="<think>/\n ab", max_size=30), st.integers(1, 4))
def test_thinking_comes_out_the_same_however_it_is_cut(text: str, size: int) -> None:
    def split(pieces: list[str]) -> tuple[str, str]:
        splitter = ThinkSplitter()
        reported = [splitter.feed(piece) for piece in pieces] + [splitter.end()]
        return "".join(thinking for thinking, _ in reported), "".join(answer for _, answer in reported)

    cut = [text[at : at + size] for at in range(0, len(text), size)]
    assert split(cut) == split([text])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>hm</think>\n\nyes", ("hm", "yes")),
        ("\n<think>\nhm\n</think>yes", ("hm\n", "yes")),
        ("<think>only", ("only", "")),
        ("<think></think>yes", ("", "yes")),
        ("the mark <think>a</think> in a text", ("", "the mark <think>a</think> in a text")),
        ("<thin ice", ("", "<thin ice")),
        ("<think>a</think>b</think>c", ("a", "b</think>c")),
        ("<", ("", "<")),
    ],
)
def test_thinking_is_what_stands_in_the_marks_at_the_begin(text: str, expected: tuple[str, str]) -> None:
    splitter = ThinkSplitter()
    thinking, answer = splitter.feed(text)
    more, rest = splitter.end()
    assert (thinking + more, answer + rest) == expected


def test_providers_of_the_config_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert read_configured(file) == Configured()
    file.write_text('[providers.b]\nbase_url = "http://b/v1/"\n[providers.a]\nbase_url = "https://a"\nkey_env = "K"\n')
    first, second = read_configured(file).providers
    assert (first.name, second.base_url) == ("a", "http://b/v1")
    key = key_of(first, {"K": "secret"})
    assert key is not None
    assert key.reveal() == "secret"
    assert key_of(second, {"K": "secret"}) is None


BAD = {
    "nothing": "",
    "another protocol": 'base_url = "ftp://x"',
    "an unknown field": 'base_url = "http://x"\ntypo = 1',
    "a list for a text": 'base_url = ["http://x"]',
    "no time": 'base_url = "http://x"\ntimeout_s = 0',
    "no time to connect": 'base_url = "http://x"\nconnect_timeout_s = -1',
    "no number": 'base_url = "http://x"\ntimeout_s = nan',
    "retries without end": 'base_url = "http://x"\nmax_retries = 1000',
    "a negative window": 'base_url = "http://x"\ncontext = -1',
    "a header of two lines": 'base_url = "http://x"\nheaders = {X-Team = "a\\nb"}',
    "no name of a header": 'base_url = "http://x"\nheaders = {"X Team" = "a"}',
    "a key among the headers": 'base_url = "http://x"\nheaders = {X-Api-Key = "Marked-0123456789abcdef0123"}',
    "a header of the library": 'base_url = "http://x"\nheaders = {Host = "a"}',
    "a shape without a place": 'base_url = "http://x"\ninline_completion = "{prefix}"',
    "an unknown way to think": 'base_url = "http://x"\nthinking = "hard"',
    "an unknown fact": 'base_url = "http://x"\n[providers.a.model."*"]\ntools = true',
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_entry_costs_itself_and_is_named(tmp_path: Path, what: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[providers.good]\nbase_url = "http://y/v1"\n[providers.a]\n{BAD[what]}\n')
    configured = read_configured(file)
    assert [provider.name for provider in configured.providers] == ["good"]
    assert str(file) in configured.problems["a"]
    assert "Marked" not in configured.problems["a"]


@pytest.mark.parametrize("text", ["providers = 3", "[providers.a"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SettingInvalid) as refused:
        read_configured(file)
    assert str(file) in refused.value.message


def test_a_name_that_cannot_stand_in_a_value_costs_its_entry(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[providers."My Lab"]\nbase_url = "http://x"\n[providers.good]\nbase_url = "http://y"\n')
    configured = read_configured(file)
    assert [provider.name for provider in configured.providers] == ["good"]
    assert list(configured.problems) == ["My Lab"]


def test_the_examples_of_the_page_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "providers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    file = tmp_path / "config.toml"
    file.write_text("".join(blocks))
    configured = read_configured(file)
    assert configured.problems == {}
    assert [provider.name for provider in configured.providers] == ["cluster", "team"]
    fields = set(re.findall(r"`(\w+)`", page))
    assert {name for name in Provider.__struct_fields__ if name not in ("name", "model")} <= fields


def test_what_a_turn_asks_for_is_in_the_request() -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]

    def body(choice: str | None, offered: list[dict[str, Any]]) -> dict[str, Any]:
        params = api.Sampling(tool_choice=choice, stop=["END"], max_tokens=5)
        return chat_body(api.TurnParams(model="cloud/m", messages=[], tools=offered, params=params), "m")

    asked = body("required", tools)
    assert (asked["model"], asked["stop"], asked["max_tokens"], asked["tool_choice"]) == ("m", ["END"], 5, "required")
    assert body("read", tools)["tool_choice"] == {"type": "function", "function": {"name": "read"}}
    assert body("none", tools)["tool_choice"] == "none"
    for choice, offered in ((None, tools), ("auto", tools), ("required", [])):
        assert "tool_choice" not in body(choice, offered)


@pytest.mark.parametrize("odd", ["", "x" * 100_000, None, 7, ["a"]])
def test_what_is_no_name_is_no_model_of_a_list(odd: object) -> None:
    assert listed_entries({"data": [{"id": odd}, {"id": "big"}, "big"]}) == [{"id": "big"}]
