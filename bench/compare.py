"""What we render and read beside what llama-server was recorded to: `python -m bench.compare`.

A field is `prompt <case>` or `<output> text|reasoning|calls`. Texts are compared without white space at their ends,
arguments as JSON values.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.oracle import GOLDEN, PROMPTS, digest, thinking_of
from bench.template_table import TOOL, USER
from modeld.output.parser import OutputParser
from modeld.template.render import Template
from shared.errors import TemplateFailed
from shared.protocol.api import ReasoningDelta, TextDelta
from vendored import templates

PAGE = GOLDEN.parents[3] / "docs" / "templates.md"
HEADING = "## Beside llama-server"
#: name of the template -> field -> (theirs, ours)
Compared = dict[str, dict[str, tuple[Any, Any]]]


def compare(golden: dict[str, Any]) -> Compared:
    """Every recorded field of every template."""
    folder = templates()
    return {name: _one((folder / f"{name}.jinja").read_text("utf-8"), record) for name, record in golden.items()}


def differing(compared: Compared) -> dict[str, list[str]]:
    """The fields in which we differ, of the templates where there are any."""
    found = {
        name: sorted(field for field, (theirs, ours) in fields.items() if theirs != ours)
        for name, fields in compared.items()
    }
    return {name: fields for name, fields in found.items() if fields}


def _one(source: str, record: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    if "failed" in record:
        return {"template": (record["failed"], "")}
    template = Template(source, "<s>", "</s>")
    thinking = thinking_of(template)
    fields: dict[str, tuple[Any, Any]] = {}
    for case, theirs in record["prompts"].items():
        messages, tools = PROMPTS[case]
        try:
            ours = digest(template.render(messages, tools, thinking))
        except TemplateFailed:
            ours = "refused"
        fields[f"prompt {case}"] = (theirs, ours)
    form = template.output_format(template.render([USER], [TOOL], thinking))
    for case, theirs in record["read"].items():
        parser = OutputParser(form, (), [TOOL])
        data = record["outputs"][case].encode()
        events = [event for at in range(0, len(data), 5) for event in parser.feed(data[at : at + 5])]
        last, calls = parser.finish()
        events += last
        read = {
            "text": "".join(one.text for one in events if isinstance(one, TextDelta)),
            "reasoning": "".join(one.text for one in events if isinstance(one, ReasoningDelta)),
            "calls": [[one.name, one.arguments] for one in calls],
        }
        for field, value in read.items():
            expected = theirs if theirs == "refused" else _plain(theirs[field])
            fields[f"{case} {field}"] = (expected, _plain(value))
    return fields


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    plain = []
    for name, arguments in value:
        try:
            plain.append([name, json.loads(arguments)])
        except ValueError:
            plain.append([name, arguments])
    return plain


def section(compared: Compared, reasons: dict[str, dict[str, str]]) -> str:
    """Markdown: how many fields of each template agree, and why others do not."""
    found = differing(compared)
    total, apart = sum(map(len, compared.values())), sum(map(len, found.values()))
    lines = [
        HEADING,
        "",
        "llama-server (built from the same release as the binding) renders four conversations with each template and",
        "reads up to three outputs that a tiny model spells out (`bench/oracle.py`); its answers are recorded in",
        "`tests/unit/template/oracle.json` and compared field by field (`bench/compare.py`), with thoughts on,",
        "which is its default. A test asserts that exactly these fields differ.",
        "",
        f"{total - apart} of {total} fields agree; {len(compared) - len(found)} of {len(compared)} templates in all.",
        "",
        "| template | prompts | read | why not |",
        "| --- | --- | --- | --- |",
    ]
    for name, fields in compared.items():
        wrong = set(found.get(name, ()))
        prompts = [field for field in fields if field.startswith("prompt ")]
        read = [field for field in fields if not field.startswith("prompt ")]
        counts = [f"{sum(field not in wrong for field in part)} of {len(part)}" for part in (prompts, read)]
        why = "; ".join(dict.fromkeys(reasons.get(name, {}).values()))
        lines.append(f"| {name} | {counts[0]} | {counts[1]} | {why} |")
    return "\n".join(lines) + "\n"


def report() -> None:
    """Write the section of the docs page again."""
    compared = compare(json.loads(GOLDEN.read_text(encoding="utf-8")))
    reasons = json.loads(GOLDEN.with_name("differences.json").read_text(encoding="utf-8"))
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(HEADING)
    PAGE.write_text(before.rstrip() + "\n\n" + section(compared, reasons), encoding="utf-8")


def main() -> int:
    """Print what differs; `--report` writes the page."""
    if "--report" in sys.argv:
        report()
        return 0
    compared = compare(json.loads(GOLDEN.read_text(encoding="utf-8")))
    total = sum(map(len, compared.values()))
    found = differing(compared)
    for name, fields in found.items():
        print(name)
        for field in fields:
            theirs, ours = compared[name][field]
            print(f"   {field}: theirs {str(theirs)[:160]!r} ours {str(ours)[:160]!r}")
    print(f"{total - sum(map(len, found.values()))} of {total} fields agree in {len(compared)} templates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
