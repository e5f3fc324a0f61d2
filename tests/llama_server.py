"""Runs llama-cpp-python's own OpenAI-compatible server on a loopback port, as a process of its own.

The chat format `scripted` is added to it, so that a tiny model's answers are known: it thinks, calls a tool, speaks,
and breaks in the middle of an answer when it is asked to. All goes through the server's own routes, stream and errors.

    python tests/llama_server.py PORT MODEL [CHAT_FORMAT [API_KEY]]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import uvicorn
from llama_cpp.llama_chat_format import register_chat_completion_handler
from llama_cpp.server.app import create_app
from llama_cpp.server.settings import ModelSettings, ServerSettings

CALL = {"path": "notes.txt"}
BREAK = "break off"


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }


@register_chat_completion_handler("scripted")  # type: ignore[untyped-decorator]
def scripted(**options: Any) -> Iterator[dict[str, Any]]:
    """Thinks and answers; with tools, calls the first one in pieces until its result is there."""
    messages, tools = options["messages"], options.get("tools")
    yield chunk({"role": "assistant"})
    if BREAK in str(messages[-1]["content"]):
        yield chunk({"content": "half"})
        raise RuntimeError("the engine broke")
    for piece in ("Let me ", "think."):
        yield chunk({"reasoning_content": piece})
    if tools and messages[-1]["role"] != "tool":
        yield from called(tools)
        return
    for piece in ("The answer ", "is ", "42."):
        yield chunk({"content": piece})
    yield chunk({}, "stop")


def called(tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    name = next(tool["function"]["name"] for tool in tools if "read" in tool["function"]["name"])
    arguments = json.dumps(CALL)
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    yield chunk({"tool_calls": [first]})
    for at in range(0, len(arguments), 5):
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + 5]}}]})
    yield chunk({}, "tool_calls")


def main(port: str, model: str, chat_format: str = "", api_key: str = "") -> None:
    settings = ModelSettings(
        model=model, model_alias="tiny", n_ctx=512, n_threads=1, chat_format=chat_format or None, verbose=False
    )
    app = create_app(
        server_settings=ServerSettings(host="127.0.0.1", port=int(port), api_key=api_key or None),
        model_settings=[settings],
    )
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
