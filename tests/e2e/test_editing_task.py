"""A real editing task through the installed commands: the answers' tokens are scripted, everything else is real.

The scripted engine runs in modeld's worker behind the model's template and the parsers of tool calls; what it says next
depends on what the tools answered. With the small test models the same task goes as far as they can take it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clients.bridge import Bridge, Turn, model_values
from clients.home import Home
from scripted_engine import script_environ
from tiny_gguf import CHATML, write_tiny_gguf

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

#: A template that knows tools, in the notation of a large family.
HERMES = (
    "{% if tools %}<|im_start|>system\nTools, called as <tool_call>{...}</tool_call>:\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}<|im_start|>user\n"
    "<tool_response>\n{{ message.content }}\n</tool_response><|im_end|>\n"
    "{% elif message.tool_calls %}<|im_start|>assistant\n{{ message.content }}"
    "{% for call in message.tool_calls %}<tool_call>\n"
    "{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n</tool_call>"
    "{% endfor %}<|im_end|>\n"
    "{% else %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
APP = "def add(a, b):\n    return a - b\n"
#: Updates after which a small model has shown what it can do.
ENOUGH = 40
CHECK = 'from app import add\n\nassert add(2, 2) == 4, "wrong sum"\nprint("all good")\n'
#: Without byte code: an edit of the same length within a second of the last is not noticed by Python's own cache.
RUN = f"{sys.executable} -B check.py"
TASK = "The check fails. Mend app.py, and prove it. password: tulip-4711"


def call(name: str, **arguments: Any) -> list[str]:
    """A tool call as a model writes it, in pieces that end where they like."""
    text = f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
    cuts = [0, 3, 11, 12, 20, 27, 50, len(text) - 5, len(text) - 1, len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def replies() -> list[dict[str, Any]]:
    """The last whose `when` is in the prompt is said: so each answer needs what the tool before it answered."""
    edit = call("edit_file", path="app.py", old="return a - b", new="return a + b")
    return [
        {"pieces": ["I look ", "first. ", *call("read_file", path="app.py")], "when": "Mend app.py"},
        {"pieces": call("run_command", command=RUN), "when": "2\\t    return a - b".replace("\\t", "\t")},
        {"pieces": ["The sign is wrong. ", *edit], "when": "wrong sum"},
        {"pieces": call("run_command", command=RUN), "when": "app.py is written."},
        {"pieces": ["Men", "ded: ", "`a + b`", ".", " ✓"], "when": "all good\n"},
    ]


@pytest.fixture(params=[pytest.param(CHATML, id="taught in words"), pytest.param(HERMES, id="by its template")])
def scripted(request: pytest.FixtureRequest) -> Iterator[Home]:
    """A fresh user whose modeld says what the script says."""
    with Home(MODELD_TEACH_TOOLS_FROM="0") as home:
        write_tiny_gguf(home.folder / "models" / "tiny.gguf", context=131072, template=request.param)
        script = home.folder / "script.json"
        script.write_text(json.dumps({"replies": replies(), "template": request.param}))
        home.environ |= {"MODELD_MODEL_FOLDERS": str(home.folder / "models"), **script_environ(script)}
        workspace(home.work)
        home.start("scripted")
        yield home


def workspace(folder: Path) -> None:
    (folder / "app.py").write_text(APP)
    (folder / "check.py").write_text(CHECK)


def cards(turn: Turn) -> list[tuple[str, str, list[str]]]:
    """(title, kind, statuses) of each card, in the order they appeared."""
    found: dict[str, tuple[str, str, list[str]]] = {}
    for _, update in turn.updates:
        if update["sessionUpdate"] == "tool_call":
            found[update["toolCallId"]] = (update["title"], update.get("kind", "other"), [])
        if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            status = update.get("status", "pending" if update["sessionUpdate"] == "tool_call" else None)
            if status:
                found[update["toolCallId"]][2].append(status)
    return [card for card in found.values() if not card[0].startswith(("Loading", "Reading"))]


def test_a_bug_is_found_mended_and_proven(scripted: Home) -> None:
    with scripted.bridge() as editor:
        session = begin(scripted, editor, "tiny")
        turn = editor.prompt(session, TASK)
        assert turn.stop_reason == "end_turn"
        assert turn.text.endswith("Mended: `a + b`. ✓")
        assert "tool_call" not in turn.text, "no mark of a call reaches the user"
        assert (scripted.work / "app.py").read_text() == APP.replace("-", "+")
        run = f"`{RUN}`"
        whole = ["pending", "in_progress", "completed"]
        assert cards(turn) == [
            ("Read app.py", "read", whole),
            (run, "execute", whole),
            ("Edit app.py", "edit", whole),
            (run, "execute", whole),
        ]
        asked = [params["toolCall"]["title"] for _, params in editor.asked]
        assert asked == [run, "Edit app.py", run], "each change with permission"
        diff = next(params["toolCall"]["content"][0] for _, params in editor.asked if "Edit" in str(params))
        assert (diff["type"], diff["oldText"], diff["newText"]) == ("diff", APP, APP.replace("-", "+"))
        assert turn.meta["modeld.turn"]["reused"] > turn.meta["modeld.turn"]["prefilled"], "each round reuses the last"
    assert "tulip-4711" not in scripted.logs() + editor.stderr.read_text(), "no word of it is in a log"


def test_the_finished_task_is_still_there_tomorrow(scripted: Home) -> None:
    with scripted.bridge() as editor:
        session = begin(scripted, editor, "tiny")
        editor.prompt(session, TASK)
    with scripted.bridge() as editor:
        editor.initialize()
        editor.request("session/load", {"sessionId": session, "cwd": str(scripted.work), "mcpServers": []})
        shown = [params["update"] for params in editor.updates]
        assert [update["title"] for update in shown if update["sessionUpdate"] == "tool_call"][2] == "Edit app.py"
    exported = scripted.run("acp-bridge", "export", session).stdout
    assert "-    return a - b\n+    return a + b" in exported


def begin(home: Home, editor: Bridge, model: str) -> str:
    editor.initialize()
    made = editor.new_session(home.work)
    editor.choose(made["sessionId"], "model", editor.find_model(made, model))
    return str(made["sessionId"])


@pytest.mark.model
@pytest.mark.timeout(600)
def test_the_small_models_go_as_far_as_they_can(engine: Home) -> None:
    # they are far too small for the task: what must hold is that whatever they write does no harm and is reported truly
    workspace(engine.work)
    with engine.bridge(MODELD_TEACH_TOOLS_FROM="0") as editor:
        editor.answer = refuse
        session = begin(engine, editor, "smollm2")
        for model in model_values(editor.choose(session, "mode", "code")):
            editor.choose(session, "model", model)
            turn = some_of(editor, session, "Read app.py and say what it does.")
            assert turn.stop_reason in ("end_turn", "max_tokens", "max_turn_requests", "cancelled")
            assert all(statuses[-1] in ("completed", "failed") for _, _, statuses in cards(turn))
    assert (engine.work / "app.py").read_text() == APP, "nothing was changed without permission"


def some_of(editor: Bridge, session: str, text: str) -> Turn:
    """A turn that is cancelled when it has said enough: they may ramble until their window is full."""
    pending = editor.begin_prompt(session, text)
    while not pending.answered.wait(0.05):
        if len(pending.updates) >= ENOUGH:
            editor.notify("session/cancel", {"sessionId": session})
            break
    return editor.end_prompt(pending)


def refuse(method: str, params: dict[str, Any]) -> dict[str, Any]:
    del method
    wanted = next(option for option in params["options"] if option["kind"] == "reject_once")
    return {"outcome": {"outcome": "selected", "optionId": wanted["optionId"]}}
