"""Names of files, headers of models, other clients and answers that try to act on the terminal: nothing of them does.

A real library, a real modeld and both command lines on a pseudo-terminal; what counts is the bytes that came out.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.home import COMMAND_SECONDS, Home, command
from clients.script import write_models, write_script
from clients.wire import Wire, user
from gguf_bytes import STRING, build, model
from hostile import ALL, HOSTILE, raw
from tiny_gguf import write_tiny_gguf

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform == "win32", reason="file names with control characters, and terminals, are POSIX"),
]

#: our own drawing: one line in its place, the live view, its colours
#: How rendered Markdown is coloured, and a growing block drawn over.
_DRAWN = re.compile(rb"\r|\x1b\[[0-9;?]*[AKhlm]")
_OURS = re.compile(r"\r\x1b\[K|\x1b\[(?:\?(?:1049|25)[hl]|[HKJ]|\d+m)")
#: what a name of a file may hold
NAMES = {kind: text.replace("/", "∕")[:60] for kind, text in HOSTILE.items() if kind != "halves"}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with Home() as made:
        pieces = [
            "plain ",
            *(text for kind, text in HOSTILE.items() if kind not in ("halves", "long")),
            " end\n\tof it",
        ]
        write_script(made, replies=[{"pieces": pieces}])
        write_models(made, "alpha")
        models = Path(made.root) / "models"
        write_tiny_gguf(models / f"good{NAMES['bidi']}.gguf", name=ALL, seed=7, context=2048).chmod(0o600)
        for kind, name in NAMES.items():
            twice = (f"key{HOSTILE[kind][:60]}".encode("utf-8", "replace").decode(), STRING, "x")
            for path, content in (
                (f"twice {name}", build([twice, twice])),
                (f"odd {name}", model(HOSTILE[kind][:300])),
            ):
                _private(models / f"{path}.gguf", content)
        _private(Path(os.fsdecode(os.fsencode(models) + b"/bytes \xff\x9b.gguf")), b"GGUF")
        made.start("scripted")
        yield made


def _private(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


@pytest.fixture
def guest(home: Home) -> Iterator[Wire]:
    """Another client, called so as to be seen everywhere."""
    with Wire(home.root, name=ALL) as wire:
        yield wire


def on_terminal(home: Home, *arguments: str, until: str = "") -> tuple[int, bytes]:
    """The exit code of a command and all that it wrote, every stream being a terminal; ended once it wrote `until`."""
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [command(arguments[0]), *arguments[1:]],
        env={**home.environ, "TERM": "xterm"}, cwd=home.work, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = bytearray()
    try:
        while chunk := _read(ours):
            seen.extend(chunk)
            if until and until.encode() in seen:
                process.send_signal(signal.SIGINT)
                until = ""
        return process.wait(COMMAND_SECONDS), bytes(seen)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""  # the other end has gone


def harmless(seen: bytes) -> str:
    """What is on the screen; fails where something acts on it."""
    text = _OURS.sub("", re.sub("\r+\n", "\n", seen.decode("utf-8")))
    assert raw(text) == [], text
    assert "Traceback" not in text, text
    return text


READING = [
    ("modeld", "library"),
    ("modeld", "library", "refresh"),
    ("modeld", "list"),
    ("modeld", "status"),
    ("modeld", "doctor"),
    ("modeld", "logs"),
    ("modeld", "logs", "--worker"),
    ("acp-bridge", "models"),
    ("acp-bridge", "doctor"),
]


def test_the_corpus_acts() -> None:
    assert all(
        raw(text)
        for kind, text in HOSTILE.items()
        if kind not in ("line", "link", "image", "icon", "code", "backslash", "long")
    )


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_commands_that_read(home: Home, guest: Wire, arguments: tuple[str, ...]) -> None:
    guest.request("library/list")
    _, seen = on_terminal(home, *arguments)
    assert seen, arguments
    assert not [line for line in harmless(seen).splitlines() if line.startswith("modeld: forged")]


@pytest.mark.parametrize("arguments", [one for one in READING if one[1] not in ("logs", "doctor")], ids=" ".join)
def test_json_is_harmless_and_says_the_same(home: Home, arguments: tuple[str, ...]) -> None:
    done = home.run(*arguments, "--json", check=False)
    assert raw(done.stdout) == []
    document = json.loads(done.stdout)
    if "library" in arguments:
        paths = [row["path"] for row in document["rows"]]
        assert f"{home.root}/models/good{NAMES['bidi']}.gguf" in paths, "a value of the document is the value itself"


@pytest.mark.parametrize("kind", ["line", "title", "eight_bit", "bidi"])
def test_what_is_typed_comes_back_harmless(home: Home, kind: str) -> None:
    name = NAMES[kind]
    for arguments in (
        ["load", name],
        ["describe", name],
        ["pull", f"/nowhere/{name}"],
        ["library", "add", f"/no {name}"],
    ):
        code, seen = on_terminal(home, "modeld", *arguments)
        assert code != 0
        assert len(harmless(seen).strip().splitlines()) == 1, "one line says it"


def test_the_live_view_with_a_hostile_client_at_work(home: Home, guest: Wire) -> None:
    guest.begin("session/turn", {"model": "alpha", "messages": user("x"), "allow_load": True})
    code, seen = on_terminal(home, "modeld", "status", "--watch", until="\\u001b]0;PWNED")
    assert code == 130
    harmless(seen)


def test_an_answer_keeps_its_lines_and_loses_what_acts(home: Home) -> None:
    code, seen = on_terminal(home, "acp-bridge", "chat", "--model", "alpha", "hello")
    assert code == 0, seen
    harmless(_DRAWN.sub(b"", seen))
    code, seen = on_terminal(home, "acp-bridge", "chat", "--plain", "--model", "alpha", "hello")
    assert code == 0, seen
    text = harmless(seen)
    assert "plain ]0;PWNEDab" in text, "what is left of an escape sequence is text"
    assert " end\n\tof it" in text, "line ends and tabs stay"
    done = home.run("acp-bridge", "chat", "--model", "alpha", "--json", "hello")
    assert raw(done.stdout) == []
    assert HOSTILE["title"] in json.loads(done.stdout.splitlines()[-1])["text"]


def test_saved_conversations(home: Home) -> None:
    home.run("acp-bridge", "chat", "--model", "alpha", f"say {HOSTILE['title']} {HOSTILE['bidi']}")
    for arguments in (["--list"], [], ["--json"]):
        code, seen = on_terminal(home, "acp-bridge", "export", *arguments)
        assert code == 0, seen
        harmless(seen)
    home.run("acp-bridge", "export", "-o", "whole.md")
    assert HOSTILE["title"] in (home.work / "whole.md").read_text(encoding="utf-8"), "a file holds what was said"


def test_a_record_of_the_log_is_one_line(home: Home, guest: Wire) -> None:
    guest.turn("alpha", user("x"))
    log = (Path(home.root) / "logs" / "modeld.log").read_bytes()
    assert raw(log) == []
    for line in log.decode("utf-8").removesuffix("\n").split("\n"):
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \[\d+\] ", line), line
    reported = [
        one for one in map(json.loads, home.run("modeld", "logs", "--json").stdout.splitlines()) if "fields" in one
    ]
    assert [one for one in reported if one["event"] == "turn" and one["fields"]["client"].startswith("\\u001b]0;PWNED")]


def test_many_bad_files_are_summed_up(home: Home) -> None:
    done = home.run("modeld", "library")
    problems = done.stderr.splitlines()
    whole = home.json("modeld", "library")["problems"]
    assert len(whole) > 12
    assert len(problems) == 11
    assert re.fullmatch(rf"modeld: and {len(whole) - 10} more: `.*modeld library --json`", problems[-1])
