"""What the slash commands do. Each answers in words; none is remembered by the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_bridge.cancel import TurnCancelled
from acp_bridge.conversations.commands import help_text
from acp_bridge.conversations.events import Compacted, OptionsChanged, TurnEnded
from acp_bridge.conversations.export import file_name, markdown
from acp_bridge.conversations.face import ToolFailed
from acp_bridge.conversations.state import messages_of
from acp_bridge.doctor import findings, provider_findings, report_text
from acp_bridge.models.picker import NOTHING, RemoteModel, describe, is_remote, nothing_reason
from acp_bridge.turn.history import RecordedHistory
from shared.catalog.names import begun
from shared.errors import ModeldError, NoAvailableModel, UnsupportedFeature
from shared.protocol import api
from shared.text.words import counted, size_text

if TYPE_CHECKING:
    from acp_bridge.core.live import LiveConversation
    from acp_bridge.core.prompt import Turn
    from acp_bridge.core.turns import Turns

SUMMARY_TOKENS = 512
SUMMARY_REQUEST = (
    "Summarise our conversation so far for yourself: what was asked, what was decided, which files and names matter, "
    "and what is still open. Write only the summary."
)


class SlashCommands:
    """Runs a command inside a turn. Typed errors of modeld become its answer."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._selection = turns.selection
        self._daemon = turns.daemon
        self._models = turns.models

    def _options_changed(self, live: LiveConversation) -> None:
        self._turns.audience.show(live, OptionsChanged())

    async def run(self, live: LiveConversation, turn: Turn, name: str, argument: str) -> TurnEnded:
        """Answer the command `name`."""
        handler = getattr(self, f"_{name}")
        try:
            text = await handler(live, turn, argument)
        except ModeldError as error:
            text = error.message
        except TurnCancelled:
            turn.finish_stages("failed")
            return TurnEnded(stop="cancelled")
        turn.finish_stages("completed")
        turn.cancel.check()
        turn.remark(text)
        return TurnEnded(stop="end_turn")

    async def _help(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        return help_text()

    async def _model(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        if argument:
            values = self._selection.picker(live).values()
            name = argument if argument in values else begun(argument, values) or argument
            await self._selection.pick(live, name)
            self._options_changed(live)
            return f"{name} answers from now on. It is loaded at the next message."
        picker = self._selection.picker(live)
        others = "\n".join(f"- `{value}`" for value in picker.values())
        return f"{self._state(picker.current)}\n\n{others}"

    def _state(self, current: str) -> str:
        models = self._models
        if current == NOTHING:
            return f"No model: {nothing_reason(models.reason, models.remotes)}."
        row = models.row(current)
        remote = next((one for one in models.remotes if one.id == current), None)
        if row is None and remote is not None:
            return f"`{current}`: remote, {remote.provider}"
        return f"`{current}`: {describe(row) if row is not None else models.missing(current)}"

    async def _status(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        return status_text(await self._daemon.call("status", api.Fenced(), api.Status))

    async def _load(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        models = self._models
        name = argument or self._selection.picker(live).current
        if name == NOTHING:
            raise NoAvailableModel(reason=nothing_reason(models.reason, models.remotes), wanted="")
        if is_remote(name):
            raise UnsupportedFeature(f"{name} is remote; nothing has to be loaded", feature="load of a remote model")
        result = await self._turns.load(name, turn)
        loaded = f" in {result.load_seconds:.1f} s" if result.loaded else " already"
        return f"{result.active.name} is loaded{loaded}, context {result.active.num_ctx:,}."

    async def _unload(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        result = await self._daemon.call("model/unload", api.UnloadParams(), api.UnloadResult)
        if not result.freed:
            return "No model was loaded."
        return f"{result.freed} is unloaded; {size_text(result.freed_bytes)} are free again."

    async def _switch(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        if not argument:
            return "Name a model: `/switch <name>`. `/model` lists them."
        await self._selection.pick(live, argument)
        self._options_changed(live)
        return await self._load(live, turn, argument)

    async def _context(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        source = self._turns.source
        found = source.meaning(live.conversation.model)
        if isinstance(found, RemoteModel):
            unknown = "not known"
        else:
            unknown = "not known until the model is loaded"
        row = None if isinstance(found, RemoteModel) else found
        messages = messages_of(live.conversation.events)[live.conversation.dropped :]
        bound = source.bound(found)
        used = await bound.count([{"role": "system", "content": self._selection.system(live, row)}, *messages], [])
        window = f"{bound.window:,}" if bound.window else unknown
        dropped = live.conversation.dropped
        left = f", {counted(dropped, 'earlier message')} left out" if dropped else ""
        about = "" if bound.exact else "about "
        held = f"{about}{counted(used.total, 'token')} in {counted(len(messages), 'message')}{left}"
        return f"{held}; the window of {bound.name} is {window}."

    async def _compact(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        """Have the model summarise the conversation, and go on from the summary."""
        if not messages_of(live.conversation.events):
            return "There is nothing to compact yet."
        history = RecordedHistory(live.recorder, aside=SUMMARY_REQUEST)
        params = api.Sampling(max_tokens=SUMMARY_TOKENS)
        summary = await turn.aside(lambda: self._turns.drive(live, turn, history, params))
        live.recorder.add(Compacted(summary=summary))
        live.conversation.dropped = 0
        live.recorder.touch()
        return f"The conversation so far is replaced by this summary:\n\n{summary}"

    async def _export(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        """Asked for by the user in words, so it asks nothing back; but it replaces no file."""
        if live.conversation.empty:
            return "There is nothing to export yet."
        workspace = self._turns.workspace(live, 0)
        try:
            place = workspace.locate(argument or file_name(live.conversation))
            path = place.path
            if await workspace.read_or_none(path) is not None:
                return f"{workspace.shown(path)} exists already; name another file: `/export <file>`."
            await workspace.write(place, markdown(live.conversation))
        except ToolFailed as error:
            return f"Not exported: {error}."
        return f"This conversation is in {workspace.shown(path)}."

    async def _tools(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        if argument not in ("", "on", "off"):
            return "Say `/tools on` or `/tools off`."
        if argument:
            self._selection.set_tools(live, argument == "on")
            self._options_changed(live)
        return f"The model gets {'its' if self._selection.tools_on(live) else 'no'} tools."

    async def _takeover(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        return "This conversation goes on here; the other editor may read it."

    async def _doctor(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        turns = self._turns
        await self._daemon.reconnect()
        found = findings(self._daemon, self._models, turns.store) + provider_findings(await turns.providers.look())
        return report_text(found)

    async def _start(self, live: LiveConversation, turn: Turn, argument: str) -> str:
        from acp_bridge.daemon.start import start_daemon

        message = await start_daemon()
        await self._daemon.reconnect()
        return message


def status_text(status: api.Status) -> str:
    """A status for people, in a few lines."""
    lines = [f"modeld {status.version} ({status.role}, {status.backend}): {status.state}"]
    if status.active is not None:
        lines.append(f"- model: {status.active.name} on {status.active.device}, context {status.active.num_ctx:,}")
    if status.busy is not None:
        busy = status.busy
        lines.append(f"- busy: {busy.operation} ({busy.stage}) for {busy.holder}, {busy.age_s:.0f} s")
    for place, waiting in enumerate(status.queue, start=1):
        lines.append(f"- waiting {place}: {waiting.client} for {waiting.model}, {waiting.waited_s:.0f} s")
    if status.memory.free_bytes is not None:
        pressure = ", under pressure: unload the model to help" if status.memory.pressure else ""
        lines.append(f"- memory free: {size_text(status.memory.free_bytes)}{pressure}")
    return "\n".join(lines)
