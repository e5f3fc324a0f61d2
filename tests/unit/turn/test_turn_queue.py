"""Who goes next: fair among clients, in batches by model, and never for ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.turn import queue
from modeld.turn.queue import LINGER, Hold, Kind, Resident, Ticket, TurnQueue, Uses
from shared.errors import QueueFull
from shared.settings import Settings
from unit_slot_identities import asked, resolved

pytestmark = pytest.mark.unit

SETTINGS = Settings()


class Bench:
    """A queue with a clock and ticket numbers."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.queue = TurnQueue(settings)
        self.now = 1000.0
        self.number = 0
        self.resident: Resident | None = resolved("a")
        self.since = 0.0

    def add(self, client: int, model: str = "a", kind: Kind = "turn", **fields: Any) -> Ticket:
        self.number += 1
        wanted = None if kind == "unload" else asked(model)
        ticket = Ticket(
            number=self.number,
            client=client,
            client_name=f"client {client}",
            kind=kind,
            model=model,
            wanted=wanted,
            arrived=self.now,
            deadline=self.now + 120.0,
            **fields,
        )
        self.queue.add(ticket)
        return ticket

    def next(self) -> Ticket | None:
        return self.queue.next(self.now, self.resident, self.since)

    def serve(self) -> Ticket:
        ticket = self.next()
        assert ticket is not None
        self.queue.take(ticket)
        if ticket.wanted is not None and (self.resident is None or ticket.model != self.resident.name):
            self.resident = resolved(ticket.model)
            self.since = self.now
        return ticket


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_first_come_first_served_inside_one_client(bench: Bench) -> None:
    first, second = bench.add(1), bench.add(1)
    assert [bench.serve(), bench.serve()] == [first, second]


def test_an_order_asks_each_ticket_once_whether_it_needs_another_model(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many clients cost what one costs with as many turns."""
    tickets = [bench.add(client, "ab"[client % 2]) for client in range(32)]
    asked_of: list[Ticket] = []
    fits = queue._fits

    def counted(ticket: Ticket, resident: Resident | None) -> bool:
        asked_of.append(ticket)
        return fits(ticket, resident)

    monkeypatch.setattr(queue, "_fits", counted)
    order = bench.queue.order(bench.now, bench.resident, bench.since)
    assert asked_of == tickets
    assert [ticket.model for ticket in order] == ["a"] * 16 + ["b"] * 16


def test_a_client_with_many_turns_does_not_keep_the_others_waiting(bench: Bench) -> None:
    for _ in range(3):
        bench.add(1)
    bench.add(2)
    assert [bench.serve().client for _ in range(4)] == [1, 2, 1, 1]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=32))
def test_no_client_gets_its_nth_turn_before_anothers_turn_before(arrivals: list[int]) -> None:
    bench = Bench()
    for client in arrivals:
        bench.add(client)
    served: dict[int, int] = dict.fromkeys(set(arrivals), 0)
    left = {client: arrivals.count(client) for client in set(arrivals)}
    for _ in arrivals:
        client = bench.serve().client
        served[client] += 1
        left[client] -= 1
        waiting = [other for other in left if left[other]]
        assert all(served[client] <= served[other] + 1 for other in waiting)


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from("ab")), max_size=20))
def test_places_tell_the_order_that_is_then_served(arrivals: list[tuple[int, str]]) -> None:
    bench = Bench()
    for client, model in arrivals:
        bench.add(client, model)
    order = bench.queue.order(bench.now, bench.resident, bench.since)
    assert len(order) == len(arrivals)
    if order:
        assert bench.next() == order[0]


@given(st.lists(st.integers(1, 4), max_size=8), st.lists(st.integers(1, 4), max_size=16))
def test_the_whole_order_comes_true_where_no_other_model_is_wanted(before: list[int], arrivals: list[int]) -> None:
    bench = Bench()
    for client in before:
        bench.add(client)
        bench.serve()
    for client in arrivals:
        bench.add(client)
    order = bench.queue.order(bench.now, bench.resident, bench.since)
    assert [bench.serve() for _ in arrivals] == order


def test_a_client_that_dials_again_comes_behind_those_who_waited_meanwhile(bench: Bench) -> None:
    for client in (2, 1):
        bench.add(client)
        bench.serve()
    bench.queue.drop_client(1)
    again = bench.add(1)
    kept = bench.add(2)
    assert [bench.serve(), bench.serve()] == [kept, again]


@given(st.lists(st.tuples(st.sampled_from(["kept", "fresh", "serve"]), st.integers(1, 4)), max_size=60))
def test_nobody_waits_for_more_than_one_turn_of_each_other_client(steps: list[tuple[str, int]]) -> None:
    """Kept connections, and such that are dialled for one turn and closed behind it."""
    bench = Bench()
    seen: dict[int, list[int]] = {}  # for each waiting client, whose turns it has seen
    fresh = 100
    for what, client in steps:
        if what == "kept" and client not in seen:
            bench.add(client)
            seen[client] = []
        elif what == "fresh":
            fresh += 1
            bench.add(fresh)
            seen[fresh] = []
        elif what == "serve" and seen:
            served = bench.serve().client
            waited = seen.pop(served)
            assert len(waited) == len(set(waited)), f"client {served} waited for {waited}"
            for others in seen.values():
                others.append(served)
            if served > 100:
                bench.queue.drop_client(served)
    for client, waited in seen.items():
        assert len(waited) == len(set(waited)), f"client {client} waits for {waited}"
    front = [ticket.client for ticket in bench.queue.order(bench.now, bench.resident, bench.since)]
    assert sorted(front) == sorted(seen)


@pytest.mark.parametrize("keep", [True, False])
def test_an_editor_is_served_beside_loops_of_scripts(bench: Bench, keep: bool) -> None:
    """Whether the loops keep their connections or dial again for each turn."""
    bench.add(1)
    bench.serve()
    numbers = iter(range(100, 200))
    loops = [next(numbers), next(numbers)]
    for loop in loops:
        bench.add(loop)
    editor = bench.add(1)
    between = 0
    while (served := bench.serve()) != editor:
        between += 1
        assert between <= 2
        if not keep:
            bench.queue.drop_client(served.client)
        bench.add(served.client if keep else next(numbers))


def test_the_queue_is_bounded(bench: Bench) -> None:
    for number in range(SETTINGS.queue_limit):
        bench.add(number)
    with pytest.raises(QueueFull) as caught:
        bench.add(99)
    assert (caught.value.position, caught.value.waited_s) == (SETTINGS.queue_limit + 1, 0.0)


def test_warm_and_fill_never_fill_the_queue_up_for_turns(bench: Bench) -> None:
    for number in range(SETTINGS.queue_limit):
        bench.add(number, kind="warm")
    turn = bench.add(99)
    assert bench.next() == turn


def test_turns_go_before_fill_and_fill_before_warm(bench: Bench) -> None:
    bench.add(1, kind="warm")
    bench.add(2, kind="fill")
    bench.add(3)
    assert [bench.serve().kind for _ in range(3)] == ["turn", "fill", "warm"]


def test_a_ticket_past_its_deadline_is_taken_out(bench: Bench) -> None:
    late = bench.add(1)
    assert bench.queue.expired(bench.now + 119) == []
    assert bench.queue.expired(bench.now + 120) == [late]
    assert len(bench.queue) == 0


def test_a_client_that_goes_leaves_nothing(bench: Bench) -> None:
    gone = bench.add(1)
    stays = bench.add(2)
    bench.queue.hold(1, "client 1", "a", "run", bench.now)
    assert bench.queue.drop_client(1) == [gone]
    assert bench.queue.holds(bench.now) == []
    assert bench.queue.waiting == [stays]


def test_a_client_that_went_and_comes_back_is_a_newcomer(bench: Bench) -> None:
    bench.add(1)
    bench.serve()
    bench.queue.drop_client(1)
    first, _ = bench.add(1), bench.add(2)
    assert bench.next() == first, "nothing is held against it: it came first"


def test_a_ticket_can_be_taken_back_once(bench: Bench) -> None:
    ticket, stays = bench.add(1), bench.add(2)
    assert bench.queue.remove(ticket.number)
    assert not bench.queue.remove(ticket.number)
    assert bench.queue.waiting == [stays]


def test_an_empty_queue_has_nobody_and_waits_for_no_moment(bench: Bench) -> None:
    bench.queue.hold(1, "client 1", "a", "run", bench.now)
    bench.queue.note_use(1, bench.now)
    assert bench.next() is None
    assert bench.queue.order(bench.now, bench.resident, bench.since) == []
    assert bench.queue.next_moment(bench.now, bench.resident, bench.since) is None


def test_an_unload_fits_whatever_is_resident(bench: Bench) -> None:
    bench.queue.hold(2, "client 2", "a", "run", bench.now)
    unload = bench.add(1, kind="unload")
    assert bench.next() == unload
    assert users_of(bench, Uses(SETTINGS), 2) == []


def test_the_next_moment_is_the_first_at_which_time_alone_changes_the_choice(bench: Bench) -> None:
    """A deadline; of a switch, its bound; of a switch after the use of another, that pause."""

    def moment() -> float | None:
        when = bench.queue.next_moment(bench.now, bench.resident, bench.since)
        return None if when is None else when - 1000.0

    bench.add(1, "a")
    bench.queue.note_use(2, bench.now)
    assert moment() == 120.0
    bench.add(1, "b")
    assert moment() == LINGER
    bench.now += LINGER
    assert moment() == SETTINGS.affinity_bound
    bench.now = 1000.0 + SETTINGS.affinity_bound
    assert moment() == 120.0
    bench.now = 1120.0
    assert moment() is None


def test_the_first_of_those_in_front_goes_first(bench: Bench) -> None:
    bench.add(9)
    first, second = bench.add(2, "b", front=True), bench.add(1, "a", front=True)
    assert [bench.serve(), bench.serve()] == [first, second]


def test_a_switch_beside_a_hold_goes_at_once_where_it_is_in_front_or_nothing_is_resident(bench: Bench) -> None:
    bench.queue.hold(2, "client 2", "a", "run", bench.now)
    switch = bench.add(1, "b")
    assert bench.next() is None
    assert bench.queue.next(bench.now, None, bench.since) == switch
    front = bench.add(1, "b", front=True)
    assert bench.next() == front


def test_a_hold_of_a_model_that_is_not_resident_keeps_nobody_waiting(bench: Bench) -> None:
    bench.queue.hold(2, "client 2", "c", "run", bench.now)
    switch = bench.add(1, "b")
    assert bench.next() == switch


def test_a_model_that_has_gone_leaves_no_pause_behind(bench: Bench) -> None:
    switch = bench.add(1, "b")
    bench.queue.note_use(2, bench.now)
    bench.queue.forget_use()
    assert bench.next() == switch


def test_holds_are_known_with_their_ends_and_each_by_its_run(bench: Bench) -> None:
    bench.queue.hold(1, "Zed", "a", "one", bench.now)
    bench.queue.hold(1, "Zed", "a", "two", bench.now + 1.0)
    bench.queue.hold(2, "VS Code", "b", "one", bench.now + 2.0)
    ends = bench.now + SETTINGS.hold_ttl
    assert bench.queue.holds(bench.now) == [
        Hold(client=1, client_name="Zed", model="a", run="one", expires=ends),
        Hold(client=1, client_name="Zed", model="a", run="two", expires=ends + 1.0),
        Hold(client=2, client_name="VS Code", model="b", run="one", expires=ends + 2.0),
    ]
    bench.queue.release(2, "two")  # that client has none of this name
    assert len(bench.queue.holds(ends)) == 2
    bench.queue.drop_client(1)
    assert [hold.client for hold in bench.queue.holds(ends)] == [2]
    assert bench.queue.holds(ends + 2.0) == []


def test_on_busy_cancel_goes_first(bench: Bench) -> None:
    bench.add(1)
    front = bench.add(2, "b", front=True)
    assert bench.next() == front


# --- two models --------------------------------------------------------------------------------


def test_turns_of_the_resident_model_run_before_a_switch(bench: Bench) -> None:
    switch = bench.add(1, "b")
    here = bench.add(2, "a")
    assert [bench.serve(), bench.serve()] == [here, switch]


def test_a_switch_waits_no_longer_than_the_affinity_bound(bench: Bench) -> None:
    switch = bench.add(1, "b")
    for _ in range(29):
        bench.now += 1.0
        bench.add(2, "a")
        assert bench.serve().model == "a"
    bench.now += 1.0
    bench.add(2, "a")
    assert bench.next() == switch


def test_the_bound_grows_with_the_load_time_of_the_waiting_model(bench: Bench) -> None:
    bench.add(1, "b", load_seconds=9.0)
    bench.add(2, "a")
    bench.now += 89.0
    assert bench.next() is not None
    assert bench.next().model == "a"  # type: ignore[union-attr]
    bench.now += 1.0
    assert bench.next().model == "b"  # type: ignore[union-attr]


def test_the_bound_counts_from_the_arrival_of_the_resident_model(bench: Bench) -> None:
    """Else tickets that waited for long would switch back at once: two editors would thrash."""
    bench.add(1, "b")
    bench.now += 100.0
    bench.resident, bench.since = resolved("c"), bench.now
    here = bench.add(2, "c")
    assert bench.next() == here


def test_two_editors_with_two_models_alternate_in_batches(bench: Bench) -> None:
    """Each turn takes 4 s and each editor sends its next one at once: 10 turns each."""
    left = {1: 10, 2: 10}
    models = {1: "a", 2: "b"}
    switches = 0
    for client in left:
        bench.add(client, models[client])
    finished = 0
    while finished < 20:
        before = bench.resident
        ticket = bench.serve()
        switches += bench.resident != before
        bench.now += 4.0
        finished += 1
        left[ticket.client] -= 1
        if left[ticket.client]:
            bench.add(ticket.client, models[ticket.client])
    assert left == {1: 0, 2: 0}
    assert switches <= 3  # 20 turns of 4 s in batches of about 30 s


def test_a_hold_keeps_the_switch_of_another_waiting(bench: Bench) -> None:
    bench.queue.hold(2, "client 2", "a", "run", bench.now)
    switch = bench.add(1, "b")
    assert bench.next() is None
    assert bench.queue.next_moment(bench.now, bench.resident, bench.since) == bench.now + SETTINGS.hold_ttl
    bench.now += SETTINGS.hold_ttl
    assert bench.next() == switch


def test_a_hold_that_is_renewed_yields_at_the_affinity_bound(bench: Bench) -> None:
    switch = bench.add(1, "b")
    waited = 0.0
    while bench.next() is None or waited == 0.0:
        bench.queue.hold(2, "client 2", "a", "run", bench.now)
        bench.now += 5.0
        waited += 5.0
        assert waited <= SETTINGS.affinity_bound
    assert bench.next() == switch
    assert waited == SETTINGS.affinity_bound


def test_a_switch_waits_a_moment_for_the_next_turn_of_another(bench: Bench) -> None:
    switch = bench.add(1, "b")
    bench.queue.note_use(2, bench.now)
    assert bench.next() is None
    assert bench.queue.next_moment(bench.now, bench.resident, bench.since) == bench.now + LINGER
    here = bench.add(2, "a")
    assert bench.serve() == here
    bench.now += LINGER
    assert bench.next() == switch


def test_a_switch_does_not_wait_for_its_own_client_nor_for_one_that_has_gone(bench: Bench) -> None:
    switch = bench.add(1, "b")
    bench.queue.note_use(1, bench.now)
    assert bench.next() == switch
    bench.queue.note_use(2, bench.now)
    bench.queue.drop_client(2)
    assert bench.next() == switch


def test_a_clients_own_hold_does_not_keep_its_own_switch_waiting(bench: Bench) -> None:
    bench.queue.hold(1, "client 1", "a", "run", bench.now)
    switch = bench.add(1, "b")
    assert bench.next() == switch


def test_a_released_hold_is_over(bench: Bench) -> None:
    bench.queue.hold(2, "client 2", "a", "run", bench.now)
    bench.queue.release(2, "run")
    switch = bench.add(1, "b")
    assert bench.next() == switch


def test_a_load_under_way_counts_as_its_model(bench: Bench) -> None:
    bench.resident = asked("b")
    bench.add(1, "a")
    here = bench.add(2, "b")
    assert bench.next() == here


# --- consent -----------------------------------------------------------------------------------


def users_of(bench: Bench, uses: Uses, client: int) -> list[str]:
    return uses.in_use_by(client, bench.now, bench.queue, resolved("a"))


def test_only_others_that_used_it_within_a_minute_are_asked_for(bench: Bench) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "Zed", bench.now)
    uses.used(2, "VS Code", bench.now - 61)
    assert users_of(bench, uses, 3) == ["Zed"]
    assert users_of(bench, uses, 1) == []
    bench.now += 60
    assert users_of(bench, uses, 3) == []


def test_holders_and_waiters_are_asked_for(bench: Bench) -> None:
    uses = Uses(SETTINGS)
    bench.queue.hold(1, "Zed", "a", "run", bench.now)
    bench.add(2, "a")
    bench.add(4, "b")
    assert users_of(bench, uses, 3) == ["Zed", "client 2"]


def test_a_model_that_has_gone_has_no_users(bench: Bench) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "Zed", bench.now)
    uses.forget()
    assert users_of(bench, uses, 3) == []


def test_the_minute_counts_from_the_end_of_a_turn(bench: Bench) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "Zed", bench.now)
    uses.used(2, "VS Code", bench.now)
    uses.ended(1, bench.now + 30.0)
    bench.now += 60.0
    assert users_of(bench, uses, 3) == ["Zed"]
    bench.now += 30.0
    assert users_of(bench, uses, 3) == []


def test_nobody_is_asked_for_himself_nor_twice_nor_for_another_model(bench: Bench) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "client 1", bench.now)
    bench.queue.hold(1, "client 1", "a", "run", bench.now)
    bench.queue.hold(4, "client 4", "b", "run", bench.now)
    bench.add(1, "a")
    assert users_of(bench, uses, 1) == []
    assert users_of(bench, uses, 3) == ["client 1"]


def test_a_client_that_has_gone_is_not_asked_for(bench: Bench) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "Zed", bench.now)
    uses.used(2, "VS Code", bench.now)
    uses.drop_client(1)
    uses.drop_client(1)
    uses.ended(1, bench.now)
    assert users_of(bench, uses, 3) == ["VS Code"]
