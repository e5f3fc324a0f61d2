"""What a line of the daemon's log looks like, and what it means to a program. Pure.

`<time> [<pid>] <text>`, where the text of a turn is `turn name=value ...` (logfmt: values with spaces in quotes). Never
a word of a prompt, a file or an answer.
"""

from __future__ import annotations

import json
import re
from typing import Any

from shared.protocol.api import TurnResult

_LINE = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) \[(?P<pid>\d+)\] (?P<text>.*)")
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


def turn_line(client: str, result: TurnResult) -> str:
    """The log line of a finished turn: who asked, what it cost, in tokens and seconds."""
    usage, times = result.usage, result.timings
    return fields_line(
        "turn",
        client=client,
        model=result.model,
        finish=result.finish_reason,
        reused=usage.reused,
        prefilled=usage.prefilled,
        generated=usage.generated,
        queued_s=times.queued_s,
        load_s=times.load_s,
        prefill_s=times.prefill_s,
        first_token_s=times.first_token_s,
        decode_s=times.decode_s,
        tokens_per_s=times.tokens_per_s,
        threads=times.threads,
        **({"ended_by": result.ended_by} if result.ended_by else {}),
    )


def fields_line(event: str, **fields: object) -> str:
    """`event name=value ...`; numbers of seconds and rates with two places."""
    return " ".join([event, *(f"{name}={_value(value)}" for name, value in fields.items())])


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    text = " ".join(str(value).split())
    return json.dumps(text, ensure_ascii=False) if not text or re.search(r'[\s"=]', text) else text


def parsed(line: str) -> dict[str, Any]:
    """A line as a program wants it: time, pid, text, and the fields of a line that has any."""
    found = _LINE.fullmatch(line)
    if found is None:
        return {"text": line}
    record: dict[str, Any] = {"time": found["time"], "pid": int(found["pid"]), "text": found["text"]}
    event, _, rest = found["text"].partition(" ")
    if event.isidentifier() and _FIELD.match(rest):
        record["event"] = event
        record["fields"] = {name: _meant(value) for name, value in _FIELD.findall(rest)}
    return record


def _meant(value: str) -> Any:
    if value.startswith('"'):
        return json.loads(value)
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return value
