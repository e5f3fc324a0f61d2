"""What `acp-bridge chat` does when nobody reads the answer any more."""

from __future__ import annotations

import errno
import io
import sys

import msgspec
import pytest

from acp_bridge.cli.chat import Screen, offered, summary
from shared.protocol.message import Notification

pytestmark = pytest.mark.unit


class Lost(io.StringIO):
    """A pipe without a reader."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def chunk(text: str) -> Notification:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return Notification("session/update", msgspec.Raw(msgspec.json.encode({"sessionId": "s", "update": update})))


def test_a_lost_reader_is_noticed_once_and_reported_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(quiet=False, switch=False)
    lost = Lost()
    monkeypatch.setattr(sys, "stdout", lost)

    screen.update(chunk("one"))
    assert screen.lost.is_set()
    screen.update(chunk("two"))
    with pytest.raises(BrokenPipeError):
        screen.end({"stopReason": "cancelled"})

    screen.stop()  # nothing more is written

    assert lost.writes == 1


def test_an_error_after_half_an_answer_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(quiet=False, switch=False)
    screen.update(chunk("half of it"))
    screen.stop()
    assert capsys.readouterr().out == "half of it\n"

    untouched = Screen(quiet=False, switch=False)
    untouched.stop()
    assert capsys.readouterr().out == ""


def test_a_speed_is_reported_where_there_was_one() -> None:
    numbers = {"model": "m", "prefilled": 5, "timings": {"first_token_s": 0.5, "tokens_per_s": 10320.6}}
    assert summary({**numbers, "generated": 0}) == "m · 5 prompt tokens (0 reused) · 0 generated"
    one = "m · 5 prompt tokens (0 reused) · 1 generated · first token after 0.50 s"
    assert summary({**numbers, "generated": 1}) == one
    assert summary({**numbers, "generated": 2}).endswith("10320.6 tokens/s")


def test_a_model_may_be_named_by_how_its_name_begins(capsys: pytest.CaptureFixture[str]) -> None:
    groups = [{"options": [{"value": "gemma-3-270m"}]}, {"options": [{"value": "vllm/big"}, {"value": "gemma"}]}]
    models = offered(
        {"configOptions": [{"id": "mode", "options": [{"value": "ask"}]}, {"id": "model", "options": groups}]}
    )
    assert models == ["gemma-3-270m", "vllm/big", "gemma"]
    screen = Screen(quiet=False, switch=False)
    assert screen.whole("gemma", models) == "gemma"
    assert screen.whole("nothing", models) == "nothing"
    assert capsys.readouterr().err == ""
    assert screen.whole("vllm", models) == "vllm/big"
    assert capsys.readouterr().err == "acp-bridge: using vllm/big\n"
    assert offered({}) == []
