"""What nests without end is an ordinary bad value at every door: never the end of a process or of a scan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp_bridge.daemon.departures import Departures
from acp_bridge.mcp.secrets import ServerSecrets
from acp_bridge.mcp.servers import ServerSpec
from acp_bridge.mcp.tool import McpTool
from acp_bridge.models.row_cache import Remembered, RowCache
from acp_bridge.providers.answers.stream import StreamReader, error_text
from acp_bridge.providers.config import read_configured
from acp_bridge.providers.listcache import ListCache
from modeld.pipe.frames import BadFrame, to_worker_reader
from modeld.rpc.checks import require_conversation, require_shallow
from modeld.template.render import Template
from shared.catalog.pulled_record import read_record, record_path
from shared.errors import SettingInvalid
from shared.protocol.faults import InvalidParams
from shared.protocol.message import Malformed, decode_params, parse
from shared.settings import load_settings
from shared.text.nesting import DEEPEST, decode_json, loads_json, too_deep
from shared.text.secret import Cleaner

pytestmark = pytest.mark.unit
ROOT = Path(__file__).resolve().parents[3]
ENDLESS = '{"a": ' * 50_000 + "1" + "}" * 50_000
USER = {"role": "user", "content": "hi"}


def nested(levels: int) -> Any:
    value: dict[str, Any] = {"type": "object"}
    for _ in range(levels - 1):
        value = {"properties": value}
    return value


def test_depth_is_counted_as_people_count_it() -> None:
    shallow: list[Any] = [1, "[[[[", {}, nested(DEEPEST)]
    assert not any(map(too_deep, shallow))
    assert too_deep(nested(DEEPEST + 1))
    assert too_deep(nested(100_000))
    for outer in (lambda inner: [0, inner], lambda inner: {"a": 0, "b": inner}, lambda inner: (inner,)):
        value: Any = "text"
        for levels in range(1, 5):
            value = outer(value)
            assert [too_deep(value, limit) for limit in range(6)] == [limit < levels for limit in range(6)]
    wide = {"properties": [{"a": number} for number in range(50_000)]}
    assert not too_deep(wide)


def test_readers_of_json_raise_what_their_callers_expect() -> None:
    for text in (ENDLESS, json.dumps(nested(DEEPEST + 1))):
        with pytest.raises(msgspec.DecodeError, match=f"^it nests more than {DEEPEST} levels deep$"):
            decode_json(text, dict[str, Any])
        with pytest.raises(ValueError, match=f"^it nests more than {DEEPEST} levels deep$"):
            loads_json(text)
    deepest = nested(DEEPEST)
    assert decode_json(json.dumps(deepest), dict[str, Any]) == loads_json(json.dumps(deepest)) == deepest
    with pytest.raises(msgspec.ValidationError):
        decode_json(b"[]", dict[str, Any])


@pytest.mark.parametrize(
    ("messages", "tools", "at"),
    [
        ([USER, {**USER, "x": nested(DEEPEST)}], [], "$.messages[1]"),
        ([USER], [{"name": "read", "parameters": nested(DEEPEST)}], "$.tools[0]"),
        ([USER], [{"function": {"name": "read", "parameters": nested(900)}}], "$.tools[0]"),
    ],
)
def test_the_daemons_door_names_what_nests_too_deeply(messages: Any, tools: Any, at: str) -> None:
    with pytest.raises(InvalidParams, match="levels deep") as refused:
        require_conversation(messages, tools)
    assert refused.value.at == at
    require_conversation([{**USER, "x": nested(DEEPEST - 1)}], [])
    with pytest.raises(InvalidParams):
        require_shallow(nested(DEEPEST + 1), "$.params.json_schema")


def test_a_conversation_at_the_bound_is_rendered() -> None:
    """What passes the door is shallow enough for whatever a template does with it."""
    source = "{% for m in messages %}{{ m.content }}{{ m.x | tojson }}{{ m.x }}{% endfor %}"
    source += "{{ tools | tojson(indent=4) }}"
    tool = {"type": "function", "function": {"name": "read", "parameters": nested(DEEPEST - 2)}}
    require_conversation([{**USER, "x": nested(DEEPEST - 1)}], [tool])
    assert "properties" in Template(source).render([{**USER, "x": nested(DEEPEST - 1)}], [tool])


def test_arguments_of_an_old_call_may_be_any_text() -> None:
    source = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments }}{% endfor %}"
    source += "{% endfor %}"
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": ENDLESS}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert ENDLESS in Template(source).render([USER, said])


def test_a_message_that_nests_without_end_is_answered() -> None:
    """On every face: one that is no object at all, and params that nobody can read."""
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": %b}' % ENDLESS.encode()
    for data in (body, b"[" * 100_000, body.replace(b'"x"', b'"\\ud800"')):
        message = parse(data)
        assert isinstance(message, Malformed)
        assert "deep" in str(message.error) or "batch" in str(message.error), message.error
    with pytest.raises(InvalidParams, match="deep"):
        decode_params(msgspec.Raw(ENDLESS.encode()), dict[str, Any])


def test_a_frame_that_nests_without_end_is_a_bad_frame() -> None:
    body = b"\x81\xa4turn" + b"\x91" * 100_000 + b"\x01"
    with pytest.raises(BadFrame):
        to_worker_reader().feed(len(body).to_bytes(4, "little") + body)


def test_a_mcp_tool_that_nests_too_deeply_is_still_offered() -> None:
    class Tool:
        name, description, annotations = "deep", "", None
        input_schema = nested(900)

    secrets = ServerSecrets(ServerSpec(name="server"), {})
    assert McpTool(None, "server", 0, Tool(), None, secrets).parameters == {"type": "object"}


def test_files_and_servers_that_nest_without_end_are_unreadable(tmp_path: Path) -> None:
    file = tmp_path / "cache.json"
    file.write_text(ENDLESS)
    assert ListCache(file).read([]) == {}
    assert RowCache(file).read() == Remembered()
    assert Departures(file)._read() == {}
    weights = tmp_path / "m.gguf"
    record_path(weights).parent.mkdir(parents=True, exist_ok=True)
    record_path(weights).write_text(ENDLESS)
    assert read_record(weights) is None
    assert error_text(ENDLESS).startswith('{"a"')
    stream = StreamReader(Cleaner())
    assert stream.event(ENDLESS) == []
    part = {"index": 0, "id": "x", "function": {"name": "read", "arguments": ENDLESS}}
    stream.event(json.dumps({"choices": [{"delta": {"tool_calls": [part]}}]}))
    assert [bool(call.fault) for call in stream.tool_calls()] == [True]


@pytest.mark.parametrize("read", [lambda file: load_settings({}, file), read_configured])
def test_a_configuration_that_nests_without_end_is_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    file = tmp_path / "config.toml"
    file.write_text("a = " + "[" * 50_000)
    with pytest.raises(SettingInvalid) as refused:
        read(file)
    assert refused.value.source == str(file)


def test_no_reader_of_ours_leaves_depth_to_chance() -> None:
    """`msgspec.json.decode` with a type raises RecursionError: where it is called, somebody must expect that."""
    careless = []
    for folder in ("acp_bridge", "modeld", "shared"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if re.search(r"msgspec\.json\.decode\(", text) and "RecursionError" not in text:
                careless.append(str(path.relative_to(ROOT)))
    assert sorted(careless) == sorted(TRUSTED)


#: What it reads was written by this very process.
TRUSTED = ["modeld/store/tables.py"]
