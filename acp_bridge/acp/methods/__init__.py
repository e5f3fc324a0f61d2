"""One file per method of the protocol; this table is what the agent answers."""

from __future__ import annotations

from acp_bridge.acp.methods import (
    authenticate,
    initialize,
    logout,
    session_close,
    session_delete,
    session_list,
    session_load,
    session_new,
    session_prompt,
    session_resume,
    session_set_config_option,
    session_set_mode,
)

HANDLERS = {
    "initialize": initialize.handle,
    "authenticate": authenticate.handle,
    "logout": logout.handle,
    "session/new": session_new.handle,
    "session/load": session_load.handle,
    "session/resume": session_resume.handle,
    "session/list": session_list.handle,
    "session/close": session_close.handle,
    "session/delete": session_delete.handle,
    "session/set_mode": session_set_mode.handle,
    "session/set_config_option": session_set_config_option.handle,
    "session/prompt": session_prompt.handle,
}
