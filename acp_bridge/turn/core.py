"""The bridge without a face: conversations, models, turns. A face is given to it and shows what happens."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from acp_bridge.cancel import Cancel
from acp_bridge.conversations.commands import TAKE_OVER, parse_command
from acp_bridge.conversations.errors import UnknownConversation
from acp_bridge.conversations.events import OptionsChanged, Part, Shown, TurnEnded
from acp_bridge.conversations.forms import forms_of
from acp_bridge.conversations.state import Conversation
from acp_bridge.conversations.store import CLAIM_RENEW, Claimant, Store
from acp_bridge.models.picker import RemoteModel
from acp_bridge.models.thinking import thinking_levels
from acp_bridge.tools.base import Tool
from acp_bridge.tools.builtin import builtin_tools, result_limit
from acp_bridge.tools.runner import ToolRunner
from acp_bridge.tools.workspace import Workspace
from acp_bridge.turn.attachments import attached, excerpts
from acp_bridge.turn.driver import Driver, Ended, Job
from acp_bridge.turn.history import RecordedHistory
from acp_bridge.turn.interfaces import Model, NoTools, Tools
from acp_bridge.turn.live import LiveConversation
from acp_bridge.turn.model.consent import LocalModel
from acp_bridge.turn.model.holds import Holds
from acp_bridge.turn.model.source import ModelSource
from acp_bridge.turn.prompt import Turn, TurnTools
from acp_bridge.turn.selection import Choices
from acp_bridge.turn.slash_commands import Performer
from acp_bridge.turn.switched import ActiveModelWatch
from acp_bridge.turn.upgrade_notice import UpgradeNotice
from shared.errors import ConversationBusy, ModeldError
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.conversations.face import Face
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.mcp.servers import ServerSpec
    from acp_bridge.models.view import Models
    from acp_bridge.providers.registry import Providers
    from shared.clock import Clock
    from shared.settings import Settings

#: Files that a message refers to are read as for a window of this many tokens.
ATTACHED_WINDOW = 8192


class Core(Choices):
    """Everything behind a face. `run` keeps what runs beside the calls."""

    def __init__(
        self,
        *,
        store: Store,
        daemon: Daemon,
        models: Models,
        settings: Settings,
        clock: Clock,
        claimant: Callable[[], Claimant],
        providers: Providers,
        upgraded: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(store, models, settings, clock)
        self.daemon = daemon
        self.providers = providers
        self._claimant = claimant
        self._upgrade = UpgradeNotice(upgraded)
        self._face: Face | None = None
        self._live: dict[str, LiveConversation] = {}
        self.local = LocalModel(daemon, settings, clock)
        self.source = ModelSource(models, daemon, self.local, providers, settings)
        self.holds = Holds()
        self._performer = Performer(self)
        models.remotes_listed = providers.listed
        models.on_change(self._models_changed)
        daemon.on_change(self._status_changed)
        self._active = ActiveModelWatch()
        self._group: anyio.abc.TaskGroup | None = None

    # --- life ----------------------------------------------------------------------------------

    @property
    def face(self) -> Face:
        """The face it was attached to."""
        assert self._face is not None
        return self._face

    @property
    def client_name(self) -> str:
        """The editor's name for other clients."""
        return self._face.client if self._face is not None else "acp-bridge"

    def attach(self, face: Face) -> None:
        """The face that shows what happens."""
        self._face = face

    async def run(self) -> None:
        """Keep the daemon's connection, the view of the models and the claims, until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = self.holds.group = group
            group.start_soon(self.daemon.run)
            group.start_soon(self.models.run)
            group.start_soon(self._keep_claims)
            group.start_soon(self.providers.run, self._remotes_changed)

    async def _keep_claims(self) -> None:
        self._sweep()
        while True:
            await anyio.sleep(CLAIM_RENEW)
            if self._live:
                self.store.renew(self._claimant(), self.clock.wall())
                self._sweep()

    def _sweep(self) -> None:
        settings = self.settings
        self.store.sweep(self.clock.wall(), self.live_ids(), days=settings.keep_days, count=settings.keep_conversations)

    def close(self) -> None:
        """Write what is left, give the claims up. Bounded."""
        for live in self._live.values():
            live.recorder.settle()
        if self._live:
            self.store.release(None, self._claimant())
        self.store.close()

    # --- conversations -------------------------------------------------------------------------

    async def new(self, cwd: str, roots: list[str], servers: Sequence[ServerSpec] = ()) -> LiveConversation:
        """A fresh conversation with the workspace's remembered pick."""
        now = self.clock.wall()
        conversation = Conversation(id=uuid.uuid4().hex, cwd=cwd, roots=roots, created=now, updated=now)
        live = LiveConversation(conversation, self.store, self.clock)
        if self._group is not None:
            self._group.start_soon(self._recall, live)
        else:
            await self._recall(live)
        await self.models.until_known(live.recalled, self.providers.known)
        self._connect(live, servers)
        self._live[conversation.id] = live
        self.store.claim_new(conversation, self._claimant(), now)
        return live

    async def _recall(self, live: LiveConversation) -> None:
        """What was picked in this workspace; on a slow disk it comes after the conversation is there already."""
        try:
            model = await self.store.remembered(live.conversation.cwd)
            if model and not live.conversation.model:
                live.conversation.model = model
                if self.find(live.id) is live:
                    live.recorder.touch()
                    self.show(live, OptionsChanged())
        except ModeldError:
            return  # the failure is told when something has to be saved
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
        live = self._live.get(conversation_id)
        if live is None:
            conversation = await self.store.load(conversation_id)
            if conversation is None:
                raise UnknownConversation
            live = LiveConversation(conversation, self.store, self.clock)
            live.recalled.set()
            await self._claim(live, take_over=take_over)
            self._live[conversation_id] = live
        if (live.conversation.cwd, live.conversation.roots) != (cwd, roots):
            live.allowed.clear()  # it was allowed for those folders
        live.conversation.cwd = cwd
        live.conversation.roots = roots
        self._connect(live, servers)
        await self.models.until_known(live.recalled, self.providers.known)
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

            live.servers = McpServers(servers, live.conversation.cwd, live.id, forms_of(self.face))

    async def take_over(self, conversation_id: str, *, in_turn: bool = False) -> None:
        """Become the writer of an open conversation, with what the other editor has said in it meanwhile.

        `in_turn`: asked for by the only turn of it, which has said nothing yet.
        """
        live = self.get(conversation_id)
        await self._claim(live, take_over=True)
        fresh = await self.store.load(conversation_id)
        if fresh is not None and (in_turn or not live.busy):
            live.conversation.events[:] = fresh.events
            live.conversation.title, live.conversation.dropped = fresh.title, fresh.dropped

    async def _claim(self, live: LiveConversation, *, take_over: bool) -> None:
        try:
            await self.store.claim(live.id, self._claimant(), self.clock.wall(), take_over=take_over)
            live.read_only_for = ""
        except ConversationBusy as error:
            live.read_only_for = str(error.opened_in)

    async def saved(self, conversation_id: str) -> Conversation:
        """A conversation to read, whether it is open here or not. Raises UnknownConversation."""
        live = self._live.get(conversation_id)
        if live is not None:
            live.recorder.flush()
            return live.conversation
        conversation = await self.store.load(conversation_id)
        if conversation is None:
            raise UnknownConversation
        return conversation

    def find(self, conversation_id: str) -> LiveConversation | None:
        """An open conversation, or None."""
        return self._live.get(conversation_id)

    def get(self, conversation_id: str) -> LiveConversation:
        """An open conversation. Raises UnknownConversation."""
        live = self._live.get(conversation_id)
        if live is None:
            raise UnknownConversation
        return live

    def live_ids(self) -> set[str]:
        """The ids of the open conversations."""
        return set(self._live)

    async def close_conversation(self, conversation_id: str) -> None:
        """End what runs in it and forget that it is open. Raises UnknownConversation."""
        live = self.get(conversation_id)
        await live.close()
        self._live.pop(conversation_id, None)
        live.recorder.settle()
        self.store.release(conversation_id, self._claimant())

    async def delete(self, conversation_id: str) -> None:
        """Forget a conversation; one that is not there is deleted already."""
        if conversation_id in self._live:
            await self.close_conversation(conversation_id)
        await self.store.delete(conversation_id)

    # --- turns ---------------------------------------------------------------------------------

    async def prompt(self, live: LiveConversation, parts: list[Part], cancel: Cancel) -> TurnEnded:
        """One prompt, or one command. Raises the typed errors."""
        return await live.prompt(cancel, lambda: self._run(live, parts, cancel))

    async def _run(self, live: LiveConversation, parts: list[Part], cancel: Cancel) -> TurnEnded:
        command = parse_command(parts)
        await self._require_ours(live, command)
        await cancel.race(live.recalled.wait)
        turn = Turn(
            turn_id=live.next_turn(),
            recorder=live.recorder,
            cancel=cancel,
            show=lambda event: self.show(live, event),
            ask=lambda question: self.face.ask(live.id, question),
            always_switch=live.always_switch,
        )
        try:
            if command is not None:
                return await self._performer.perform(live, turn, *command)
            if live.missed:
                missed, live.missed = live.missed, ""
                turn.remark(missed)
            if notice := self._upgrade.take():
                turn.remark(notice)
            whole, cut = await cancel.race(lambda: attached(parts, self._attaching(live)))
            if cut:
                turn.remark(excerpts(cut))
            history = RecordedHistory(live.recorder, whole)
            params = api.Sampling(thinking=live.conversation.thinking or None)
            ended = await turn.run(whole, lambda: self.drive(live, turn, history, params))
            live.last_model = ended.model or live.last_model
            await turn.say_unsaved()
            return ended
        finally:
            live.always_switch = live.always_switch or turn.always_switch

    def _attaching(self, live: LiveConversation) -> Workspace:
        """The workspace for what a message refers to: one file may fill about a quarter of the window."""
        row = self.models.row(self.picker(live).current)
        window = self.source.local(row).window if row is not None else 0
        return Workspace(live.id, self.roots(live), self.face, max(window, ATTACHED_WINDOW))

    async def _require_ours(self, live: LiveConversation, command: tuple[str, str] | None) -> None:
        """Raises ConversationBusy while another editor writes this conversation and the user did not ask for it."""
        if command is not None and command[0] == TAKE_OVER:
            await self.take_over(live.id, in_turn=True)
            return
        await self._claim(live, take_over=False)
        if live.read_only_for:
            raise ConversationBusy(
                f"this conversation is open in {live.read_only_for}; go on there, or send /{TAKE_OVER} to go on here",
                opened_in=live.read_only_for,
            )

    async def drive(self, live: LiveConversation, turn: Turn, history: RecordedHistory, params: api.Sampling) -> Ended:
        """A turn of this conversation through the driver. Raises the typed errors; never another model."""
        job = Job(pick=live.conversation.model, run=live.id, params=params, conversation=live.id)

        async def equip(found: api.LibraryRow | RemoteModel, model: Model) -> Tools:
            return await self._equipped(live, turn, history, found, model)

        return await Driver(self.source, self.holds, job, history, turn, turn.cancel, equip).run()

    async def _equipped(
        self,
        live: LiveConversation,
        turn: Turn,
        history: RecordedHistory,
        found: api.LibraryRow | RemoteModel,
        model: Model,
    ) -> Tools:
        row = None if isinstance(found, RemoteModel) else found
        if row is not None and not live.conversation.model:
            live.conversation.model = row.name  # what answers is what was picked from now on
        if live.conversation.thinking not in ("", *thinking_levels(row)):
            live.conversation.thinking = ""  # it was told just now: from now on the option shows what is sent
            self.show(live, OptionsChanged())
        history.system = self.system(live, row)
        if history.aside or not self.uses_tools(live, row):
            return NoTools()
        return TurnTools(await self._tools(live, model, turn), turn)

    async def _tools(self, live: LiveConversation, model: Model, turn: Turn) -> ToolRunner:
        """The bridge's own tools and those of the session's MCP servers; what failed of those is said once."""
        tools: list[Tool] = builtin_tools()
        if live.servers is not None and self._group is not None:
            servers, group = live.servers, self._group
            await turn.cancel.race(lambda: servers.ready(group, turn.waiting))
            turn.finish_stages("completed")
            tools += servers.tools({tool.name for tool in tools})
            for line in servers.take_problems():
                turn.remark(line)
        return ToolRunner(live.conversation, live.allowed, tools, self.workspace(live, model.window))

    def _remotes_changed(self) -> None:
        self.models.remotes = self.providers.models()
        self._models_changed()

    def workspace(self, live: LiveConversation, window: int) -> Workspace:
        """Its files as tools see them; `window` in tokens bounds one result."""
        return Workspace(live.id, self.roots(live), self.face, result_limit(window), self.providers.key_variables)

    def show(self, live: LiveConversation, event: Shown) -> None:
        """Show an event of a conversation that is still open."""
        if not live.closed:
            self.face.show(live.id, event)

    # --- what commands ask for -----------------------------------------------------------------

    async def load(self, name: str, turn: Turn) -> api.LoadResult:
        """Load a local model now, with the same consent as a turn."""
        return await self.local.load(name, turn, turn.cancel)

    # --- pushes --------------------------------------------------------------------------------

    def _models_changed(self) -> None:
        if self._face is None:
            return
        for live in self._live.values():
            self.show(live, OptionsChanged())

    def _status_changed(self) -> None:
        """Notice that another client replaced the model of a conversation here; it is told once."""
        status = self.daemon.status
        replaced = self._active.see(status) if status is not None else None
        if replaced is None:
            return
        for live in self._live.values():
            if replaced.concerns(live.last_model, busy=live.busy, me=self.face.client):
                live.missed = replaced.text()
                live.last_model = ""
