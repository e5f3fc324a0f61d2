"""The full counts of the slot: races, clients that vanish, memory over many turns, fairness and throughput.

    python tests/soak/soak_slot.py [--races 500] [--vanish 100] [--turns 2000] [--pairs 10] [--out docs/soak/slot.md]

Real daemons and workers; `--vanish` rounds go through every stage, and a tenth of them lose a client process to
SIGKILL. Ends with 1 on the first thing that is not so.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from modeld_process import ENDLESS, Client, Modeld, Turn, write_models, write_script
from shared.errors import ModelBusy, ModeldError, ModelSwitchRequired, SlotGenerationStale
from shared.paths import DataRoot
from shared.protocol import api

FREE_SECONDS = 1.0
MIB = 1 << 20
FOREVER = api.Sampling(max_tokens=10**6, temperature=0.0)
SHORT = {"pieces": ["x "] * 3, "when": "short"}
STAGES = ("queued", "loading", "prefill", "decode")
CLIENTS = 32


class Failed(Exception):
    """Something that must hold did not."""


class Line(msgspec.Struct):
    """One row of the result page."""

    what: str
    result: str


def reasons(group: BaseException) -> list[str]:
    """What failed, out of however many task groups it came through."""
    if isinstance(group, BaseExceptionGroup):
        return [reason for one in group.exceptions for reason in reasons(one)]
    return [str(group)]


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
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items()))
        return [
            Line("two clients race to load different models, rounds", f"{rounds}: one winner and one typed error each"),
            Line("who won, what the other got", f"a {won['a']}, b {won['b']}; {told}"),
            Line("the daemon over these races", flat(before, footprint(modeld), "races")),
        ]


# --- clients that vanish -----------------------------------------------------------------------


async def reach(stage: str, goes: Client, stays: Client) -> Turn | None:
    """A turn of `goes` in that stage; for `queued` also the turn of `stays` that it waits behind."""
    if stage == "queued":
        held = stays.turn("a", params=FOREVER)
        await held.until(api.TextDelta)
        await goes.turn("a", params=FOREVER).until(api.Queued)
        return held
    if stage == "loading":
        await goes.turn("a", params=FOREVER).until(api.Loading)
    elif stage == "prefill":
        await goes.turn("a", "long " * 400, params=FOREVER).until(api.Prefix)
    else:
        await goes.turn("a", params=FOREVER).until(api.TextDelta)
    return None


async def until_free(stage: str, stays: Client) -> float:
    """Seconds until nothing of the vanished client is left in the slot. Raises Failed past the second."""
    began = time.monotonic()
    while True:
        status = await stays.status()
        holder = status.busy.holder if status.busy is not None else ""
        if not status.queue and holder != "goes" and (stage in ("queued", "loading") or status.state == "Ready"):
            break
        require(time.monotonic() - began < 10, f"{stage}: still {status.state} for {holder!r}, queue {status.queue}")
    return time.monotonic() - began


async def vanishing(root: DataRoot, rounds: int) -> list[Line]:
    script = write_script(root.path, [ENDLESS, SHORT], token_s=0.002, prefill_token_s=0.0002, load_s=0.05) | {
        "MODELD_LOAD_ROLLBACK": "0"
    }
    times: dict[str, list[float]] = {stage: [] for stage in STAGES}
    killed: list[float] = []
    async with Modeld(root, "scripted", **script) as modeld, modeld.client("stays") as stays:
        before = footprint(modeld)
        for number in range(rounds):
            for stage in STAGES:
                if stage == "loading":
                    await stays.unload(on_busy="wait")
                else:
                    await stays.load("a", on_busy="wait")
                async with modeld.client("goes") as goes:
                    held = await reach(stage, goes, stays)
                    goes.vanish()
                times[stage].append(await until_free(stage, stays))
                if held is not None:
                    require(not held.ended.is_set(), "the turn of another client was touched")
                    stays.cancel(held)
                    await held.end()
            if number % 10 == 0:
                killed.append(await kill_a_client(root, modeld, stays))
            if number == rounds // 10:
                await settle(stays)
                before = footprint(modeld)
        await settle(stays)
        after = footprint(modeld)
        require((await stays.turn("a", "short").end()).finish_reason == "stop", "the next turn does not work")
    lines = [
        Line(f"client gone in {stage}: slot free (s), {len(found)} times", spread(found))
        for stage, found in times.items()
    ]
    late = [one for found in (*times.values(), killed) for one in found if one > FREE_SECONDS]
    require(
        not late,
        f"{len(late)} of {rounds * len(STAGES)} took longer than {FREE_SECONDS} s, most {max(late, default=0):.2f}",
    )
    return [
        *lines,
        Line(f"client process killed (SIGKILL) in decode: slot free (s), {len(killed)} times", spread(killed)),
        Line("the daemon over these clients", flat(before, after, "vanishing")),
    ]


async def settle(stays: Client) -> None:
    """The same state as before: loaded, idle, nobody else connected."""
    await stays.load("a", on_busy="wait")
    await stays.turn("a", "short").end()
    while (await stays.status()).clients > 1:
        await anyio.sleep(0.01)


_CLIENT = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from modeld_process import *
async def main():
    modeld = Modeld(DataRoot(Path(sys.argv[1])))
    modeld.view = lambda: survey(modeld.root).living[0]
    async with modeld.client("goes") as client:
        turn = client.turn("a", params=api.Sampling(max_tokens=10**6))
        await turn.until(api.TextDelta)
        print("ready", flush=True)
        await turn.end(60)
asyncio.run(main())
"""


async def kill_a_client(root: DataRoot, modeld: Modeld, stays: Client) -> float:
    """A client in a process of its own, killed in its decode."""
    await stays.load("a", on_busy="wait")
    child = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, str(root.path), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    try:
        require(await anyio.to_thread.run_sync(child.stdout.readline) == b"ready\n", "the client did not come up")
        child.send_signal(signal.SIGKILL)
        return await until_free("decode", stays)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


# --- many turns --------------------------------------------------------------------------------


async def many_turns(root: DataRoot, turns: int) -> list[Line]:
    async with (
        Modeld(root, "llama", MODELD_THREADS="1", MODELD_PARKED_FRACTION="0.0002") as modeld,
        modeld.client() as client,
    ):
        chance = random.Random(7)

        async def some(count: int) -> None:
            for number in range(count):
                text = f"short {number} " + "words " * chance.randrange(40)
                await client.turn("a", text, params=api.Sampling(max_tokens=4, temperature=0.0)).end()

        await some(max(turns // 10, 20))  # lanes and the (small) budget of parked conversations fill up first
        before = footprint(modeld)
        (worker,) = modeld.workers()
        held = worker.memory_info().rss
        await some(turns)
        daemon = flat(before, footprint(modeld), "turns")
        growth = worker.memory_info().rss / held - 1
        require(growth <= 0.05, f"the worker grew by {growth:.1%}")
        require((await client.status()).generation == 1, "the slot was reset")
        return [
            Line(f"the daemon over {turns} turns", daemon),
            Line(f"the worker over {turns} turns", f"{held / MIB:.1f} MiB, {growth:+.1%}"),
        ]


# --- many clients ------------------------------------------------------------------------------


async def many_clients(root: DataRoot, pairs: int) -> list[Line]:
    params = api.Sampling(max_tokens=160, temperature=0.0)
    async with AsyncExitStack() as stack:
        modeld = await stack.enter_async_context(
            Modeld(root, "llama", MODELD_QUEUE_LIMIT=str(CLIENTS * 4), MODELD_THREADS="1")
        )
        clients = [await stack.enter_async_context(modeld.client(f"client {n}")) for n in range(CLIENTS)]
        await clients[0].load("a")
        one: list[tuple[float, float]] = []
        many: list[tuple[float, float]] = []
        for _ in range(pairs):
            for callers, times in (([clients[0]] * CLIENTS, one), (clients, many)):
                began, spent = time.monotonic(), cpu_seconds(modeld)
                turns = [client.turn("a", "tell me something", params=params) for client in callers]
                for turn in turns:
                    require((await turn.end(120.0)).finish_reason == "length", "a turn did not finish")
                times.append((time.monotonic() - began, cpu_seconds(modeld) - spent))
        wall, cpu = (statistics.median(b[part] / a[part] for a, b in zip(one, many, strict=True)) for part in (0, 1))
        # Where others want the processors too, the clock measures them; what it cost stays the same.
        crowded = os.getloadavg()[0] > (os.cpu_count() or 1) + 1
        judged = cpu if crowded else wall
        require(judged <= 1.05, f"{CLIENTS} clients take {wall:.3f} of one's time, {cpu:.3f} of its cost: {one} {many}")
        order = await fairness(clients)
        return [
            Line(f"{CLIENTS} clients with a turn each, {pairs} times", "all finish"),
            Line(
                f"{CLIENTS} clients over one with the same turns, medians of {pairs} interleaved pairs",
                f"time {wall:.3f}, processor seconds {cpu:.3f}"
                + (f" (judged by the latter: load {os.getloadavg()[0]:.0f})" if crowded else ""),
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


def spread(values: list[float]) -> str:
    if not values:
        return "-"
    ordered = sorted(values)
    ninety = ordered[int(len(ordered) * 0.95)] if len(ordered) > 1 else ordered[0]
    return f"median {statistics.median(ordered):.3f}, p95 {ninety:.3f}, most {ordered[-1]:.3f}"


def kept(page: Path, lines: list[Line]) -> list[Line]:
    """Rows of an earlier run that this one, of some parts only, did not make anew."""
    made = {line.what for line in lines}
    rows = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    cells = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ")]
    return [Line(*cell) for cell in cells if len(cell) == 2 and cell[0] not in made | {"what", "---"}]


def page(lines: list[Line], seconds: float) -> str:
    """The result page."""
    head = [
        "# Soak: the slot",
        "",
        (
            f"Run on {time.strftime('%Y-%m-%d', time.gmtime())}, {platform.system()} {platform.machine()}, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, Python {platform.python_version()}, "
            f"{seconds:.0f} s. Made by `tests/soak/soak_slot.py`, whose parts may be run apart."
        ),
        "",
        "| what | result |",
        "| --- | --- |",
    ]
    return "\n".join([*head, *(f"| {line.what} | {line.result} |" for line in lines)]) + "\n"


async def run(arguments: argparse.Namespace, folder: Path) -> list[Line]:
    parts: dict[str, Callable[[DataRoot], Awaitable[list[Line]]]] = {
        "models": lambda root: two_models(root, 10),
        "clients": lambda root: many_clients(root, arguments.pairs),
        "vanish": lambda root: vanishing(root, arguments.vanish),
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
    parser.add_argument("--parts", nargs="*", choices=("models", "clients", "vanish", "turns", "races"))
    parser.add_argument("--races", type=int, default=500)
    parser.add_argument("--vanish", type=int, default=100)
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
        except* Failed as group:
            failures = reasons(group)
        if failures:
            print("FAILED: " + "; ".join(failures))
            return 1
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    if arguments.parts:
        lines = kept(arguments.out, lines) + lines
    arguments.out.write_text(page(lines, time.monotonic() - began), encoding="utf-8")
    print(arguments.out.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
