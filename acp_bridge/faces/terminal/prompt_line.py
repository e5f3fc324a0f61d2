"""The line that is typed: history, several lines, completion of commands, models and files. Of prompt_toolkit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from shared.system import private
from shared.text.console import direct

#: Begins and ends a message of several lines.
BLOCK = '"""'
PROMPT = ">>> "
MORE = "... "


class Leave(Exception):
    """Ctrl-D, or Ctrl-C twice, on an empty line."""


class PromptLine:
    """Reads messages. `commands` are completed after a slash, `models` behind those in `of_models`."""

    def __init__(
        self,
        history: Path | None,
        commands: Sequence[str],
        models: Callable[[], Iterable[str]],
        *,
        of_models: Sequence[str] = (),
        of_files: Sequence[str] = (),
    ) -> None:
        kept = History(history) if history is not None else InMemoryHistory()
        completer = SlashCompleter(commands, models, of_models, of_files)
        self._session: PromptSession[str] = PromptSession(
            history=kept,
            completer=completer,
            complete_while_typing=Condition(self._types_a_command),
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: "" if wrapped else MORE,
            output=create_output(stdout=direct(sys.stdout)),
            enable_suspend=True,
        )
        self._interrupted = False

    def _types_a_command(self) -> bool:
        return self._session.default_buffer.text.startswith("/")

    async def read(self) -> str:
        """The next message, "" for none. Raises Leave."""
        try:
            text = await self._session.prompt_async(ANSI(f"\x1b[1m{PROMPT}\x1b[0m"), handle_sigint=False)
        except EOFError:
            raise Leave from None
        except KeyboardInterrupt:
            if self._interrupted:
                raise Leave from None
            self._interrupted = True
            return ""
        self._interrupted = False
        return message_of(text)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was the last thing: once more leaves."""
        return self._interrupted

    async def ask(self, prompt: str) -> str:
        """One short answer, which is not kept in the history."""
        asking: PromptSession[str] = PromptSession(output=create_output(stdout=direct(sys.stdout)))
        try:
            return await asking.prompt_async(prompt, handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return ""


class History(FileHistory):
    """What was typed, in a file for this user alone: it holds prompts, as the conversations beside it do. Where it
    cannot be written (a full disk, a read-only folder) what is typed is kept for this run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(str(path))

    def load_history_strings(self) -> Iterable[str]:
        """See FileHistory."""
        try:
            return list(super().load_history_strings()) if self.path.exists() and not private.is_odd(self.path) else []
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """See FileHistory."""
        try:
            private.folder(self.path.parent)
            if not private.is_odd(self.path):
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
                super().store_string(string)
        except OSError:
            return


def goes_on(text: str) -> bool:
    """Whether Enter begins another line: a block is open, or the line ends in a backslash. Pure."""
    opened = text.lstrip()
    if opened.startswith(BLOCK):
        return BLOCK not in opened[len(BLOCK) :]
    return text.endswith("\\")


def message_of(text: str) -> str:
    """What was meant: without the marks of a block and the backslashes at line ends. Pure."""
    opened = text.strip()
    if opened.startswith(BLOCK):
        return opened.removeprefix(BLOCK).removesuffix(BLOCK).strip("\n")
    return text.replace("\\\n", "\n").strip()


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if goes_on(buffer.document.text) and buffer.document.is_cursor_at_the_end:
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def clear(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    return keys


class SlashCompleter(Completer):
    """Completes the command, then what stands behind it."""

    def __init__(
        self,
        commands: Sequence[str],
        models: Callable[[], Iterable[str]],
        of_models: Sequence[str],
        of_files: Sequence[str],
    ) -> None:
        self._commands = commands
        self._models = models
        self._of_models = of_models
        self._of_files = of_files
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """As prompt_toolkit asks for them."""
        text = document.text_before_cursor
        command, space, argument = text.partition(" ")
        if not command.startswith("/") or "\n" in text:
            return
        if not space:
            yield from _begun(command, self._commands)
        elif command in self._of_models:
            yield from _begun(argument, self._models())
        elif command in self._of_files:
            yield from self._files.get_completions(Document(argument, len(argument)), complete_event)


def _begun(typed: str, words: Iterable[str]) -> Iterable[Completion]:
    return (Completion(word, start_position=-len(typed)) for word in words if word.startswith(typed))
