"""The conversations that are open in this process: made, opened, claimed against other editors, closed."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from acp_bridge.conversations.errors import UnknownConversation
from acp_bridge.conversations.events import OptionsChanged
from acp_bridge.conversations.forms import forms_of
from acp_bridge.conversations.state import Conversation
from acp_bridge.conversations.store import CLAIM_RENEW, Claimant, Store
from acp_bridge.core.live import LiveConversation
from shared.errors import ConversationBusy, ModeldError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_bridge.core.audience import Audience
    from acp_bridge.mcp.servers import ServerSpec
    from shared.clock import Clock
    from shared.settings import Settings


class Conversations:
    """By their ids. `until_known` waits, bounded, for what a picker shows; `group` is where slow reads go on."""

    def __init__(
        self,
        *,
        store: Store,
        settings: Settings,
        clock: Clock,
        claimant: Callable[[], Claimant],
        audience: Audience,
        until_known: Callable[[anyio.Event], Awaitable[None]],
    ) -> None:
        self.group: anyio.abc.TaskGroup | None = None
        self._store = store
        self._settings = settings
        self._clock = clock
        self._claimant = claimant
        self._audience = audience
        self._until_known = until_known
        self._open: dict[str, LiveConversation] = {}

    def __iter__(self) -> Iterator[LiveConversation]:
        return iter(list(self._open.values()))

    async def run(self) -> None:
        """Keep the claims, until cancelled."""
        self._sweep()
        while True:
            await anyio.sleep(CLAIM_RENEW)
            if self._open:
                self._store.renew(self._claimant(), self._clock.wall())
                self._sweep()

    def _sweep(self) -> None:
        settings = self._settings
        self._store.sweep(self._clock.wall(), self.ids(), days=settings.keep_days, count=settings.keep_conversations)

    def settle(self) -> None:
        """Write what is left, give the claims up."""
        for live in self:
            live.recorder.settle()
        if self._open:
            self._store.release(None, self._claimant())

    async def new(self, cwd: str, roots: list[str], servers: Sequence[ServerSpec] = ()) -> LiveConversation:
        """A fresh conversation with the workspace's remembered pick."""
        now = self._clock.wall()
        conversation = Conversation(id=uuid.uuid4().hex, cwd=cwd, roots=roots, created=now, updated=now)
        live = LiveConversation(conversation, self._store, self._clock)
        if self.group is not None:
            self.group.start_soon(self._recall, live)
        else:
            await self._recall(live)
        await self._until_known(live.recalled)
        self._connect(live, servers)
        self._open[conversation.id] = live
        self._store.claim_new(conversation, self._claimant(), now)
        return live

    async def _recall(self, live: LiveConversation) -> None:
        """What was picked in this workspace; on a slow disk it comes after the conversation is there already."""
        try:
            model = await self._store.remembered(live.conversation.cwd)
            if model and not live.conversation.model:
                live.conversation.model = model
                if self.find(live.id) is live:
                    live.recorder.touch()
                    self._audience.show(live, OptionsChanged())
        except ModeldError:
            return  # the failure is reported when something has to be saved
        finally:
            live.recalled.set()

    async def open(
        self,
        conversation_id: str,
        cwd: str,
        roots: list[str],
        servers: Sequence[ServerSpec] = (),
        *,
        take_over: bool = False,
    ) -> LiveConversation:
        """A saved conversation. Raises UnknownConversation. Held by another editor, it can be read only."""
        live = self._open.get(conversation_id)
        if live is None:
            conversation = await self._store.load(conversation_id)
            if conversation is None:
                raise UnknownConversation
            live = LiveConversation(conversation, self._store, self._clock)
            live.recalled.set()
            await self.claim(live, take_over=take_over)
            self._open[conversation_id] = live
        if (live.conversation.cwd, live.conversation.roots) != (cwd, roots):
            live.allowed.clear()  # it was allowed for those folders
        live.conversation.cwd = cwd
        live.conversation.roots = roots
        self._connect(live, servers)
        await self._until_known(live.recalled)
        return live

    def _connect(self, live: LiveConversation, servers: Sequence[ServerSpec]) -> None:
        """The MCP servers of this opening take the place of the last one's. Nothing is started yet."""
        if live.servers is not None:
            if live.servers.specs != list(servers):
                live.forget_tools()
            live.servers.close()
            live.servers = None
        if servers:
            from acp_bridge.mcp.servers import McpServers

            live.servers = McpServers(servers, live.conversation.cwd, live.id, forms_of(self._audience.face))

    async def take_over(self, conversation_id: str, *, in_turn: bool = False) -> None:
        """Become the writer of an open conversation, with what the other editor has said in it meanwhile.

        `in_turn`: asked for by the only turn of it, which has said nothing yet.
        """
        live = self.get(conversation_id)
        await self.claim(live, take_over=True)
        fresh = await self._store.load(conversation_id)
        if fresh is not None and (in_turn or not live.busy):
            live.conversation.events[:] = fresh.events
            live.conversation.title, live.conversation.dropped = fresh.title, fresh.dropped

    async def claim(self, live: LiveConversation, *, take_over: bool) -> None:
        """Become its writer, or know who is (`read_only_for`)."""
        try:
            await self._store.claim(live.id, self._claimant(), self._clock.wall(), take_over=take_over)
            live.read_only_for = ""
        except ConversationBusy as error:
            live.read_only_for = str(error.opened_in)

    async def saved(self, conversation_id: str) -> Conversation:
        """A conversation to read, whether it is open here or not. Raises UnknownConversation."""
        live = self._open.get(conversation_id)
        if live is not None:
            live.recorder.flush()
            return live.conversation
        conversation = await self._store.load(conversation_id)
        if conversation is None:
            raise UnknownConversation
        return conversation

    def find(self, conversation_id: str) -> LiveConversation | None:
        """An open conversation, or None."""
        return self._open.get(conversation_id)

    def get(self, conversation_id: str) -> LiveConversation:
        """An open conversation. Raises UnknownConversation."""
        live = self._open.get(conversation_id)
        if live is None:
            raise UnknownConversation
        return live

    def ids(self) -> set[str]:
        """The ids of the open conversations."""
        return set(self._open)

    async def close(self, conversation_id: str) -> None:
        """End what runs in it and forget that it is open. Raises UnknownConversation."""
        live = self.get(conversation_id)
        await live.close()
        self._open.pop(conversation_id, None)
        live.recorder.settle()
        self._store.release(conversation_id, self._claimant())

    async def delete(self, conversation_id: str) -> None:
        """Forget a conversation; one that is not there is deleted already."""
        if conversation_id in self._open:
            await self.close(conversation_id)
        await self._store.delete(conversation_id)
