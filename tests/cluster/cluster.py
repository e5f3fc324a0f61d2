"""Real vLLM replicas behind the bridge: `make cluster`, whose page is docs/soak/cluster.md.

    python tests/cluster/cluster.py --python VENV/bin/python --model FOLDER [--turns 200] [--out docs/soak/cluster.md]

Two replicas behind a router that goes by the conversation's header; four bridges with two conversations each take
turns side by side, some cancelled. In the middle a replica is killed, later the router restarts, then it is slow. Ends
with 1 on the first thing that is not so: another model, a lost conversation, an end without a type, a prefix that was
not reused.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))
from bridge_world import World
from clients.bridge import Bridge, BridgeError
from cluster_router import Router
from provider_endpoint import Asked, Endpoint, Reply, said
from soak_page import Line, kept, page

ROOT = Path(__file__).parents[2]
NAME = "smol"
MODEL = f"cluster/{NAME}"
BRIDGES, EACH = 4, 2
#: One turn in so many is cancelled at its first piece.
CANCELLED = 10
#: Tokens of one answer, and of one block of the server's prefix cache.
ANSWER, BLOCK = 24, 128
WINDOW = 4096
UP_SECONDS = 600.0
#: Errors that a turn may end with while replicas are killed and routers restart.
TYPED = frozenset({"engine_failed", "backend_unavailable", "queue_full", "wait_timeout"})


class Replica:
    """One `vllm serve`."""

    def __init__(self, python: Path, model: Path, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._command = [
            str(python.parent / "vllm"), "serve", str(model), "--served-model-name", NAME, "--host", "127.0.0.1",
            "--port", str(self.port), "--max-model-len", str(WINDOW), "--max-num-seqs", "8", "--enforce-eager",
            "--enable-prefix-caching", "--enable-prompt-tokens-details", "--block-size", str(BLOCK),
            "--override-generation-config", json.dumps({"max_new_tokens": ANSWER, "temperature": 0.0}),
        ]  # fmt: skip
        self._environ = {
            **os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as sink:
            self.process = subprocess.Popen(
                self._command, env=self._environ, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                start_new_session=True,
            )  # fmt: skip

    def up(self) -> None:
        """Return when it answers."""
        deadline = time.monotonic() + UP_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, f"it ended; see {self._log}"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=5).close()
                return
            except OSError:
                time.sleep(0.5)
        raise TimeoutError(f"it does not come up; see {self._log}")

    def kill(self) -> None:
        """With its engine process, as a machine that is lost."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()


class Conversation:
    """One of a bridge, and what came of its turns."""

    def __init__(self, bridge: Bridge, world: World, number: int) -> None:
        self.bridge = bridge
        self.number = number
        made = bridge.new_session(world.work)
        self.session = made["sessionId"]
        bridge.choose(self.session, "model", MODEL)
        bridge.prompt(self.session, "/tools off")
        self.said: list[str] = []
        self.ends: dict[str, int] = {}
        self.wrong: list[str] = []
        self.hits = self.could = 0
        self._before = 0  # tokens of the last prompt that a replica has in its cache

    def turn(self, count: int, chance: random.Random) -> None:
        """One message; one in ten is cancelled."""
        text = f"conversation {self.number}, message {count}: {' '.join(chance.choices(WORDS, k=40))}"
        self.said.append(text)
        pending = self.bridge.begin_prompt(self.session, text)
        if chance.randrange(CANCELLED) == 0:
            self._cancel(pending)
        try:
            done = self.bridge.end_prompt(pending)
        except BridgeError as error:
            self._end(error.kind)
            self._before = 0
            if error.kind not in TYPED:
                self.wrong.append(f"an end without a type of its own: {error.kind}: {error.message}")
            return
        self._end(done.stop_reason)
        numbers = done.meta.get("modeld.turn", {})
        if numbers and numbers["model"] != MODEL:
            self.wrong.append(f"another model answered: {numbers['model']}")
        self._count(numbers)

    def _cancel(self, pending: Any) -> None:
        try:
            self.bridge.wait_update(pending, "agent_message_chunk")
        except TimeoutError:
            return  # it has ended already
        self.bridge.notify("session/cancel", {"sessionId": self.session})

    def _end(self, how: str) -> None:
        self.ends[how] = self.ends.get(how, 0) + 1

    def _count(self, numbers: dict[str, Any]) -> None:
        """What was warm of what could be: whole blocks of the last prompt."""
        prompt = numbers.get("reused", 0) + numbers.get("prefilled", 0)
        if self._before and prompt > self._before:
            self.could += self._before // BLOCK * BLOCK
            self.hits += min(numbers["reused"], self._before // BLOCK * BLOCK)
        self._before = prompt


WORDS = ("river", "stone", "cloud", "engine", "paper", "window", "garden", "letter", "silver", "market", "orange")


def fleet(world: World, router: Router) -> list[Conversation]:
    """Four bridges, eight conversations."""
    config = world.folder / "config.toml"
    config.write_text(f'[providers.cluster]\nbase_url = "{router.url}"\ntimeout_s = 60\n')
    world.environ["MODELD_CONFIG"] = str(config)
    made = []
    for number in range(BRIDGES):
        bridge = world.bridge()
        bridge.initialize()
        made += [Conversation(bridge, world, number * EACH + each) for each in range(EACH)]
    return made


def load(fleet: list[Conversation], turns: int, events: dict[int, Any]) -> None:
    """`turns` in all, each conversation one after the other, all conversations side by side."""
    left = iter(range(turns))
    lock = threading.Lock()

    def run(conversation: Conversation) -> None:
        chance = random.Random(conversation.number)
        while True:
            with lock:
                count = next(left, None)
                if count is None:
                    return
                events.pop(count, lambda: None)()
            conversation.turn(count, chance)

    threads = [threading.Thread(target=run, args=(one,)) for one in fleet]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def lost(fleet: list[Conversation]) -> list[str]:
    """Messages that a conversation no longer has when another window opens it."""
    missing = []
    for one in fleet:
        one.bridge.updates.clear()
        one.bridge.request("session/close", {"sessionId": one.session})
        loading = {"sessionId": one.session, "cwd": str(Path.cwd()), "mcpServers": []}
        one.bridge.request("session/load", loading)
        kept = json.dumps([update["update"] for update in one.bridge.updates if update["sessionId"] == one.session])
        missing += [text for text in one.said if text not in kept]
    return missing


def first_tokens(router: Router, fleet: list[Conversation], pairs: int) -> tuple[float, float]:
    """Medians in seconds to the first piece of an answer: called directly, and through a bridge; the same prompt."""
    direct, through = [], []
    one = fleet[0]
    session = one.bridge.new_session(Path.cwd())["sessionId"]
    one.bridge.choose(session, "model", MODEL)
    one.bridge.prompt(session, "/tools off")
    for number in range(pairs):
        through.append(one.bridge.prompt(session, f"say {WORDS[number % len(WORDS)]}").first_text_s)
        body = router.bodies[-1]
        direct.append(_direct(router.url, body))
    return statistics.median(direct), statistics.median(through)


def _direct(url: str, body: dict[str, Any]) -> float:
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if b'"content":"' in line.replace(b'": "', b'":"') and b'"content":""' not in line:
                return time.monotonic() - began
    return time.monotonic() - began


def added(pairs: int) -> Line:
    """What a bridge adds of itself: to and from an endpoint that answers at once."""
    times: list[float] = []

    def answer(asked: Asked) -> Reply:
        times.append(time.monotonic())
        return said(prompt_tokens=10, completion_tokens=1)

    to, back = [], []
    with Endpoint(**{NAME: {}}) as endpoint, tempfile.TemporaryDirectory(prefix="md-") as folder:
        endpoint.routes["POST /v1/chat/completions"] = answer
        world = World(Path(folder))
        world.environ["MODELD_CONFIG"] = str(Path(folder) / "config.toml")
        (Path(folder) / "config.toml").write_text(f'[providers.cluster]\nbase_url = "{endpoint.url}"\n')
        bridge = world.bridge()
        session = bridge_session(bridge, world.work)
        for number in range(pairs):
            turn = bridge.prompt(session, f"hi {number}")
            to.append(times[-1] - turn.started)
            back.append(turn.started + turn.first_text_s - times[-1])
        bridge.close()
    medians, least = statistics.median(map(sum, zip(to, back, strict=True))), min(map(sum, zip(to, back, strict=True)))
    what = f"what the bridge adds to the first token: an endpoint that answers at once ({pairs} turns)"
    return Line(what, f"median {medians * 1000:.1f} ms, least {least * 1000:.1f} ms")


def bridge_session(bridge: Bridge, work: Path) -> str:
    """A conversation on the cluster's model, without tools."""
    bridge.initialize()
    session = str(bridge.new_session(work)["sessionId"])
    bridge.choose(session, "model", MODEL)
    bridge.prompt(session, "/tools off")
    return session


def main() -> int:
    """1 where something is not so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, help="of the environment that has vLLM; without it no replica runs")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--turns", type=int, default=200, help="0 measures the first token alone")
    parser.add_argument("--ports", type=int, nargs="*", default=[], help="of replicas that run already")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "soak" / "cluster.md")
    options = parser.parse_args()
    began = time.monotonic()
    if options.python is None and not options.ports:
        return written(options.out, [added(options.pairs)], began, whole=False)
    with tempfile.TemporaryDirectory(prefix="md-") as folder:
        world = World(Path(folder))
        logs = [Path(folder) / f"replica{number}.log" for number in range(0 if options.ports else 2)]
        replicas = [Replica(options.python, options.model, log) for log in logs]
        conversations: list[Conversation] = []
        try:
            for replica in replicas:
                replica.start()
            for replica in replicas:
                replica.up()
            started = time.monotonic() - began
            router = Router(options.ports or [replica.port for replica in replicas])
            router.start()
            conversations = fleet(world, router)
            lines = measured(options, router, replicas, conversations, started)
        finally:
            for bridge in {one.bridge for one in conversations}:
                bridge.close()
            for replica in replicas:
                replica.kill()
    lines.append(added(options.pairs))
    return written(options.out, lines, began, whole=bool(options.turns))


def written(out: Path, lines: list[Line], began: float, *, whole: bool) -> int:
    """Write the page, beside what an earlier run found where this one is of some parts only. 1 where one failed."""
    rows = lines if whole else [*kept(out, lines), *lines]
    told = page(rows, time.monotonic() - began, "vLLM behind the bridge", "cluster.py", "cluster")
    out.write_text(told, encoding="utf-8")
    print(told)
    return 1 if any(line.result.startswith("FAILED") for line in lines) else 0


def measured(
    options: argparse.Namespace,
    router: Router,
    replicas: list[Replica],
    conversations: list[Conversation],
    started: float,
) -> list[Line]:
    """Everything, as rows of the page."""
    turns = options.turns
    direct, through = first_tokens(router, conversations, options.pairs)
    first = Line(
        f"first token: direct, through the bridge (medians of {options.pairs} pairs)",
        f"{direct * 1000:.1f} ms, {through * 1000:.1f} ms: {(through - direct) * 1000:+.1f} ms",
    )
    if not turns:
        return [first]

    def head_restarts() -> None:
        router.stop()
        threading.Timer(1.0, router.start).start()

    def slow(seconds: float) -> None:
        router.delay_s = seconds

    calm = turns * 2 // 5
    load(conversations, calm, {})
    hits, could = sum(one.hits for one in conversations), sum(one.could for one in conversations)
    events = {
        turns // 10: replicas[1].kill,
        turns * 3 // 10: head_restarts,
        turns * 4 // 10: lambda: slow(2.0),
        turns // 2: lambda: slow(0.0),
    }
    load(conversations, turns - calm, events)
    router.delay_s = 0.0
    after = [one.bridge.prompt(one.session, "and now?") for one in conversations]
    ends: dict[str, int] = {}
    for one in conversations:
        for how, count in one.ends.items():
            ends[how] = ends.get(how, 0) + count
    wrong = [text for one in conversations for text in one.wrong]
    missing = lost(conversations)
    share = hits / could if could else 0.0
    return [
        Line(
            "engine",
            f"vLLM, CPU, 2 replicas of SmolLM2-135M in one machine ({platform.machine()}), up in {started:.0f} s",
        ),
        Line(
            "disturbed by",
            f"a replica killed (turn {calm + turns // 10}), the router restarted ({calm + turns * 3 // 10}), "
            f"answers 2 s late ({calm + turns * 4 // 10} to {calm + turns // 2})",
        ),
        Line("turns", f"{sum(ends.values())} of {len(conversations)} conversations from {BRIDGES} bridges"),
        Line("ends", ", ".join(f"{how} {count}" for how, count in sorted(ends.items()))),
        Line("ends without a type, other models", f"FAILED: {wrong[:3]}" if wrong else "none"),
        Line("messages lost", f"FAILED: {len(missing)}" if missing else "none"),
        Line(
            "answered behind it all",
            f"{sum(one.stop_reason in ('end_turn', 'max_tokens') for one in after)} of {len(after)}",
        ),
        Line("served by each replica", ", ".join(map(str, router.served.values()))),
        Line(
            "prefix cache hits, as the server counts them, of whole blocks that could hit",
            f"{'' if share >= 0.95 else 'FAILED: '}{share:.1%} ({hits:,} of {could:,} tokens)",
        ),
        first,
    ]


if __name__ == "__main__":
    sys.exit(main())
