"""Chat-completion streams as events, and the config file's providers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.providers.client import request_body
from acp_bridge.providers.config import read_providers
from acp_bridge.providers.keys import key_of
from acp_bridge.providers.stream import StreamReader
from shared.errors import SettingInvalid
from shared.protocol import api
from shared.secret import Cleaner

pytestmark = pytest.mark.unit


def chunk(reader: StreamReader, **choice: Any) -> list[api.Event]:
    return reader.line("data: " + json.dumps({"choices": [choice]}))


def test_text_reasoning_and_the_end() -> None:
    reader = StreamReader(Cleaner())
    assert chunk(reader, delta={"role": "assistant", "content": ""}) == []
    assert chunk(reader, delta={"reasoning_content": "hm"}) == [api.ReasoningDelta(text="hm")]
    assert chunk(reader, delta={"content": "Hel"}) == [api.Generating(), api.TextDelta(text="Hel")]
    assert chunk(reader, delta={"content": "lo"}, finish_reason="length") == [api.TextDelta(text="lo")]
    reader.line('data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}')
    assert reader.line("data: [DONE]") == []
    assert (reader.finish, reader.prompt_tokens, reader.generated, reader.ended) == ("length", 7, 2, True)


def test_calls_in_pieces() -> None:
    reader = StreamReader(Cleaner())
    chunk(reader, delta={"tool_calls": [{"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"p'}}]})
    chunk(reader, delta={"tool_calls": [{"index": 0, "function": {"arguments": '": 1}'}}]})
    chunk(reader, delta={"tool_calls": [{"index": 1, "function": {"name": "cut", "arguments": '{"x'}}]})
    assert reader.tool_calls() == [api.ToolCall(id="a", name="read", arguments='{"p": 1}')]


@pytest.mark.parametrize("line", ["", ": ping", "event: x", "data: {not json", "data: {}", 'data: {"choices": null}'])
def test_noise_is_nothing(line: str) -> None:
    assert StreamReader(Cleaner()).line(line) == []


def test_an_error_in_the_stream_is_kept() -> None:
    reader = StreamReader(Cleaner())
    reader.line('data: {"error": {"message": "out of memory"}}')
    assert reader.error == "out of memory"


def test_providers_of_the_config_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert read_providers(file) == []
    file.write_text('[providers.b]\nbase_url = "http://b/v1/"\n[providers.a]\nbase_url = "https://a"\nkey_env = "K"\n')
    first, second = read_providers(file)
    assert (first.name, second.base_url) == ("a", "http://b/v1")
    key = key_of(first, {"K": "secret"})
    assert key is not None
    assert key.reveal() == "secret"
    assert key_of(second, {"K": "secret"}) is None


@pytest.mark.parametrize(
    "text",
    [
        "[providers.a]",
        '[providers.a]\nbase_url = "ftp://x"',
        '[providers.a]\nbase_url = "http://x"\ntypo = 1',
        '[providers."a b"]\nbase_url = "http://x"',
        "providers = 3",
        "[providers.a",
    ],
)
def test_a_bad_entry_names_its_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SettingInvalid) as refused:
        read_providers(file)
    assert str(file) in refused.value.message


def test_what_a_turn_asks_for_is_in_the_request() -> None:
    tools = [{"type": "function", "function": {"name": "read"}}]

    def body(choice: str | None, offered: list[dict[str, Any]]) -> dict[str, Any]:
        params = api.Sampling(tool_choice=choice, stop=["END"], max_tokens=5)
        return request_body(api.TurnParams(model="cloud/m", messages=[], tools=offered, params=params))

    asked = body("required", tools)
    assert (asked["model"], asked["stop"], asked["max_tokens"], asked["tool_choice"]) == ("m", ["END"], 5, "required")
    assert body("read", tools)["tool_choice"] == {"type": "function", "function": {"name": "read"}}
    assert body("none", tools)["tool_choice"] == "none"
    for choice, offered in ((None, tools), ("auto", tools), ("required", [])):
        assert "tool_choice" not in body(choice, offered)
