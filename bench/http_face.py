"""`acp-bridge http` beside llama.cpp's own server, in one run: same file, same threads, same requests, taking turns.

Times are a client's own. The peer is the server within the package `xllamacpp`, at four slots.
"""

from __future__ import annotations

import http.client
import itertools
import json
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.beside import CONTEXT, SENTENCE, Asked, Messages, Peer, Side, user
from bench.peers import xllama
from bench.server import XllamaServer
from bench.table import Table, spread
from clients.home import Home
from clients.wire import Wire
from http_world import HttpServer
from modeld.engine.processors.topology import engine_threads

ROUNDS = 10
CROWD = 8
CROWD_ROUNDS = 4
SLOTS = 4
_salt = itertools.count(1)


class Face:
    """Ours, over HTTP: a connection for each request, as curl and many programs have."""

    name = "acp-bridge http"

    def __init__(self, server: HttpServer, model: str) -> None:
        self._server = server
        self._model = model

    def ask(self, messages: Messages, tokens: int, client: int = 0) -> Asked:
        """One streamed answer; each `client` is a program of its own."""
        body = {"model": self._model, "messages": messages, "temperature": 0, "max_tokens": tokens, "stream": True}
        headers = {"content-type": "application/json", "user-agent": f"bench {client}", **self._server.authorization}
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=600)
        text: list[str] = []
        first = 0.0
        usage: dict[str, Any] = {}
        began = time.perf_counter()
        try:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps({**body, "stream_options": {"include_usage": True}}), headers
            )
            for line in connection.getresponse():
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    piece = choice["delta"].get("content")
                    if piece:
                        first = first or time.perf_counter()
                        text.append(piece)
        finally:
            connection.close()
        ended = time.perf_counter()
        prefilled = usage.get("prompt_tokens", 0) - usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        generated = usage.get("completion_tokens", len(text))
        return Asked((first or ended) - began, ended - began, generated, "".join(text), prefilled)


def measure(table: Table, small: Path) -> None:
    """Every row."""
    threads = engine_threads()
    with ExitStack() as stack:
        # without drafts: what is compared are the ways of computing every token
        settings = {"MODELD_THREADS": str(threads), "MODELD_SPECULATION": "0"}
        home = stack.enter_context(Home(MODELD_MODEL_FOLDERS=str(small.parent), **settings))
        home.start("llama")
        model = home.model("smollm2")
        world: Any = SimpleNamespace(folder=home.folder, environ=home.environ)
        server = HttpServer(world)
        server.start()
        stack.callback(server.end)
        ours = Face(server, model)
        slots: dict[str, Any] = {"n_ctx": CONTEXT * SLOTS, "n_parallel": SLOTS}
        peer = Peer(stack.enter_context(XllamaServer(xllama(), small, threads, **slots)), f"xllamacpp, {SLOTS} slots")
        _one_client(table, ours, peer)
        _crowd(table, ours, peer)
        _overhead(table, ours, stack.enter_context(Wire(home.root, name="bench")), model)


def _one_client(table: Table, ours: Side, peer: Side) -> None:
    """Decode and first text of one client, round by round."""
    rates: dict[str, list[float]] = {ours.name: [], peer.name: []}
    firsts: dict[str, list[float]] = {ours.name: [], peer.name: []}
    for number in range(ROUNDS + 1):
        for side in (ours, peer) if number % 2 else (peer, ours):
            said = side.ask(user(f"Write a long story about the sea, number {number}."), 128)
            cold = side.ask(user(f"{next(_salt)} {SENTENCE * 20} What does he do?"), 1)
            if number:
                rates[side.name].append(said.rate)
                firsts[side.name].append(cold.prefilled / cold.first_s)
    for what, values in (("decode", rates), ("first token of 400 new ones", firsts)):
        for name, each in values.items():
            table.add(f"{name}: {what}, tokens/s", spread(each))
        ratios = [mine / theirs for mine, theirs in zip(values[ours.name], values[peer.name], strict=True)]
        table.at_least(f"http beside {peer.name}: {what}, 1 client", ratios, 0.97, "times")


def _crowd(table: Table, ours: Side, peer: Side) -> None:
    """Eight clients at once, whose prompts begin alike."""
    firsts: dict[str, list[float]] = {ours.name: [], peer.name: []}
    for number in range(CROWD_ROUNDS):
        for side in (ours, peer) if number % 2 else (peer, ours):
            firsts[side.name] += _at_once(side)
    for name, values in firsts.items():
        table.add(f"{name}: first token under {CROWD} clients", f"{spread([1000 * one for one in values])} ms")
    ratio = statistics.median(firsts[peer.name]) / statistics.median(firsts[ours.name])
    what = f"http beside {peer.name}: first token under {CROWD} clients"
    table.add(what, f"{ratio:.3g} times sooner", ">= 1", ratio >= 1)


def _at_once(side: Side) -> list[float]:
    results: list[float] = []
    start = threading.Barrier(CROWD)

    def client(number: int) -> None:
        talk = [{"role": "system", "content": SENTENCE * 15}, *user(f"{next(_salt)}: what does he do?")]
        start.wait()
        results.append(side.ask(talk, 16, number).first_s)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _overhead(table: Table, ours: Face, wire: Wire, model: str) -> None:
    """What HTTP adds to the first text of a warm turn over the daemon's own socket."""
    messages = user("What is the capital of France?")
    direct: list[float] = []
    faces: list[float] = []
    for _ in range(3 * ROUNDS):
        direct.append(_direct(wire, model, messages))
        faces.append(ours.ask(messages, 4).first_s)
    added = [(face - own) for face, own in zip(faces[3:], direct[3:], strict=True)]
    table.at_most("http: what it adds to the first token", added, 5, "ms", scale=1000)


def _direct(wire: Wire, model: str, messages: Sequence[dict[str, Any]]) -> float:
    first: list[float] = []

    def take(event: dict[str, Any]) -> None:
        if event["type"] == "text" and not first:
            first.append(time.perf_counter())

    asked = {"model": model, "messages": messages, "params": {"temperature": 0.0, "max_tokens": 4}, "on_busy": "wait"}
    began = time.perf_counter()
    wire.request("session/turn", asked, take)
    return first[0] - began
