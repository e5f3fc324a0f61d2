"""What an endpoint's refusal means: too long a prompt, a wait, or a field that it does not know. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from shared.text.nesting import decode_json

#: Codes and types that servers give an overflow (OpenAI, llama-server, Anthropic, LiteLLM).
CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "contextwindowexceedederror",
     "model_context_window_exceeded"}
)  # fmt: skip
#: A limit by time, which has words of tokens too.
_RATE = re.compile(r"(?i)per (?:minute|hour|day|second)|rate.?limit|quota|\bTPM\b|\bRPM\b")
_CONTEXT = r"context[ _-]?(?:length|size|window|limit)"
#: In the words of OpenAI, vLLM, SGLang, TGI, llama-server, llama-cpp-python, LM Studio, Ollama, TensorRT-LLM, Mistral,
#: Gemini, Anthropic, Cohere, xAI, Fireworks, Moonshot and Bedrock.
_OVERFLOWS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"{_CONTEXT}\b.{{0,120}}?\b(?:exceed|longer|larger|only|overflow|too|reached|limit)",
        rf"(?:exceed|longer than|greater than|larger than|too large for|overflow|reached|only).{{0,120}}?\b{_CONTEXT}",
        r"maximum (?:prompt|context|input|model|sequence)(?: token)? (?:length|size)",
        r"\b(?:prompt|input|inputs|messages)\b.{0,40}?\btoo (?:long|large)\b",
        r"\b(?:prompt|input|request)\b[^.]{0,60}?\bexceed(?:s|ed)?\b[^.]{0,60}?\btoken",
        r"\btoken (?:count|limit|length)\b.{0,60}?\bexceed|exceed.{0,40}?\b(?:token (?:count|limit)|context)",
        r"reduce the length of (?:the|your) (?:messages|prompt|input)",
        r"\btokens?`?\b.{0,60}?\bmust (?:be <=|have (?:less|fewer))",
        r"must have (?:less|fewer) than \d+ tokens",
        r"too many tokens: size limit",
        r"when context the overflows",
    )
)
_NUMBER = r"\(?\s*(\d[\d,_]*)"
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"(?:maximum|available|model's|total|max)?\s*context (?:length|size|window|limit)[^\d.]{0,40}?" + _NUMBER,
        r"(\d[\d,_]*) maximum context length",
        r"maximum (?:prompt|input|model|sequence)(?: token)? length[^\d.]{0,24}?" + _NUMBER,
        r"> " + _NUMBER + r" ?(?:maximum|max)?",
        r"maximum number of tokens allowed[^\d.]{0,6}?" + _NUMBER,
        r"must be <= " + _NUMBER,
        r"must have (?:less|fewer) than " + _NUMBER,
        r"(?:exceeds? the limit of|token limit:?(?: of)?) " + _NUMBER,
    )
)
_PROMPTS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"\(?(\d[\d,_]*) (?:tokens )?(?:in|from) the (?:input )?(?:messages|prompt)",
        r"resulted in (\d[\d,_]*) tokens",
        r"\b(?:passed|has|contains) (\d[\d,_]*) (?:input )?tokens",
        r"\b(?:request|prompt|input|inputs|tokens)\b \((?:length )?(\d[\d,_]*)",
        r"too long: (\d[\d,_]*)",
        r"token count (?:of |\()(\d[\d,_]*)",
        r"Given: (\d[\d,_]*)",
        r"the first (\d[\d,_]*) tokens",
        r"you requested (?:about |a total of )?(\d[\d,_]*) tokens",
    )
)
#: The first words of an error that are read for its meaning.
READ = 4000
#: What is asked for beyond need: an endpoint that does not know such a field is asked once more without it.
_EXTRAS = ("stream_options", "max_tokens")


class Overflow(msgspec.Struct, frozen=True):
    """A prompt that does not fit: the window and the prompt in tokens, 0 where the endpoint does not say."""

    window: int = 0
    prompt: int = 0


def overflow_of(text: str) -> Overflow | None:
    """Whether an error, as it came, tells of a prompt that is too long."""
    text = text[:READ]
    fields = _fields(text)
    code = any(str(fields.get(name, "")).lower() in CODES for name in ("code", "type", "error_type", "kind"))
    words = any(pattern.search(text) for pattern in _OVERFLOWS) and not _RATE.search(text)
    if not (code or words):
        return None
    window = _count(fields.get("n_ctx")) or _first(_WINDOWS, text)
    prompt = _count(fields.get("n_prompt_tokens")) or _first(_PROMPTS, text)
    return Overflow(window, prompt)


def is_rate_limit(text: str) -> bool:
    """Whether a refusal tells of a limit by time, whatever its status is."""
    return bool(_RATE.search(text[:READ]))


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that an endpoint asks to wait, None where it does not say. `now`: the wall clock, for a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    told = headers.get("retry-after")
    seconds = _number(told)
    if seconds is not None or told is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def without_refused(body: Mapping[str, Any], text: str) -> dict[str, Any] | None:
    """The request without a field that its refusal names and that the answer does not need; None where none is named.

    OpenAI's newer models take `max_completion_tokens` for `max_tokens`.
    """
    said = text[:READ]
    for name in _EXTRAS:
        if name not in body or name not in said:
            continue
        rest = {key: value for key, value in body.items() if key != name}
        if name == "max_tokens":
            if "max_completion_tokens" not in said:
                continue
            rest["max_completion_tokens"] = body[name]
        return rest
    return None


def request_id(headers: Mapping[str, str], sent: str) -> str:
    """The name under which an administrator finds a request: the endpoint's own, else what was sent."""
    named = next((headers[name] for name in ("x-request-id", "request-id") if headers.get(name)), sent)
    return named if re.fullmatch(r"[\w.:-]{1,128}", named) else sent


def _fields(text: str) -> dict[str, Any]:
    """The error object of a body, flat."""
    try:
        body = decode_json(text, Any)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {}
    body = body[0] if isinstance(body, list) and body else body
    if not isinstance(body, dict):
        return {}
    inner = body.get("error")
    return {**body, **inner} if isinstance(inner, dict) else body


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int:
    found = next((match[1] for pattern in patterns if (match := pattern.search(text))), "0")
    return int(re.sub("[,_]", "", found))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < 1e9 else None
