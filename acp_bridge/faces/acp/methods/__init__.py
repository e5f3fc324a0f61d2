"""One file per method of the protocol; this table is what the agent answers.

Only `initialize` is needed to start, so the others are imported when the editor has its answer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import Handler

METHODS: dict[str, str] = {
    "initialize": "initialize",
    "authenticate": "authenticate",
    "logout": "logout",
    "session/new": "session_new",
    "session/load": "session_load",
    "session/resume": "session_resume",
    "session/list": "session_list",
    "session/close": "session_close",
    "session/delete": "session_delete",
    "session/set_mode": "session_set_mode",
    "session/set_config_option": "session_set_config_option",
    "session/prompt": "session_prompt",
    "_modeld/take_over": "take_over",
    "_modeld/export": "export",
}


def handler_of(method: str) -> Handler | None:
    """What answers the method, or None when nothing does."""
    name = METHODS.get(method)
    if name is None:
        return None
    handler: Handler = import_module(f"{__name__}.{name}").handle
    return handler


def import_all() -> None:
    """Everything that may be needed later: an upgrade under a running process must not change its code halfway."""
    for method in METHODS:
        handler_of(method)
    for needed in ("acp_bridge.faces.acp.errors", "acp_bridge.turn.model.switch_question"):
        import_module(needed)
