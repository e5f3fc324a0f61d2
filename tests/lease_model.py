"""Every interleaving of a few contenders, with pauses and crashes, over the real policy functions.

The files are a table, a step is one file operation together with the decision that follows it, and a
scheduler tries all orders of steps, ticks of the clock and crashes. A process that is not scheduled
while the clock ticks is a paused one. A saboteur may delete the root (whatever comes then is in another
place), empty the folder, or put a record of an ownership that let go in the place of the highest one. All
times are kept relative to now, so that states that differ by their age alone are one state.

The one thing asked of every state: at most one living process may act.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from shared.lease import policy
from shared.lease.policy import Mark, Sighting, Standing, Tenure, Watched
from shared.lease.record import Identity, LeaseRecord, Released

TTL = 4.0  # one tick is a quarter of it: margin 1, validity 3, patience 5, frozen 1, longest step 1
STEP = TTL / 4
#: The owner of a record that is put back: an instance that let go long ago.
PAST = 99


class File(msgspec.Struct, frozen=True):
    """`place` is the root that the record names; owner PAST is an instance that is no process of these."""

    owner: int
    sequence: int
    released: bool = False
    place: int = 0


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """`at` names the next file operation; the rest is what the process remembers."""

    at: str = "list"
    alive: bool = True
    highest: int = 0
    watched: Watched | None = None
    judged: Mark | None = None
    epochs: tuple[int, ...] = ()
    mine: int = 0
    sequence: int = 0
    started: float = 0.0
    tenure: Tenure | None = None
    renewals: int = 0
    floor: int = 0
    place: int = 0
    watched_copy: Watched | None = None
    by_copy: bool = False


class State(msgspec.Struct, frozen=True):
    files: tuple[tuple[int, File], ...]
    processes: tuple[Process, ...]
    crashes: int
    deeds: int = 0
    place: int = 0
    copy: tuple[int, File] | None = None


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol's decisions; a test replaces one to see that the check notices."""

    judge: Callable[[Sighting | None, float, Identity, policy.Liveness, float], Standing] = policy.judge
    confirmed: Callable[[int, list[int], Mark | None, Mark | None], bool] = policy.confirmed
    observe: Callable[[Watched | None, Mark, float, float], Watched] = policy.observe
    wrote: Callable[..., Tenure] = policy.wrote
    contradicts: Callable[[Sighting | None, Sighting | None], bool] = policy.contradicts
    compares: bool = True


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps the number of states finite.

    `whole_looks`: listing and reading are one step; `begun`: one owns already.
    """

    processes: int = 3
    epochs: int = 3
    crashes: int = 1
    renewals: int = 1
    keep: int = 2
    floors: tuple[int, ...] = ()
    releases: bool = True
    deeds: int = 0
    whole_looks: bool = False
    begun: bool = False


replace = msgspec.structs.replace
_pack = msgspec.msgpack.Encoder().encode


def identity(number: int) -> Identity:
    return Identity(pid=number + 1, start_token="s", boot_id="b", pid_namespace="n", host="h")


class Model:
    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds = bounds
        self.rules = rules if rules is not None else Rules()

    def start(self) -> State:
        floors = self.bounds.floors or (0,) * self.bounds.processes
        processes = tuple(Process(floor=floor) for floor in floors)
        if not self.bounds.begun:
            return State((), processes, self.bounds.crashes, self.bounds.deeds)
        owner = Process(at="own", mine=1, sequence=1, tenure=policy.begin(TTL, 0.0), renewals=self.bounds.renewals)
        owned = (1, File(0, 1))
        state = State((owned,), (owner, *processes[1:]), self.bounds.crashes, self.bounds.deeds, copy=owned)
        return _ordered(state)

    # --- what may happen next ---

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield "tick", self._tick(state)
        for number, process in enumerate(state.processes):
            if not process.alive:
                continue
            for label, files, after in self._moves(state, number, process):
                yield f"{number} {label}", self._with(state, number, after, files)
            if state.crashes:
                crashed = self._with(state, number, Process(alive=False, at="dead"), state.files)
                yield f"{number} crash", replace(crashed, crashes=state.crashes - 1)

        if state.deeds:
            yield from self._deeds(replace(state, deeds=state.deeds - 1))

    def _deeds(self, state: State) -> Iterator[tuple[str, State]]:
        yield "the root is deleted", _ordered(replace(state, files=(), place=state.place + 1))
        yield "the folder is emptied", _ordered(replace(state, files=()))
        if state.files:
            epoch = state.files[-1][0]
            past = ((epoch, File(PAST, 1, released=True, place=state.place)),)
            yield "a past record is put back", _ordered(replace(state, files=(*state.files[:-1], *past)))

    def _with(self, state: State, number: int, process: Process, files: Any) -> State:
        """`files` with the copy where a step writes both: (files, copy)."""
        copy = state.copy
        if files and files[0] == "copy":
            _, files, copy = files
        processes = list(state.processes)
        processes[number] = process
        return _ordered(replace(state, files=files, processes=tuple(processes), copy=copy))

    def _tick(self, state: State) -> State:
        return _ordered(replace(state, processes=tuple(_older(process) for process in state.processes)))

    def _moves(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        move = getattr(self, f"_at_{process.at}", None)
        if move is not None:
            yield from move(state, number, process)

    # --- the contender ---

    def _at_list(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        highest = max((epoch for epoch, _ in state.files), default=0)
        looking = replace(process, at="read", highest=highest)
        if self.bounds.whole_looks or highest == 0:
            yield from self._at_read(state, number, looking)
        else:
            yield f"lists {highest}", state.files, looking

    def _at_read(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        file = dict(state.files).get(process.highest)
        if file is None and process.highest:
            yield "swept", state.files, replace(process, at="list")
            return
        found = _sighting(process.highest, file, state.place) if file is not None else None
        copy = _outside(state, process.highest)
        if copy is not None and not self.rules.contradicts(copy, found):
            copy = None
        standing: Standing = "none"
        if copy is None or (found is not None and found.record is not None):
            standing, watched = self._judge(state, number, found, process.watched)
            process = replace(process, watched=watched)
        if copy is not None and policy.may_take(standing):
            standing, watched = self._judge(state, number, copy, process.watched_copy)
            process = replace(process, watched_copy=watched)
            found = copy
        if not policy.may_take(standing):
            yield f"sees {standing}", state.files, replace(process, at="list", highest=0)
            return
        top = max(found.highest if found is not None else 0, process.floor)
        if top + 1 <= self.bounds.epochs:
            judged = found.mark if found is not None else None
            done = replace(process, at="create", watched=None, watched_copy=None, judged=judged, highest=top)
            yield f"sees {standing}", state.files, replace(done, by_copy=copy is not None)

    def _judge(
        self, state: State, number: int, sighting: Sighting | None, watched: Watched | None
    ) -> tuple[Standing, Watched | None]:
        if sighting is None:
            return "none", None
        watched = self.rules.observe(watched, sighting.mark, 0.0, STEP)
        watched = replace(watched, unmoved=min(watched.unmoved, policy.patience(TTL)))
        owner = int(sighting.record.instance) if sighting.record is not None else PAST
        alive: policy.Liveness = "alive" if owner != PAST and state.processes[owner].alive else "gone"
        return self.rules.judge(sighting, watched.unmoved, identity(number), alive, TTL), watched

    def _at_create(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        epoch = max(process.highest, process.floor) + 1
        if epoch in dict(state.files):
            yield f"finds {epoch} taken", state.files, Process(floor=process.floor)
            return
        files = [*state.files, (epoch, File(number, policy.CLAIMED, place=state.place))]
        made = replace(process, at="survey", mine=epoch, started=0.0, place=state.place)
        yield f"creates {epoch}", sort(files), made

    def _at_survey(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        yield "lists again", state.files, replace(process, at="compare", epochs=tuple(e for e, _ in state.files))

    def _at_compare(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        seen = None
        if process.judged is not None:
            file = dict(state.files).get(process.judged.epoch)
            seen = _sighting(process.judged.epoch, file, state.place).mark if file is not None else None
            if process.by_copy:
                copy = _outside(state, process.judged.epoch)
                seen = copy.mark if copy is not None else None
        good = self.rules.confirmed(process.mine, list(process.epochs), process.judged, seen)
        if good and process.started + policy.validity(TTL) > 0.0:
            kept = Process(at="proclaim", mine=process.mine, started=process.started, place=process.place)
            yield "confirms", state.files, kept
        else:
            yield "doubts", state.files, Process(at="withdraw", mine=process.mine, floor=process.floor)

    def _at_withdraw(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        withdrawn = File(number, policy.CLAIMED, released=True, place=process.place)
        files = put(state.files, process.mine, withdrawn) if self._intact(state, number, process) else state.files
        yield "withdraws", files, Process(floor=process.floor)

    def _at_proclaim(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        if not self._intact(state, number, process):
            yield "has lost its place", state.files, Process(floor=process.floor)
            return
        mine = File(number, 1, place=process.place)
        files = put(state.files, process.mine, mine)
        old = [epoch for epoch, _ in files if epoch < process.mine]
        swept = old[: -(self.bounds.keep - 1)] if len(old) >= self.bounds.keep else []
        yield (
            "proclaims",
            ("copy", tuple(item for item in files if item[0] not in swept), (process.mine, mine)),
            Process(
                at="own",
                place=process.place,
                mine=process.mine,
                sequence=1,
                tenure=policy.begin(TTL, process.started),
                renewals=self.bounds.renewals,
            ),
        )

    # --- the owner ---

    def _at_own(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        assert process.tenure is not None
        ticked = policy.tick(process.tenure, 0.0)
        if ticked != process.tenure:
            yield ticked.state, state.files, _ended_if_lost(process, ticked)
            return
        if process.renewals:
            if _higher(state, process) or not self._intact(state, number, process):
                lost = replace(process.tenure, state="lost")
                yield "sees a successor", state.files, _ended_if_lost(process, lost)
            else:
                yield "renews", state.files, replace(process, at="write", started=0.0, renewals=process.renewals - 1)
        if not self.bounds.releases:
            return
        released = replace(process.tenure, state="released")
        yield "lets go", state.files, replace(process, at="release", tenure=released)

    def _at_write(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        sequence = process.sequence + 1
        files = put(state.files, process.mine, File(number, sequence, place=process.place))
        yield "writes", files, replace(process, at="relist", sequence=sequence)

    def _at_relist(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        assert process.tenure is not None
        higher = _higher(state, process) or not self._intact(state, number, process)
        tenure = self.rules.wrote(process.tenure, process.started, 0.0, higher=higher)
        mine = (process.mine, File(number, process.sequence, place=process.place))
        kept = state.files if higher else ("copy", state.files, mine)
        yield f"relists, {tenure.state}", kept, _ended_if_lost(process, tenure)

    def _at_release(self, state: State, number: int, process: Process) -> Iterator[tuple[str, Any, Process]]:
        if not self._intact(state, number, process):
            yield "lets go of nothing", state.files, Process(at="done")
            return
        files = put(state.files, process.mine, File(number, process.sequence + 1, released=True, place=process.place))
        yield "marks released", ("copy", files, None), Process(at="done")

    def _intact(self, state: State, number: int, process: Process) -> bool:
        """Whether the place and the own record are those that it made (a renewal's check; a rule may leave it out)."""
        file = dict(state.files).get(process.mine)
        return not self.rules.compares or (file is not None and file.owner == number and state.place == process.place)


def sort(files: list[tuple[int, File]]) -> tuple[tuple[int, File], ...]:
    return tuple(sorted(files, key=lambda item: item[0]))


def put(files: tuple[tuple[int, File], ...], epoch: int, file: File) -> tuple[tuple[int, File], ...]:
    return sort([*(item for item in files if item[0] != epoch), (epoch, file)])


def acting(state: State) -> list[int]:
    """Who may act at this moment, by their own clocks."""
    return [
        number
        for number, process in enumerate(state.processes)
        if process.alive and process.tenure is not None and policy.tick(process.tenure, 0.0).state == "valid"
    ]


def explore(model: Model, most: int) -> tuple[int, list[str] | None]:
    """Visit every state. The number of states, and the shortest-found story that ends with two owners, or None."""
    encode = msgspec.msgpack.Encoder().encode
    start = model.start()
    story: dict[bytes, tuple[bytes, str] | None] = {encode(start): None}
    front = [start]
    while front:
        following = []
        for state in front:
            before = encode(state)
            for label, after in model.steps(state):
                key = encode(after)
                if key in story:
                    continue
                story[key] = (before, label)
                if len(acting(after)) > 1:
                    return len(story), _tell(story, key)
                if len(story) > most:
                    raise AssertionError(f"more than {most} states: not explored to the end")
                following.append(after)
        front = following
    return len(story), None


def _tell(story: dict[bytes, tuple[bytes, str] | None], key: bytes) -> list[str]:
    reported: list[str] = []
    step = story[key]
    while step is not None:
        key, label = step
        reported.append(label)
        step = story[key]
    return reported[::-1]


def _ordered(state: State) -> State:
    """One order for states that differ by the processes' numbers alone."""
    keys = [(_pack(process), _owned(state, number)) for number, process in enumerate(state.processes)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    if order == list(range(len(order))):
        return state
    place = {old: new for new, old in enumerate(order)}
    place[PAST] = PAST
    files = tuple((epoch, replace(file, owner=place[file.owner])) for epoch, file in state.files)
    copy = state.copy
    if copy is not None:
        copy = (copy[0], replace(copy[1], owner=place[copy[1].owner]))
    return replace(state, files=files, processes=tuple(state.processes[old] for old in order), copy=copy)


def _owned(state: State, number: int) -> tuple[int, ...]:
    copied = state.copy is not None and state.copy[1].owner == number
    return (*(epoch for epoch, file in state.files if file.owner == number), -int(copied))


def _sighting(epoch: int, file: File, place: int) -> Sighting:
    elsewhere = file.place != place
    record = None if elsewhere else _record(epoch, file)
    return Sighting(epoch=epoch, mark=_mark(epoch, file), record=record, elsewhere=elsewhere)


def _outside(state: State, epoch: int) -> Sighting | None:
    """The copy as a contender sees it that found `epoch` in the folder."""
    if state.copy is None:
        return None
    above, file = state.copy
    mark = replace(_mark(above, file), epoch=epoch)
    return Sighting(epoch=epoch, above=above, mark=mark, record=_record(above, file), outside=True)


def _mark(epoch: int, file: File) -> Mark:
    return Mark(epoch, file.sequence, "released" if file.released else "")


def _record(epoch: int, file: File) -> LeaseRecord:
    who = identity(file.owner)
    released = Released(reason="stop", at=0.0) if file.released else None
    return LeaseRecord(
        instance=str(file.owner),
        epoch=epoch,
        sequence=file.sequence,
        ttl=TTL,
        released=released,
        **msgspec.structs.asdict(who),
    )


def _higher(state: State, process: Process) -> bool:
    outside = state.copy[0] if state.copy is not None else 0
    return outside > process.mine or any(epoch > process.mine for epoch, _ in state.files)


def _ended_if_lost(process: Process, tenure: Tenure) -> Process:
    return Process(at="done") if tenure.state == "lost" else replace(process, at="own", tenure=tenure)


def _older(process: Process) -> Process:
    """One tick. What is long past is all the same."""
    changes: dict[str, Any] = {}
    if process.watched is not None:
        changes["watched"] = replace(process.watched, last=max(process.watched.last - 1, -STEP))
    if process.watched_copy is not None:
        changes["watched_copy"] = replace(process.watched_copy, last=max(process.watched_copy.last - 1, -STEP))
    if process.at in ("survey", "compare", "proclaim", "write", "relist"):
        changes["started"] = max(process.started - 1, -policy.validity(TTL))
    tenure = process.tenure
    if tenure is not None and tenure.state in ("valid", "frozen"):
        since = tenure.frozen_since
        changes["tenure"] = replace(
            tenure,
            valid_until=max(tenure.valid_until - 1, -1.0),
            frozen_since=None if since is None else max(since - 1, -2.0),
        )
    return replace(process, **changes) if changes else process
