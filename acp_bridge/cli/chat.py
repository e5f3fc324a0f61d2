"""`acp-bridge chat`: one real turn through a spawned `acp-bridge acp`, as an editor would have it.

The text streams to standard output; progress goes to standard error, and only to a terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.abc
from anyio.streams.stapled import StapledByteStream

from acp_bridge.faces.acp.methods.session_prompt import META
from acp_bridge.turn.model.switch_question import DECLINE, SWITCH
from shared import codes
from shared.diagnosis.defect import sole
from shared.errors import ModeldError, ModelNotFound
from shared.protocol.faults import BadAnswer, InvalidParams, MethodNotFound, PeerGone
from shared.protocol.framing import LineFramer
from shared.protocol.message import Notification
from shared.protocol.peer import Peer
from shared.protocol.requests import Call
from shared.settings import load_settings
from shared.text.console import LiveLine, draw
from shared.text.shown import one_line, readable

#: How long the bridge may take to end after its input was closed.
END_LIMIT_S = 2.0


def apart() -> dict[str, Any]:
    """For a process that no key of the terminal reaches."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


class Interrupted(Exception):
    """Ctrl-C while no turn runs. A KeyboardInterrupt raised in a task would tear the event loop."""


def chat(options: argparse.Namespace) -> int:
    """Run one turn; gives the exit code."""
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    if not prompt.strip():
        print("acp-bridge chat: the prompt is empty", file=sys.stderr)
        return codes.USAGE
    screen = Screen(quiet=options.json, switch=options.switch)
    try:
        return anyio.run(_chat, prompt, options, screen)
    except BaseException as raised:
        error = sole(raised)
    screen.stop()
    if isinstance(error, (KeyboardInterrupt, Interrupted)):
        return codes.INTERRUPTED
    if not isinstance(error, (ModeldError, PeerGone, BadAnswer)):
        raise error
    reason = error.reason if isinstance(error, InvalidParams) else getattr(error, "message", error)
    print(f"acp-bridge: {one_line(str(reason))}", file=sys.stderr)
    return codes.code_of(error) if isinstance(error, ModeldError) else codes.FAILED


async def _chat(prompt: str, options: argparse.Namespace, screen: Screen) -> int:
    started = await _start() if options.start else False
    try:
        return await _with_bridge(lambda peer: _converse(peer, screen, prompt, options), screen)
    finally:
        if started and not options.keep:
            with anyio.CancelScope(shield=True):
                await _stop()


async def _start() -> bool:
    """Start modeld unless it runs; whether it was us."""
    from acp_bridge.daemon.records import Records
    from acp_bridge.daemon.start import start_daemon
    from shared.paths import data_root

    if Records(data_root(), load_settings()).detect().state == "running":
        return False
    await start_daemon()
    return True


async def _stop() -> None:
    from acp_bridge.daemon.start import daemon_command

    await anyio.run_process(daemon_command("stop"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


async def _with_bridge(work: Callable[[Peer], Awaitable[int]], screen: Screen) -> int:
    """Run `work` with a spawned bridge at the other end, and end it."""
    command = [sys.executable, "-P", "-m", "acp_bridge", "acp"]
    # Ctrl-C goes to all that share the terminal: the bridge is kept out of it, `session/cancel` informs it.
    async with await anyio.open_process(command, stderr=None, **apart()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        peer = Peer(
            StapledByteStream(process.stdin, process.stdout),
            LineFramer(load_settings().message_limit),
            on_request=screen.answer,
            on_notification=screen.update,
            settings=load_settings(),
        )
        async with anyio.create_task_group() as group:
            group.start_soon(peer.run)
            group.start_soon(_interrupts, peer, screen)
            group.start_soon(_reader_gone, peer, screen)
            code = await work(peer)
            peer.close()
            group.cancel_scope.cancel()
        with anyio.move_on_after(END_LIMIT_S):
            await process.wait()
    return code


async def _interrupts(peer: Peer, screen: Screen) -> None:
    """The first Ctrl-C cancels the turn as an editor would; the next one ends the program."""
    if sys.platform == "win32":
        return
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            if not screen.session:
                raise Interrupted
            peer.notify("session/cancel", {"sessionId": screen.session})
            screen.session = ""


async def _reader_gone(peer: Peer, screen: Screen) -> None:
    """Nobody reads the answer any more (`| head`, a full disk): the turn is cancelled, not run to its end."""
    await screen.lost.wait()
    peer.notify("session/cancel", {"sessionId": screen.session})


async def _converse(peer: Peer, screen: Screen, prompt: str, options: argparse.Namespace) -> int:
    await peer.request("initialize", {"protocolVersion": 1, "clientInfo": {"name": "acp-bridge chat", "version": "1"}})
    made = await peer.request("session/new", {"cwd": os.getcwd(), "mcpServers": []})
    session = screen.session = made["sessionId"]
    await peer.request("session/set_config_option", {"sessionId": session, "configId": "mode", "value": "ask"})
    if options.model:
        await _pick(peer, screen, options.model, offered(made))
    blocks = [{"type": "text", "text": prompt}]
    done = await peer.request("session/prompt", {"sessionId": session, "prompt": blocks})
    screen.end(done)
    return codes.INTERRUPTED if done["stopReason"] == "cancelled" else codes.OK


async def _pick(peer: Peer, screen: Screen, typed: str, models: list[str]) -> None:
    """Pick the model that was typed. Raises ModelNotFound.

    A bridge that is asked for an unknown remote model lists its provider first: a name that was begun is known then.
    """
    model = screen.whole(typed, models)
    try:
        await _set_model(peer, screen, model)
    except ModelNotFound:
        listed = screen.whole(typed, screen.models)
        if listed == model:
            raise
        await _set_model(peer, screen, listed)


async def _set_model(peer: Peer, screen: Screen, model: str) -> None:
    setting = {"sessionId": screen.session, "configId": "model", "value": model}
    try:
        await peer.request("session/set_config_option", setting)
    except InvalidParams as error:
        raise ModelNotFound(str(error.reason), requested=model, near=[]) from error


def offered(made: Mapping[str, Any]) -> list[str]:
    """The models that the answer to session/new, or an update of its options, offers. Pure."""
    models = [option for option in made.get("configOptions") or () if option["id"] == "model"]
    return [choice["value"] for option in models for group in option["options"] for choice in group["options"]]


class Screen:
    """What the person sees, and the answers of the person."""

    def __init__(self, *, quiet: bool, switch: bool) -> None:
        self.session = ""
        self.models: list[str] = []  # as they were listed last
        self.lost = anyio.Event()
        self._error: OSError | None = None
        self._quiet = quiet
        self._switch = switch
        self._terminal = sys.stderr.isatty()
        self._progress = LiveLine().show
        self._text: list[str] = []

    def whole(self, typed: str, models: Sequence[str]) -> str:
        """The name that was typed, or the only one that begins so; it is said which."""
        from shared.catalog.names import begun

        found = None if typed in models else begun(typed, models)
        if found is None:
            return typed
        sys.stderr.write(f"acp-bridge: using {found}\n")
        return found

    def update(self, note: Notification) -> None:
        """One session/update."""
        if note.method != "session/update":
            return
        update = note.params(dict[str, Any])["update"]
        kind = update["sessionUpdate"]
        if kind == "agent_message_chunk":
            self._say(update["content"].get("text", ""))
        elif kind in ("tool_call", "tool_call_update"):
            ended = update.get("status") in ("completed", "failed")
            self._progress("" if ended else update.get("title", ""))
        elif kind == "config_option_update":
            self.models = offered(update)
        elif kind == "agent_thought_chunk":
            self._progress("Thinking")

    def _say(self, text: str) -> None:
        self._progress("")
        self._text.append(text)
        if self._quiet or self._error is not None:
            return
        try:
            draw(readable(text))
        except OSError as error:
            self._error = error
            self.lost.set()

    async def answer(self, call: Call) -> Any:
        """Only the switch question is asked of this client."""
        if call.method != "session/request_permission":
            raise MethodNotFound(method=call.method)
        params = call.params(dict[str, Any])
        offered = [option["optionId"] for option in params["options"]]
        wanted = SWITCH if self._switch else await self._ask(params["toolCall"].get("title", ""))
        if wanted not in offered:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": wanted}}

    async def _ask(self, title: str) -> str:
        self._progress("")
        if not (self._terminal and sys.stdin.isatty()):
            print(f"{one_line(title)}\nNot switched; `--switch` says yes.", file=sys.stderr)
            return DECLINE
        print(f"{one_line(title)}\nSwitch now? [y/N] ", end="", file=sys.stderr, flush=True)
        line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        return SWITCH if line.strip().lower() in ("y", "yes") else DECLINE

    def stop(self) -> None:
        """The turn ended with an error: it is reported on a line of its own."""
        self._progress("")
        if self._error is None and not self._quiet and self._text and not self._text[-1].endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()

    def end(self, done: dict[str, Any]) -> None:
        """The counts and times of the turn: to standard error, or everything as JSON.

        Raises the OSError that kept the answer from being written.
        """
        self._progress("")
        if self._error is not None:
            raise self._error
        numbers = done.get("_meta", {}).get(META, {})
        text = "".join(self._text)
        if self._quiet:
            print(json.dumps({"text": text, "stop_reason": done["stopReason"], **numbers}, ensure_ascii=False))
            return
        if text and not text.endswith("\n"):
            print(flush=True)
        if numbers:
            print(one_line(summary(numbers)), file=sys.stderr)


def summary(numbers: dict[str, Any]) -> str:
    """One line: model, tokens, time to first token (load and queue included), tokens a second."""
    times = numbers.get("timings", {})
    waited = times.get("queued_s", 0.0) + times.get("load_s", 0.0)
    parts = [
        str(numbers.get("model", "")),
        f"{numbers.get('reused', 0) + numbers.get('prefilled', 0)} prompt tokens ({numbers.get('reused', 0)} reused)",
        f"{numbers.get('generated', 0)} generated",
    ]
    if not numbers.get("generated"):
        return " · ".join(part for part in parts if part)
    parts += [
        f"first token after {times.get('first_token_s', 0.0):.2f} s"
        + (f" (+ {waited:.1f} s of loading and waiting)" if waited >= 0.05 else ""),
        f"{times.get('tokens_per_s', 0.0):.1f} tokens/s" if numbers["generated"] > 1 else "",
    ]
    return " · ".join(part for part in parts if part)
