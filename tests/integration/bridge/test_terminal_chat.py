"""`acp-bridge chat` as people have it: real processes, a pseudo-terminal, and a model that a test writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.tools.builtin import TERMINAL_SYSTEM
from leaks import end_processes_of
from modeld_process import ENDLESS, write_models, write_script
from shared.paths import DataRoot
from terminal import OnTerminal

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal is POSIX"),
]
MARKDOWN = (
    "# Heading\n\nA paragraph with **strong** words that is too long for one line of forty.\n\n"
    "- one\n- <b>two</b>\n\n```python\nprint('hi')\n```\n\nThe last words."
)
REPLIES: list[dict[str, Any]] = [
    {"pieces": ["Hello ", "there."]},
    {"when": "as markdown", "pieces": [MARKDOWN[at : at + 3] for at in range(0, len(MARKDOWN), 3)]},
    {"when": "for ever", **ENDLESS},
    {"when": "in short", "pieces": ["A ", "word."]},
]

#: `modeld start` as this test has it: a person's own engine is chosen by itself.
SERVES_THE_SCRIPT = """
import sys
if sys.argv[-1:] == ["start"]:
    sys.argv += ["--backend", "scripted"]
"""


class Person:
    """At one computer, with a modeld of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = DataRoot(folder / "data")
        self.root.path.mkdir()
        write_models(self.root, "alpha-1", "beta-2")
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MODELD_")},
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "MODELD_DATA_ROOT": str(self.root.path),
            "MODELD_TEMPLATE_DEADLINE": "30",
            **write_script(self.root.path, REPLIES, token_s=0.002, load_s=0.5),
        }

    def run(self, *words: str, given: str = "", code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", *words], env={**self.environ, **environ}, cwd=self.folder, input=given,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    def chat(self, *words: str, given: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("acp_bridge", "chat", *words, given=given, code=code)

    def events(self, *words: str, given: str = "", code: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.chat("--json", *words, given=given, code=code).stdout.splitlines()]

    def talk(self, *words: str, columns: int = 80, program: str = "acp_bridge") -> OnTerminal:
        return OnTerminal([sys.executable, "-P", "-m", program, *words], self.environ, self.folder, columns=columns)

    def sent(self) -> str:
        """The newest conversation as it was saved."""
        return self.run("acp_bridge", "export").stdout


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    someone = Person(tmp_path_factory.mktemp("p"))
    someone.run("modeld", "start", "--backend", "scripted")
    yield someone
    someone.run("modeld", "stop")
    assert not end_processes_of(someone.root.path)


# --- one question ------------------------------------------------------------------------------


def test_the_answer_alone_is_the_output(person: Person) -> None:
    done = person.chat("-m", "Alpha", "hi")
    assert done.stdout == "Hello there.\n"
    using, counts = done.stderr.splitlines()
    assert using == "acp-bridge: using alpha-1"
    assert counts.startswith("alpha-1 · ")
    assert person.chat("--quiet", "hi").stderr == ""
    assert person.run("modeld", "run", "alpha", "as", "markdown").stdout == f"{MARKDOWN}\n", "a pipe gets it as it came"


def test_a_model_that_is_named_by_nothing_or_by_two_is_an_error(person: Person) -> None:
    assert "no model named gamma" in person.chat("-m", "gamma", "hi", code=4).stderr
    person.run("modeld", "library")
    told = person.chat("-m", "", "hi").stdout
    assert told == "Hello there.\n", "an empty name is none"


def test_json_is_a_stream_of_events(person: Person) -> None:
    events = person.events("hi")
    assert [event["event"] for event in events if event["event"] != "stage"] == ["start", "text", "text", "end"]
    assert events[0]["model"] == "alpha-1"
    last = events[-1]
    assert (last["text"], last["stop_reason"], last["model"]) == ("Hello there.", "end_turn", "alpha-1")
    assert last["conversation"] == events[0]["conversation"]
    assert last["generated"] > 0


def test_what_is_piped_in_and_attached_goes_with_the_words(person: Person, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("what the notes say")
    person.chat("explain", "it", "--file", str(notes), given="some code")
    saved = person.sent()
    assert "some code" in saved
    assert "what the notes say" in saved
    assert "explain it" in saved
    assert person.chat("--file", str(tmp_path / "none"), "x", code=2).stderr.endswith("none: there is no such file\n")


def test_a_conversation_goes_on(person: Person) -> None:
    first = person.events("My name is Bob.")[-1]["conversation"]
    again = person.events("-c", "What is my name?")
    assert again[-1]["conversation"] == first
    assert again[-1]["reused"] > 10, "it stays warm"
    person.chat("something else")
    assert person.events("--conversation", first[:9], "and now?")[-1]["conversation"] == first
    assert person.sent().count("## You") == 3
    lost = person.events("--conversation", "zzz", "x", code=4)[-1]
    assert (lost["event"], lost["error"]["kind"]) == ("error", "conversation_not_found")
    assert lost["error"]["remedy"] == "acp-bridge export --list --all"


def test_nothing_stays_of_a_conversation_that_is_not_saved(person: Person) -> None:
    before = person.run("acp_bridge", "export", "--list", "--all").stdout
    person.chat("--no-save", "a secret")
    assert person.run("acp_bridge", "export", "--list", "--all").stdout == before


def test_the_options_of_an_answer_reach_the_engine(person: Person) -> None:
    ended = person.events("--max-tokens", "1", "hi")[-1]
    assert (ended["stop_reason"], ended["generated"]) == ("max_tokens", 1)
    plain = person.events("--system", "", "hi")[-1]
    told = person.events("--system", "You are a pirate.", "hi")[-1]
    assert told["prefilled"] + told["reused"] > plain["prefilled"] + plain["reused"]
    ours, nothing = person.events("--system", TERMINAL_SYSTEM, "hi")[-1], person.events("hi")[-1]
    assert nothing["prefilled"] + nothing["reused"] == ours["prefilled"] + ours["reused"], "no words of an editor's"


# --- a conversation ----------------------------------------------------------------------------


def test_a_conversation_at_the_terminal(person: Person) -> None:
    with person.talk("run", "alpha", columns=40, program="modeld") as talk:
        talk.say("as markdown\r")
        seen = talk.until("tokens/s")
        assert "\n\nA paragraph with strong words that is\ntoo long for one line of forty.\n\n" in seen, seen
        assert "• <b>two</b>" in seen, "HTML is text"
        assert "**" not in seen
        assert "```" not in seen
        assert max(map(len, talk.lines())) <= 40
        talk.say('"""one\rtwo"""\r')
        talk.until("tokens/s", times=2)
        talk.say("/file nowhere.txt\r")
        talk.until("there is no such file")
        talk.say("/nosuch\r")
        talk.until("there is no such command")
        talk.say("/sys")
        talk.until("  /system")
        talk.type("\t")
        talk.until(">>> /system")
        talk.type("\r")
        talk.until("System message: none")
        talk.say("\x1b[A\x1b[A\r")
        talk.until("there is no such command", times=2)
        talk.say("/exit\r")
        assert talk.end() == 0
    assert "one\ntwo" in person.sent()


def test_ctrl_c_stops_an_answer_and_twice_leaves(person: Person) -> None:
    with person.talk("chat") as talk:
        talk.say("for ever\r")
        talk.until("on and on and")
        talk.type("\x03")
        talk.until("Stopped.")
        talk.say("in short\r")
        talk.until("A word.")
        talk.until("tokens/s", times=2)
        talk.say("typed and forgotten\x03\x03")
        talk.until("Press Ctrl-C again")
        talk.say("\x03")
        assert talk.end() == 0
    assert "The answer was cancelled" in person.sent()
    with person.talk("chat", "for ever") as once:
        once.until("on and on and")
        once.type("\x03")
        assert once.end() == 130


def test_a_file_and_another_conversation(person: Person) -> None:
    (person.folder / "notes.txt").write_text("what the notes say")
    with person.talk("chat") as talk:
        talk.say("/file notes.txt\r")
        talk.until("1 attachment will go")
        talk.say("/set temperature 0.5\r")
        talk.until("temperature: 0.5")
        talk.say("read it\r")
        talk.until("tokens/s")
        talk.say("/new\r")
        talk.until("A new conversation.")
        talk.say("/list\r")
        talk.until("read it", times=2)
        talk.say("/continue\r")
        talk.until("Continuing “read it”")
        talk.say("\x04")
        assert talk.end() == 0
    assert "what the notes say" in person.sent()


def test_without_a_modeld_it_is_offered_to_start(person: Person, tmp_path: Path) -> None:
    alone = Person(tmp_path)
    settings = alone.folder / "start"
    settings.mkdir()
    (settings / "sitecustomize.py").write_text(SERVES_THE_SCRIPT)
    alone.environ["PYTHONPATH"] = str(settings)
    with alone.talk("chat") as talk:
        talk.until("Start it now? [Y/n]")
        talk.type("\r")
        talk.until("modeld is running")
        talk.say("hi\r")
        talk.until("Loading alpha-1")
        talk.until("Hello there.")
        talk.say("\x04")
        assert talk.end() == 0
    assert "modeld stopped" in alone.run("modeld", "stop").stdout
    assert not end_processes_of(alone.root.path)


def test_its_libraries_are_imported_there_alone(person: Person) -> None:
    code = (
        "import sys; from {module} import {name}; sys.argv = ['x'];"
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()): {name}({words!r})\n"
        "print(sorted({{'rich', 'prompt_toolkit', 'markdown_it', 'pygments'}} & set(sys.modules)))"
    )
    for module, name, words in (
        ("modeld.cli.app", "run", ["status"]),
        ("acp_bridge.cli.app", "run", ["models"]),
        ("acp_bridge.cli.app", "run", ["chat", "--quiet", "hi"]),
    ):
        filled = code.format(module=module, name=name, words=words)
        done = subprocess.run(
            [sys.executable, "-c", filled], env=person.environ, capture_output=True, text=True, check=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == "[]", words
