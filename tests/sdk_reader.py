"""Reads each named answer with the official `openai` package: `python sdk_reader.py URL < names.json > outcomes.json`.

Runs in an environment of its own. Assembles a stream as the package's manual does.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def outcome(client: Any, name: str) -> dict[str, Any]:
    """Text, calls (name and arguments) and finish of one answer; `error` is the exception's, "" for none."""
    text, finish, error = "", "", ""
    calls: dict[int, list[str]] = {}
    try:
        stream = client.chat.completions.create(
            model=name,
            messages=[{"role": "user", "content": "go"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        for chunk in stream:
            if not chunk.choices:
                continue
            choice = chunk.choices[0]
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(piece.index, ["", ""])
                call[0] = piece.function.name or call[0]
                call[1] += piece.function.arguments or ""
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"[:200]
    return {"text": text, "calls": [list(call) for call in calls.values()], "finish": finish, "error": error}


def main() -> None:
    """Write the outcomes by name."""
    from openai import OpenAI

    with OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=3.0) as client:
        print(json.dumps({name: outcome(client, name) for name in json.load(sys.stdin)}))


if __name__ == "__main__":
    main()
