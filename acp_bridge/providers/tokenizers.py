"""How servers count tokens for others: vLLM and Ray Serve, llama-server, llama-cpp-python's server. Pure.

None of it is part of OpenAI's protocol, so each is tried once, in this order, and what answers is used from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from acp_bridge.providers.counting import MESSAGE, plain_text

Messages = Sequence[dict[str, Any]]
Kind = Literal["messages", "template", "prompt", "text"]
#: `messages`: counts a conversation under the model's own template (vLLM, SGLang). `template`: writes the
#: conversation out first, then counts the text (llama-server). `prompt`, `text`: count a text (Ray Serve's ingress;
#: llama-cpp-python's server).
KINDS: tuple[Kind, ...] = ("messages", "template", "prompt", "text")
#: Those that see the template too.
EXACT: frozenset[Kind] = frozenset({"messages", "template"})


def root_of(base_url: str) -> str:
    """Where a server's own routes are: beside `/v1`."""
    return base_url.removesuffix("/v1")


def messages_body(model: str, messages: Messages, tools: Messages) -> dict[str, Any]:
    """For `POST /tokenize` of vLLM."""
    body: dict[str, Any] = {"model": model, "messages": list(messages), "add_generation_prompt": True}
    return {**body, "tools": list(tools)} if tools else body


def template_body(messages: Messages, tools: Messages) -> dict[str, Any]:
    """For `POST /apply-template` of llama-server."""
    body: dict[str, Any] = {"messages": list(messages)}
    return {**body, "tools": list(tools)} if tools else body


def content_body(prompt: str) -> dict[str, Any]:
    """For `POST /tokenize` of llama-server."""
    return {"content": prompt, "add_special": True, "parse_special": True}


def text_body(field: str, model: str, messages: Messages, tools: Messages) -> dict[str, Any]:
    """For `POST /tokenize` of Ray Serve (`prompt`), and `/extras/tokenize/count` of llama-cpp-python's (`input`)."""
    written = msgspec.json.encode(tools).decode() if tools else ""
    return {"model": model, field: plain_text(messages) + written}


def with_marks(count: int, messages: Messages) -> int:
    """A count of a text, and about what the template puts around its messages; 0 stays 0."""
    return count + int(MESSAGE * len(messages)) if count else 0


def counted(answer: Any) -> int:
    """The count of an answer, 0 where none stands. llama-server gives the tokens alone, of no text none."""
    if not isinstance(answer, dict):
        return 0
    count = answer.get("count")
    if isinstance(count, int) and not isinstance(count, bool) and count > 0:
        return count
    tokens = answer.get("tokens")
    return len(tokens) if isinstance(tokens, list) else 0


def prompt_of(answer: Any) -> str:
    """The conversation as llama-server writes it out, "" where it does not."""
    prompt = answer.get("prompt") if isinstance(answer, dict) else None
    return prompt if isinstance(prompt, str) else ""
