"""The editor as the core's face: updates out, questions and file requests to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec import UNSET

from acp_bridge.conversations.events import OptionsChanged, Shown
from acp_bridge.conversations.face import CANNOT_ASK, NOT_UNDERSTOOD, CannotAsk, Command, Finished, Question, ToolFailed
from acp_bridge.conversations.forms import Form, FormAnswer
from acp_bridge.faces.acp.options import config_options
from acp_bridge.faces.acp.schema import (
    AnyUpdate,
    ClientCapabilities,
    ConfigOption,
    ConfigOptionUpdate,
    CreateTerminalParams,
    CreateTerminalResult,
    CurrentModeUpdate,
    ElicitationParams,
    ElicitationResult,
    ExitStatus,
    NamedValue,
    PermissionCard,
    PermissionOption,
    ReadTextFileParams,
    ReadTextFileResult,
    RequestPermissionParams,
    RequestPermissionResult,
    SessionUpdateParams,
    TerminalOutputResult,
    TerminalParams,
    WriteTextFileParams,
)
from acp_bridge.faces.acp.updates import Updates, commands_update, items_of, locations_of
from shared.errors import ModeldError
from shared.protocol.faults import BadAnswer, MethodNotFound, PeerGone
from shared.text.shown import MESSAGE_MOST, TITLE_MOST, cut, escaped, in_markdown, one_line, title

if TYPE_CHECKING:
    from acp_bridge.core.core import Core
    from acp_bridge.core.live import LiveConversation
    from shared.protocol.peer import Peer


#: For what an editor does by itself; what it asks a person, or a command, takes as long as it takes.
EDITOR_LIMIT_S = 30.0


class Editor:
    """Implements `acp_bridge.conversations.face.Face` over one connection."""

    def __init__(self, peer: Peer, core: Core, client: str, capabilities: ClientCapabilities) -> None:
        self.peer = peer
        self.core = core
        self.client = client
        self.capabilities = capabilities
        self._updates: dict[str, Updates] = {}
        self._open: set[str] = set()
        self._sent_options: dict[str, bytes] = {}
        self._sent_mode: dict[str, str] = {}

    # --- offers --------------------------------------------------------------------------------

    @property
    def reads_files(self) -> bool:
        """Whether the editor gives the text of files, unsaved changes included."""
        return self.capabilities.fs is not None and self.capabilities.fs.read_text_file

    @property
    def writes_files(self) -> bool:
        """Whether the editor writes files itself."""
        return self.capabilities.fs is not None and self.capabilities.fs.write_text_file

    @property
    def runs_terminals(self) -> bool:
        """Whether the editor runs commands in its terminals."""
        return bool(self.capabilities.terminal)

    @property
    def takes_booleans(self) -> bool:
        """Whether the editor shows config options of yes or no."""
        session = self.capabilities.session
        return session is not None and session.config_options is not None and session.config_options.boolean is not None

    # --- updates -------------------------------------------------------------------------------

    def options(self, live: LiveConversation) -> list[ConfigOption]:
        """The complete list as it is now; remembered as sent."""
        conversation = live.conversation
        options = config_options(
            self.core.selection.picker(live),
            conversation.mode,
            conversation.thinking,
            self.core.selection.thinking(live),
            self.core.selection.tools_on(live) if self.takes_booleans else None,
        )
        self._sent_options[live.id] = msgspec.json.encode(options)
        self._sent_mode[live.id] = conversation.mode
        return options

    def announce(self, live: LiveConversation) -> None:
        """From now on the session gets updates; the first are its commands and what changed since its answer."""
        if live.id in self._open or live.closed:
            return
        self._open.add(live.id)
        self._send(live.id, commands_update())
        self.show(live.id, OptionsChanged())

    def forget(self, session: str) -> None:
        """The session is closed."""
        for known in (self._updates, self._sent_options, self._sent_mode):
            known.pop(session, None)
        self._open.discard(session)

    def show(self, conversation: str, event: Shown) -> None:
        """See Face."""
        if conversation not in self._open:
            return
        if isinstance(event, OptionsChanged):
            self._show_options(conversation)
            return
        for update in self._translator(conversation).of(event):
            self._send(conversation, update)

    def replay(self, live: LiveConversation) -> None:
        """Everything that was said, before the answer to session/load."""
        self._updates[live.id] = Updates()
        for update in self._translator(live.id).replay(live.conversation.events):
            self._send(live.id, update)

    def _show_options(self, session: str) -> None:
        live = self.core.conversations.get(session)
        before, mode = self._sent_options.get(session), self._sent_mode.get(session)
        options = self.options(live)
        if self._sent_options[session] != before:
            self._send(session, ConfigOptionUpdate(config_options=options))
        if live.conversation.mode != mode:
            self._send(session, CurrentModeUpdate(current_mode_id=live.conversation.mode))

    def _translator(self, session: str) -> Updates:
        return self._updates.setdefault(session, Updates())

    def _send(self, session: str, update: AnyUpdate) -> None:
        self.peer.notify("session/update", SessionUpdateParams(session_id=session, update=update))

    # --- requests ------------------------------------------------------------------------------

    async def ask(self, conversation: str, question: Question) -> str | None:
        """See Face."""
        card = PermissionCard(
            tool_call_id=question.card,
            title=title(question.title),
            kind=question.kind,
            content=items_of(question.items) if question.items else UNSET,
            locations=locations_of(question.locations) if question.locations else UNSET,
            raw_input=UNSET if question.input is None else question.input,
        )
        options = [
            PermissionOption(option_id=answer.id, name=one_line(answer.name, TITLE_MOST), kind=answer.kind)
            for answer in question.answers
        ]
        params = RequestPermissionParams(session_id=conversation, tool_call=card, options=options)
        try:
            result: RequestPermissionResult = await self.peer.request(
                "session/request_permission", params, RequestPermissionResult
            )
        except MethodNotFound as error:
            raise CannotAsk(CANNOT_ASK) from error
        except (ModeldError, BadAnswer) as error:
            raise CannotAsk(NOT_UNDERSTOOD) from error
        chosen = result.outcome.option_id if result.outcome.outcome == "selected" else None
        return chosen if any(chosen == answer.id for answer in question.answers) else None

    @property
    def shows_forms(self) -> bool:
        """See AsksForms."""
        offered = self.capabilities.elicitation
        return offered is not None and offered.form is not None

    async def ask_form(self, conversation: str, form: Form) -> FormAnswer:
        """See AsksForms."""
        params = ElicitationParams(
            session_id=conversation,
            message=in_markdown(cut(escaped(form.message), MESSAGE_MOST)),
            requested_schema=labelled(form.schema),
        )
        try:
            result: ElicitationResult = await self.peer.request("elicitation/create", params, ElicitationResult)
        except (ModeldError, BadAnswer, PeerGone):
            return FormAnswer(action="cancel")
        if result.action == "accept":
            return FormAnswer(action="accept", content=result.content or {})
        return FormAnswer(action="decline" if result.action == "decline" else "cancel")

    async def ask_editor(self, method: str, params: Any, kind: Any, limit: float | None = None) -> Any:
        """A request whose failure is reported to the model. An editor that does not answer within `limit` seconds has
        failed too: a turn must not hang on it.
        """
        seconds = EDITOR_LIMIT_S if limit is None else limit
        try:
            with anyio.fail_after(seconds):
                return await self.peer.request(method, params, kind)
        except TimeoutError as error:
            raise ToolFailed(f"the editor did not answer {method} within {seconds:.0f} s") from error
        except ModeldError as error:
            raise ToolFailed(error.message) from error
        except BadAnswer as error:
            raise ToolFailed(f"the editor's answer to {method} cannot be understood") from error
        except PeerGone as error:
            raise ToolFailed("the editor has gone") from error

    async def read_file(self, conversation: str, path: str) -> str:
        """See Face."""
        params = ReadTextFileParams(session_id=conversation, path=path)
        result: ReadTextFileResult = await self.ask_editor("fs/read_text_file", params, ReadTextFileResult)
        return result.content

    async def write_file(self, conversation: str, path: str, text: str) -> None:
        """See Face."""
        params = WriteTextFileParams(session_id=conversation, path=path, content=text)
        await self.ask_editor("fs/write_text_file", params, Any)

    async def open_terminal(self, conversation: str, command: Command) -> EditorTerminal:
        """See Face."""
        params = CreateTerminalParams(
            session_id=conversation,
            command=command.program,
            args=command.arguments,
            cwd=command.cwd,
            env=_environment(command) or UNSET,
            output_byte_limit=command.output_limit,
        )
        result: CreateTerminalResult = await self.ask_editor("terminal/create", params, CreateTerminalResult)
        return EditorTerminal(self, conversation, result.terminal_id)


def labelled(schema: Any) -> Any:
    """The schema of a form with what people read in it as single lines; its names and values stay."""
    if isinstance(schema, dict):
        return {
            key: one_line(value) if key in ("title", "description") and isinstance(value, str) else labelled(value)
            for key, value in schema.items()
        }
    return [labelled(each) for each in schema] if isinstance(schema, list) else schema


def _environment(command: Command) -> list[NamedValue]:
    """Over what the editor's terminals have. Nothing can be taken out of that: what is withheld is emptied."""
    given = {**dict.fromkeys(sorted(command.withheld), ""), **command.environment}
    return [NamedValue(name=name, value=value) for name, value in given.items()]


class EditorTerminal:
    """A terminal of the editor."""

    def __init__(self, editor: Editor, session: str, terminal: str) -> None:
        self.id = terminal
        self._editor = editor
        self._params = TerminalParams(session_id=session, terminal_id=terminal)

    async def finish(self) -> Finished:
        """Wait for the end of the command, then read what it wrote."""
        ended: ExitStatus = await self._editor.ask_editor(
            "terminal/wait_for_exit", self._params, ExitStatus, float("inf")
        )
        output: TerminalOutputResult = await self._editor.ask_editor(
            "terminal/output", self._params, TerminalOutputResult
        )
        return Finished(output=output.output, code=ended.exit_code, truncated=output.truncated)

    async def kill(self) -> None:
        """End the command; the terminal stays readable."""
        await self._editor.ask_editor("terminal/kill", self._params, Any)

    async def release(self) -> None:
        """Free it."""
        await self._editor.ask_editor("terminal/release", self._params, Any)
