"""ACP's own errors, and the core's exceptions as the errors an editor gets."""

from __future__ import annotations

from copy import copy

from acp_bridge.conversations.errors import BadChoice, UnknownConversation
from shared.errors import ModeldError
from shared.protocol.faults import InvalidParams, ProtocolFault
from shared.text.shown import in_markdown


class SessionUnknown(ProtocolFault):
    """-32002, as the protocol has it."""

    kind = "session_unknown"
    code = -32002
    fields = ("sessionId",)
    summary = "no session with the id {sessionId}; open it with session/load, or make a new one"


def invalid(at: str, reason: str) -> InvalidParams:
    """-32602 naming the value."""
    return InvalidParams(at=f"$.{at}", reason=reason)


def shown(error: ModeldError) -> ModeldError:
    """The same error with its message for a place that may read Markdown, as Zed's does."""
    made = copy(error)
    made.message = in_markdown(error.message)
    return made


def translated(error: Exception, session: str) -> ModeldError | None:
    """The protocol's error for an exception of the core, or None when it is not one that has a translation."""
    if isinstance(error, UnknownConversation):
        return SessionUnknown(sessionId=session)
    if isinstance(error, BadChoice):
        return invalid(error.at, str(error))
    return None
