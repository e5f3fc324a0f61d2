"""The built-in tools of every conversation, and their instructions for the model."""

from __future__ import annotations

from collections.abc import Sequence

from acp_bridge.conversations.state import ModeName
from acp_bridge.tools.base import Tool
from acp_bridge.tools.command_tool import RunCommand
from acp_bridge.tools.edit_tools import EditFile, WriteFile
from acp_bridge.tools.plan_tool import UpdatePlan
from acp_bridge.tools.read_tools import FindFiles, ListFolder, ReadFile, SearchText
from shared.protocol.api import LibraryRow

#: How many characters one result may have, by the window in tokens (a result is at most about a quarter of it).
RESULT_LEAST = 2_000
RESULT_MOST = 16_000


def tools_by_default(row: LibraryRow, taught_from: int) -> bool:
    """Whether a model gets tools when nobody said otherwise.

    A template without tools is no bar (they are described in words), but very small models lose the thread over the
    description alone: `taught_from` is the number of parameters from which on it is worth its tokens.
    """
    return row.tools or row.parameters >= taught_from


def builtin_tools() -> list[Tool]:
    """In the order the model sees them."""
    return [ReadFile(), ListFolder(), FindFiles(), SearchText(), EditFile(), WriteFile(), RunCommand(), UpdatePlan()]


def result_limit(window: int) -> int:
    """Characters of one tool result for a window of `window` tokens (0 when not known)."""
    return max(RESULT_LEAST, min(window, RESULT_MOST))


#: Where nothing is said, some templates put in their maker's own words, which know no editor. It is short and says
#: nothing about how to answer: very small models take such words for the task ("to the point", "do not know").
PLAIN_SYSTEM = "You are a helpful assistant in a code editor. Put code in fenced Markdown blocks."
#: The same at a terminal. With no words of ours the starter's template brings its own, behind which it named the
#: capital of France in 0 of 8 answers, and behind these in 7.
TERMINAL_SYSTEM = "You are a helpful assistant. Put code in fenced Markdown blocks."


def system_text(roots: Sequence[str], mode: ModeName, *, editor: bool = True) -> str:
    """The system message of a conversation with tools. Stable over its turns, so that its KV stays warm."""
    if not editor:
        return f"You answer at a terminal. The folder is {roots[0]}. Use the tools to look before you answer about it."
    may = "You can look at files but change nothing." if mode == "ask" else "You can look at files and change them."
    return (
        f"You are a coding agent in an editor. The workspace is {roots[0]}. {may} "
        "Use the tools to look before you answer or edit; never invent what a file holds. "
        "Make small exact edits. When the task is done, say in a sentence or two what you did."
    )
