"""The pass table of chat templates: `python -m bench.template_table [--report]`.

The templates are those of llama-cpp-python's source distribution (`tests/vendored.py`). Each template is
rendered with our renderer; what it writes for an assistant's message is that model's own notation, and
reading it back with our parser must give the message again: its words, its thoughts, and a tool call with
nested arguments and awkward characters.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from modeld.output.format import OutputFormat
from modeld.output.parser import OutputParser
from modeld.template.probe import probe
from modeld.template.render import Template
from shared.errors import TemplateFailed
from shared.protocol.api import ReasoningDelta, TextDelta
from vendored import templates

PAGE = Path(__file__).resolve().parent.parent / "docs" / "templates.md"
#: What follows the table on that page.
NEXT = "## Beside llama-server"

USER = {"role": "user", "content": "hello there"}
ARGUMENTS = {"city": 'Paris "é"\nx', "count": 3, "deep": {"a": [1, True, None]}}
_DEEP = {"type": "object", "description": "o", "additionalProperties": True}
TOOL = {
    "type": "function",
    "function": {
        "name": "special_function",
        "description": "A tool",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "x"},
                "count": {"type": "integer", "description": "n"},
                "deep": _DEEP,
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "special_function", "arguments": ARGUMENTS}}
#: What ends a message in these templates: end tokens, and begins of the next turn that some always write.
ENDS = (
    "<|eom_id|>",
    *("<|im_end|>", "<|eot_id|>", "</s>", "<|end|>", "<end_of_turn>", "<｜end▁of▁sentence｜>", "<|end_of_text|>"),
    *("<|return|>", "<|call|>", "<|eot|>", "<turn|>", "[e~[", "<|endoftext|>", "<seed:eos>", "<|observation|>"),
    *("<|user|>", "<SPECIAL_12>", "<|assistant_end|>", "<end_of_sentence>", "<sep>", "<|role_end|>", "</assistant>"),
    *("<|end_of_msg|>", "<｜hy_eos:opensource｜>", "<|tool_response>", "<|END_OF_TURN_TOKEN|>", "<｜Assistant｜>"),
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>",
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>",
)
#: A place for images, in any of the ways in which templates write one.
_IMAGES = re.compile(r"image_url|['\"]image['\"]|<image|vision_start|image_pad|\[IMG\]")
#: Why some do not pass.
KNOWN = {
    "Apriel-1.6-15b-Thinker-fixed": "history lacks the opener that the prompt writes; an answer to a prompt is read",
    "CohereForAI-c4ai-command-r-plus-tool_use": "writes its next instruction behind every message",
    "MiniMax-M3": "writes null as nothing, which is read as an empty text",
}


class Row(NamedTuple):
    """One template: what it can express, whether words, thoughts and calls came back, what is brought into shape."""

    name: str
    family: str
    tools: str
    thinking: str
    vision: str
    words: str
    thoughts: str
    call: str
    shape: str = ""


def row_of(path: Path) -> Row:
    """Try one template. Never raises: what went wrong stands in the row."""
    try:
        template = Template(path.read_text(encoding="utf-8"), "<s>", "</s>")
        warnings = probe(template)
        words = _read(template, {"role": "assistant", "content": "the plain answer"})
        thought = {"role": "assistant", "content": "so it is", "reasoning_content": "deep thoughts"}
        thoughts = _read(template, thought)
        call = _read(template, {"role": "assistant", "content": "", "tool_calls": [CALL]})
    except TemplateFailed as error:
        return Row(path.stem, "", "", "", "", "", "", "", error.data["message"])
    calls = [(one.name, json.loads(one.arguments)) for one in call[2]]
    whole = calls == [("special_function", ARGUMENTS)] and not call[0].strip()
    return Row(
        name=path.stem,
        family=template.detected.output.tools,
        tools="own" if template.shape.tools else "described",
        thinking=_thinking(template),
        vision="yes" if _IMAGES.search(template.source) else "no",
        words="yes" if words[0].strip() == "the plain answer" else "NO",
        thoughts=_thoughts(thoughts),
        call="yes" if whole else "NO",
        shape="; ".join([*warnings, *filter(None, [KNOWN.get(path.stem)])]),
    )


def _thinking(template: Template) -> str:
    detected = template.detected
    return "switched" if detected.thinking_switches else "always" if detected.thinking else "no"


def _thoughts(got: tuple[str, str, Any, str]) -> str:
    text, reasoning, _, written = got
    if "deep thoughts" not in written:
        return "not written"
    return "yes" if "deep thoughts" in reasoning and "deep thoughts" not in text else "NO"


def written_by(template: Template, assistant: dict[str, Any]) -> str:
    """What a model of this template writes behind the whole prompt to say a message. Raises TemplateFailed."""
    begin, written = _written(template, assistant)
    opened = template.render([USER], [TOOL])[len(begin) :].strip()  # what the prompt says for the model
    return written.removeprefix(opened).lstrip("\n") if opened and written.startswith(opened) else written


def _read(template: Template, assistant: dict[str, Any]) -> tuple[str, str, Any, str]:
    """Text, reasoning and calls that our parser reads from what the template writes, and that itself."""
    prompt, written = _written(template, assistant)
    text, reasoning, calls = _parse(template.output_format(prompt), written)
    return text, reasoning, calls, written


def _written(template: Template, assistant: dict[str, Any]) -> tuple[str, str]:
    """The prompt as far as history keeps it, and what follows it for the message."""
    prompt = template.render([USER], [TOOL])
    whole = template.render([USER, assistant], [TOOL], add_generation_prompt=False)
    at = _common(prompt, whole)
    if at < len(prompt):  # the template opens something in a prompt that it does not keep in history
        opened = max(prompt.rfind("<", 0, at), prompt.rfind("[", 0, at))
        at = opened if opened > max(prompt.rfind(">", 0, at), prompt.rfind("]", 0, at)) else at
    return prompt[:at], _without_end(whole[at:])


def _parse(form: OutputFormat, written: str) -> tuple[str, str, Any]:
    parser = OutputParser(form, (), [TOOL])
    data = written.encode()
    events = [event for at in range(0, len(data), 5) for event in parser.feed(data[at : at + 5])]
    last, calls = parser.finish()
    events += last
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, "".join(event.text for event in events if isinstance(event, ReasoningDelta)), calls


def _common(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _without_end(text: str) -> str:
    while True:
        bare = text.rstrip()
        end = next((one for one in ENDS if bare.endswith(one)), None)
        if end is None:
            return text
        text = bare[: -len(end)]


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    passed = sum("NO" not in row and bool(row.words) for row in rows)
    lines = [
        "# Chat templates",
        "",
        "What each template writes for an assistant's message, read back by our parser",
        "(`bench/template_table.py`). `tools`: the template shows tools itself, or they are described in the",
        "system message. `thinking`: never, always, or by a switch. `vision`: it has a place for images. `not",
        "written`: it keeps no thoughts in history. `shape`: what is done so that every conversation comes",
        "out whole. Stopped tool loops, refused and several calls, text beside them, histories of other",
        "models, system messages at any place and tool schemas of any legal shape",
        "(`tests/template_conversations.py`) render with each of these templates, and a test asserts that no",
        "word is lost.",
        "",
        f"{passed} of {len(rows)} pass.",
        "",
        "| template | family | tools | thinking | vision | words | thoughts | call | shape |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def rows() -> list[Row]:
    """All of them."""
    return [row_of(path) for path in sorted(templates().glob("*.jinja"))]


def main() -> int:
    """Print the table; `--report` writes it into the page, before what is compared there."""
    text = table(rows())
    if "--report" not in sys.argv:
        sys.stdout.write(text)
        return 0
    _, heading, rest = PAGE.read_text(encoding="utf-8").partition(NEXT)
    PAGE.write_text(text + "\n" + heading + rest, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
