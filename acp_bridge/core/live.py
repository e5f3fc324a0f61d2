"""An open conversation: its running and waiting prompts, their cancels, and the session's permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from acp_bridge.cancel import Cancel, TurnCancelled
from acp_bridge.conversations.events import TurnEnded
from acp_bridge.conversations.recorder import Recorder
from shared.protocol import api

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from acp_bridge.conversations.state import Conversation
    from acp_bridge.conversations.store import Store
    from acp_bridge.mcp.servers import McpServers
    from acp_bridge.tools.consent.grants import Grant
    from shared.clock import Clock

#: An editor that sends the next prompt without waiting may send the cancel of the last one right behind it. The
#: prompt has cancelled that turn already, so one cancel within this time is that one and not the new prompt's.
LATE_CANCEL_S = 0.25


class LiveConversation:
    """One conversation opened by this process."""

    def __init__(self, conversation: Conversation, store: Store, clock: Clock) -> None:
        self.conversation = conversation
        self.recorder = Recorder(conversation, store, clock)
        self.always_switch = False
        self.at_terminal = False  # and not in an editor: no tools by themselves, no words about code
        self.sampling = api.Sampling()  # of each turn here; the thinking level is the conversation's own
        self.allowed: set[Grant] = set()
        self.read_only_for = ""
        self.missed: str = ""
        self.last_model = ""
        self._clock = clock
        self._lock = anyio.Lock()
        self._prompts: list[Cancel] = []
        self._superseded_at: float | None = None
        self._count = 0
        self.closed = False
        self.servers: McpServers | None = None
        self.recalled = anyio.Event()  # what was picked before is known

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self.conversation.id

    @property
    def busy(self) -> bool:
        """A prompt runs or waits."""
        return bool(self._prompts)

    def next_turn(self) -> str:
        """An id for the next turn, unique in the conversation and over restarts."""
        self._count += 1
        return f"t{len(self.conversation.events)}-{self._count}"

    def forget_tools(self) -> None:
        """The servers are others now: what their tools were allowed was not allowed to these."""
        self.allowed = {grant for grant in self.allowed if grant.kind != "tool"}

    def cancel(self) -> None:
        """Cancel every prompt that is here. With none it does nothing and leaves nothing behind."""
        late = self._superseded_at
        self._superseded_at = None
        if late is not None and self._clock.awake() - late < LATE_CANCEL_S:
            return
        for cancel in list(self._prompts):
            cancel.request()

    async def prompt(self, cancel: Cancel, run: Callable[[], Awaitable[TurnEnded]]) -> TurnEnded:
        """Run one prompt after the ones before it have ended; they are cancelled by its coming."""
        for earlier in self._prompts:
            if not earlier.requested:
                self._superseded_at = self._clock.awake()
            earlier.request()
        self._prompts.append(cancel)
        try:
            async with self._lock:
                cancel.check()
                return await run()
        except TurnCancelled:
            return TurnEnded(stop="cancelled")
        finally:
            self._prompts.remove(cancel)

    async def close(self) -> None:
        """Cancel what runs and wait for its end."""
        self.closed = True
        if self.servers is not None:
            self.servers.close()
        for cancel in list(self._prompts):
            cancel.request()
        async with self._lock:
            return
