"""What Python costs on the way of each token: in the worker, the daemon and the bridge."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench.bare import Bare
from bench.table import Table
from clients.home import Home
from clients.schema import LateCheck
from clients.wire import user
from modeld.pipe.frames import frame
from modeld.pipe.messages import Emitted, Turn
from modeld.worker.chat import Chat
from modeld.worker.template_limits import RenderGuard
from modeld.worker.turn import TurnRunner
from modeld.worker.turn_gate import Activity
from shared.protocol.api import Event, Sampling

ROUNDS = 12
STORY = user("Write a long story about a lighthouse keeper and the sea.")
TOKENS = 400
#: Seconds of an answer that are watched: processor time is counted in hundredths of one.
WRITING_S = 4.0


def measure(table: Table, model: Path) -> None:
    """All rows."""
    _python_in_worker(table, model)
    _python_beside(table, model)


class Clocked:
    """A native function, and the seconds spent in it."""

    def __init__(self, native: Callable[..., Any]) -> None:
        self._native = native
        self.seconds = 0.0

    def __call__(self, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._native(*arguments)
        finally:
            self.seconds += time.perf_counter() - began


def _python_in_worker(table: Table, model: Path) -> None:
    """A whole turn as the worker runs it, its frames included, less what passes in native code."""
    shares = []
    with Bare(model) as bare:
        api = bare.engine._library_of().api
        natives = [Clocked(getattr(api, name)) for name in ("llama_decode", "llama_sampler_sample")]
        for native, name in zip(natives, ("llama_decode", "llama_sampler_sample"), strict=True):
            setattr(api, name, native)
        chat = Chat(bare.engine, bare.template, RenderGuard(2.0))
        runner = TurnRunner(bare.engine, chat, bare.loaded, Activity())
        sent: list[bytes] = []
        try:
            for number in range(ROUNDS):
                params = Sampling(max_tokens=TOKENS, seed=number)
                for native in natives:
                    native.seconds = 0.0

                def send(events: list[Event], number: int = number) -> None:
                    sent.append(frame(Emitted(turn=number, events=events)))

                began = time.perf_counter()
                done = runner.turn(Turn(turn=number, messages=STORY, tools=[], params=params), send)
                whole = time.perf_counter() - began
                if number and done.usage.generated > 50:
                    shares.append(100 * (1 - sum(native.seconds for native in natives) / whole))
        finally:
            for native, name in zip(natives, ("llama_decode", "llama_sampler_sample"), strict=True):
                setattr(api, name, native._native)
    table.at_most("llama: a turn's time in the worker that is not in llama.cpp", shares, 2, "%")


def _python_beside(table: Table, model: Path) -> None:
    """Processor time that daemon and bridge take while an answer is written, as a part of one core.

    From the first text on: what a turn costs once (a window's picker, a few rows in the store) is no part of it.
    """
    daemon: list[float] = []
    bridge: list[float] = []
    with Home(MODELD_MODEL_FOLDERS=str(model.parent)) as home:
        home.start("llama")
        with home.bridge(check=LateCheck) as editor:
            editor.initialize()
            (owner,) = (process for process in home.processes() if "serve" in process.cmdline())
            window = psutil.Process(editor.process.pid)
            for number in range(ROUNDS // 2):
                session = editor.new_session(home.work)
                editor.choose(session["sessionId"], "model", editor.find_model(session, "smollm2"))
                pending = editor.begin_prompt(session["sessionId"], f"{number}: {STORY[0]['content']}")
                editor.wait_update(pending, "agent_message_chunk")
                before = [sum(process.cpu_times()[:2]) for process in (owner, window)]
                began = time.perf_counter()
                pending.answered.wait(WRITING_S)
                took = time.perf_counter() - began
                for process, earlier, found in ((owner, before[0], daemon), (window, before[1], bridge)):
                    found.append(100 * (sum(process.cpu_times()[:2]) - earlier) / took)
                editor.notify("session/cancel", {"sessionId": session["sessionId"]})
                editor.end_prompt(pending)
    table.at_most("llama: the daemon's processor time while an answer is written, of one core", daemon, 2, "%")
    table.at_most("llama: the bridge's", bridge, 2, "%")
