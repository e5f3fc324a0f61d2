"""One conversation of the core at a terminal: opened or continued, asked, and what a person set for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec

from acp_bridge.cancel import Cancel
from acp_bridge.conversations.commands import parse_command
from acp_bridge.conversations.events import Instructed, Part, TurnEnded
from acp_bridge.faces.terminal.progress import Paces
from acp_bridge.models.picker import NOTHING
from acp_bridge.models.resolve import checked_pick
from shared.catalog.names import begun
from shared.diagnosis.defect import sole
from shared.errors import ConversationNotFound, ModeldError, ModelNotFound
from shared.protocol import api
from shared.text.words import as_text

if TYPE_CHECKING:
    from acp_bridge.conversations.database import Listed
    from acp_bridge.core.core import Core
    from acp_bridge.core.live import LiveConversation
    from acp_bridge.faces.terminal.events import JsonScreen
    from acp_bridge.faces.terminal.interrupts import Interrupts
    from acp_bridge.faces.terminal.plain import PlainScreen
    from acp_bridge.faces.terminal.rendered import RenderedScreen

TICK_S = 0.1
#: What the last turns of a model tell of its pace must not delay the next one. Seconds.
PACES_WITHIN_S = 0.5


class Wanted(msgspec.Struct, kw_only=True):
    """What holds for every conversation of this run. `system` None: nothing was said of it."""

    model: str = ""
    system: str | None = None
    sampling: api.Sampling = msgspec.field(default_factory=api.Sampling)
    thinking: str = ""


class Chat:
    """The conversation that is open. `open` comes first."""

    live: LiveConversation

    def __init__(
        self, core: Core, screen: PlainScreen | RenderedScreen | JsonScreen, interrupts: Interrupts, wanted: Wanted
    ) -> None:
        self.core = core
        self.wanted = wanted
        self._screen = screen
        self._interrupts = interrupts

    # --- which conversation --------------------------------------------------------------------

    async def open(self, conversation: str = "") -> None:
        """A new conversation, or the saved one with this id. Raises ModelNotFound, ConversationBusy."""
        conversations = self.core.conversations
        if not conversation:
            self.live = await conversations.new(as_text(os.getcwd()), [])
            self.live.conversation.mode = "ask"  # tools, where they are asked for, change nothing here
        else:
            saved = await conversations.saved(conversation)
            self.live = await conversations.open(conversation, saved.cwd, saved.roots)
        self.live.at_terminal = True
        self.live.sampling = self.wanted.sampling
        await self.live.recalled.wait()
        if self.wanted.model:
            await self.pick(self.wanted.model)
        if self.wanted.thinking:
            self.core.selection.set_thinking(self.live, self.wanted.thinking)
        if self.wanted.system is not None:
            self.instruct(self.wanted.system)

    async def reopen(self, conversation: str = "") -> None:
        """Leave this conversation for another. Raises what `open` does; then this one stays."""
        before = self.live
        try:
            await self.open(conversation)
        except BaseException:
            self.live = before
            raise
        if before.id != self.live.id:
            await self.core.conversations.close(before.id)

    async def find(self, begun_id: str) -> str:
        """The whole id of a saved conversation; "" is the newest one of this folder. Raises ConversationNotFound."""
        if not begun_id:
            newest = await self.core.store.list(as_text(os.getcwd()), None, set())
            if not newest:
                raise ConversationNotFound(
                    name="",
                    reason="no conversation is saved for this folder; `acp-bridge export --list --all` lists every one",
                )
            return newest[0].id
        if await self.core.store.load(begun_id) is not None:
            return begun_id
        found = [row.id for row in await self.saved(everywhere=True) if row.id.startswith(begun_id)]
        if len(found) != 1:
            which = "several conversations begin with" if found else "there is no conversation"
            reason = f"{which} {begun_id}; `acp-bridge export --list --all` lists them"
            raise ConversationNotFound(name=begun_id, reason=reason)
        return found[0]

    async def saved(self, *, everywhere: bool = False) -> list[Listed]:
        """The saved conversations of this folder, the newest first."""
        rows: list[Listed] = []
        after: tuple[float, str] | None = None
        cwd = None if everywhere else as_text(os.getcwd())
        while page := await self.core.store.list(cwd, after, set()):
            rows += page
            after = (page[-1].updated, page[-1].id)
        return rows

    async def forget(self) -> None:
        """Delete the conversation that is open."""
        await self.core.conversations.delete(self.live.id)

    # --- what holds for it ---------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The model that answers next, "" where none can."""
        current = self.core.selection.picker(self.live).current
        return "" if current == NOTHING else current

    async def pick(self, typed: str) -> None:
        """The model of this conversation alone: an editor's pick in this folder stays. Raises ModelNotFound."""
        name = await self._whole(typed)
        self.wanted.model = self.live.conversation.model = name
        self.live.recorder.touch()

    async def _whole(self, typed: str) -> str:
        """The name that was typed, or the only one that begins so. Raises ModelNotFound."""
        core = self.core
        await core.models.first_look(typed)
        offered = core.selection.picker(self.live).values()
        if typed not in offered and begun(typed, offered) is None:
            await core.models.first_look(f"{typed}/")  # it may be one of a provider that has not answered yet
            offered = core.selection.picker(self.live).values()
        name = typed if typed in offered else begun(typed, offered)
        several = [each for each in offered if each.casefold().startswith(typed.casefold())]
        if name is None and len(several) > 1:
            raise ModelNotFound(requested=typed, near=several)
        return checked_pick(name or typed, offered, core.models.rows, core.models.missing)

    def instruct(self, system: str) -> None:
        """The system message from here on; "" for none."""
        self.wanted.system = system
        if self.live.conversation.instructions != system:
            self.live.recorder.add(Instructed(system=system))

    # --- a turn --------------------------------------------------------------------------------

    async def ask(self, parts: Sequence[Part]) -> TurnEnded:
        """One prompt to its end on the screen. Raises the typed errors, OSError where the screen is lost."""
        screen, model = self._screen, self.model
        screen.paces = await self._paces(model)
        screen.begin(model=model, conversation=self.live.id, is_command=parse_command(parts) is not None)
        self._interrupts.first = self.live.cancel
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._ticking)
                group.start_soon(self._reader_gone)
                ended = await self._prompt(list(parts))
                group.cancel_scope.cancel()
        except BaseException as error:
            screen.fail()
            raise sole(error) from None
        finally:
            self._interrupts.first = None
        screen.end(ended)
        return ended

    async def _prompt(self, parts: list[Part]) -> TurnEnded:
        return await self.core.turns.prompt(self.live, parts, Cancel())

    async def _ticking(self) -> None:
        while True:
            await anyio.sleep(TICK_S)
            self._screen.tick()

    async def _reader_gone(self) -> None:
        """Nobody reads the answer any more (`| head`, a full disk): the turn is cancelled, not run to its end."""
        await self._screen.lost.wait()
        self.live.cancel()

    async def _paces(self, model: str) -> Paces:
        turns: list[TurnEnded] = []
        with anyio.move_on_after(PACES_WITHIN_S):
            try:
                turns = await self.core.store.newest_turns(model)
            except ModeldError:
                pass  # told by the turn, which has to be saved there
        return paces_of(turns)


def paces_of(turns: Sequence[TurnEnded]) -> Paces:
    """What the newest turns tell of the next one. Pure."""
    load, rate = 0.0, 0.0
    for turn in turns:
        times = turn.numbers.get("timings", {})
        load = load or times.get("load_s", 0.0)
        prefilled, spent = turn.numbers.get("prefilled", 0), times.get("prefill_s", 0.0)
        rate = rate or (prefilled / spent if prefilled >= 64 and spent > 0 else 0.0)
    return Paces(load_s=load, read_per_s=rate)
