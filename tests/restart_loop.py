"""modeld goes and comes back, again and again, while editors poll their pickers, pick and prompt.

Each cycle ends the daemon in another way (stop, kill -9, handover to another version, restart) and looks at every
picker in the gap, also at one of a bridge that is born in it. Raises AssertionError on the first thing that moves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from clients.bridge import model_option
from picker_world import (
    MODELS,
    OTHER_VERSION,
    PATIENCE,
    End,
    Seat,
    Shape,
    World,
    groups,
    is_away,
    is_live,
    outcome,
    shape_of,
    values,
)
from waiting import until

ENDS: tuple[End, ...] = ("stop", "kill", "upgrade")
EDITORS = 5
#: Every so many gaps (that are no stop) last longer than a prompt waits.
LONG_EVERY = 5


@dataclass
class Tally:
    """What was looked at, and how long it took in seconds."""

    gaps: dict[str, int] = field(default_factory=dict)
    polls: int = 0
    pushes: int = 0
    born: int = 0
    picks: int = 0
    prompts: dict[str, int] = field(default_factory=dict)
    refused_after_stop: list[float] = field(default_factory=list)
    retryable: list[float] = field(default_factory=list)
    served: list[float] = field(default_factory=list)
    live_again: list[float] = field(default_factory=list)
    gap_lengths: list[float] = field(default_factory=list)

    def prompted(self, how: str) -> None:
        """One more prompt in a gap that ended so."""
        self.prompts[how] = self.prompts.get(how, 0) + 1


class RestartLoop:
    """Five editors around one modeld. `run` as many cycles as wanted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tally = Tally()
        self.cycles = 0
        self.other_version = False
        world.start()
        self.seats = [world.sit(f"work{number}") for number in range(EDITORS)]
        for number, seat in enumerate(self.seats):
            seat.until(is_live, "the models are listed")
            seat.pick(MODELS[number % len(MODELS)])

    def run(self, cycles: int) -> Tally:
        """So many restarts."""
        for _ in range(cycles):
            expected = self._before()
            kind = self.cycles % (len(ENDS) + 1)
            if kind == len(ENDS):
                self._in_place(expected)
            else:
                self._cycle(ENDS[kind], expected)
            self.cycles += 1
        return self.tally

    def _before(self) -> list[Shape]:
        if self.cycles % 2 == 0:
            self._load(self.seats[self.cycles % EDITORS])
        return self._settled()

    def _cycle(self, how: End, expected: list[Shape]) -> None:
        world, seats, tally = self.world, self.seats, self.tally
        heard = [len(seat.bridge.updates) for seat in seats]
        long = how != "stop" and self.cycles % LONG_EVERY == LONG_EVERY - 1
        began = time.monotonic()
        world.end(how)
        for number, seat in enumerate(seats):
            self._until_away(seat, expected[number])
        self._birth(seats[0], expected[0])
        self._pick(self.cycles % EDITORS, expected)
        asker = seats[(self.cycles + 1) % EDITORS]
        asked = time.monotonic()
        pending = asker.bridge.begin_prompt(asker.session, "hello")
        if how == "stop" or long:
            self._refused(asker, pending, asked, how)
        for number, seat in enumerate(seats):  # still in the gap: nobody started anything
            self._same(seat, expected[number])
        for number, seat in enumerate(seats):
            self._pushes(seat, heard[number], expected[number], in_gap=True)
        tally.gaps[how] = tally.gaps.get(how, 0) + 1
        tally.gap_lengths.append(time.monotonic() - began)
        self.other_version = self.other_version != (how == "upgrade")
        world.start(version=OTHER_VERSION if self.other_version else "")
        if how != "stop" and not long:
            self._served(asker, pending, asked, expected[seats.index(asker)])
        for number, seat in enumerate(seats):
            self._until_live(seat, expected[number])
            self._pushes(seat, heard[number], expected[number], in_gap=False)
        if how == "upgrade":
            assert (world.version() == OTHER_VERSION) == self.other_version

    def _in_place(self, expected: list[Shape]) -> None:
        """The daemon restarts itself: nobody can say when the gap begins, and no picker may show more than it."""
        world, seats = self.world, self.seats
        heard = [len(seat.bridge.updates) for seat in seats]
        before = world.instance()
        world.restart()
        asker = seats[self.cycles % EDITORS]
        asked = time.monotonic()
        pending = asker.bridge.begin_prompt(asker.session, "hello")
        with world.born(seats[0].work.name) as seat:
            allowed(model_option(seat.made), expected[0], grouped=False)  # the next instance may have spoken
        self._served(asker, pending, asked, expected[seats.index(asker)])
        until(lambda: world.instance() not in ("", before), "modeld is back as another instance")
        for number, seat in enumerate(seats):
            self._until_live(seat, expected[number])
            self._pushes(seat, heard[number], expected[number], in_gap=False)
        self.tally.gaps["restart"] = self.tally.gaps.get("restart", 0) + 1

    # --- before --------------------------------------------------------------------------------

    def _load(self, seat: Seat) -> None:
        kind, reported = outcome(seat, seat.bridge.begin_prompt(seat.session, "hello"))
        assert (kind, reported.get("model")) == ("served", seat.poll()["currentValue"]), (kind, reported)

    def _settled(self) -> list[Shape]:
        """What the pickers look like before the daemon goes: the active model under its heading in every one."""
        active = self.world.active()
        wanted = [active] if active else []
        shapes = []
        for seat in self.seats:
            seat.until(lambda option: is_live(option) and groups(option).get("active", []) == wanted, f"{active} is on")
            shapes.append(shape_of(seat.poll()))
        return shapes

    # --- in the gap ----------------------------------------------------------------------------

    def _until_away(self, seat: Seat, expected: Shape) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_away(self._same(seat, expected)):
            assert time.monotonic() < deadline, "the picker does not say that modeld is away"

    def _same(self, seat: Seat, expected: Shape) -> dict[str, Any]:
        option = seat.poll()
        self.tally.polls += 1
        assert shape_of(option) == expected, f"\n{shape_of(option)}\n{expected}"
        return option

    def _birth(self, beside: Seat, expected: Shape) -> None:
        """A bridge that never saw the daemon shows the same, in its first answer and ever after."""
        with self.world.born(beside.work.name) as seat:
            made = model_option(seat.made)
            assert shape_of(made) == expected, f"\n{shape_of(made)}\n{expected}"
            self._until_away(seat, expected)
            self._pushes(seat, 0, expected, in_gap=True)
        self.tally.born += 1

    def _pick(self, number: int, expected: list[Shape]) -> None:
        """A pick in the gap is kept; nothing else moves by it."""
        seat, before = self.seats[number], expected[number]
        name = MODELS[(MODELS.index(before[0]) + 1) % len(MODELS)]
        after = (name, before[1])
        assert shape_of(seat.pick(name)) == after
        expected[number] = after
        self._same(seat, after)
        self.tally.picks += 1

    def _refused(self, seat: Seat, pending: Any, asked: float, how: End) -> None:
        """After a stop at once, else when the daemon was not back in time: one typed line. Nobody could answer."""
        kind, data = outcome(seat, pending)
        took = time.monotonic() - asked
        if how == "stop":
            assert kind == "daemon_not_running", (kind, data)
            self.tally.refused_after_stop.append(took)
        else:
            assert (kind, data["retryable"]) == ("daemon_restarting", True), (kind, data)
            self.tally.retryable.append(took)
        assert data["lines"] == 1, data
        self.tally.prompted("refused after a stop" if how == "stop" else "ended in one retryable line")

    # --- after ---------------------------------------------------------------------------------

    def _served(self, seat: Seat, pending: Any, asked: float, expected: Shape) -> None:
        kind, reported = outcome(seat, pending)
        if kind == "daemon_restarting" and reported["retryable"]:
            # the machine was too slow to bring modeld back in time: as honest an end
            assert time.monotonic() - asked >= 3.0, reported
            self.tally.prompted("ended in one retryable line")
            return
        assert (kind, reported.get("model")) == ("served", expected[0]), (kind, reported, expected[0])
        self.tally.served.append(time.monotonic() - asked)
        self.tally.prompted("served when modeld was back")

    def _until_live(self, seat: Seat, expected: Shape) -> None:
        """Gap or live, it is the same list; only what is active may have another heading once modeld says so."""
        deadline = time.monotonic() + PATIENCE
        while True:
            option = seat.poll()
            self.tally.polls += 1
            allowed(option, expected)
            if is_live(option):
                self.tally.live_again.append(time.monotonic() - self.world.started)
                return
            assert time.monotonic() < deadline, "the picker does not notice that modeld is back"

    def _pushes(self, seat: Seat, heard: int, expected: Shape, *, in_gap: bool) -> None:
        """What came by itself since then. A pick in the gap may have moved the current value to `expected`'s."""
        for at, option in seat.pushed():
            if at < heard:
                continue
            self.tally.pushes += 1
            if in_gap:
                assert shape_of(option)[1] == expected[1], f"\n{shape_of(option)}\n{expected}"
            else:
                allowed(option, expected, current=False)


def allowed(option: dict[str, Any], expected: Shape, *, current: bool = True, grouped: bool = True) -> None:
    """A picker once modeld may be back: the same values and names; in the gap exactly the same."""
    listed = {value: name for _, _, choices in expected[1] for value, name in choices}
    if grouped and is_away(option):
        assert shape_of(option)[1] == expected[1], f"\n{shape_of(option)}\n{expected}"
    assert {choice["value"]: choice["name"] for group in option["options"] for choice in group["options"]} == listed
    for members in groups(option).values():
        assert members == sorted(members)
    assert len(values(option)) == len(listed)
    if current:
        assert option["currentValue"] == expected[0], f"{option['currentValue']} for {expected[0]}"
