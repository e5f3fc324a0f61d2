"""What a body is, whatever came; and what goes out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ModelBusy
from shared.protocol.faults import InvalidParams, InvalidRequest, ParseError
from shared.protocol.framing import Oversized
from shared.protocol.message import (
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse,
    salvage,
)

pytestmark = pytest.mark.unit


class Params(msgspec.Struct):
    text: str = ""
    count: int = 0
    many: list[dict[str, int]] = []


def request(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", **fields}).encode()


def malformed(body: bytes) -> Malformed:
    message = parse(body)
    assert isinstance(message, Malformed), message
    return message


@pytest.mark.parametrize("number", [0, -1, 7, 2**63, 10**30, "", "7", "a-b", "😀", None])
def test_ids_are_kept_as_they_came(number: RequestId) -> None:
    message = parse(request(id=number))
    assert isinstance(message, Request)
    assert message.id == number
    assert type(message.id) is type(number)
    answer = json.loads(encode_result(message.id, {}))
    assert answer["id"] == number


@pytest.mark.parametrize("number", [1.5, 1.0, True, False, [], {}, [1], {"a": 1}])
def test_other_ids_are_no_requests(number: object) -> None:
    message = malformed(request(id=number))
    assert message.error.code == -32600
    assert message.id is None


def test_an_absent_id_makes_a_notification_and_unknown_keys_are_nothing() -> None:
    assert parse(b'{"jsonrpc":"2.0","method":"m","type":"event","extra":{"deep":[1]}}') == Notification("m")
    assert parse(request(type="request", trace=None)) == Request(1, "m")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"garbage", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"m"', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"m"} trailing', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":Infinity}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"\xff\xfe"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xc3"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"\x01"}}', -32700),
        (b"\xff\xfe{\x00}\x00", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", -32700),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', -32600),
        (b'  [{"jsonrpc":"2.0","id":1,"method":"m"}]', -32600),
        (b"5", -32600),
        (b'"text"', -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"2.0","method":5}', -32600),
        (b'{"jsonrpc":"1.0","method":"m"}', -32600),
        (b'{"method":"m","id":3}', -32600),
    ],
)
def test_what_is_no_request_says_why(body: bytes, code: int) -> None:
    message = malformed(body)
    assert message.error.code == code
    assert isinstance(message.error, ParseError if code == -32700 else InvalidRequest)


def test_a_readable_id_is_answered() -> None:
    assert malformed(b'{"method":"m","id":3}').id == 3
    assert malformed(b'{"jsonrpc":"2.0","id":"x","method":5}').id == "x"


def test_a_batch_says_that_it_is_one() -> None:
    assert "batch" in malformed(b"[1]").error.message


@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00", "x\\ud83d y", "\\ude00\\ud83d", "\\ud800\\ud800\\udc00"])
def test_a_lone_surrogate_does_not_end_the_stream(escape: str) -> None:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"text":"{escape}"}}}}'.encode())
    assert isinstance(message, Request)
    text = msgspec.json.decode(message.raw, type=Params).text
    assert "\ufffd" in text
    text.encode()  # what comes after can be written anywhere


def test_a_surrogate_pair_is_one_character() -> None:
    message = parse(b'{"jsonrpc":"2.0","method":"m","params":{"text":"\\ud83d\\ude00"}}')
    assert isinstance(message, Notification)
    assert message.params(Params).text == "😀"


def test_a_byte_order_mark_is_nothing() -> None:
    assert parse(b"\xef\xbb\xbf" + request()) == Request(1, "m")


@pytest.mark.parametrize("params", [b"", b',"params":null', b',"params":{}'])
def test_absent_params_are_an_empty_object(params: bytes) -> None:
    message = parse(b'{"jsonrpc":"2.0","method":"m"' + params + b"}")
    assert isinstance(message, Notification)
    assert message.params(Params) == Params()


@pytest.mark.parametrize(
    ("params", "at"),
    [
        ({"count": "x"}, "$.count"),
        ({"many": [{"a": 1}, {"a": "x"}]}, "$.many[1][...]"),
        ([1], "$"),
        (5, "$"),
        ("x", "$"),
    ],
)
def test_wrong_params_name_the_value(params: object, at: str) -> None:
    message = parse(request(params=params))
    assert isinstance(message, Request)
    with pytest.raises(InvalidParams) as wrong:
        Notification("m", message.raw).params(Params)
    assert wrong.value.at == at
    assert at in wrong.value.message
    assert wrong.value.code == -32602


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":null}', Response(1)),
        (b'{"jsonrpc":"2.0","id":1,"result":null,"error":null}', Response(1)),
        (
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}',
            Response(1, error={"code": -1, "message": "x"}),
        ),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-1}}', Response(None, error={"code": -1})),
        (b'{"jsonrpc":"2.0","id":1,"error":"bad"}', Response(1, error={"message": "an error of no known shape"})),
    ],
)
def test_answers(body: bytes, answer: Response) -> None:
    assert parse(body) == answer


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=json_values)
def test_params_and_results_come_back_as_they_went(value: object) -> None:
    call = parse(encode_request(3, "m", {"value": value}))
    assert isinstance(call, Request)
    assert json.loads(bytes(call.raw)) == {"value": value}
    note = parse(encode_notification("n", {"value": value}))
    assert isinstance(note, Notification)
    answer = parse(encode_result("x", {"value": value}))
    assert isinstance(answer, Response)
    assert json.loads(bytes(answer.raw)) == json.loads(bytes(note.raw)) == {"value": value}


@given(text=st.text(alphabet=st.characters(codec=None, categories=["Cs", "Ll", "So"]), min_size=1))
def test_outgoing_text_is_always_utf8_on_one_line(text: str) -> None:
    body = encode_notification("m", {"text": text, "at": "a\nb"})
    assert b"\n" not in body
    assert len(json.loads(body.decode())["params"]["text"]) > 0


@given(body=st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    assert isinstance(parse(body), Message)


@given(value=json_values)
def test_no_json_raises(value: object) -> None:
    assert isinstance(parse(json.dumps(value).encode()), Message)


def test_errors_carry_kind_and_fields() -> None:
    error = ModelBusy(operation="turn", holder="Zed", since=2, queued=1)
    body = json.loads(encode_error(None, error))
    assert body["id"] is None
    assert body["error"]["data"] == {
        "kind": "model_busy",
        "operation": "turn",
        "holder": "Zed",
        "since": 2,
        "queued": 1,
    }


ERROR = ModelBusy(operation="x")


@pytest.mark.parametrize(
    ("head", "number"),
    [
        (b'{"jsonrpc":"2.0","id":12,"method":"session/prompt","params":{"prompt":[{"te', 12),
        (b'{"jsonrpc":"2.0","method":"session/prompt","id":"a\\"b","params":{"id":5,', 'a"b'),
        (b' { "id" : -3 , "type":"x", "params" : [', -3),
        (b'{"method":"m","params":{"id":5,"x":"', None),
        (b'{"method":"say \\",\\"id\\":9,\\"","params":{"', None),
        (b'{"jsonrpc":"2.0","params":{"a":1},"id":7,"method":"m"', None),
        (b"yyyyyyyyyyy", None),
        (b"", None),
    ],
)
def test_an_oversized_request_is_answered_by_its_id(head: bytes, number: RequestId) -> None:
    assert salvage(Oversized(10**9, head), ERROR) == Malformed(ERROR, number)


@pytest.mark.parametrize("key", ["result", "error"])
def test_an_oversized_answer_ends_our_call(key: str) -> None:
    head = f'{{"jsonrpc":"2.0","id":4,"{key}":{{"text":"yyyy'.encode()
    assert salvage(Oversized(10**9, head), ERROR) == Response(4, error=ERROR.to_wire())
