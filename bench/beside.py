"""The product beside llama.cpp's own HTTP servers, in one run: same file, same threads, same prompts, taking turns.

Times are a client's own: from the request to the first piece of text, and to the end. All answer greedily. The peers
are `llama-server` as a new user starts it (one slot), at its best setting for several conversations, and the server
within the package `xllamacpp`, at the same.
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

from bench.peers import build, xllama
from bench.server import HttpServer, LlamaServer, XllamaServer
from bench.speculation import edit
from bench.table import Table, spread
from clients.home import Home
from clients.wire import Wire
from modeld.engine.processors.topology import engine_threads

Messages = list[dict[str, Any]]
CONTEXT = 4096
ROUNDS = 8
#: A turn of 128 tokens takes a second, and single ones differ by a tenth.
RATE_ROUNDS = 16
CLIENTS = 4
#: Between an answer and the next question: nobody reads and types faster, and a server may use the time.
PAUSE = 0.4
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

    @property
    def rate(self) -> float:
        """Tokens a second behind the first."""
        return (self.pieces - 1) / (self.seconds - self.first_s)


class Side(Protocol):
    """Who is asked."""

    name: str

    def ask(self, messages: Messages, tokens: int, client: int = 0) -> Asked: ...


class Ours:
    """The daemon, over its socket; a connection for each client."""

    def __init__(self, stack: ExitStack, small: Path, threads: int, name: str = "modeld", **settings: str) -> None:
        home = stack.enter_context(
            Home(MODELD_MODEL_FOLDERS=str(small.parent), MODELD_THREADS=str(threads), **settings)
        )
        home.start("llama")
        self.name = name
        self._model = home.model("smollm2")
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
            "config": {"num_ctx": CONTEXT},
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
    """An HTTP server."""

    def __init__(self, server: HttpServer, name: str) -> None:
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
    """Every row."""
    threads = engine_threads()
    with ExitStack() as stack:
        # without drafts: what is compared are the ways of computing every token
        ours = Ours(stack, small, threads, MODELD_SPECULATION="0")
        single, several, packaged = _peers(stack, small, threads)
        _rates(table, ours, (single, packaged))
        _warm(table, ours, (single, several, packaged))
        _alternating(table, ours, (single, several, packaged))
        _clients(table, ours, (several, packaged))
        _repeating(table, Ours(stack, small, threads, "modeld, speculative"), (ours, single))


def _peers(stack: ExitStack, small: Path, threads: int) -> tuple[Side, Side, Side]:
    program = build() / "llama-server"
    common = ["-t", str(threads), "-tb", str(threads), "--jinja"]
    one_slot = ["-c", str(CONTEXT), "-np", "1", "--cache-ram", "0", *common]
    best = ["-c", str(CONTEXT * CLIENTS), "-np", str(CLIENTS), *common]
    slots = {"n_ctx": CONTEXT * CLIENTS, "n_parallel": CLIENTS}
    return (
        Peer(stack.enter_context(LlamaServer(program, small, *one_slot)), "llama-server, one slot"),
        Peer(stack.enter_context(LlamaServer(program, small, *best)), f"llama-server, {CLIENTS} slots"),
        Peer(stack.enter_context(XllamaServer(xllama(), small, threads, **slots)), f"xllamacpp, {CLIENTS} slots"),
    )


def _turns(sides: Sequence[Side], number: int) -> Sequence[Side]:
    """Each round another one begins."""
    first = number % len(sides)
    return [*sides[first:], *sides[:first]]


def _rates(table: Table, ours: Side, peers: Sequence[Side]) -> None:
    """Decode and prefill, round by round."""
    sides = (ours, *peers)
    decode: dict[str, list[float]] = {side.name: [] for side in sides}
    prefill: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(RATE_ROUNDS + 1):
        story = user(f"Write a long story about the sea, number {number}.")
        cold = user(f"{next(_salt)} {SHORT} What does he do?")
        for side in _turns(sides, number):
            said, read = side.ask(story, 128), side.ask(cold, 1)
            if number:
                decode[side.name].append(said.rate)
                prefill[side.name].append(read.prefilled / read.first_s)
    for what, rates in (("decode", decode), ("prefill of 500, the way to the first text included", prefill)):
        for name, values in rates.items():
            table.add(f"{name}: {what}, tokens/s", spread(values))
        for peer in peers:
            ratios = [mine / theirs for mine, theirs in zip(rates[ours.name], rates[peer.name], strict=True)]
            table.at_least(f"beside {peer.name}: {what}", ratios, 0.97, "times")


def _warm(table: Table, ours: Side, peers: Sequence[Side]) -> None:
    """The next question of a long conversation."""
    sides = (ours, *peers)
    talks = {side.name: user(f"{next(_salt)} {LONG} What does he do?") for side in sides}
    firsts: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(ROUNDS + 2):
        for side in _turns(sides, number):
            time.sleep(PAUSE)
            said = side.ask(talks[side.name], 16)
            talks[side.name] += [{"role": "assistant", "content": said.text}, *user("And then?")]
            if number >= 2:
                firsts[side.name].append(said.first_s)
    _compare(table, "warm turn behind 1,500 tokens, first text", firsts, ours, {peer.name: 1.0 for peer in peers})


def _alternating(table: Table, ours: Side, peers: Sequence[Side]) -> None:
    """A, B, A, B: two long conversations take turns."""
    sides = (ours, *peers)
    talks = {side.name: [user(f"{next(_salt)} {LONG} What does he do?") for _ in range(2)] for side in sides}
    firsts: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(2 * ROUNDS + 2):
        for side in _turns(sides, number):
            talk = talks[side.name][number % 2]
            time.sleep(PAUSE)
            said = side.ask(talk, 16)
            talk += [{"role": "assistant", "content": said.text}, *user("And then?")]
            if number >= 2:  # the first of each is cold for everybody
                firsts[side.name].append(said.first_s)
    limits = {peer.name: 10.0 if number == 0 else 1.0 for number, peer in enumerate(peers)}
    _compare(table, "A/B/A/B of 1,500 tokens each, first text", firsts, ours, limits)


def _clients(table: Table, ours: Side, peers: Sequence[Side]) -> None:
    """Four clients ask at once, each in a conversation of its own."""
    sides = (ours, *peers)
    firsts: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(ROUNDS // 2):
        for side in _turns(sides, number):
            firsts[side.name] += _at_once(side)
    _compare(table, f"first text under {CLIENTS} clients", firsts, ours, {peer.name: 1.0 for peer in peers})


def _compare(table: Table, what: str, firsts: dict[str, list[float]], ours: Side, limits: dict[str, float]) -> None:
    """Rows of each side, and how many times sooner ours is than each peer."""
    for name, values in firsts.items():
        table.add(f"{name}: {what}", f"{spread(_ms(values))} ms")
    mine = statistics.median(firsts[ours.name])
    for name, limit in limits.items():
        ratio = statistics.median(firsts[name]) / mine
        table.add(f"beside {name}: {what}", f"{ratio:.3g} times sooner", f">= {limit:g}", ratio >= limit)


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


def _repeating(table: Table, speculating: Side, others: Sequence[Side]) -> None:
    """An answer that says its question again."""
    rates: dict[str, list[float]] = {side.name: [] for side in (speculating, *others)}
    for number in range(ROUNDS + 1):
        for side in _turns((speculating, *others), number):
            said = side.ask(edit(number), 400)
            if number:
                rates[side.name].append(said.rate)
    for name, values in rates.items():
        table.add(f"{name}: a file said again, tokens/s", spread(values))


def _all(threads: Sequence[threading.Thread], do: Callable[[threading.Thread], None]) -> None:
    for thread in threads:
        do(thread)


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * value for value in seconds]
