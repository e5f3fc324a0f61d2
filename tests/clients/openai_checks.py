"""What a program does with the official Python SDK, as checks that any server of the protocol can be put to.

    python openai_checks.py BASE_URL KEY MODEL [CHECK...]      prints one JSON object: check -> "" or what was wrong

Needs the SDK alone. Every raw answer is also validated by the SDK's own types, which are made from the published
schema.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
from openai import OpenAI
from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, TypeAdapter

Check = Callable[["Subject"], None]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
QUESTION: Any = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
WEATHER: Any = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


#: A server that takes longer for one of these small answers has failed it.
SECONDS = 40.0


class City(BaseModel):
    """What is asked for as JSON."""

    name: str
    people: int


class Subject:
    """The server under test: a client of it, and the name of its model."""

    def __init__(self, base_url: str, key: str, model: str) -> None:
        self.client = OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=SECONDS)
        self.base_url = base_url
        self.model = model

    def chat(self, messages: Any = QUESTION, **options: Any) -> ChatCompletion:
        """One answer, whose raw JSON the published types accept."""
        options.setdefault("temperature", 0.0)
        options.setdefault("max_tokens", 24)
        raw = self.client.chat.completions.with_raw_response.create(model=self.model, messages=messages, **options)
        TypeAdapter(ChatCompletion).validate_json(raw.content)
        found: ChatCompletion = raw.parse()
        return found

    def stream(self, messages: Any = QUESTION, **options: Any) -> list[ChatCompletionChunk]:
        """All chunks of one streamed answer."""
        options.setdefault("temperature", 0.0)
        options.setdefault("max_tokens", 24)
        chunks = list(self.client.chat.completions.create(model=self.model, messages=messages, stream=True, **options))
        for chunk in chunks:
            TypeAdapter(ChatCompletionChunk).validate_python(chunk.model_dump())
        return chunks


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def refused(work: Callable[[], Any], *kinds: type[openai.APIStatusError]) -> openai.APIStatusError:
    """The error of `work`, which has to be one of these."""
    try:
        answer = work()
    except kinds as error:
        assert isinstance(error, openai.APIStatusError)
        body = error.body if isinstance(error.body, dict) else {}
        assert body.get("message"), f"no message in {error.body!r}"
        return error
    raise AssertionError(f"answered: {str(answer)[:120]}")


# --- answers -----------------------------------------------------------------------------------------


def models(subject: Subject) -> None:
    names = [model.id for model in subject.client.models.list()]
    assert subject.model in names, names
    raw = subject.client.models.with_raw_response.retrieve(subject.model)
    TypeAdapter(Model).validate_json(raw.content)


def whole(subject: Subject) -> None:
    answer = subject.chat()
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.model == subject.model
    usage = answer.usage
    assert usage is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0


def streamed(subject: Subject) -> None:
    chunks = subject.stream()
    assert text_of(chunks) == subject.chat().choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    assert all(chunk.usage is None for chunk in chunks), "usage that nobody asked for"


def usage_of_a_stream(subject: Subject) -> None:
    chunks = subject.stream(stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def cached_tokens(subject: Subject) -> None:
    messages = [{"role": "user", "content": "Remember this. " * 30 + "What was it?"}]
    subject.chat(messages, max_tokens=2)
    usage = subject.chat(messages, max_tokens=2).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens_details.cached_tokens or 0) > 0


def bounded(subject: Subject) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        answer = subject.chat(
            [{"role": "user", "content": "Count to a hundred."}], **{"max_tokens": openai.omit, name: 5}
        )
        assert answer.choices[0].finish_reason == "length", name
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5, name


def stopped(subject: Subject) -> None:
    messages = [{"role": "user", "content": "Write the alphabet."}]
    plain = subject.chat(messages).choices[0].message.content or ""
    stop = plain[4:7]
    answer = subject.chat(messages, stop=[stop]).choices[0]
    assert answer.message.content == plain[: plain.index(stop)]
    assert answer.finish_reason == "stop"


def seeded(subject: Subject) -> None:
    one, two = (subject.chat(temperature=1.0, seed=7).choices[0].message.content for _ in range(2))
    assert one == two


def system_and_developer(subject: Subject) -> None:
    for role in ("system", "developer"):
        assert subject.chat([{"role": role, "content": "Be brief."}, *QUESTION]).choices[0].message.content


def parallel(subject: Subject) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: subject.chat(max_tokens=6).choices[0].message.content, range(8)))
    assert len(set(answers)) == 1, answers


def hung_up(subject: Subject) -> None:
    messages: Any = [{"role": "user", "content": "Tell a very long story about the sea."}]
    stream = subject.client.chat.completions.create(model=subject.model, messages=messages, stream=True)
    next(iter(stream))
    stream.close()
    assert subject.chat(max_tokens=4).choices[0].message.content


# --- JSON and tools ----------------------------------------------------------------------------------


def json_schema(subject: Subject) -> None:
    messages: Any = [{"role": "user", "content": "Paris has 2,000,000 people. Give it as JSON."}]
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["name", "people"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}}
    answer = subject.chat(messages, response_format=form, max_tokens=100)
    City.model_validate_json(answer.choices[0].message.content or "")


def parsed(subject: Subject) -> None:
    messages: Any = [{"role": "user", "content": "Paris has 2,000,000 people. Give it as JSON."}]
    answer = subject.client.chat.completions.parse(
        model=subject.model, messages=messages, response_format=City, max_tokens=100, temperature=0.0
    )
    assert isinstance(answer.choices[0].message.parsed, City)


def json_object(subject: Subject) -> None:
    messages = [{"role": "user", "content": "Give a JSON object with a key a and the value 1. No more."}]
    answer = subject.chat(messages, response_format={"type": "json_object"}, max_tokens=200, stop=["\n\n\n"])
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)


def tool_choice(subject: Subject) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = subject.chat(WEATHER, tools=[TOOL], tool_choice=choice, max_tokens=100)
        assert answer.choices[0].finish_reason == "tool_calls", answer.choices[0].finish_reason
        calls: list[Any] = answer.choices[0].message.tool_calls or []
        assert all(isinstance(json.loads(call.function.arguments)["city"], str) for call in calls)
        assert calls
    alone = subject.chat(WEATHER, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=100)
    assert len(alone.choices[0].message.tool_calls or []) == 1
    none = subject.chat(WEATHER, tools=[TOOL], tool_choice="none", max_tokens=8)
    assert not none.choices[0].message.tool_calls


def tools_in_pieces(subject: Subject) -> None:
    chunks = subject.stream(WEATHER, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=100)
    pieces = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or []]
    assert pieces[0].id
    assert pieces[0].function is not None
    assert pieces[0].function.name == "get_weather"
    assert all(piece.id is None for piece in pieces[1:]), "an id that is given again"
    arguments = "".join(piece.function.arguments or "" for piece in pieces if piece.function)
    assert isinstance(json.loads(arguments)["city"], str)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert len(pieces) > 1, "the call came in one piece"


def tool_result(subject: Subject) -> None:
    answer = subject.chat(WEATHER, tools=[TOOL], tool_choice="required", max_tokens=100)
    message = answer.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "sunny, 20 degrees"} for call in message.tool_calls or []
    ]
    again = subject.chat([*WEATHER, message, *results], tools=[TOOL], tool_choice="none")
    assert again.choices[0].message.content


# --- the other endpoints -----------------------------------------------------------------------------


def completions(subject: Subject) -> None:
    options: Any = {"model": subject.model, "prompt": "One, two, three,", "max_tokens": 8, "temperature": 0.0}
    raw = subject.client.completions.with_raw_response.create(**options)
    TypeAdapter(Completion).validate_json(raw.content)
    text = raw.parse().choices[0].text
    assert "four" in text, text
    pieces = subject.client.completions.create(**options, stream=True)
    assert "".join(choice.text for piece in pieces for choice in piece.choices) == text


def suffix(subject: Subject) -> None:
    """For a model without the tokens for it: a clear refusal, never an answer that leaves the suffix out."""
    asked: Any = {"model": subject.model, "prompt": "def add(a, b):\n    ", "max_tokens": 24, "temperature": 0.0}
    try:
        answer = subject.client.completions.create(**asked, suffix="\n\nprint(add(1, 2))\n")
    except openai.BadRequestError as error:
        assert "middle" in str(error) or "suffix" in str(error), error
        return
    assert answer.choices[0].text != subject.client.completions.create(**asked).choices[0].text, "it was left out"


def embeddings(subject: Subject) -> None:
    """For a chat model: a clear refusal, or vectors."""
    try:
        raw = subject.client.embeddings.with_raw_response.create(
            model=subject.model, input=["one", "two"], encoding_format="float"
        )
    except openai.BadRequestError as error:
        assert "embedding" in str(error), error
        return
    TypeAdapter(CreateEmbeddingResponse).validate_json(raw.content)
    plain = [one.embedding for one in raw.parse().data]
    packed = subject.client.embeddings.create(model=subject.model, input=["one", "two"])
    assert len(plain) == 2
    assert all(abs(a - b) < 1e-4 for a, b in zip(plain[0], packed.data[0].embedding, strict=True))


# --- errors ------------------------------------------------------------------------------------------


def unknown_model(subject: Subject) -> None:
    error = refused(
        lambda: subject.client.chat.completions.create(model="no-such-model", messages=QUESTION, max_tokens=1),
        openai.NotFoundError,
    )
    assert error.code == "model_not_found"


def wrong_key(subject: Subject) -> None:
    other = OpenAI(base_url=subject.base_url, api_key="wrong", max_retries=0)
    refused(lambda: other.chat.completions.create(model=subject.model, messages=QUESTION), openai.AuthenticationError)


def wrong_value(subject: Subject) -> None:
    refused(lambda: subject.chat(temperature="warm"), openai.BadRequestError)
    refused(lambda: subject.chat([{"role": "robot", "content": "x"}]), openai.BadRequestError)
    refused(lambda: subject.chat([]), openai.BadRequestError)


def unknown_parameter(subject: Subject) -> None:
    error = refused(lambda: subject.chat(extra_body={"frobnicate": 1}), openai.BadRequestError)
    assert error.param == "frobnicate"


def unmet_parameter(subject: Subject) -> None:
    """`n` and `logprobs`: done, or refused; never answered as if they were not there."""
    for options in ({"n": 2}, {"logprobs": True, "top_logprobs": 2}):
        try:
            answer = subject.chat(max_tokens=2, **options)
        except openai.BadRequestError:
            continue
        assert len(answer.choices) == options.get("n", 1)
        assert "logprobs" not in options or answer.choices[0].logprobs is not None


def too_long(subject: Subject) -> None:
    messages = [{"role": "user", "content": "word " * 20_000}]
    error = refused(lambda: subject.chat(messages), openai.BadRequestError)
    assert error.code == "context_length_exceeded", error.code


def unseen_image(subject: Subject) -> None:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    refused(lambda: subject.chat([{"role": "user", "content": parts}]), openai.BadRequestError)


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        models, whole, streamed, usage_of_a_stream, cached_tokens, bounded, stopped, seeded, system_and_developer,
        parallel, hung_up, json_schema, parsed, json_object, tool_choice, tools_in_pieces, tool_result, completions,
        suffix, embeddings, unknown_model, wrong_key, wrong_value, unknown_parameter, unmet_parameter, too_long,
        unseen_image,
    )
}  # fmt: skip


def run(subject: Subject, *only: str) -> dict[str, str]:
    """Every check, or these: "" or what was wrong."""
    outcome = {}
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        print(name, file=sys.stderr, flush=True)
        try:
            check(subject)
        except Exception as error:
            outcome[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        else:
            outcome[name] = ""
    return outcome


if __name__ == "__main__":
    print(json.dumps({"sdk": openai.__version__, "checks": run(Subject(*sys.argv[1:4]), *sys.argv[4:])}))
