"""The tools every conversation has, and the words a model gets with them."""

from __future__ import annotations

from collections.abc import Sequence

from acp_bridge.session.state import ModeName
from acp_bridge.tools.base import Tool
from acp_bridge.tools.changing import EditFile, WriteFile
from acp_bridge.tools.looking import FindFiles, ListFolder, ReadFile, SearchText
from acp_bridge.tools.running import RunCommand

#: How many characters one result may have, by the window in tokens (a result is at most about a quarter of it).
RESULT_LEAST = 2_000
RESULT_MOST = 16_000


def builtin_tools() -> list[Tool]:
    """In the order the model sees them."""
    return [ReadFile(), ListFolder(), FindFiles(), SearchText(), EditFile(), WriteFile(), RunCommand()]


def result_limit(window: int) -> int:
    """Characters of one tool result for a window of `window` tokens (0 when not known)."""
    return max(RESULT_LEAST, min(window, RESULT_MOST))


def system_text(roots: Sequence[str], mode: ModeName) -> str:
    """The system message of a conversation with tools. Stable over its turns, so that its KV stays warm."""
    may = "You can look at files but change nothing." if mode == "ask" else "You can look at files and change them."
    return (
        f"You are a coding agent in an editor. The workspace is {roots[0]}. {may} "
        "Use the tools to look before you answer or edit; never invent what a file holds. "
        "Make small exact edits. When the task is done, say in a sentence or two what you did."
    )
