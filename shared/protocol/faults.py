"""JSON-RPC's own errors, and what a call can meet besides an answer.

They stand beside the product's table (`shared.errors`) and travel the same way.

    ModeldError
    └── ProtocolFault
        ├── ParseError          -32700   not JSON
        ├── InvalidRequest      -32600   JSON, but no request; batches
        ├── MethodNotFound      -32601
        ├── InvalidParams       -32602   names the value that is wrong
        ├── InternalFault       -32603   a defect of ours; details only in our own log
        └── RequestCancelled    -32800   ended by `$/cancel_request` (LSP's and ACP's code)

    PeerGone        this side only: the connection ended before the answer came
    BadAnswer       this side only: an answer that is not what the method gives
"""

from __future__ import annotations

from typing import Any, ClassVar

from shared.errors import BY_KIND, ModeldError, from_wire


class ProtocolFault(ModeldError):
    """The message itself is the problem, not what it asks for."""


class ParseError(ProtocolFault):
    """Not JSON at all."""

    kind = "parse_error"
    code = -32700
    fields = ("reason",)
    summary = "not a JSON message: {reason}"


class InvalidRequest(ProtocolFault):
    """JSON that calls nothing: a batch, a bare value, an id of a wrong kind."""

    kind = "invalid_request"
    code = -32600
    fields = ("reason",)
    summary = "not a JSON-RPC 2.0 request: {reason}"


class MethodNotFound(ProtocolFault):
    """Raised by the `on_request` of a side that has no such method."""

    kind = "method_not_found"
    code = -32601
    fields = ("method",)
    summary = "no method named {method}"


class InvalidParams(ProtocolFault):
    """`at` is the path of the value (`$.sessionId`), `reason` what is wrong with it."""

    kind = "invalid_params"
    code = -32602
    fields = ("at", "reason")
    summary = "invalid params: {reason} at {at}"


class InternalFault(ProtocolFault):
    """`type` is the exception's class name; its text stays here, since it may hold a prompt."""

    kind = "internal_error"
    code = -32603
    fields = ("type",)
    summary = "internal error ({type}); see the log of this process"


class RequestCancelled(ProtocolFault):
    """The caller asked for the end of its call, and the handler did not answer by itself."""

    kind = "request_cancelled"
    code = -32800
    summary = "the request was cancelled"


class PeerGone(Exception):
    """The connection ended before the answer came. `reason` as in `Peer.closed_reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the other side has gone ({reason})")
        self.reason: str = reason


class BadAnswer(Exception):
    """The answer to `method` does not have the shape that the method promises."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(f"the answer to {method} cannot be understood: {reason}")
        self.method: str = method
        self.reason: str = reason


class _Table:
    faults: ClassVar[tuple[type[ProtocolFault], ...]] = (
        ParseError,
        InvalidRequest,
        MethodNotFound,
        InvalidParams,
        InternalFault,
        RequestCancelled,
    )
    by_code: ClassVar[dict[int, type[ProtocolFault]]] = {fault.code: fault for fault in faults}


def error_from_wire(error: dict[str, Any]) -> ModeldError:
    """The typed error of an answer: the product's by kind, JSON-RPC's own by code.

    Never raises on odd input; what neither table knows becomes `shared.errors.UnknownError`.
    """
    data = error.get("data")
    kind = data.get("kind") if isinstance(data, dict) else None
    code = error.get("code")
    fault = _Table.by_code.get(code) if isinstance(code, int) else None
    if fault is None or (kind != fault.kind and (kind is not None or kind in BY_KIND)):
        return from_wire(error)
    fields = {str(key): value for key, value in data.items() if key != "kind"} if isinstance(data, dict) else {}
    return fault(str(error.get("message", "")), **fields)
