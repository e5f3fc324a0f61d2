"""One body of bytes becomes one message, and back. Pure.

Params and results stay raw JSON until somebody who knows their type asks for them. A lone
surrogate escape, which JavaScript can send and UTF-8 cannot carry, becomes U+FFFD by way of the
standard decoder; NaN and Infinity are not JSON and are refused.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from shared.errors import ModeldError
from shared.protocol.faults import InvalidParams, InvalidRequest, ParseError
from shared.protocol.framing import Oversized

T = TypeVar("T")

#: An id as JSON-RPC allows it; kept and answered exactly as it came.
RequestId = int | str | None

_RPC = "2.0"
_ABSENT = msgspec.Raw(b"null")


class Request(msgspec.Struct, frozen=True):
    """A call that wants an answer."""

    id: RequestId
    method: str
    raw: msgspec.Raw = _ABSENT


class Notification(msgspec.Struct, frozen=True):
    """A call that wants none."""

    method: str
    raw: msgspec.Raw = _ABSENT

    def params(self, kind: type[T]) -> T:
        """The params as `kind`. Raises InvalidParams."""
        return decode_params(self.raw, kind)


class Response(msgspec.Struct, frozen=True):
    """An answer: `error` is the wire error object, or None and `raw` holds the result."""

    id: RequestId
    raw: msgspec.Raw = _ABSENT
    error: dict[str, Any] | None = None


class Malformed(msgspec.Struct, frozen=True):
    """Nothing that can be called. Answered with `error` and `id` (None where none could be read)."""

    error: ModeldError
    id: RequestId = None


Message = Request | Notification | Response | Malformed


class _Envelope(msgspec.Struct):
    jsonrpc: Any = None
    id: Any = msgspec.UNSET
    method: Any = msgspec.UNSET
    params: msgspec.Raw = _ABSENT
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Any = msgspec.UNSET


class _RequestOut(msgspec.Struct):
    id: Any
    method: str
    params: Any
    jsonrpc: str = _RPC


class _NotificationOut(msgspec.Struct):
    method: str
    params: Any
    jsonrpc: str = _RPC


class _ResultOut(msgspec.Struct):
    id: Any
    result: Any
    jsonrpc: str = _RPC


class _ErrorOut(msgspec.Struct):
    id: Any
    error: dict[str, Any]
    jsonrpc: str = _RPC


def parse(body: bytes) -> Message:
    """Tell what a body is. Never raises: what cannot be used comes back as Malformed."""
    try:
        if not body.isascii():
            body.decode()  # raw params are skipped unread; text that is not UTF-8 must not get further
        return _classify(msgspec.json.decode(body, type=_Envelope))
    except msgspec.ValidationError:
        batch = body.lstrip()[:1] == b"["
        reason = "batches are not supported" if batch else "the message is not an object"
        return Malformed(InvalidRequest(reason=reason))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _parse_again(body, error)
    except RecursionError:
        return Malformed(ParseError(reason="nested too deeply"))


def salvage(oversized: Oversized, error: ModeldError) -> Response | Malformed:
    """What an oversized message was, as far as its beginning tells.

    An answer becomes a failed Response, so that our own call ends; anything else is Malformed, with
    its id when that stands before the large part (as every known client writes it).
    """
    head = _HEAD.match(oversized.head)
    found = _HEAD_ID.search(head.group()) if head is not None else None
    if head is None or found is None:
        return Malformed(error)
    try:
        number: RequestId = msgspec.json.decode(found.group(1), type=int | str)
    except msgspec.DecodeError:
        return Malformed(error)
    if _HEAD_ANSWER.match(oversized.head, head.end()):
        return Response(number, error=error.to_wire())
    return Malformed(error, number)


def decode_params(raw: msgspec.Raw, kind: type[T]) -> T:
    """Params of a call as `kind`; absent params count as an empty object. Raises InvalidParams."""
    body: Any = b"{}" if raw == _ABSENT else raw
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        reason, _, at = str(error).partition(" - at ")
        raise InvalidParams(reason=reason, at=at.strip("`") or "$") from error
    except RecursionError as error:
        raise InvalidParams(reason="nested too deeply", at="$") from error


def encode_request(number: RequestId, method: str, params: Any) -> bytes:
    """The body of a call."""
    return _encode(_RequestOut(number, method, params))


def encode_notification(method: str, params: Any) -> bytes:
    """The body of a notification."""
    return _encode(_NotificationOut(method, params))


def encode_result(number: RequestId, result: Any) -> bytes:
    """The body of a good answer."""
    return _encode(_ResultOut(number, result))


def encode_error(number: RequestId, error: ModeldError) -> bytes:
    """The body of a failed answer."""
    return _encode(_ErrorOut(number, error.to_wire()))


def _encode(message: msgspec.Struct) -> bytes:
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(message)))


def _classify(envelope: _Envelope) -> Message:
    number = None if envelope.id is msgspec.UNSET else envelope.id
    if not _is_id(number):
        return Malformed(InvalidRequest(reason="an id is a number without fraction, a string or null"))
    if envelope.method is msgspec.UNSET:
        return _answer(envelope, number)
    if envelope.jsonrpc != _RPC:
        return Malformed(InvalidRequest(reason='jsonrpc must be "2.0"'), number)
    if not isinstance(envelope.method, str):
        return Malformed(InvalidRequest(reason="method must be a string"), number)
    if envelope.id is msgspec.UNSET:
        return Notification(envelope.method, envelope.params)
    return Request(number, envelope.method, envelope.params)


def _answer(envelope: _Envelope, number: RequestId) -> Message:
    error = envelope.error
    if isinstance(error, dict):
        return Response(number, error=error)
    if envelope.result is not msgspec.UNSET:
        return Response(number, envelope.result)
    if error is not msgspec.UNSET and error is not None:
        return Response(number, error={"message": "an error of no known shape"})
    return Malformed(InvalidRequest(reason="neither a method nor a result"), number)


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, (int, str)) and not isinstance(value, bool))


def _parse_again(body: bytes, first: Exception) -> Message:
    """The slow way, for what the fast decoder refuses and JSON allows: a lone surrogate, a BOM."""
    import json  # only for odd input

    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant)
        clean = msgspec.json.encode(_without_surrogates(value))
        return _classify(msgspec.json.decode(clean, type=_Envelope))
    except msgspec.ValidationError:
        return Malformed(InvalidRequest(reason="the message is not an object"))
    except RecursionError:
        return Malformed(ParseError(reason="nested too deeply"))
    except ValueError:
        return Malformed(ParseError(reason=str(first)))


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return value


_STRING = rb'"(?:[^"\\\x00-\x1f]|\\.)*"'
_SCALAR = rb"(?:" + _STRING + rb"|-?\d+|true|false|null)"
#: The keys with short values at the start of an object, each with its comma.
_HEAD = re.compile(rb"\s*\{(?:\s*" + _STRING + rb"\s*:\s*" + _SCALAR + rb"\s*,)+")
_HEAD_ID = re.compile(rb'[{,]\s*"id"\s*:\s*(-?\d+|' + _STRING + rb")\s*,")
_HEAD_ANSWER = re.compile(rb'\s*"(?:result|error)"\s*:')
