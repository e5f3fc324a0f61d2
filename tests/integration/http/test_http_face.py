"""What a program sees of the HTTP face: answers, streams, errors, and what a hang-up does."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from http_world import HttpServer, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# --- answers -----------------------------------------------------------------------------------


def test_the_models_are_those_of_the_picker(server: HttpServer) -> None:
    listed = server.ask("GET", "/v1/models").json
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == ["alpha", "beta"]
    one = server.ask("GET", "/v1/models/beta").json
    for name in ("id", "object", "created", "owned_by", "context_length"):
        assert one[name] == listed["data"][1][name]


def test_an_answer_comes_whole_with_its_usage(server: HttpServer) -> None:
    server.chat()
    answer = server.chat().json
    choice = answer["choices"][0]
    assert (choice["message"]["role"], choice["message"]["content"]) == ("assistant", "Hello there")
    assert (choice["finish_reason"], answer["model"], answer["object"]) == ("stop", "alpha", "chat.completion")
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0, "the same prompt again is warm"


def test_a_stream_ends_with_its_finish_and_its_usage_where_that_was_asked_for(server: HttpServer) -> None:
    answer = server.chat(stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text == "Hello there"
    events = answer.events
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None, None, "stop"]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 3
    assert len({event["id"] for event in events}) == 1
    assert all("usage" not in event for event in server.chat(stream=True).events)


def test_thoughts_come_beside_the_answer(server: HttpServer) -> None:
    message = server.chat(messages=said("think first")).json["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "so")
    events = server.chat(messages=said("think first"), stream=True).events
    assert "".join(e["choices"][0]["delta"].get("reasoning_content", "") for e in events) == "hm"


def test_a_call_of_a_tool_comes_whole_and_in_pieces(server: HttpServer) -> None:
    asked: dict[str, Any] = {"messages": said("look at it"), "tools": [TOOL]}
    choice = server.chat(**asked).json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("look", {"path": "a.txt"})
    deltas = [event["choices"][0]["delta"] for event in server.chat(**asked, stream=True).events]
    pieces = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert [("id" in piece, "name" in piece["function"]) for piece in pieces] == [
        (number == 0, number == 0) for number in range(len(pieces))
    ]
    assert json.loads("".join(piece["function"]["arguments"] for piece in pieces)) == {"path": "a.txt"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "found"}
    again = server.chat(messages=[*said("hello"), choice["message"], result], tools=[TOOL]).json
    assert again["choices"][0]["message"]["content"] == "Hello there", "its own message is taken back as it was given"


def test_one_call_at_a_time_where_that_was_asked_for(server: HttpServer) -> None:
    asked: dict[str, Any] = {"messages": said("look twice"), "tools": [TOOL]}
    assert len(server.chat(**asked).json["choices"][0]["message"]["tool_calls"]) == 2
    one = server.chat(**asked, parallel_tool_calls=False).json["choices"][0]
    assert len(one["message"]["tool_calls"]) == 1
    events = server.chat(**asked, parallel_tool_calls=False, stream=True).events
    indexes = {call["index"] for event in events for call in event["choices"][0]["delta"].get("tool_calls", [])}
    assert indexes == {0}


def test_an_answer_is_bounded_and_stopped_as_asked(server: HttpServer) -> None:
    bounded = server.chat(max_completion_tokens=1).json
    assert (bounded["choices"][0]["finish_reason"], bounded["usage"]["completion_tokens"]) == ("length", 1)
    stopped = server.chat(stop=["ther"]).json["choices"][0]
    assert (stopped["message"]["content"].strip(), stopped["finish_reason"]) == ("Hello", "stop")


def test_completions_continue_a_text_or_fill_the_middle(server: HttpServer) -> None:
    once = server.ask("POST", "/v1/completions", {"model": "alpha", "prompt": ["once", "upon"], "max_tokens": 9}).json
    assert [(choice["index"], choice["text"]) for choice in once["choices"]] == [(0, "Hello there"), (1, "Hello there")]
    assert once["usage"]["prompt_tokens"] == len("once" + "upon"), "a byte a token: no template is around them"
    body = {"model": "alpha", "prompt": "def f(", "suffix": "return", "stream": True}
    streamed = server.ask("POST", "/v1/completions", body).events
    assert "".join(event["choices"][0]["text"] for event in streamed) == "Hello there"
    parallel = {"model": "alpha", "prompt": "def f(", "suffix": "return"}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: server.ask("POST", "/v1/completions", parallel), range(4)))
    assert [answer.status for answer in answers] == [200] * 4, "one program's fills do not end each other"


def test_parallel_requests_of_many_programs_are_all_answered(server: HttpServer) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: server.chat(agent=f"program {number}"), range(12)))
    assert [answer.json["choices"][0]["message"]["content"] for answer in answers] == ["Hello there"] * 12


# --- parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"frobnicate": 1}, "frobnicate"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}]},
         "messages.0.content.0.image_url"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_its_name(server: HttpServer, fields: dict[str, object], param: str) -> None:
    answer = server.chat(**fields)  # type: ignore[arg-type]
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param
    assert answer.error["type"] == "invalid_request_error"
    assert "Traceback" not in answer.body.decode()


def test_an_image_for_a_model_that_sees_none_is_refused(server: HttpServer) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    answer = server.chat(messages=[{"role": "user", "content": [{"type": "text", "text": "what?"}, part]}])
    assert (answer.status, answer.error["code"]) == (400, "unsupported_feature")


def test_what_has_no_effect_is_listed(server: HttpServer) -> None:
    answer = server.chat(user="me", metadata={"a": "b"}, n=1, logprobs=None, service_tier="auto")
    assert answer.status == 200
    assert answer.headers["x-modeld-ignored"] == "metadata, service_tier, user"
    assert "x-modeld-ignored" not in server.chat().headers


# --- errors ------------------------------------------------------------------------------------


def test_an_unknown_model_is_told_the_near_names_and_none_answers_for_it(server: HttpServer) -> None:
    answer = server.chat("alpah")
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")
    assert answer.error["near"] == ["alpha"]
    assert server.ask("GET", "/v1/models/alpah").status == 404


def test_a_prompt_that_does_not_fit_is_the_protocols_own_error(server: HttpServer) -> None:
    answer = server.chat(messages=said("x" * 5000))
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert answer.error["kind"] == "context_overflow"


def test_an_engine_that_dies_in_the_middle_ends_the_stream_with_its_error(server: HttpServer) -> None:
    body = server.chat(messages=said("fail now"), stream=True).body.decode()
    last = body.strip().splitlines()[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["kind"] == "engine_failed"
    assert "[DONE]" not in body
    whole = server.chat(messages=said("fail now"))
    assert (whole.status, whole.error["kind"]) == (500, "engine_failed")
    assert server.chat().status == 200, "and the next request loads it again"


def test_paths_and_methods_that_are_not_there_say_so_in_json(server: HttpServer) -> None:
    assert server.ask("GET", "/v1/assistants").error["code"] == "not_found"
    wrong = server.ask("GET", "/v1/chat/completions")
    assert (wrong.status, wrong.error["code"]) == (405, "method_not_allowed")
    for body in (b"", b"{", b"[]", b"\xff", b'{"model": NaN}', b"[" * 5000):
        answer = server.ask("POST", "/v1/chat/completions", body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_json"), body[:20]


# --- a client that goes away ---------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_frees_the_slot(server: HttpServer, *, stream: bool) -> None:
    with server.begun(messages=said("count for ever"), stream=stream):
        server.until_state("Busy")
    assert server.until_state("Ready")["last_turn"]["finish_reason"] == "cancelled"


def test_a_client_that_stops_reading_is_given_up(server: HttpServer) -> None:
    with server.begun(messages=said("a flood"), stream=True):
        server.until_state("Busy")
        assert server.until_state("Ready")["last_turn"]["finish_reason"] == "cancelled", (
            "it is there, and reads nothing"
        )


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_is_stopped_ends_its_answers_with_that_error(server: HttpServer, *, stream: bool) -> None:
    with serving(server.world) as other:
        with other.begun(messages=said("count for ever"), stream=stream) as made:
            other.until_state("Busy")
            other.process.terminate()
            received = b"".join(iter(lambda: made.recv(65536), b""))
            assert other.process.wait(30) == 0
    assert b'"kind":"cancelled"' in received
    assert received.startswith(b"HTTP/1.1 200" if stream else b"HTTP/1.1 503")


# --- numbers -----------------------------------------------------------------------------------


def test_the_metrics_are_what_prometheus_reads(server: HttpServer) -> None:
    server.chat(agent='quote " back \\ line')
    server.chat("alpah")
    text = server.ask("GET", "/metrics").body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    by_route = {
        (sample.labels["route"], sample.labels["status"]): sample.value
        for sample in families["acp_bridge_http_requests"].samples
    }
    assert by_route["/v1/chat/completions", "200"] >= 1
    assert by_route["/v1/chat/completions", "404"] >= 1
    for name in ("prompt_reused", "prompt_prefilled", "generated"):
        (sample,) = families[f"acp_bridge_http_{name}_tokens"].samples
        assert sample.value > 0, name
    waits = {sample.name: sample.value for sample in families["acp_bridge_http_queue_wait_seconds"].samples}
    assert waits["acp_bridge_http_queue_wait_seconds_count"] > 0
    states = {sample.labels["state"]: sample.value for sample in families["modeld_slot_state"].samples}
    assert sum(states.values()) == 1
    for name in ("modeld_up", "modeld_queue_waiting", "modeld_slot_generation", "modeld_memory_measured_bytes"):
        assert name in families, name
    assert families["modeld_info"].samples[0].labels["backend"] == "scripted"


def test_the_health_is_that_of_the_daemon(server: HttpServer) -> None:
    assert server.ask("GET", "/health").json == {"status": "ok"}


def test_neither_health_nor_metrics_load_or_count_as_use(server: HttpServer) -> None:
    before = server.status()["generation"]
    for _ in range(3):
        server.ask("GET", "/health")
        server.ask("GET", "/metrics")
        server.ask("GET", "/v1/models")
    assert server.status()["generation"] == before


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors")
def test_requests_leave_nothing_open(server: HttpServer) -> None:
    process = psutil.Process(server.process.pid)
    server.chat()
    before = process.num_fds()
    for _ in range(20):
        server.chat()
        server.chat("nope")
    server.until(lambda: process.num_fds() <= before + 1, "connections are closed")
