"""The product beside a llama.cpp HTTP server, in one run: same file, same threads, same prompts, taking turns.

Times are a client's own: from the request to the first piece of text, and to the end. Both answer greedily.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bench.peers import build
from bench.server import LlamaServer
from bench.table import Table, spread
from clients.home import Home
from clients.wire import Wire
from modeld.engine.cores import engine_threads

Messages = list[dict[str, Any]]
CONTEXT = 4096
ROUNDS = 8
CLIENTS = 4
#: About 500, and 1,500, tokens of SmolLM2.
SENTENCE = "The lighthouse keeper looked at the sea and wrote down the weather of the day in his book. "
SHORT, LONG = SENTENCE * 27, SENTENCE * 80
_salt = itertools.count(1)


class Asked(NamedTuple):
    """One answer: seconds to the first text and to the last, pieces of text, tokens of the prompt evaluated."""

    first_s: float
    seconds: float
    pieces: int
    text: str
    prefilled: int


class Side(Protocol):
    """Who is asked."""

    name: str

    def ask(self, messages: Messages, tokens: int, client: int = 0) -> Asked: ...


class Ours:
    """The daemon, over its socket; a connection for each client."""

    name = "modeld"

    def __init__(self, home: Home, model: str, stack: ExitStack) -> None:
        self._model = model
        self._wires = [stack.enter_context(Wire(home.root, name=f"bench-{number}")) for number in range(CLIENTS)]

    def ask(self, messages: Messages, tokens: int, client: int = 0) -> Asked:
        text: list[str] = []
        first = 0.0

        def take(event: dict[str, Any]) -> None:
            nonlocal first
            if event["type"] == "text":
                first = first or time.perf_counter()
                text.append(event["text"])

        asked = {
            "model": self._model,
            "messages": messages,
            "params": {"temperature": 0.0, "max_tokens": tokens},
            "allow_load": True,
            "on_busy": "wait",
        }
        began = time.perf_counter()
        result = self._wires[client].request("session/turn", asked, take)
        usage = result["usage"]
        return Asked(
            (first or time.perf_counter()) - began,
            time.perf_counter() - began,
            usage.get("generated", 0),
            "".join(text),
            usage.get("prefilled", 0),
        )


class Peer:
    """A llama-server with the given options."""

    def __init__(self, server: LlamaServer, name: str) -> None:
        self._server = server
        self.name = name

    def ask(self, messages: Messages, tokens: int, client: int = 0) -> Asked:
        body = {"messages": messages, "temperature": 0, "max_tokens": tokens, "stream_options": {"include_usage": True}}
        text: list[str] = []
        first = 0.0
        usage: dict[str, Any] = {}
        began = time.perf_counter()
        for event in self._server.stream("/v1/chat/completions", body):
            usage = event.get("usage") or usage
            for choice in event.get("choices", ()):
                piece = choice["delta"].get("content")
                if piece:
                    first = first or time.perf_counter()
                    text.append(piece)
        ended = time.perf_counter()
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return Asked(
            (first or ended) - began,
            ended - began,
            usage.get("completion_tokens", len(text)),
            "".join(text),
            usage.get("prompt_tokens", 0) - cached,
        )


def user(text: str) -> Messages:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def measure(table: Table, small: Path) -> None:
    """Every row. The peer runs as a new user starts it (one slot), and in its best setting for two conversations."""
    program = build() / "llama-server"
    threads = str(engine_threads())
    common = ["-c", str(CONTEXT), "-t", threads, "-tb", threads, "--jinja"]
    one_slot = [*common, "-np", "1", "--cache-ram", "0"]
    best = ["-c", str(CONTEXT * CLIENTS), *common[2:], "-np", str(CLIENTS)]
    with ExitStack() as stack:
        home = stack.enter_context(Home(MODELD_MODEL_FOLDERS=str(small.parent), MODELD_THREADS=threads))
        home.start("llama")
        ours = Ours(home, home.model("smollm2"), stack)
        single = Peer(stack.enter_context(LlamaServer(program, small, *one_slot)), "llama-server, one slot")
        several = Peer(stack.enter_context(LlamaServer(program, small, *best)), f"llama-server, {CLIENTS} slots")
        _rates(table, ours, single)
        _warm(table, ours, single)
        _alternating(table, ours, (single, several))
        _clients(table, ours, several)


def _rates(table: Table, ours: Side, peer: Side) -> None:
    """Decode and prefill in interleaved pairs."""
    decode: dict[str, list[float]] = {ours.name: [], peer.name: []}
    prefill: dict[str, list[float]] = {ours.name: [], peer.name: []}
    for number in range(ROUNDS + 1):
        story = user(f"Write a long story about the sea, number {number}.")
        cold = user(f"{next(_salt)} {SHORT} What does he do?")
        for side in (ours, peer) if number % 2 else (peer, ours):
            said, read = side.ask(story, 128), side.ask(cold, 1)
            if number:
                decode[side.name].append((said.pieces - 1) / (said.seconds - said.first_s))
                prefill[side.name].append(read.prefilled / read.first_s)
    for what, rates in (("decode", decode), ("prefill of 500, the way to the first text included", prefill)):
        for name, values in rates.items():
            table.add(f"{name}: {what}, tokens/s", spread(values))
        ratios = [mine / theirs for mine, theirs in zip(rates[ours.name], rates[peer.name], strict=True)]
        table.at_least(f"beside llama-server: {what}", ratios, 0.97, "times")


def _warm(table: Table, ours: Side, peer: Side) -> None:
    """The next question of a long conversation."""
    firsts: dict[str, list[float]] = {}
    for side in (ours, peer):
        talk = user(f"{next(_salt)} {LONG} What does he do?")
        for _ in range(ROUNDS):
            said = side.ask(talk, 16)
            talk = [*talk, {"role": "assistant", "content": said.text}, *user("And then?")]
            firsts.setdefault(side.name, []).append(said.first_s)
        firsts[side.name] = firsts[side.name][1:]
        table.add(f"{side.name}: warm turn behind 1,500 tokens, first text", f"{spread(_ms(firsts[side.name]))} ms")
    ratio = statistics.median(firsts[ours.name]) / statistics.median(firsts[peer.name])
    table.add("beside llama-server: warm turn, first text", f"{ratio:.3g} times", "<= 1", ratio <= 1)


def _alternating(table: Table, ours: Side, peers: Sequence[Side]) -> None:
    """A, B, A, B: two long conversations take turns."""
    firsts: dict[str, list[float]] = {}
    for side in (ours, *peers):
        talks = [user(f"{next(_salt)} {LONG} What does he do?") for _ in range(2)]
        for number in range(2 * ROUNDS):
            talk = talks[number % 2]
            said = side.ask(talk, 16)
            talks[number % 2] = [*talk, {"role": "assistant", "content": said.text}, *user("And then?")]
            if number >= 2:  # the first of each is cold for everybody
                firsts.setdefault(side.name, []).append(said.first_s)
        table.add(f"{side.name}: A/B/A/B of 1,500 tokens each, first text", f"{spread(_ms(firsts[side.name]))} ms")
    mine, single, several = (statistics.median(firsts[side.name]) for side in (ours, *peers))
    table.add(
        "beside llama-server with one slot: A/B/A/B", f"{single / mine:.3g} times sooner", ">= 10", single >= 10 * mine
    )
    table.add("beside llama-server at its best: A/B/A/B", f"{several / mine:.3g} times sooner", ">= 1", several >= mine)


def _clients(table: Table, ours: Side, peer: Side) -> None:
    """Four clients ask at once, each in a conversation of its own."""
    medians: dict[str, float] = {}
    for side in (ours, peer):
        firsts: list[float] = []
        for _ in range(3):
            firsts += _at_once(side)
        medians[side.name] = statistics.median(firsts)
        table.add(f"{side.name}: first text under {CLIENTS} clients", f"{spread(_ms(firsts))} ms")
    ratio = medians[peer.name] / medians[ours.name]
    table.add(f"beside llama-server: first text under {CLIENTS} clients", f"{ratio:.3g} times sooner")


def _at_once(side: Side) -> list[float]:
    results: list[float] = []
    start = threading.Barrier(CLIENTS)

    def client(number: int) -> None:
        talk = user(f"{next(_salt)} {SENTENCE * 10} What does he do?")
        start.wait()
        results.append(side.ask(talk, 32, number).first_s)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    _all(threads, threading.Thread.start)
    _all(threads, threading.Thread.join)
    return results


def _all(threads: Sequence[threading.Thread], do: Callable[[threading.Thread], None]) -> None:
    for thread in threads:
        do(thread)


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * value for value in seconds]
