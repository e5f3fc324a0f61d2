"""Where the time of a warm turn goes, stage by stage, and what Python costs on the way of each token."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench.bare import Bare
from bench.table import Table, spread
from clients.home import Home
from clients.schema import LateCheck
from clients.wire import Wire, user
from modeld.engine.chat import Chat
from modeld.engine.contract import DecodeOptions
from modeld.engine.gate import Activity
from modeld.engine.guard import RenderGuard
from modeld.engine.messages import Emitted, Turn
from modeld.engine.turn import TurnRunner
from modeld.engine.wire import frame
from shared.protocol.api import Event, Sampling

ROUNDS = 12
#: About 1,500 tokens of SmolLM2.
LONG = "The lighthouse keeper looked at the sea and wrote down the weather of the day in his book. " * 80
STORY = user("Write a long story about a lighthouse keeper and the sea.")
TOKENS = 400
#: Seconds of an answer that are watched: processor time is counted in hundredths of one.
WRITING_S = 4.0


def measure(table: Table, model: Path) -> None:
    """All rows."""
    _warm_in_process(table, model)
    _warm_through_daemon(table, model)
    _python_in_worker(table, model)
    _python_beside(table, model)


def _warm_in_process(table: Table, model: Path) -> None:
    stages: dict[str, list[float]] = {}

    def took(stage: str, began: float) -> float:
        now = time.perf_counter()
        stages.setdefault(stage, []).append(1000 * (now - began))
        return now

    with Bare(model) as bare:
        chat = Chat(bare.engine, bare.template, RenderGuard(2.0))
        talk = user(f"{LONG} What does he do?")
        counts = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            rendered = chat.tokenizer.contents.render(talk, [], None)
            chat.template.output_format(rendered.disguised)
            began = took("template", began)
            tokens = chat.tokenizer.tokens(rendered, None, ())
            took("tokens of the whole conversation", began)
            turn = bare.turn(tokens, DecodeOptions(max_tokens=16))
            stages.setdefault("what is warm brought into a lane", []).append(1000 * turn.prefix_s)
            stages.setdefault("evaluation of what is new", []).append(1000 * turn.prefill_s)
            stages.setdefault("first token sampled", []).append(1000 * turn.first_s)
            counts.append(turn.prefilled)
            said = b"".join(bare.engine.piece(token, special=False) for token in turn.said).decode("utf-8", "replace")
            talk = [*talk, {"role": "assistant", "content": said}, *user("And then?")]
    for stage, values in stages.items():
        table.add(f"warm turn of {counts[-1]} new tokens: {stage}", f"{spread(values[1:])} ms")


def _warm_through_daemon(table: Table, model: Path) -> None:
    above, queued = [], []
    with Home(MODELD_MODEL_FOLDERS=str(model.parent)) as home:
        home.start("llama")
        name = home.model("smollm2")
        with Wire(home.root) as wire:
            pings = []
            talk = user(f"{LONG} What does he do?")
            for number in range(ROUNDS):
                first: list[float] = []
                text: list[str] = []

                def take(event: dict[str, Any], first: list[float] = first, text: list[str] = text) -> None:
                    if event["type"] == "text":
                        first.append(time.perf_counter())
                        text.append(event["text"])

                params = {"temperature": 0.0, "max_tokens": 16}
                began = time.perf_counter()
                asked = {"model": name, "messages": talk, "params": params, "allow_load": True}
                result = wire.request("session/turn", asked, take)
                if number:
                    above.append(1000 * (first[0] - began - result["timings"]["first_token_s"]))
                    queued.append(1000 * result["timings"]["queued_s"])
                talk = [*talk, {"role": "assistant", "content": "".join(text)}, *user("And then?")]
                began = time.perf_counter()
                wire.request("ping")
                pings.append(1000 * (time.perf_counter() - began))
    table.add("warm turn: a client's first text above the worker's own time", f"{spread(above)} ms")
    table.add("warm turn: of that in the queue", f"{spread(queued)} ms")
    table.add("one question and answer through the socket", f"{spread(pings)} ms")


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


if __name__ == "__main__":
    from weights import SMOLLM2, fetch

    rows = Table()
    measure(rows, fetch(SMOLLM2))
    print(json.dumps([row.what for row in rows.missed]))
