"""How a command ends with an error: its code by one table, its line, and with `--json` an object."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from shared import codes
from shared.errors import BY_KIND, DaemonNotRunning, InsufficientMemory, ModelNotFound
from shared.text.arguments import Parser

pytestmark = pytest.mark.unit


def raising(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def test_an_error_is_json_on_standard_output_and_a_line_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    error = InsufficientMemory(device="cpu", required_bytes=9, free_bytes=5, reserve_bytes=1, fits=2048)
    assert codes.ended("modeld", ["load", "x", "--json"], raising(error)) == codes.NO_MEMORY
    seen = capsys.readouterr()
    document = json.loads(seen.out)["error"]
    assert (document["kind"], document["exit_code"]) == ("insufficient_memory", codes.NO_MEMORY)
    assert document["fields"]["required_bytes"] == 9
    assert document["message"] == error.message
    assert seen.err == f"modeld: {error.message}\n"
    codes.ended("modeld", ["load", "x"], raising(error))
    assert capsys.readouterr().out == ""


def test_the_remedy_is_the_command_that_the_message_names(capsys: pytest.CaptureFixture[str]) -> None:
    codes.ended("modeld", ["status", "--json"], raising(DaemonNotRunning(hint="x")))
    assert json.loads(capsys.readouterr().out)["error"]["remedy"].endswith("modeld start")
    codes.ended("acp-bridge", ["chat", "--json"], raising(ModelNotFound(requested="\x1b[31m", near=[])))
    line = capsys.readouterr().out
    assert line.count("\n") == 1, "the last line of the stream"
    assert "\x1b" not in line
    assert json.loads(line)["event"] == "error"


def test_whatever_ends_a_command_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="modeld")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ctx", type=int)

    def usage() -> int:
        parser.parse_args(["--json", "--ctx", "many"])
        return 0

    ends: dict[str, tuple[Callable[[], int], int]] = {
        "usage": (usage, codes.USAGE),
        "system_error": (raising(FileNotFoundError(2, "No such file", "/x")), codes.FAILED),
        "interrupted": (raising(KeyboardInterrupt()), codes.INTERRUPTED),
        "internal_error": (raising(ValueError("secret")), codes.FAILED),
    }
    for kind, (work, code) in ends.items():
        assert codes.ended("modeld", ["list", "--json"], work) == code
        seen = capsys.readouterr()
        assert json.loads(seen.out)["error"]["kind"] == kind
        assert "secret" not in seen.out + seen.err


def test_every_kind_has_a_code_of_the_table() -> None:
    for kind, error in BY_KIND.items():
        assert codes.code_of(error("m")) in codes.MEANINGS, kind
