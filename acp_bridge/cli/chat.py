"""`acp-bridge chat` and `run`: a conversation at the terminal, or one turn of it. What is typed becomes a `Chat`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio

from acp_bridge.app import make_core
from acp_bridge.cli.report_commands import settings_told
from acp_bridge.conversations.events import Instructed, Part, ResourcePart, TextPart, TurnEnded
from acp_bridge.faces.terminal import attach
from acp_bridge.faces.terminal.chat import Chat, Wanted
from acp_bridge.faces.terminal.events import JsonScreen
from acp_bridge.faces.terminal.face import TerminalFace
from acp_bridge.faces.terminal.interrupts import Interrupts, Left
from acp_bridge.faces.terminal.plain import PlainScreen
from acp_bridge.faces.terminal.questions import Ask, Questions
from shared import codes
from shared.diagnosis.defect import sole
from shared.errors import ArgumentInvalid
from shared.paths import data_root
from shared.protocol import api
from shared.text.nesting import loads_json

if TYPE_CHECKING:
    from acp_bridge.core.core import Core

#: How long a modeld that was just started is asked for its models.
LOOK_LIMIT_S = 5.0
#: What is piped in has this name in the message.
PIPED = "stdin"


def chat(options: argparse.Namespace) -> int:
    """Run one turn, or a conversation; gives the exit code. Raises the typed errors, OSError."""
    parts = message(options)
    talks = not any(isinstance(part, TextPart) for part in parts)
    if talks and (options.json or options.plain or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise ArgumentInvalid(name="prompt", reason="there is none, and a conversation needs a terminal")
    try:
        return anyio.run(_Run(options, parts, talks=talks).run)
    except BaseException as raised:
        error = sole(raised)
    if isinstance(error, (KeyboardInterrupt, Left)):
        return codes.INTERRUPTED
    raise error


def message(options: argparse.Namespace) -> list[Part]:
    """What was given: files first, then what was piped in, the words last. No words where a conversation is to begin.

    Raises ArgumentInvalid.
    """
    words = " ".join(options.prompt)
    parts: list[Part] = [attach.text_file(name) for name in options.file]
    parts += [attach.image_file(name) for name in options.image]
    reads = words == "-" or not sys.stdin.isatty()
    piped = _piped() if reads else ""
    if words in ("", "-"):
        words = piped
    elif piped.strip():
        parts.append(ResourcePart(uri=PIPED, text=piped))
    if options.prompt and not words.strip():
        raise ArgumentInvalid(name="prompt", reason="the prompt is empty")
    return [*parts, TextPart(text=words)] if words.strip() else parts


def _piped() -> str:
    """What is piped in. A locale that is not UTF-8 does not change what it says."""
    source: Any = getattr(sys.stdin, "buffer", None)
    return source.read().decode("utf-8-sig", "replace") if source is not None else sys.stdin.read()


def wanted(options: argparse.Namespace) -> Wanted:
    """What the options say of every turn. Raises ArgumentInvalid."""
    sampling = api.Sampling(
        temperature=options.temperature,
        top_p=options.top_p,
        seed=options.seed,
        max_tokens=options.max_tokens,
        stop=options.stop,
        json_schema=None if options.json_schema is None else schema(options.json_schema),
    )
    return Wanted(model=options.model or "", system=options.system, sampling=sampling, thinking=options.thinking or "")


def schema(given: str) -> dict[str, Any]:
    """A JSON schema, itself or the file that holds it. Raises ArgumentInvalid."""
    text = given if given.lstrip().startswith("{") else attach.text_file(given).text
    try:
        value = loads_json(text)
    except ValueError as error:
        raise ArgumentInvalid(name="--json-schema", reason=f"it is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ArgumentInvalid(name="--json-schema", reason="a JSON schema is an object")
    return value


class _Run:
    """One run of the command, in its loop."""

    def __init__(self, options: argparse.Namespace, parts: list[Part], *, talks: bool) -> None:
        self._options = options
        self._parts = parts
        self._talks = talks
        self._started = False

    async def run(self) -> int:
        """See chat."""
        core = make_core(data_root(), settings_told())
        screen = self._screen()
        with Interrupts() as interrupts:
            talk = Chat(core, screen, interrupts, wanted(self._options))
            work = await self._work(core, talk, screen)
            try:
                async with anyio.create_task_group() as group:
                    core.store.start()
                    group.start_soon(core.run)
                    group.start_soon(interrupts.watch)
                    code = await work()
                    group.cancel_scope.cancel()
            finally:
                core.close()
                await self._stop()
        return code

    def _screen(self) -> PlainScreen | JsonScreen:
        options = self._options
        if options.json:
            return JsonScreen()
        if not self._talks and (options.plain or not sys.stdout.isatty()):
            return PlainScreen(quiet=options.quiet)
        from acp_bridge.faces.terminal.rendered import RenderedScreen

        return RenderedScreen(quiet=options.quiet)

    async def _work(self, core: Core, talk: Chat, screen: PlainScreen | JsonScreen) -> Callable[[], Awaitable[int]]:
        """What runs once the core does: the dialogue or the one turn; the face is attached before."""
        switch = self._options.switch
        if not self._talks:
            core.audience.attach(TerminalFace(screen, Questions(asks_on_stderr(), switch=switch).answer))
            return lambda: self._once(core, talk)
        from acp_bridge.daemon.start import start_daemon
        from acp_bridge.faces.terminal.dialogue import Dialogue
        from acp_bridge.faces.terminal.rendered import RenderedScreen

        assert isinstance(screen, RenderedScreen)

        async def start() -> str:
            said = await start_daemon()
            await core.daemon.reconnect()
            await core.models.look(LOOK_LIMIT_S)
            return said

        dialogue = Dialogue(talk, screen, data_root().chat_history, start, self._parts)
        core.audience.attach(TerminalFace(screen, Questions(dialogue.line.ask, switch=switch).answer))

        async def converse() -> int:
            await self._ready(core, talk)
            await dialogue.run()
            await self._forget(talk)
            return codes.OK

        return converse

    async def _once(self, core: Core, talk: Chat) -> int:
        await self._ready(core, talk)
        ended: TurnEnded = await talk.ask(self._parts)
        await self._forget(talk)
        return codes.INTERRUPTED if ended.stop == "cancelled" else codes.OK

    async def _ready(self, core: Core, talk: Chat) -> None:
        """Start modeld where that is wanted, open the conversation."""
        options = self._options
        await core.daemon.looked.wait()
        if options.start:
            await self._start(core)
        named = "" if options.go_on else options.conversation
        await talk.open(await talk.find(named) if named is not None else "")
        typed, model = options.model, talk.wanted.model
        if typed and typed != model and not (options.quiet or options.json or self._talks):
            sys.stderr.write(f"acp-bridge: using {model}\n")

    async def _start(self, core: Core) -> None:
        from acp_bridge.daemon.start import start_daemon

        await core.daemon.reconnect()
        if core.daemon.connected:
            return
        self._started = True  # also where a Ctrl-C comes in between
        await start_daemon()
        await core.daemon.reconnect()
        await core.models.look(LOOK_LIMIT_S)

    async def _stop(self) -> None:
        """The modeld that was started for this run alone."""
        if not self._started or self._options.keep:
            return
        from acp_bridge.daemon.start import stop_daemon

        with anyio.CancelScope(shield=True):
            await stop_daemon()

    async def _forget(self, talk: Chat) -> None:
        """A conversation that is not to be kept, and one in which nobody said anything."""
        said = [event for event in talk.live.conversation.events if not isinstance(event, Instructed)]
        if self._options.no_save or not said:
            await talk.forget()


def asks_on_stderr() -> Ask | None:
    """Asks where a person can answer: both ends are a terminal."""
    if not (sys.stderr.isatty() and sys.stdin.isatty()):
        return None

    async def ask(prompt: str) -> str:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        return await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)

    return ask
