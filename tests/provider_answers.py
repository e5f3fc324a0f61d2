"""A table of answers as servers give them: what is sent, and what a person has to get of it. Standard library only."""

from __future__ import annotations

import json
import socketserver
import threading
from typing import Any, NamedTuple

STREAM = "text/event-stream"
DONE = "data: [DONE]\n\n"


class Case(NamedTuple):
    """What is sent, in the pieces it comes in, and what has to come of it: an error's text, or an end with more."""

    body: bytes | list[bytes]
    text: str = ""
    thinking: str = ""
    finish: str = "stop"
    error: str = ""
    warning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    faults: int = 0
    kind: str = STREAM
    stays_open: bool = False


def data(*chunks: Any, done: bool = True, end: str = "\n\n") -> bytes:
    """Events as a server writes them; a text is one as it is."""
    lines = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk, ensure_ascii=False)}" for chunk in chunks]
    return (end.join([*lines, "data: [DONE]"] if done else lines) + end).encode()


def chunk(finish: Any = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(number: Any = None, name: str | None = None, arguments: Any = None, index: Any = None) -> dict[str, Any]:
    """A piece of a call, of what it has."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    given = (("index", index), ("id", number), ("function", function or None))
    return {key: value for key, value in given if value is not None}


def calling(*pieces: Any, finish: str = "tool_calls", together: bool = False) -> bytes:
    """A stream of pieces of calls, each in a chunk of its own, or all in one."""
    if together:
        return data(chunk(tool_calls=list(pieces)), chunk(finish))
    return data(*(chunk(tool_calls=[piece]) for piece in pieces), chunk(finish))


READ = ("read_file", {"path": "a"})
CUT = ("grep", {"pattern": "b"})


def cases() -> dict[str, Case]:
    return {**texts(), **framing(), **errors(), **ends(), **called(), **malformed(), **bodies()}


def texts() -> dict[str, Case]:
    """What stands in a text, and where a text stands."""
    found = {}
    for code in (0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029, 0xFEFF, 0x200B, 0x1F600, 0x7F):
        body = data(chunk(content=f"before{chr(code)}after"), chunk("stop"))
        if code < 0x20:
            body = data(f'data: {{"choices": [{{"delta": {{"content": "before\\u{code:04x}after"}}}}]}}', chunk("stop"))
        found[f"a text with U+{code:04X}"] = Case(body, f"before{chr(code)}after")
        tool = calling(call("1", "read_file", json.dumps({"path": f"a{chr(code)}b"}, ensure_ascii=code < 0x20), 0))
        found[f"a call with U+{code:04X}"] = Case(
            tool, finish="tool_calls", calls=(("read_file", json.dumps({"path": f"a{chr(code)}b"})),)
        )
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    return {
        **found,
        "a text in parts": Case(data(chunk(content=parts), chunk("stop")), "one two"),
        "thinking in parts": Case(data(chunk(content=thought), chunk("stop")), "yes", "hm"),
        "parts as plain texts": Case(data(chunk(content=["one ", "two"]), chunk("stop")), "one two"),
        "an image in parts": Case(data(chunk(content=[{"type": "image_url"}, *parts]), chunk("stop")), "one two"),
        "a refusal": Case(data(chunk(refusal="I cannot"), chunk("stop")), "I cannot", finish="refusal"),
        "a refusal in parts": Case(
            data(chunk(content=[{"type": "refusal", "refusal": "no"}]), chunk("content_filter")), "no", finish="refusal"
        ),
        "reasoning_content": Case(data(chunk(reasoning_content="hm"), chunk("stop", content="yes")), "yes", "hm"),
        "reasoning": Case(data(chunk(reasoning="hm"), chunk("stop", content="yes")), "yes", "hm"),
        "thinking": Case(data(chunk(thinking="hm"), chunk("stop", content="yes")), "yes", "hm"),
        "both names of reasoning": Case(
            data(chunk(reasoning="hm", reasoning_content="hm"), chunk("stop", content="yes")), "yes", "hm"
        ),
        "reasoning that is null": Case(data(chunk(reasoning_content=None, content="yes"), chunk("stop")), "yes"),
        "marks of thinking": Case(data(chunk(content="<think>hm</think>\n\nyes"), chunk("stop")), "yes", "hm"),
        "marks in pieces": Case(
            data(*(chunk(content=char) for char in "<think>hm</think>\nyes"), chunk("stop")), "yes", "hm"
        ),
        "marks inside a text": Case(data(chunk(content="the mark <think>"), chunk("stop")), "the mark <think>"),
        "only thinking": Case(data(chunk(reasoning="hm"), chunk("stop")), "", "hm", warning="gave no answer"),
        "marks that never close": Case(data(chunk(content="<think>hm"), chunk("stop")), "", "hm", warning="no answer"),
        "nothing": Case(data(chunk("stop")), warning="an empty answer"),
        "nothing, of empty pieces": Case(data(chunk(content=""), chunk("stop", content="")), warning="empty answer"),
        "null": Case(data(chunk(content=None), chunk("stop")), warning="empty answer"),
        "a text of 200 KB": Case(data(chunk(content="x" * 200_000), chunk("stop")), "x" * 200_000),
        "a message in one piece": Case(
            data({"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}), "whole"
        ),
        "a second choice": Case(
            data({"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}, chunk("stop")), "a"
        ),
    }


def framing() -> dict[str, Case]:
    """How events are written."""
    reported = (chunk(content="Hel"), chunk(content="lo"), chunk("stop"))
    plain = data(*reported)
    long = json.dumps(reported[0], indent=1).replace("\n", "\ndata: ")
    found = {
        f"pieces of {size} bytes": Case([plain[at : at + size] for at in range(0, len(plain), size)], "Hello")
        for size in (1, 2, 3, 5, 8, 13, 64)
    }
    wide = data(chunk(content="\u00e4\u2028\U0001f600"), chunk("stop"))
    found |= {
        f"letters cut after {size} bytes": Case(
            [wide[at : at + size] for at in range(0, len(wide), size)], "\u00e4\u2028\U0001f600"
        )
        for size in (1, 2, 3)
    }
    return {
        **found,
        "CRLF": Case(data(*reported, end="\r\n\r\n"), "Hello"),
        "CR": Case(data(*reported, end="\r\r"), "Hello"),
        "CRLF in single bytes": Case([bytes([one]) for one in data(*reported, end="\r\n\r\n")], "Hello"),
        "no blank behind the colon": Case(plain.replace(b"data: ", b"data:"), "Hello"),
        "data of several lines": Case(data(f"data: {long}", *reported[1:]), "Hello"),
        "comments": Case(data(": ping", *reported[:1], ":", ": OPENROUTER PROCESSING", *reported[1:]), "Hello"),
        "names and numbers of events": Case(
            data(
                "event: message\nid: 1\nretry: 5", *(f"id: {n}\ndata: {json.dumps(c)}" for n, c in enumerate(reported))
            ),
            "Hello",
        ),
        "an unknown event": Case(data('event: ping\ndata: {"type": "ping"}', *reported), "Hello"),
        "a byte order mark": Case(b"\xef\xbb\xbf" + plain, "Hello"),
        "no end behind the last line": Case(plain.removesuffix(b"\n\n") + b"\n\n", "Hello"),
        "no DONE": Case(data(*reported, done=False), "Hello"),
        "DONE, and the connection stays open": Case(plain, "Hello", stays_open=True),
        "text behind DONE": Case(plain + data(chunk(content="more")), "Hello"),
        "blanks around DONE": Case(plain.replace(b"[DONE]", b" [DONE] "), "Hello"),
        "no reason, but DONE": Case(data(*reported[:2]), "Hello", warning="did not say why"),
        "no reason, no DONE": Case(data(*reported[:2], done=False), "Hello", error="broke the answer off"),
        "nothing at all": Case(b"", error="broke the answer off"),
        "only comments": Case(data(": ping", done=False), error="broke the answer off"),
        "cut inside of an event": Case(plain[:70], error="broke the answer off"),
        "a line that never ends": Case(
            [b"data: " + b"x" * 2**20] + [b"x" * 2**20] * 17, error="a piece of more than 16 MiB"
        ),
    }


def errors() -> dict[str, Case]:
    """The shapes that servers give an error in a stream: alone, and behind half of an answer."""
    shapes: dict[str, Any] = {
        "OpenAI": {"error": {"message": "CUDA out of memory", "type": "server_error", "code": 500}},
        "a text": {"error": "CUDA out of memory"},
        "without words": {"error": {"message": ""}},
        "an empty object": {"error": {"code": 500}},
        "true": {"error": True},
        "a list": {"error": [{"message": "CUDA out of memory"}]},
        "nested": {"error": {"error": {"message": "CUDA out of memory"}}},
        "SGLang": {"object": "error", "message": "CUDA out of memory", "code": 400},
        "Anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "CUDA out of memory"}},
        "type and message": {"type": "error", "message": "CUDA out of memory"},
        "FastAPI": {"detail": "CUDA out of memory"},
        "FastAPI, a list": {"detail": [{"loc": ["body"], "msg": "CUDA out of memory"}]},
        "errors": {"errors": ["CUDA out of memory"]},
        "in a choice": {
            "choices": [{"delta": {}, "error": {"message": "CUDA out of memory"}, "finish_reason": "error"}]
        },
        "beside choices": {"choices": [], "error": {"message": "CUDA out of memory"}},
        "llama-server": 'error: {"message": "CUDA out of memory", "type": "server_error"}',
        "llama-server, plain": "error: CUDA out of memory",
        "an event of that name": 'event: error\ndata: {"message": "CUDA out of memory"}',
        "an event of that name, plain": "event: error\ndata: CUDA out of memory",
    }
    silent = ("without words", "an empty object", "true")
    found = {}
    for name, shape in shapes.items():
        said = json.dumps(shape) if name in silent else "CUDA out of memory"
        found[f"an error, {name}"] = Case(data(shape), error=said)
        found[f"an error, {name}, and the stream ends"] = Case(data(shape, done=False), error=said)
        found[f"an error behind half an answer, {name}"] = Case(
            data(chunk(content="half"), shape, chunk("stop")), "half", error=said
        )
    found["no error"] = Case(data({**chunk(content="all"), "error": None}, chunk("stop")), "all")
    found["an empty error"] = Case(data({**chunk(content="all"), "error": {}}, chunk("stop")), "all")
    return found


def ends() -> dict[str, Case]:
    """Reasons for the end."""
    known = {
        "stop": ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "STOP", "COMPLETE"),
        "length": ("length", "max_tokens", "model_length", "MAX_TOKENS"),
        "refusal": ("content_filter", "refusal", "SAFETY", "RECITATION", "PROHIBITED_CONTENT"),
    }
    found = {
        f"ended by {reason}": Case(data(chunk(content="all"), chunk(reason)), "all", finish=finish)
        for finish, reasons in known.items()
        for reason in reasons
    }
    for reason in ("abort", "error", "cancelled", "timeout", "insufficient_system_resource", "MALFORMED_FUNCTION_CALL"):
        found[f"failed by {reason}"] = Case(
            data(chunk(content="half"), chunk(reason)), "half", error=f"it ended the answer: {reason.lower()}"
        )
    odd: tuple[Any, ...] = ("repetition", "whatever", "OTHER", 3, True, False, 0, ["stop"], {"type": "stop"})
    for other in odd:
        found[f"ended by {other!r}"] = Case(data(chunk(content="all"), chunk(other)), "all", warning="not known here")
    for nothing in ("", None):
        found[f"ended by {nothing!r}"] = Case(data(chunk(content="all"), chunk(nothing)), "all", warning="not say why")
    return found


def called() -> dict[str, Case]:
    """Calls as servers number and cut them."""
    read, cut = (json.dumps(arguments) for _, arguments in (READ, CUT))

    def one(body: bytes, text: str = "") -> Case:
        return Case(body, text, finish="tool_calls", calls=((READ[0], read),))

    def two(body: bytes) -> Case:
        return Case(body, finish="tool_calls", calls=((READ[0], read), (CUT[0], cut)))

    def broken(arguments: Any) -> Case:
        body = calling(call("1", "read_file", arguments, 0))
        return Case(body, finish="tool_calls", calls=(("read_file", "{}"),), faults=1)

    return {
        "a call": one(calling(call("1", "read_file", read, 0))),
        "a call in pieces": one(
            calling(call("1", "read_file", "", 0), *(call(arguments=char, index=0) for char in read))),
        "a call that ends with stop": one(calling(call("1", "read_file", read, 0), finish="stop")),
        "a call without an id": one(calling(call(None, "read_file", read, 0))),
        "a call without an index": one(calling(call("1", "read_file", read))),
        "a call without either": one(calling(call(None, "read_file", read))),
        "pieces without an index": one(
            calling(call("1", "read_file", read[:4]), call(arguments=read[4:]))),
        "the name in each piece": one(
            calling(call("1", "read_file", read[:4], 0), call("1", "read_file", read[4:], 0))),
        "the name and no arguments behind it": one(
            calling(call("1", "read_file", read, 0), call("1", "read_file", "", 0))),
        "the name in two pieces": one(
            calling(call("1", "read_", None, 0), call(None, "file", read, 0))),
        "arguments as an object": one(calling(call("1", "read_file", READ[1], 0))),
        "arguments as an object, no index, no id": one(calling(call(None, "read_file", READ[1]))),
        "no arguments": Case(
            calling(call("1", "list", None, 0)), finish="tool_calls", calls=(("list", "{}"),)
        ),
        "empty arguments": Case(calling(call("1", "list", "", 0)), finish="tool_calls", calls=(("list", "{}"),)),
        "a call in the older form": one(
            data(chunk(function_call={"name": "read_file", "arguments": read[:5]}),
                 chunk(function_call={"arguments": read[5:]}), chunk("function_call"))),
        "a call in a whole message": one(
            data({"choices": [{"message": {"tool_calls": [call("1", *READ)]}, "finish_reason": "tool_calls"}]})),
        "a call that is no list": one(data(chunk(tool_calls=call("1", "read_file", read)), chunk("tool_calls"))),
        "a call without its frame": one(
            data(chunk(tool_calls=[{"id": "1", "name": "read_file", "arguments": READ[1]}]), chunk("tool_calls"))),
        "two calls by index": two(
            calling(call("1", "read_file", read, 0), call("2", "grep", cut, 1))),
        "two calls in turns": two(
            calling(call("1", "read_file", read[:3], 0), call("2", "grep", cut[:3], 1),
                    call(arguments=read[3:], index=0), call(arguments=cut[3:], index=1))),
        "two calls of index 0": two(
            calling(call("1", "read_file", read, 0), call("2", "grep", cut, 0))),
        "two calls of index 0, in one chunk": two(
            calling(call("1", "read_file", read, 0), call("2", "grep", cut, 0), together=True)),
        "two calls of index 0 without ids": two(
            calling(call(None, "read_file", read, 0), call(None, "grep", cut, 0))),
        "two calls without an index": two(
            calling(call("1", "read_file", read), call("2", "grep", cut))),
        "two calls without anything": two(
            calling(call(None, "read_file", READ[1]), call(None, "grep", CUT[1]), together=True)),
        "two calls of one id": two(
            calling(call("1", "read_file", read, 0), call("1", "grep", cut, 1))),
        "two equal calls without ids": Case(
            calling(call(None, "read_file", READ[1]), call(None, "read_file", READ[1]), together=True),
            finish="tool_calls", calls=((READ[0], read), (READ[0], read)),
        ),
        "a text and a call": one(
            data(chunk(content="so"), chunk(tool_calls=[call("1", "read_file", read, 0)]), chunk("tool_calls")),
            "so"),
        "arguments that are no JSON": broken("{not json"),
        "arguments that are cut": broken('{"path": "a'),
        "arguments that are a list": broken("[1]"),
        "arguments that are a text": broken('"a"'),
        "arguments that are null": broken("null"),
        "arguments that are a number": broken(3),
        "arguments with half a character": broken('{"path": "\\ud800"}'),
        "arguments deep without end": broken("[" * 100_000),
        "one good call and a bad one": Case(
            calling(call("1", "read_file", read, 0), call("2", "grep", "{", 1)),
            finish="tool_calls", calls=((READ[0], read), ("grep", "{}")), faults=1,
        ),
        "a call of no name": Case(
            calling(call("1", "", read, 0)), finish="tool_calls", calls=(("", read),)
        ),
        "a call that the window cut": Case(
            calling(call("1", "read_file", '{"path": "a', 0), finish="length"),
            finish="length", calls=(("read_file", "{}"),), faults=1, warning="cut off by the end of the answer",
        ),
        "the reason of a call without one": Case(
            data(chunk(content="so"), chunk("tool_calls")), "so", finish="tool_calls"
        ),
    }  # fmt: skip


def malformed() -> dict[str, Any]:
    """Chunks that are none: what can be read is, and the rest is reported."""
    odd: dict[str, Any] = {
        "no JSON": "data: {not json", "a number": "data: 3", "null": "data: null", "a list": "data: []",
        "a text": 'data: "x"', "choices [null]": {"choices": [None]}, "choices ['x']": {"choices": ["x"]},
        "choices as an object": {"choices": {"0": {}}}, "choices as a text": {"choices": "x"},
        "a delta that is a list": {"choices": [{"delta": [1]}]},
        "a delta that is a text": {"choices": [{"delta": "x"}]},
        "a call that is null": chunk(tool_calls=[None]), "a call that is a text": chunk(tool_calls=["x"]),
        "calls that are a number": chunk(tool_calls=3), "a call of nothing": chunk(tool_calls=[{}]),
        "deep without end": "data: " + "[" * 100_000,
    }  # fmt: skip
    quiet: dict[str, Any] = {
        "usage as a text": {**chunk(), "usage": "five"}, "usage as a list": {**chunk(), "usage": [1]},
        "usage of texts": {**chunk(), "usage": {"prompt_tokens": "a", "completion_tokens": None}},
        "usage below nothing": {**chunk(), "usage": {"prompt_tokens": -1, "completion_tokens": 1e300}},
        "no choices": {"choices": []}, "choices null": {"choices": None}, "an empty object": {},
        "a delta that is null": {"choices": [{"delta": None}]}, "content as a number": chunk(content=3),
        "content as an object": chunk(content={"a": 1}), "a refusal as an object": chunk(refusal={"a": 1}),
    }  # fmt: skip
    reported = (chunk(content="all"), chunk("stop"))
    return {
        **{
            f"a chunk with {name}": Case(data(one, *reported), "all", warning="could not be read")
            for name, one in odd.items()
        },
        **{f"a chunk with {name}": Case(data(one, *reported), "all") for name, one in quiet.items()},
        "an index that is a text": Case(
            calling(call("1", "list", "{}", "a")), finish="tool_calls", calls=(("list", "{}"),)
        ),
        "an index below nothing": Case(
            calling(call("1", "list", "{}", -1)), finish="tool_calls", calls=(("list", "{}"),)
        ),
        "an id that is a number": Case(calling(call(7, "list", "{}", 0)), finish="tool_calls", calls=(("list", "{}"),)),
    }


def bodies() -> dict[str, Case]:
    """Other bodies than a stream."""
    plain = data(chunk(content="all"), chunk("stop"))
    whole = {"object": "chat.completion", "choices": [{"message": {"content": "all"}, "finish_reason": "stop"}]}
    return {
        **{f"a stream called {kind}": Case(plain, "all", kind=kind)
           for kind in ("text/event-stream; charset=utf-8", "TEXT/Event-Stream", "text/plain",
                        "application/octet-stream",
                        "application/x-ndjson", "")},
        "a whole answer as JSON": Case(json.dumps(whole).encode(), "all", kind="application/json"),
        "an error as JSON": Case(b'{"error": {"message": "no memory"}}', error="no memory", kind="application/json"),
        "a problem as JSON": Case(b'{"detail": "no memory"}', error="no memory", kind="application/problem+json"),
        "JSON of something else": Case(b'{"object": "list"}', error="broke the answer off", kind="application/json"),
        "no JSON": Case(b"<html>", error="broke the answer off", kind="application/json"),
        "a page": Case(b"<html>sign in</html>", error="answered with text/html in place", kind="text/html"),
        "a plain text": Case(b"no", error="answered with text/plain in place", kind="text/plain"),
        "an image": Case(b"\x89PNG", error="answered with image/png in place", kind="image/png"),
    }  # fmt: skip


CASES = cases()


class Server(socketserver.ThreadingTCPServer):
    """Answers a completion by the name of its model."""

    daemon_threads = True
    block_on_close = False
    closing = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is expected here."""


class Handler(socketserver.StreamRequestHandler):
    """One connection, one answer."""

    def handle(self) -> None:
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        case = CASES[json.loads(self.rfile.read(length))["model"]]
        kind = f"Content-Type: {case.kind}\r\n" if case.kind else ""
        self.wfile.write(f"HTTP/1.1 200 OK\r\n{kind}Connection: close\r\n\r\n".encode())
        for piece in case.body if isinstance(case.body, list) else [case.body]:
            self.wfile.write(piece)
            self.wfile.flush()
        if case.stays_open:
            Server.closing.wait()
