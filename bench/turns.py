"""Turns through bridge and daemon against the same engine in one process; cancel, switch, parked return, status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

import psutil

from bench.table import MIB, Table, percentile, spread
from clients.bridge import Bridge
from clients.home import Home
from clients.schema import LateCheck
from clients.wire import Wire, user
from modeld.host.worker_host import BARRIER_SPINS

PAIRS = int(os.environ.get("BENCH_PAIRS", "12"))
#: pieces of text after which a measured turn is stopped, as an editor would
PIECES = 150
STORY = "Write a long story about a lighthouse keeper and the sea."
#: about 1,500 tokens of SmolLM2
LONG_PROMPT = "The lighthouse keeper looked at the sea and wrote down the weather of the day in his book. " * 80


class DirectProcess:
    """bench.direct as a child, with its own copy of the model."""

    def __init__(self, home: Home, backend: str, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.direct", backend, str(home.root), name],
            env={"GOMP_SPINCOUNT": BARRIER_SPINS, **home.environ},  # its threads wait as a worker's do
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.spawned = time.perf_counter()
        self.loaded = self._answer()
        self.load_s = time.perf_counter() - self.spawned

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()

    def ask(self, **wanted: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"bench.direct ended with {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer


def measure(table: Table, models: str, backend: str) -> None:
    """All rows of one engine."""
    decode(table, models, backend)
    with Home(MODELD_MODEL_FOLDERS=models) as home:
        home.start(backend)
        name = home.model("smollm2")
        with home.bridge(check=LateCheck) as editor, Wire(home.root) as wire:
            editor.initialize()
            _stopped_turn(home, editor)  # loads
            _warm(table, home, editor, wire, backend)
            problems = editor.check.judge() if isinstance(editor.check, LateCheck) else []
            assert not problems, problems
            _cancel(table, wire, backend, name)
            _status(table, home, wire, backend, name)
            _parked(table, wire, backend, name)
    if backend == "llama":
        switch(table, models)


def _session(home: Home, editor: Bridge) -> str:
    session = editor.new_session(home.work)
    editor.choose(session["sessionId"], "model", editor.find_model(session, "smollm2"))
    return str(session["sessionId"])


def decode(table: Table, models: str, backend: str) -> None:
    """Token by token on both sides: where tokens are drafted the rate depends on the text, and both write their own.

    Each side is the first of every other pair: the machine is not the same a moment later.
    """
    ratios, ours, theirs = [], [], []
    with Home(MODELD_MODEL_FOLDERS=models, MODELD_SPECULATION="0") as home:
        home.start(backend)
        with (
            home.bridge(check=LateCheck) as editor,
            Wire(home.root) as wire,
            DirectProcess(home, backend, home.model("smollm2")) as direct,
        ):
            editor.initialize()
            tokens = 0

            def through() -> float:
                nonlocal tokens
                seconds = _stopped_turn(home, editor)
                tokens = int(wire.status()["last_turn"]["usage"]["generated"])
                return tokens / seconds

            def plain() -> float:
                answer = direct.ask(messages=user(STORY), tokens=tokens)
                return float(answer["decoded"] / answer["seconds"])

            through()  # loads, warms the prefix, and tells how many tokens a turn has
            plain()
            for number in range(PAIRS):
                rates = {side: side() for side in ((through, plain) if number % 2 else (plain, through))}
                ours.append(rates[through])
                theirs.append(rates[plain])
                ratios.append(ours[-1] / theirs[-1])
    table.add(f"{backend}: tokens/s, whole turn through bridge and daemon", spread(ours))
    table.add(f"{backend}: tokens/s, whole turn of the engine in one process", spread(theirs))
    table.at_least(f"{backend}: the first by the second, interleaved pairs", ratios, 0.97, "")


def _stopped_turn(home: Home, editor: Bridge) -> float:
    """Seconds from the prompt to the last piece of text of a turn of PIECES pieces or a few more."""
    session = _session(home, editor)
    pending = editor.begin_prompt(session, STORY)
    while sum(u["sessionUpdate"] == "agent_message_chunk" for _, u in pending.updates) < PIECES:
        if pending.answered.wait(0.1):
            break
    editor.notify("session/cancel", {"sessionId": session})
    turn = editor.end_prompt(pending)
    return max(at for at, u in turn.updates if u["sessionUpdate"] == "agent_message_chunk") - turn.started


def _warm(table: Table, home: Home, editor: Bridge, wire: Wire, backend: str) -> None:
    session = _session(home, editor)
    editor.prompt(session, "What is the capital of France? Answer in one word.")
    extra = []
    for number in range(10):
        turn = editor.prompt(session, f"{number}: What is the capital of France? Answer in one word.")
        engine = wire.status()["last_turn"]["timings"]["first_token_s"]
        extra.append(turn.first_text_s - engine)
    table.at_most(f"{backend}: warm turn, first text above the engine's own time", extra, 15, "ms", scale=1000)


def _begin_story(wire: Wire, name: str, messages: list[dict[str, Any]], stop_at: str) -> int:
    """A turn that has reached a stage."""
    reached = threading.Event()
    number = wire.begin(
        "session/turn", {"model": name, "messages": messages, "params": {"max_tokens": 2000}, "allow_load": True}
    )
    while not reached.is_set():
        event = wire.next_event(number)
        if event["type"] == stop_at:
            reached.set()
    return number


def _cancel(table: Table, wire: Wire, backend: str, name: str) -> None:
    for stage, limit, messages in (
        ("text", 100.0, user(STORY)),
        ("prefill", 50.0 if backend == "llama" else 600.0, None),
    ):
        seconds = []
        for number in range(10):
            asked = messages or user(f"{number} {LONG_PROMPT}")
            running = _begin_story(wire, name, asked, stage)
            started = time.perf_counter()
            wire.notify("$/cancel_request", {"id": running})
            result = wire.finish(running)
            wire.wait_state("Ready", 5.0)
            seconds.append(time.perf_counter() - started)
            assert result["finish_reason"] == "cancelled", result
        what = "decode" if stage == "text" else "prefill"
        table.at_most(f"{backend}: cancel to Ready, in {what}", seconds, limit, "ms", scale=1000)


def _status(table: Table, home: Home, wire: Wire, backend: str, name: str) -> None:
    running = _begin_story(wire, name, user(STORY), "text")
    seconds = []
    with Wire(home.root, name="status-reader") as other:
        for _ in range(300):
            started = time.perf_counter()
            status = other.status()
            seconds.append(time.perf_counter() - started)
            if status["state"] != "Busy":
                break
    wire.notify("$/cancel_request", {"id": running})
    wire.finish(running)
    worst = percentile(seconds, 0.99) * 1000
    table.add(f"{backend}: status while decoding, p99 of {len(seconds)}", f"{worst:.3g} ms", "<= 20 ms", worst <= 20)


def _parked(table: Table, wire: Wire, backend: str, name: str) -> None:
    """Six conversations of 1,500 tokens are more than the lanes hold; coming back to the first."""
    full, back = [], []
    for round_number in range(3):
        talks = [user(f"{round_number}.{number} {LONG_PROMPT}") for number in range(6)]
        for talk in talks:
            _, result = wire.turn(name, talk, params={"max_tokens": 1})
            full.append(result["timings"]["prefill_s"])
        _, result = wire.turn(name, talks[0], params={"max_tokens": 1})
        assert result["usage"]["reused"] > 1000, result["usage"]
        back.append(result["timings"]["prefill_s"])
    ratio = sorted(back)[len(back) // 2] / sorted(full)[len(full) // 2]
    table.add(
        f"{backend}: return to a parked conversation by its prefill ({result['usage']['reused']} tokens)",
        f"{ratio:.3g}",
        "<= 0.05",
        ratio <= 0.05,
    )


def switch(table: Table, models: str) -> None:
    """Gemma to SmolLM2 and how much memory both take on the way, against a fresh load."""
    with Home(MODELD_MODEL_FOLDERS=models) as home:
        home.start("llama")
        small, other = home.model("smollm2"), home.model("gemma")
        switched, fresh, peaks, alone = [], [], [], []
        with Wire(home.root) as wire:
            for _ in range(5):
                wire.request("model/load", {"model": other, "allow_switch": True})
                alone.append(_resident(home))
                with Peak(home) as peak:
                    started = time.perf_counter()
                    wire.request("model/load", {"model": small, "allow_switch": True})
                    switched.append(time.perf_counter() - started)
                peaks.append(peak.bytes)
                alone.append(_resident(home))
                with DirectProcess(home, "llama", small) as direct:
                    fresh.append(direct.load_s)
        excess = [ours - 1.15 * theirs for ours, theirs in zip(switched, fresh, strict=True)]
        table.add("llama: switch of models", f"{spread(switched)} s")
        table.add("llama: load of the second in a fresh process, imports included", f"{spread(fresh)} s")
        table.at_most("llama: switch above 1.15 of that load", excess, 150, "ms", scale=1000)
        both = alone[-1] + alone[-2]
        table.add(
            "llama: most resident memory in a switch, by that of both models",
            f"{max(peaks) / both:.2f} ({max(peaks) / MIB:.0f} of {both / MIB:.0f} MiB)",
            "< 1",
            max(peaks) < both,
        )


def _resident(home: Home) -> int:
    total = 0
    for process in home.processes():
        try:
            if "modeld.worker.process" in " ".join(process.cmdline()):
                total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


class Peak:
    """The most that all workers together took while the block ran."""

    def __init__(self, home: Home) -> None:
        self.bytes = 0
        self._home = home
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.bytes = max(self.bytes, _resident(self._home))
