"""The full counts of the slot: races, clients that are killed, memory over many turns, fairness and throughput.

    python tests/soak/soak_slot.py [--races 500] [--killed 100] [--storm 2000] [--turns 2000] [--pairs 10]
        [--parts models clients killed storm turns races] [--out docs/soak/slot.md]

Real daemons, workers and clients; each of the `--killed` rounds kills a client process in every stage. Ends with 1 on
the first thing that is not so, and says what modeld said.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
import slot_storm
from killed_clients import STAGES, KilledClients, script
from modeld.memory import policy
from modeld.memory.probe import host_memory
from modeld_process import Client, Modeld, write_models, write_script
from shared.errors import ModelBusy, ModeldError, ModelSwitchRequired, SlotGenerationStale
from shared.paths import DataRoot
from shared.protocol import api
from shared.settings import Settings
from soak_page import Line, kept, page
from spread import spread

FREE_SECONDS = 1.0
MIB = 1 << 20
#: Full behind a few hundred turns, and larger than all that may grow unnoticed: 5 % of the worker are a tenth of it.
PARKED = 32 * MIB
SHORT = {"pieces": ["x "] * 3, "when": "short"}
CLIENTS = 32


class Failed(Exception):
    """Something that must hold did not."""


def reasons(group: BaseException) -> list[str]:
    """What failed, out of however many task groups it came through."""
    if isinstance(group, BaseExceptionGroup):
        return [reason for one in group.exceptions for reason in reasons(one)]
    return [str(group) if isinstance(group, Failed) else "".join(traceback.format_exception(group))]


def require(truth: bool, what: str) -> None:
    if not truth:
        raise Failed(what)


def footprint(modeld: Modeld) -> tuple[int, int, int]:
    """Resident bytes and descriptors of the daemon, and how many workers it has."""
    process = psutil.Process(modeld.pid)
    return process.memory_info().rss, process.num_fds(), len(modeld.workers())


def flat(before: tuple[int, int, int], after: tuple[int, int, int], what: str) -> str:
    """Says how much memory grew. Raises Failed when it did, or when something is left."""
    require(after[1:] == before[1:], f"{what}: descriptors and workers {before[1:]} -> {after[1:]}")
    growth = after[0] / before[0] - 1
    require(growth <= 0.05, f"{what}: resident memory grew by {growth:.1%}")
    return f"{before[0] / MIB:.1f} MiB -> {after[0] / MIB:.1f} MiB ({growth:+.1%}), no descriptor, no worker left"


# --- two clients race --------------------------------------------------------------------------


async def races(root: DataRoot, rounds: int) -> list[Line]:
    async with AsyncExitStack() as stack:
        modeld = await stack.enter_async_context(Modeld(root, "scripted", **write_script(root.path, [SHORT])))
        clients = [await stack.enter_async_context(modeld.client(name)) for name in ("left", "right")]
        won = {"a": 0, "b": 0}
        errors: dict[str, int] = {}
        before = footprint(modeld)
        for number in range(rounds):
            outcomes: list[api.LoadResult | ModeldError] = []

            async def load(client: Client, model: str, outcomes: list[Any] = outcomes) -> None:
                try:
                    outcomes.append(await client.load(model))
                except ModeldError as error:
                    outcomes.append(error)

            async with anyio.create_task_group() as tasks:
                first = number % 2
                tasks.start_soon(load, clients[first], "ab"[first])
                tasks.start_soon(load, clients[1 - first], "ab"[1 - first])
            winners = [one for one in outcomes if isinstance(one, api.LoadResult)]
            losers = [one for one in outcomes if isinstance(one, (ModelBusy, ModelSwitchRequired, SlotGenerationStale))]
            require((len(winners), len(losers)) == (1, 1), f"race {number}: {outcomes}")
            require(len(modeld.workers()) == 1, f"race {number}: {len(modeld.workers())} workers")
            won[winners[0].active.name] += 1
            errors[losers[0].kind] = errors.get(losers[0].kind, 0) + 1
            await clients[0].unload()
            if number == rounds // 10:
                before = footprint(modeld)
        reported = ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items()))
        return [
            Line("two clients race to load different models, rounds", f"{rounds}: one winner and one typed error each"),
            Line("who won, what the other got", f"a {won['a']}, b {won['b']}; {reported}"),
            Line("the daemon over these races", flat(before, footprint(modeld), "races")),
        ]


# --- clients that are killed -------------------------------------------------------------------


async def killed_clients(root: DataRoot, rounds: int) -> list[Line]:
    async with Modeld(root, "scripted", **script(root)) as modeld, modeld.client("stays") as stays:
        killed = KilledClients(modeld, stays, random.Random(7).random)
        await killed.settle()
        for number in range(rounds):
            for stage in STAGES:
                await killed.round(stage)
            if number == rounds // 10:
                await killed.settle()
                before = footprint(modeld)
        await killed.settle()
        after = footprint(modeld)
    quiet = os.getloadavg()[0] <= 2 * (os.cpu_count() or 1)  # elsewhere a second is what others leave of it
    late = [f"{stage} {one:.2f} s" for stage, found in killed.seconds.items() for one in found if one > FREE_SECONDS]
    require(not late or not quiet, f"the slot was not free within {FREE_SECONDS} s: {', '.join(late)}")
    return [
        *(
            Line(f"client process killed (SIGKILL), {stage}: slot free (s), {len(found)} times", spread(found))
            for stage, found in killed.seconds.items()
        ),
        Line("of these later than a second", "none" if not late else f"{', '.join(late)} (the machine was not quiet)"),
        Line("the daemon over these clients", flat(before, after, "killed clients")),
    ]


# --- anything at any moment ---------------------------------------------------------------------


async def storm(root: DataRoot, calls: int) -> list[Line]:
    async with Modeld(root, "scripted", **slot_storm.environ(root)) as modeld:
        one = slot_storm.Storm(modeld, clients=8, calls=calls, seed=(seed := random.randrange(10**6)))
        await one.run()
        require(not one.problems, f"storm {seed}: " + "; ".join(one.problems) + f"\n{modeld.reported()}")
    ended = sum(count for what, count in one.outcomes.items() if ":" in what)
    faults = ", ".join(f"{count} times {what}" for what, count in sorted(one.outcomes.items()) if ":" not in what)
    return [
        Line(
            "eight clients ask for anything at any moment: calls, all ended with a result or by type",
            f"{ended}; {faults}",
        )
    ]


# --- many turns --------------------------------------------------------------------------------


async def many_turns(root: DataRoot, turns: int) -> list[Line]:
    """Parked conversations fill their budget first: until then a worker grows because it is meant to."""
    memory = host_memory()
    fraction = PARKED / (memory.free - policy.reserve_bytes(memory.total, Settings()))
    async with (
        Modeld(root, "llama", MODELD_THREADS="1", MODELD_PARKED_FRACTION=f"{fraction:.9f}") as modeld,
        modeld.client() as client,
    ):
        chance = random.Random(7)
        asked = 0

        async def some(count: int) -> int:
            """The most that the worker held meanwhile, in bytes."""
            nonlocal asked
            most = 0
            for _ in range(count):
                asked += 1
                text = f"{asked} short " + "words " * chance.randrange(300)
                await client.turn("a", text, params=api.Sampling(max_tokens=4, temperature=0.0)).end()
                most = max(most, worker.memory_info().rss)
            return most

        await client.load("a")
        (worker,) = modeld.workers()
        empty = full = await some(20)
        while (more := await some(50)) > full * 1.005 or full - empty < PARKED // 2:
            full = max(more, full)
            require(asked < 5000, f"the budget of parked conversations was never full: {empty} -> {full}")
        warmed = asked
        before = footprint(modeld)
        held = worker.memory_info().rss
        most = await some(turns)
        daemon = flat(before, footprint(modeld), "turns")
        growth = worker.memory_info().rss / held - 1
        require(growth <= 0.05, f"the worker grew by {growth:.1%}")
        require(most <= held * 1.05, f"the worker grew by {most / held - 1:.1%} in between")
        require((await client.status()).generation == 1, "the slot was reset")
        return [
            Line(
                f"the worker while its parking budget of {PARKED / MIB:.0f} MiB fills",
                f"{empty / MIB:.1f} MiB -> {held / MIB:.1f} MiB, {warmed} turns",
            ),
            Line(f"the worker over the next {turns} turns", f"{held / MIB:.1f} MiB, {growth:+.1%}"),
            Line(f"the daemon over these {turns} turns", daemon),
        ]


# --- many clients ------------------------------------------------------------------------------


async def many_clients(root: DataRoot, pairs: int) -> list[Line]:
    params = api.Sampling(max_tokens=320, temperature=0.0)
    load = os.getloadavg()[0]
    crowded = load > (os.cpu_count() or 1)
    async with AsyncExitStack() as stack:
        # Every token is computed: guessed ones cost so little that the talk around them is all that is measured.
        modeld = await stack.enter_async_context(
            Modeld(root, "llama", MODELD_QUEUE_LIMIT=str(CLIENTS * 4), MODELD_THREADS="1", MODELD_SPECULATION="0")
        )
        clients = [await stack.enter_async_context(modeld.client(f"client {n}")) for n in range(CLIENTS)]
        await clients[0].load("a")
        one: list[tuple[float, float]] = []
        many: list[tuple[float, float]] = []
        for _ in range(pairs + 1):
            for callers, times in (([clients[0]] * CLIENTS, one), (clients, many)):
                began, spent = time.monotonic(), cpu_seconds(modeld)
                turns = [client.turn("a", "tell me something", params=params) for client in callers]
                for turn in turns:
                    require((await turn.end(120.0)).finish_reason == "length", "a turn did not finish")
                times.append((time.monotonic() - began, cpu_seconds(modeld) - spent))
        del one[0], many[0]  # while everything is touched for the first time
        wall, cpu = (statistics.median(b[part] / a[part] for a, b in zip(one, many, strict=True)) for part in (0, 1))
        require(
            wall <= 1.05 or crowded,
            f"{CLIENTS} clients take {wall:.3f} of one's time, {cpu:.3f} of its cost: {one} {many}",
        )
        order = await fairness(clients)
        return [
            Line(f"{CLIENTS} clients with a turn each, {pairs} times", "all finish"),
            Line(
                f"{CLIENTS} clients over one with the same turns, medians of {pairs} interleaved pairs",
                f"time {wall:.3f}, processor seconds {cpu:.3f}"
                + (f" (not judged: the machine was not quiet, load {load:.0f})" if crowded else ""),
            ),
            Line("order of three turns each: most that a client was ahead of another", f"{order} turn"),
        ]


def cpu_seconds(modeld: Modeld) -> float:
    """What the daemon and its worker have spent."""
    processes = [psutil.Process(modeld.pid), *modeld.workers()]
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


async def fairness(clients: list[Client], each: int = 3) -> int:
    """Everybody queues `each` turns behind one that runs; how far anybody was ever ahead, by starts of turns."""
    started: list[int] = []
    hold = clients[0].turn("a", params=api.Sampling(max_tokens=3000, temperature=0.0))
    await hold.until(api.TextDelta)
    brief = api.Sampling(max_tokens=4, temperature=0.0)
    waiting = [(n, client.turn("a", "short", params=brief)) for _ in range(each) for n, client in enumerate(clients)]
    while len((await clients[0].status()).queue) < len(waiting):
        require(not hold.ended.is_set(), "the first turn ended before all were waiting")
    clients[0].cancel(hold)
    served = dict.fromkeys(range(len(clients)), 0)
    ahead = 0
    done: set[int] = set()
    while len(done) < len(waiting):
        for index, (number, turn) in enumerate(waiting):
            if index not in done and (turn.seen(api.Prefix) or turn.ended.is_set()):
                done.add(index)
                if turn.error is None:
                    started.append(number)
        await anyio.sleep(0)
    for number in started:
        served[number] += 1
        ahead = max(ahead, served[number] - min(served.values()))
    for _, turn in waiting:
        await turn.end(120.0)
    require(ahead <= 1, f"somebody was {ahead} turns ahead: {started}")
    return ahead


# --- two models --------------------------------------------------------------------------------


async def two_models(root: DataRoot, turns: int) -> list[Line]:
    """Two editors that want two models: batches, and nobody waits longer than the bound and one switch."""
    bound = 2.0
    environ = {"MODELD_AFFINITY_BOUND": str(bound), "MODELD_AFFINITY_LOAD_FACTOR": "0"}
    script = write_script(root.path, [{"pieces": ["x "] * 30}], token_s=0.01)
    waits: list[float] = []
    async with Modeld(root, "scripted", **script, **environ) as modeld:

        async def chat(name: str, model: str) -> None:
            async with modeld.client(name) as client:
                for _ in range(turns):
                    end = await client.turn(
                        model, params=api.Sampling(max_tokens=100), allow_switch=True, consent=True
                    ).end(120.0)
                    require(end.model == model, "another model answered")
                    waits.append(end.timings.queued_s)

        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat, "left", "a")
            tasks.start_soon(chat, "right", "b")
        took = time.monotonic() - began
        switches = modeld.log().count("switching from")
        most = int(took / bound) + 2
        require(switches <= most, f"{switches} switches in {took:.1f} s with a bound of {bound} s")
    return [
        Line(f"two editors with two models, {turns} turns each", f"all answered by their model in {took:.1f} s"),
        Line(f"switches (at most one each {bound:.0f} s of the affinity bound)", f"{switches}"),
        Line("longest wait of a turn (s)", f"{max(waits):.2f}"),
    ]


# --- all of it ---------------------------------------------------------------------------------


async def run(arguments: argparse.Namespace, folder: Path) -> list[Line]:
    parts: dict[str, Callable[[DataRoot], Awaitable[list[Line]]]] = {
        "models": lambda root: two_models(root, 10),
        "clients": lambda root: many_clients(root, arguments.pairs),
        "killed": lambda root: killed_clients(root, arguments.killed),
        "storm": lambda root: storm(root, arguments.storm),
        "turns": lambda root: many_turns(root, arguments.turns),
        "races": lambda root: races(root, arguments.races),
    }
    lines: list[Line] = []
    for name in arguments.parts or list(parts):
        part = parts[name]
        root = DataRoot(folder / name)
        root.path.mkdir(mode=0o700)
        os.environ["MODELD_DATA_ROOT"] = str(root.path)
        write_models(root, "a", "b")
        began = time.monotonic()
        found = await part(root)
        for line in found:
            print(f"{line.what}: {line.result}", flush=True)
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        lines += found
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="*", choices=("models", "clients", "killed", "storm", "turns", "races"))
    parser.add_argument("--races", type=int, default=500)
    parser.add_argument("--killed", type=int, default=100)
    parser.add_argument("--storm", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/soak/slot.md")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="md-") as name:
        folder = Path(name)
        for variable in ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            os.environ[variable] = str(folder / variable.lower())
            (folder / variable.lower()).mkdir(mode=0o700)
        lines: list[Line] = []
        failures: list[str] = []
        try:
            lines = anyio.run(run, arguments, folder)
        except* Exception as group:
            failures = reasons(group)
        if failures:
            print("FAILED: " + "; ".join(failures))
            return 1
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    if arguments.parts:
        lines = kept(arguments.out, lines) + lines
    arguments.out.write_text(page(lines, time.monotonic() - began, "the slot", "soak_slot.py"), encoding="utf-8")
    print(arguments.out.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
