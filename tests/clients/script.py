"""A world whose model says what a test wrote: the scripted engine behind real weights files, templates and parsers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clients.home import Home
from scripted_engine import script_environ
from tiny_gguf import write_tiny_gguf

#: takes tools, so that the editor's Agent mode offers the model; and thinks
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }} Call one with <tool_call>{...}</tool_call>.{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['reasoning_content'] %}<think>{{ message['reasoning_content'] }}</think>{% endif %}"
    "{{ message['content'] or '' }}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>{{ call['function'] | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: the vocabulary is one of bytes, and an Agent-mode request has 60 kB
CONTEXT = 262_144
#: seconds a token
PACE = 0.02


def words(stem: str, count: int) -> list[str]:
    """Pieces that can be distinguished on the screen."""
    return [f"{stem}{index} " for index in range(count)]


MARKDOWN = [
    "Some **bold** text.\n\n",
    "```python\n",
    "def mul(a, b):\n",
    "    return a * b\n",
    "```\n",
    "\nand <b>no</b> tag.",
]
CALL = ["<tool_call>\n", '{"name": "lookup", ', '"arguments": {"key": "stone"}}', "\n</tool_call>"]

#: what a prompt with the named word is answered with; the last match wins
REPLIES: list[dict[str, Any]] = [
    {"pieces": words("plain", 20)},
    {"when": "zeppelin", "pieces": words("zep", 10), "endless": True},
    {"when": "marzipan", "pieces": MARKDOWN},
    {"when": "commit message", "pieces": ["Add ", "a ", "second ", "number"]},
    {"when": "<|fim_prefix|>", "pieces": ["return ", "a ", "+ ", "b"]},
    {"when": "rosemary", "pieces": ["<think>", *words("muse", 4), "</think>", *words("ripe", 8)]},
    {"when": "persimmon", "pieces": CALL},
    {"when": "the stone is blue", "pieces": words("blue", 5)},
    {"when": "quince", "pieces": words("quince", 12)},
]


def write_script(home: Home, **fields: Any) -> None:
    """What the scripted engine does from its next load on."""
    path = home.folder / "script.json"
    script = {"replies": REPLIES, "template": TEMPLATE, "token_s": PACE, "load_s": 0.3, **fields}
    path.write_text(json.dumps(script), encoding="utf-8")
    home.environ |= script_environ(path)


def write_models(home: Home, *names: str, context: int = CONTEXT) -> None:
    """Models of the store, in order; private, as all that modeld makes itself."""
    folder = Path(home.root) / "models"
    for private in (folder.parent, folder):
        private.mkdir(mode=0o700, exist_ok=True)
    for seed, name in enumerate(names, start=1):
        path = write_tiny_gguf(folder / f"{name}.gguf", name=name, seed=seed, template=TEMPLATE, context=context)
        path.chmod(0o600)
