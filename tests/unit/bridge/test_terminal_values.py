"""What the terminal's face decides without a terminal: stages in words, blocks of Markdown, commands, attachments."""

from __future__ import annotations

import argparse
import errno
import io
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.cli import chat as command
from acp_bridge.cli.app import parser
from acp_bridge.conversations.events import ImagePart, ResourcePart, Staged, TextPart, TurnEnded
from acp_bridge.conversations.face import Answer
from acp_bridge.faces.terminal import attach
from acp_bridge.faces.terminal.blocks import split
from acp_bridge.faces.terminal.chat import paces_of
from acp_bridge.faces.terminal.commands import NAMES, Typed, help_text, options_text, parse, with_option
from acp_bridge.faces.terminal.plain import PlainScreen
from acp_bridge.faces.terminal.progress import Paces, Progress
from acp_bridge.faces.terminal.prompt_line import goes_on, message_of
from acp_bridge.faces.terminal.questions import chosen
from acp_bridge.faces.terminal.screen import summary
from shared.errors import ArgumentInvalid
from shared.protocol import api

pytestmark = pytest.mark.unit
DONE = TurnEnded(stop="end_turn")


class Lost(io.StringIO):
    """A pipe without a reader."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_lost_reader_is_noticed_once_and_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = PlainScreen()
    lost = Lost()
    monkeypatch.setattr(sys, "stdout", lost)
    screen.text("one")
    assert screen.lost.is_set()
    screen.text("two")
    with pytest.raises(BrokenPipeError):
        screen.end(DONE)
    screen.fail()  # nothing more is written
    assert lost.writes == 1


def test_an_error_after_half_an_answer_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen()
    screen.text("half of it")
    screen.fail()
    assert capsys.readouterr().out == "half of it\n"
    PlainScreen().fail()
    assert capsys.readouterr().out == ""


def test_a_remark_is_output_only_where_it_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    screen = PlainScreen()
    for is_command in (True, False):
        screen.begin(model="m", conversation="c", is_command=is_command)
        screen.remark("two\nlines")
        screen.end(DONE)
    told = capsys.readouterr()
    assert told.out == "two\nlines\n"
    assert told.err == "acp-bridge: two\\nlines\n"


def test_a_speed_is_told_where_there_was_one() -> None:
    numbers = {"model": "m", "prefilled": 5, "timings": {"first_token_s": 0.5, "tokens_per_s": 10320.6}}
    assert summary({**numbers, "generated": 0}) == "m · 5 prompt tokens (0 reused) · 0 generated"
    one = "m · 5 prompt tokens (0 reused) · 1 generated · first token after 0.50 s"
    assert summary({**numbers, "generated": 1}) == one
    assert summary({**numbers, "generated": 2}).endswith("10320.6 tokens/s")


# --- stages ------------------------------------------------------------------------------------


def line(*stages: tuple[float, object], now: float, paces: Paces | None = None) -> str:
    progress = Progress(paces)
    for at, stage in stages:
        progress.see(Staged(model="smol", stage=stage), at)
    return progress.line(now)


def test_a_load_tells_elapsed_and_expected_seconds() -> None:
    slow = (0.0, api.Loading(fraction=0.02)), (4.0, api.Loading(fraction=0.25))
    assert line(*slow, now=4.0) == "Loading smol (25%) · 4.0 s of about 16 s"
    assert line(slow[0], now=4.0) == "Loading smol (2%) · 4.0 s", "two percent tell nothing"
    assert line(slow[0], now=4.0, paces=Paces(load_s=33)) == "Loading smol (2%) · 4.0 s of about 33 s"
    assert line(slow[0], now=40.0, paces=Paces(load_s=33)) == "Loading smol (2%) · 40 s", "it takes longer this time"
    room = line((0.0, api.Loading(fraction=0.5, model="big", unloads="smol")), now=100.0)
    assert room == "Loading big (50%, unloading smol) · 1 min 40 s of about 3 min 20 s"


def test_reading_tells_what_is_new_and_how_long_it_takes() -> None:
    begun = (0.0, api.Prefix(reused=1000, total=3000))
    half = (2.0, api.Prefill(done=2000, total=3000))
    assert line(begun, half, now=2.0) == "Reading 3,000 tokens (50%) · 2.0 s of about 4.0 s"
    assert line(begun, now=1.0) == "Reading 3,000 tokens · 1.0 s"
    assert line(begun, now=1.0, paces=Paces(read_per_s=500)) == "Reading 3,000 tokens · 1.0 s of about 4.0 s"
    assert line(begun, half, (2.1, api.Generating()), now=9.0) == ""


def test_a_stage_that_is_over_at_once_is_not_shown() -> None:
    assert line((0.0, api.Loading(fraction=0.5)), now=0.1) == ""
    assert line((0.0, api.Queued(position=2, ahead=["Zed", "Zed"])), now=3.0) == (
        "Waiting for the model (place 2, behind Zed) · 3.0 s"
    )
    progress = Progress()
    progress.wait("Waiting for modeld", 0.0)
    assert progress.line(1.0) == "Waiting for modeld · 1.0 s"
    progress.wait("", 1.0)
    assert progress.line(9.0) == ""


def test_the_newest_turns_tell_the_pace() -> None:
    def turn(**times: float) -> TurnEnded:
        return TurnEnded(stop="end_turn", numbers={"prefilled": 200, "timings": times})

    turns = [turn(load_s=0.0, prefill_s=0.0), turn(load_s=3.0, prefill_s=0.5), turn(load_s=9.0, prefill_s=9.0)]
    assert paces_of(turns) == Paces(load_s=3.0, read_per_s=400.0)
    assert paces_of([TurnEnded(stop="failed")]) == Paces()


# --- Markdown ----------------------------------------------------------------------------------


def test_whole_blocks_are_told_from_the_one_that_grows() -> None:
    assert split("one\n\ntwo") == ["one\n\n", "two"]
    assert split("one\ntwo") == ["one\ntwo"]
    assert split("a\n\n```py\nx\n\ny") == ["a\n\n", "```py\nx\n\ny"], "an open fence is one block"
    assert split("# a\n- a\n- b\n\nend") == ["# a\n", "- a\n- b\n\n", "end"]
    assert split("") == [""]


@given(st.text(alphabet="ab#-`|* \n>1.", max_size=60))
def test_nothing_is_lost_between_the_blocks(text: str) -> None:
    assert "".join(split(text)) == text


# --- what is typed -----------------------------------------------------------------------------


def test_a_command_is_told_from_a_message_and_from_a_mistake() -> None:
    assert parse("hello /new") == Typed("", "hello /new")
    assert parse("/new") == Typed("new", "")
    assert parse("/file  a b.txt ") == Typed("file", "a b.txt")
    assert parse("/bye") == parse("/quit") == Typed("exit", "")
    assert parse("/model smol") == Typed("", "/model smol"), "the conversation's own"
    assert parse("/etc/hosts what is it") == Typed("", "/etc/hosts what is it"), "a path is no command"
    assert parse("//new") == Typed("", "/new")
    with pytest.raises(ArgumentInvalid, match="did you mean `/model`"):
        parse("/modle x")
    with pytest.raises(ArgumentInvalid, match="`/help` lists them"):
        parse("/zzzz")
    assert all(f"`/{name}" in help_text() for name in NAMES if name not in ("help", "takeover", "quit", "bye"))


def test_an_option_is_set_and_given_back() -> None:
    warm = with_option(api.Sampling(), "temperature 0.7")
    assert warm.temperature == 0.7
    assert "`temperature`: 0.7" in options_text(warm)
    assert with_option(warm, "temperature default").temperature is None
    assert with_option(warm, "max-tokens 12").max_tokens == 12
    for wrong in ("temperature hot", "seed 1.5", "max_tokens -1", "temperature nan", "seed"):
        with pytest.raises(ArgumentInvalid, match="number of at least 0"):
            with_option(warm, wrong)
    with pytest.raises(ArgumentInvalid, match="did you mean temperature"):
        with_option(warm, "temprature 1")


def test_several_lines() -> None:
    assert goes_on('"""one')
    assert goes_on("one\\")
    assert not goes_on("one")
    assert not goes_on('"""one\ntwo"""')
    assert message_of('"""one\ntwo"""') == "one\ntwo"
    assert message_of("one\\\ntwo ") == "one\ntwo"


def test_an_unclear_answer_changes_nothing() -> None:
    answers = [
        Answer(id="yes", name="Switch now", kind="allow_once"),
        Answer(id="always", name="Always switch", kind="allow_always"),
        Answer(id="no", name="Cancel", kind="reject_once"),
    ]
    assert [chosen(typed, answers) for typed in ("1", "y", "switch", "2", "al")] == ["yes"] * 3 + ["always"] * 2
    assert {chosen(typed, answers) for typed in ("", "4", "0", "what", "n", "-1", "\n")} == {"no"}


# --- what is attached --------------------------------------------------------------------------


def test_files_are_what_they_hold_and_not_what_they_are_called(tmp_path: Path) -> None:
    image = tmp_path / "photo.txt"
    image.write_bytes(b"\x89PNG\r\n\x1a\n rest")
    assert attach.image_file(str(image)) == ImagePart(data="iVBORw0KGgogcmVzdA==", mime_type="image/png")
    with pytest.raises(ArgumentInvalid, match="it is an image"):
        attach.text_file(str(image))
    text = tmp_path / "notes.png"
    text.write_text("\ufeffnotes é", encoding="utf-8")
    assert attach.text_file(str(text)) == ResourcePart(uri=str(text), text="notes é")
    with pytest.raises(ArgumentInvalid, match="no PNG, JPEG"):
        attach.image_file(str(text))
    for content in (b"\xff\xfe\x00", b"a\x00b"):
        text.write_bytes(content)
        with pytest.raises(ArgumentInvalid, match="text"):
            attach.text_file(str(text))
    with pytest.raises(ArgumentInvalid, match="there is no such file"):
        attach.text_file(str(tmp_path / "none"))
    with pytest.raises(ArgumentInvalid, match="it is not a file"):
        attach.image_file(str(tmp_path))


def options(*words: str) -> argparse.Namespace:
    return parser().parse_args(words)


def test_options_stand_before_between_and_behind_the_words() -> None:
    for words in (["run", "m", "-q", "why", "so"], ["run", "-q", "m", "why", "so"], ["chat", "why", "-m", "m", "so"]):
        given_options = options(*words)
        assert (given_options.model, given_options.prompt) == ("m", ["why", "so"])
    assert options("run", "m").prompt == []


def test_what_is_piped_in_goes_with_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def piped(text: str, *words: str) -> list[object]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return list(command.message(options("chat", *words)))

    assert piped("code", "explain") == [ResourcePart(uri="stdin", text="code"), TextPart(text="explain")]
    assert piped("code") == piped("code", "-") == [TextPart(text="code")]
    assert piped("", "explain") == [TextPart(text="explain")]
    assert piped("") == []
    for empty in (" ", "-"):
        with pytest.raises(ArgumentInvalid, match="the prompt is empty"):
            piped("", empty)


def test_a_schema_is_given_itself_or_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}')
    assert command.schema(str(file)) == command.schema('{"type": "object"}') == {"type": "object"}
    file.write_text("[1]")
    with pytest.raises(ArgumentInvalid, match="a JSON schema is an object"):
        command.schema(str(file))
    with pytest.raises(ArgumentInvalid, match="it is not valid JSON"):
        command.schema("{")
    sampling = command.wanted(options("chat", "-t", "0.5", "--max-tokens", "9", "--stop", "x", "hi")).sampling
    assert msgspec.to_builtins(sampling) == {"temperature": 0.5, "max_tokens": 9, "stop": ["x"]}
