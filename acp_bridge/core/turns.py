"""The prompts of recorded conversations: attached files, tools and slash commands around the one turn driver."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from acp_bridge.conversations.commands import TAKE_OVER, parse_command
from acp_bridge.conversations.events import OptionsChanged, Part, TurnEnded
from acp_bridge.core.attachments import attached, excerpts
from acp_bridge.core.prompt import Turn, TurnTools
from acp_bridge.core.slash_commands import SlashCommands
from acp_bridge.core.upgrade_notice import UpgradeNotice
from acp_bridge.models.picker import RemoteModel
from acp_bridge.models.thinking import thinking_levels
from acp_bridge.tools.base import Tool
from acp_bridge.tools.builtin import builtin_tools, result_limit
from acp_bridge.tools.runner import ToolRunner
from acp_bridge.tools.workspace import Workspace
from acp_bridge.turn.driver import Driver, Ended, Job
from acp_bridge.turn.history import RecordedHistory
from acp_bridge.turn.interfaces import Model, NoTools, Tools
from shared.errors import ConversationBusy
from shared.protocol import api

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_bridge.cancel import Cancel
    from acp_bridge.conversations.store import Store
    from acp_bridge.core.audience import Audience
    from acp_bridge.core.conversations import Conversations
    from acp_bridge.core.live import LiveConversation
    from acp_bridge.core.selection import Selection
    from acp_bridge.daemon.client import Daemon
    from acp_bridge.models.view import Models
    from acp_bridge.providers.registry import Providers
    from acp_bridge.turn.model.consent import LocalModel
    from acp_bridge.turn.model.holds import Holds
    from acp_bridge.turn.model.source import ModelSource

#: Files that a message refers to are read as for a window of this many tokens.
ATTACHED_WINDOW = 8192


class Turns:
    """Runs prompts. `group` is where MCP servers live, None before the bridge runs (there are none then)."""

    def __init__(
        self,
        *,
        conversations: Conversations,
        selection: Selection,
        audience: Audience,
        source: ModelSource,
        local: LocalModel,
        holds: Holds,
        daemon: Daemon,
        models: Models,
        providers: Providers,
        store: Store,
        upgraded: Callable[[], str],
        problems: Sequence[str],
    ) -> None:
        self.group: TaskGroup | None = None
        self.selection = selection
        self.audience = audience
        self.source = source
        self.daemon = daemon
        self.models = models
        self.providers = providers
        self.store = store
        self._conversations = conversations
        self._local = local
        self._holds = holds
        self._upgrade = UpgradeNotice(upgraded)
        self._problems = list(problems)
        self._commands = SlashCommands(self)

    async def prompt(self, live: LiveConversation, parts: list[Part], cancel: Cancel) -> TurnEnded:
        """Run one prompt or slash command. Raises the typed errors."""
        return await live.prompt(cancel, lambda: self._run(live, parts, cancel))

    async def _run(self, live: LiveConversation, parts: list[Part], cancel: Cancel) -> TurnEnded:
        command = parse_command(parts)
        await self._require_ours(live, command)
        await cancel.race(live.recalled.wait)
        turn = Turn(
            turn_id=live.next_turn(),
            recorder=live.recorder,
            cancel=cancel,
            show=lambda event: self.audience.show(live, event),
            ask=lambda question: self.audience.face.ask(live.id, question),
            always_switch=live.always_switch,
        )
        try:
            if command is not None:
                return await self._commands.run(live, turn, *command)
            if live.missed:
                missed, live.missed = live.missed, ""
                turn.remark(missed)
            while self._problems:
                turn.remark(f"Settings: {self._problems.pop(0)}. Until that is corrected its default holds.")
            if notice := self._upgrade.take():
                turn.remark(notice)
            whole, cut = await cancel.race(lambda: attached(parts, self._attaching(live)))
            if cut:
                turn.remark(excerpts(cut))
            history = RecordedHistory(live.recorder, whole)
            params = msgspec.structs.replace(live.sampling, thinking=live.conversation.thinking or None)
            ended = await turn.run(whole, lambda: self.drive(live, turn, history, params))
            live.last_model = ended.model or live.last_model
            await turn.say_unsaved()
            return ended
        finally:
            live.always_switch = live.always_switch or turn.always_switch

    def _attaching(self, live: LiveConversation) -> Workspace:
        """The workspace for what a message refers to: one file may fill about a quarter of the window."""
        row = self.models.row(self.selection.picker(live).current)
        window = max(self.source.local(row).window if row is not None else 0, ATTACHED_WINDOW)
        limit = sys.maxsize if live.at_terminal else window  # there, the window itself says what is too long
        return Workspace(live.id, self.selection.roots(live), self.audience.face, limit)

    async def _require_ours(self, live: LiveConversation, command: tuple[str, str] | None) -> None:
        """Raises ConversationBusy while another editor writes this conversation and the user did not ask for it."""
        if command is not None and command[0] == TAKE_OVER:
            await self._conversations.take_over(live.id, in_turn=True)
            return
        await self._conversations.claim(live, take_over=False)
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

        return await Driver(self.source, self._holds, job, history, turn, turn.cancel, equip).run()

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
        if live.conversation.thinking not in ("", *thinking_levels(found)):
            live.conversation.thinking = ""  # it was reported just now: from now on the option shows what is sent
            self.audience.show(live, OptionsChanged())
        history.system = self.selection.system(live, row)
        if history.aside or not self.selection.uses_tools(live, row):
            return NoTools()
        return TurnTools(await self._tools(live, model, turn), turn)

    async def _tools(self, live: LiveConversation, model: Model, turn: Turn) -> ToolRunner:
        """The bridge's own tools and those of the session's MCP servers; what failed of those is said once."""
        tools: list[Tool] = builtin_tools()
        if live.servers is not None and self.group is not None:
            servers, group = live.servers, self.group
            await turn.cancel.race(lambda: servers.ready(group, turn.waiting))
            turn.finish_stages("completed")
            tools += servers.tools({tool.name for tool in tools})
            for line in servers.take_problems():
                turn.remark(line)
        return ToolRunner(live.conversation, live.allowed, tools, self.workspace(live, model.window))

    def workspace(self, live: LiveConversation, window: int) -> Workspace:
        """Its files as tools see them; `window` in tokens bounds one result."""
        return Workspace(
            live.id, self.selection.roots(live), self.audience.face, result_limit(window), self.providers.key_variables
        )

    async def load(self, name: str, turn: Turn) -> api.LoadResult:
        """Load a local model now, with the same consent as a turn."""
        return await self._local.load(name, turn, turn.cancel)
