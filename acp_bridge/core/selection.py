"""What a user picks for a conversation: model, mode, thinking level, tools; and what follows from it for a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.conversations.errors import BadChoice
from acp_bridge.conversations.state import MODES
from acp_bridge.models.picker import NOTHING, Picker, build_picker
from acp_bridge.models.resolve import checked_pick
from acp_bridge.models.thinking import THINKING, thinking_levels
from acp_bridge.tools.builtin import PLAIN_SYSTEM, TERMINAL_SYSTEM, system_text, tools_by_default

if TYPE_CHECKING:
    from acp_bridge.conversations.store import Store
    from acp_bridge.core.live import LiveConversation
    from acp_bridge.models.view import Models
    from shared.clock import Clock
    from shared.protocol import api
    from shared.settings import Settings


class Selection:
    """Knows and records what was picked. Nothing is loaded by a pick."""

    def __init__(self, store: Store, models: Models, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._models = models
        self._settings = settings
        self._clock = clock

    def picker(self, live: LiveConversation) -> Picker:
        """The picker of this conversation, from what is known now."""
        models, pick = self._models, live.conversation.model
        reason = models.reason if not pick or models.row(pick) is not None else models.missing(pick)
        return build_picker(models.rows, models.remotes, pick, models.default, reason, models.active)

    async def pick(self, live: LiveConversation, value: object) -> None:
        """Record the user's intent; nothing is loaded. Raises ModelNotFound for what is not offered.

        An editor that sets again what it was shown while nothing answers has picked nothing.
        """
        if value == NOTHING and self.picker(live).current == NOTHING:
            return
        if value not in self.picker(live).values():
            await self._models.first_look(value)  # a pick may come before it
        name = checked_pick(value, self.picker(live).values(), self._models.rows, self._models.missing)
        live.conversation.model = name
        live.recorder.touch()
        self._store.remember(live.conversation.cwd, name, self._clock.wall())

    def set_mode(self, live: LiveConversation, value: object) -> None:
        """Raises BadChoice."""
        if value not in MODES:
            raise BadChoice("mode", value, list(MODES))
        live.conversation.mode = value
        live.recorder.touch()

    def set_tools(self, live: LiveConversation, value: object) -> None:
        """Whether the model of this conversation is offered tools. Raises BadChoice for what is no yes or no."""
        if not isinstance(value, bool):
            raise BadChoice("tools", value, ["true", "false"])
        live.conversation.tools = "on" if value else "off"
        live.recorder.touch()

    def tools_on(self, live: LiveConversation) -> bool:
        """What the tools option shows for the picked model."""
        return self.uses_tools(live, self._models.row(self.picker(live).current))

    def set_thinking(self, live: LiveConversation, value: object) -> None:
        """Raises BadChoice."""
        offered = self.thinking(live)
        if value not in offered or not isinstance(value, str):
            raise BadChoice(THINKING, value, offered)
        live.conversation.thinking = value
        live.recorder.touch()

    def thinking(self, live: LiveConversation) -> list[str]:
        """The levels that the picked model has, the default first; empty when it does not think."""
        return thinking_levels(self._models.found(self.picker(live).current))

    def uses_tools(self, live: LiveConversation, row: api.LibraryRow | None) -> bool:
        """Whether this model (None: a remote one) is offered tools: as the user set it, else when its template knows
        them, or when it is large enough to be taught in words.
        """
        setting = live.conversation.tools
        if live.at_terminal:
            return setting == "on"
        if setting or row is None:
            return setting != "off"
        return tools_by_default(row, self._settings.teach_tools_from)

    def system(self, live: LiveConversation, row: api.LibraryRow | None) -> str:
        """The system message for this model in this conversation. Stable over its turns, so that its KV stays warm."""
        own = live.conversation.instructions
        if own is not None:
            return own
        if self.uses_tools(live, row):
            return system_text(self.roots(live), live.conversation.mode, editor=not live.at_terminal)
        return TERMINAL_SYSTEM if live.at_terminal else PLAIN_SYSTEM

    @staticmethod
    def roots(live: LiveConversation) -> list[str]:
        """The folders of the workspace, the working folder first."""
        return [live.conversation.cwd, *live.conversation.roots]
