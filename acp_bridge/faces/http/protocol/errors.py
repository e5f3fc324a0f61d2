"""Errors as programs of the OpenAI protocol read them: status, `{"error": {...}}`, `Retry-After`. Pure.

`code` is the protocol's own word where it has one for the case, else our kind; `kind` and the fields are always ours.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from shared.errors import (
    DaemonRestarting,
    DaemonUnreachable,
    ModelBusy,
    ModeldError,
    QueueFull,
    StaleError,
    WaitTimeout,
)
from shared.protocol.api import TurnResult
from shared.protocol.faults import RequestCancelled
from shared.text.shown import one_line

#: Waiting helps with these: seconds until it is worth another try where nothing better is known.
SOON_S = 2
#: The longest that is ever asked for.
LATEST_S = 120
_PROTOCOL_CODES = {
    "context_overflow": "context_length_exceeded",
    "no_available_model": "model_not_found",
    "no_satisfactory_model": "model_not_found",
    "queue_full": "rate_limit_exceeded",
}
_STATUS = {
    "invalid_params": 400,
    "setting_invalid": 400,
    "context_overflow": 400,
    "unsupported_feature": 400,
    "template_error": 400,
    "image_unusable": 400,
    "remote_not_picked": 403,
    "model_not_found": 404,
    "no_available_model": 404,
    "no_satisfactory_model": 404,
    "model_switch_required": 409,
    "model_not_active": 409,
    "consent_declined": 409,
    "model_in_use": 409,
    "device_busy": 409,
    "message_too_large": 413,
    "model_busy": 429,
    "queue_full": 429,
    "wait_timeout": 429,
    "model_load_failed": 500,
    "engine_failed": 500,
    "text_failed": 500,
    "internal_error": 500,
}
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """The face itself says no. `param` names the parameter, `code` is the protocol's word or our kind."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        kind: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.reply = Reply(
            status=status,
            body=_body(status, message, code=code, param=param, kind=kind or code),
            headers={**_retrying(status, None), **(headers or {})},
        )


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An error as it is sent."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = {}


def unsupported(name: str, value: Any = None) -> Refusal:
    """A parameter that is not known, or a `value` of it that cannot be done."""
    shown = one_line(name, 80)
    if value is None:
        return Refusal(400, f"unknown parameter: {shown!r}", param=shown, code="unknown_parameter")
    return Refusal(
        400, f"not supported: {shown} = {one_line(repr(value), 80)}", param=shown, code="unsupported_parameter"
    )


def reply_to(error: ModeldError, wait_s: float = 0.0) -> Reply:
    """`wait_s`: how long the work that is ahead will take, as far as the status tells; 0 when nothing is known."""
    status = _STATUS.get(error.kind, 503)
    body = _body(
        status,
        error.message,
        code=_PROTOCOL_CODES.get(error.kind, error.kind),
        param="model" if status == 404 else None,
        kind=error.kind,
        fields=error.data,
    )
    return Reply(status=status, body=body, headers=_retrying(status, retry_after(error, wait_s)))


def retry_after(error: ModeldError, wait_s: float) -> int | None:
    """Whole seconds until another try may do better; None where waiting does not help."""
    if isinstance(error, QueueFull | WaitTimeout | ModelBusy):
        return max(1, min(LATEST_S, math.ceil(wait_s or SOON_S)))
    if isinstance(error, StaleError | DaemonRestarting | RequestCancelled):
        return SOON_S
    if isinstance(error, DaemonUnreachable) and error.retryable:
        return SOON_S
    return None


def unfinished(result: TurnResult) -> Reply | None:
    """Why this is no answer, though the turn ended in order: somebody else ended it. None for an answer."""
    if result.finish_reason == "cancelled_by_other":
        told = one_line(f"the answer was ended by {result.by or 'another client'}")
        return Reply(status=409, body=_body(409, told, code="cancelled_by_other", kind="cancelled_by_other"))
    return stopped() if result.finish_reason == "cancelled" else None


def stopped() -> Reply:
    """The answer to what runs while modeld or this server ends."""
    told = "the answer was ended, since modeld or its HTTP server stops"
    body = _body(503, told, code="cancelled", kind="cancelled")
    return Reply(status=503, body=body, headers=_retrying(503, SOON_S))


def _body(
    status: int, message: str, *, code: str, param: str | None = None, kind: str, fields: dict[str, Any] | None = None
) -> dict[str, Any]:
    told = {name: value for name, value in (fields or {}).items() if value is not None and name != "message"}
    by_default = "server_error" if status >= 500 else "invalid_request_error"
    return {
        "error": {
            **told,
            "message": message,
            "type": _TYPES.get(status, by_default),
            "param": param,
            "code": code,
            "kind": kind,
        }
    }


def _retrying(status: int, seconds: int | None) -> dict[str, str]:
    """SDKs repeat 408, 409, 429 and 5xx by themselves: they are told when that is in vain."""
    if seconds is not None:
        return {"retry-after": str(seconds), "x-should-retry": "true"}
    return {"x-should-retry": "false"} if status in (408, 409, 429) or status >= 500 else {}
