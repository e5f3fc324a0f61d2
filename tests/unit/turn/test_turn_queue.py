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


class Desk:
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
def desk() -> Desk:
    return Desk()


def test_first_come_first_served_inside_one_client(desk: Desk) -> None:
    first, second = desk.add(1), desk.add(1)
    assert [desk.serve(), desk.serve()] == [first, second]


def test_an_order_asks_each_ticket_once_whether_it_needs_another_model(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many clients cost what one costs with as many turns."""
    tickets = [desk.add(client, "ab"[client % 2]) for client in range(32)]
    asked_of: list[Ticket] = []
    fits = queue._fits

    def counted(ticket: Ticket, resident: Resident | None) -> bool:
        asked_of.append(ticket)
        return fits(ticket, resident)

    monkeypatch.setattr(queue, "_fits", counted)
    order = desk.queue.order(desk.now, desk.resident, desk.since)
    assert asked_of == tickets
    assert [ticket.model for ticket in order] == ["a"] * 16 + ["b"] * 16


def test_a_client_with_many_turns_does_not_keep_the_others_waiting(desk: Desk) -> None:
    for _ in range(3):
        desk.add(1)
    desk.add(2)
    assert [desk.serve().client for _ in range(4)] == [1, 2, 1, 1]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=32))
def test_no_client_gets_its_nth_turn_before_anothers_turn_before(arrivals: list[int]) -> None:
    desk = Desk()
    for client in arrivals:
        desk.add(client)
    served: dict[int, int] = dict.fromkeys(set(arrivals), 0)
    left = {client: arrivals.count(client) for client in set(arrivals)}
    for _ in arrivals:
        client = desk.serve().client
        served[client] += 1
        left[client] -= 1
        waiting = [other for other in left if left[other]]
        assert all(served[client] <= served[other] + 1 for other in waiting)


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from("ab")), max_size=20))
def test_places_tell_the_order_that_is_then_served(arrivals: list[tuple[int, str]]) -> None:
    desk = Desk()
    for client, model in arrivals:
        desk.add(client, model)
    order = desk.queue.order(desk.now, desk.resident, desk.since)
    assert len(order) == len(arrivals)
    if order:
        assert desk.next() == order[0]


@given(st.lists(st.integers(1, 4), max_size=8), st.lists(st.integers(1, 4), max_size=16))
def test_the_whole_order_comes_true_where_no_other_model_is_wanted(before: list[int], arrivals: list[int]) -> None:
    desk = Desk()
    for client in before:
        desk.add(client)
        desk.serve()
    for client in arrivals:
        desk.add(client)
    order = desk.queue.order(desk.now, desk.resident, desk.since)
    assert [desk.serve() for _ in arrivals] == order


def test_a_client_that_dials_anew_comes_behind_those_who_waited_meanwhile(desk: Desk) -> None:
    for client in (2, 1):
        desk.add(client)
        desk.serve()
    desk.queue.drop_client(1)
    again = desk.add(1)
    kept = desk.add(2)
    assert [desk.serve(), desk.serve()] == [kept, again]


@given(st.lists(st.tuples(st.sampled_from(["kept", "fresh", "serve"]), st.integers(1, 4)), max_size=60))
def test_nobody_waits_for_more_than_one_turn_of_each_other_client(steps: list[tuple[str, int]]) -> None:
    """Kept connections, and such that are dialled for one turn and closed behind it."""
    desk = Desk()
    seen: dict[int, list[int]] = {}  # for each waiting client, whose turns it has seen
    fresh = 100
    for what, client in steps:
        if what == "kept" and client not in seen:
            desk.add(client)
            seen[client] = []
        elif what == "fresh":
            fresh += 1
            desk.add(fresh)
            seen[fresh] = []
        elif what == "serve" and seen:
            served = desk.serve().client
            waited = seen.pop(served)
            assert len(waited) == len(set(waited)), f"client {served} waited for {waited}"
            for others in seen.values():
                others.append(served)
            if served > 100:
                desk.queue.drop_client(served)
    for client, waited in seen.items():
        assert len(waited) == len(set(waited)), f"client {client} waits for {waited}"
    front = [ticket.client for ticket in desk.queue.order(desk.now, desk.resident, desk.since)]
    assert sorted(front) == sorted(seen)


@pytest.mark.parametrize("keep", [True, False])
def test_an_editor_is_served_beside_loops_of_scripts(desk: Desk, keep: bool) -> None:
    """Whether the loops keep their connections or dial anew for each turn."""
    desk.add(1)
    desk.serve()
    numbers = iter(range(100, 200))
    loops = [next(numbers), next(numbers)]
    for loop in loops:
        desk.add(loop)
    editor = desk.add(1)
    between = 0
    while (served := desk.serve()) != editor:
        between += 1
        assert between <= 2
        if not keep:
            desk.queue.drop_client(served.client)
        desk.add(served.client if keep else next(numbers))


def test_the_queue_is_bounded(desk: Desk) -> None:
    for number in range(SETTINGS.queue_limit):
        desk.add(number)
    with pytest.raises(QueueFull) as caught:
        desk.add(99)
    assert (caught.value.position, caught.value.waited_s) == (SETTINGS.queue_limit + 1, 0.0)


def test_warm_and_fill_never_fill_the_queue_up_for_turns(desk: Desk) -> None:
    for number in range(SETTINGS.queue_limit):
        desk.add(number, kind="warm")
    turn = desk.add(99)
    assert desk.next() == turn


def test_turns_go_before_fill_and_fill_before_warm(desk: Desk) -> None:
    desk.add(1, kind="warm")
    desk.add(2, kind="fill")
    desk.add(3)
    assert [desk.serve().kind for _ in range(3)] == ["turn", "fill", "warm"]


def test_a_ticket_past_its_deadline_is_taken_out(desk: Desk) -> None:
    late = desk.add(1)
    assert desk.queue.expired(desk.now + 119) == []
    assert desk.queue.expired(desk.now + 120) == [late]
    assert len(desk.queue) == 0


def test_a_client_that_goes_leaves_nothing(desk: Desk) -> None:
    gone = desk.add(1)
    stays = desk.add(2)
    desk.queue.hold(1, "client 1", "a", "run", desk.now)
    assert desk.queue.drop_client(1) == [gone]
    assert desk.queue.holds(desk.now) == []
    assert desk.queue.waiting == [stays]


def test_a_ticket_can_be_taken_back_once(desk: Desk) -> None:
    ticket, stays = desk.add(1), desk.add(2)
    assert desk.queue.remove(ticket.number)
    assert not desk.queue.remove(ticket.number)
    assert desk.queue.waiting == [stays]


def test_an_empty_queue_has_nobody_and_waits_for_no_moment(desk: Desk) -> None:
    desk.queue.hold(1, "client 1", "a", "run", desk.now)
    desk.queue.note_use(1, desk.now)
    assert desk.next() is None
    assert desk.queue.order(desk.now, desk.resident, desk.since) == []
    assert desk.queue.next_moment(desk.now, desk.resident, desk.since) is None


def test_an_unload_fits_whatever_is_resident(desk: Desk) -> None:
    desk.queue.hold(2, "client 2", "a", "run", desk.now)
    unload = desk.add(1, kind="unload")
    assert desk.next() == unload
    assert users_of(desk, Uses(SETTINGS), 2) == []


def test_the_next_moment_is_the_first_at_which_time_alone_changes_the_choice(desk: Desk) -> None:
    """A deadline; of a switch, its bound; of a switch after the use of another, that pause."""

    def moment() -> float | None:
        when = desk.queue.next_moment(desk.now, desk.resident, desk.since)
        return None if when is None else when - 1000.0

    desk.add(1, "a")
    desk.queue.note_use(2, desk.now)
    assert moment() == 120.0
    desk.add(1, "b")
    assert moment() == LINGER
    desk.now += LINGER
    assert moment() == SETTINGS.affinity_bound
    desk.now = 1000.0 + SETTINGS.affinity_bound
    assert moment() == 120.0
    desk.now = 1120.0
    assert moment() is None


def test_the_first_of_those_in_front_goes_first(desk: Desk) -> None:
    desk.add(9)
    first, second = desk.add(2, "b", front=True), desk.add(1, "a", front=True)
    assert [desk.serve(), desk.serve()] == [first, second]


def test_a_switch_beside_a_hold_goes_at_once_where_it_is_in_front_or_nothing_is_resident(desk: Desk) -> None:
    desk.queue.hold(2, "client 2", "a", "run", desk.now)
    switch = desk.add(1, "b")
    assert desk.next() is None
    assert desk.queue.next(desk.now, None, desk.since) == switch
    front = desk.add(1, "b", front=True)
    assert desk.next() == front


def test_a_hold_of_a_model_that_is_not_resident_keeps_nobody_waiting(desk: Desk) -> None:
    desk.queue.hold(2, "client 2", "c", "run", desk.now)
    switch = desk.add(1, "b")
    assert desk.next() == switch


def test_a_model_that_has_gone_leaves_no_pause_behind(desk: Desk) -> None:
    switch = desk.add(1, "b")
    desk.queue.note_use(2, desk.now)
    desk.queue.forget_use()
    assert desk.next() == switch


def test_holds_are_known_with_their_ends_and_each_by_its_run(desk: Desk) -> None:
    desk.queue.hold(1, "Zed", "a", "one", desk.now)
    desk.queue.hold(1, "Zed", "a", "two", desk.now + 1.0)
    desk.queue.hold(2, "VS Code", "b", "one", desk.now + 2.0)
    ends = desk.now + SETTINGS.hold_ttl
    assert desk.queue.holds(desk.now) == [
        Hold(client=1, client_name="Zed", model="a", run="one", expires=ends),
        Hold(client=1, client_name="Zed", model="a", run="two", expires=ends + 1.0),
        Hold(client=2, client_name="VS Code", model="b", run="one", expires=ends + 2.0),
    ]
    desk.queue.release(2, "two")  # that client has none of this name
    assert len(desk.queue.holds(ends)) == 2
    desk.queue.drop_client(1)
    assert [hold.client for hold in desk.queue.holds(ends)] == [2]
    assert desk.queue.holds(ends + 2.0) == []


def test_on_busy_cancel_goes_first(desk: Desk) -> None:
    desk.add(1)
    front = desk.add(2, "b", front=True)
    assert desk.next() == front


# --- two models --------------------------------------------------------------------------------


def test_turns_of_the_resident_model_run_before_a_switch(desk: Desk) -> None:
    switch = desk.add(1, "b")
    here = desk.add(2, "a")
    assert [desk.serve(), desk.serve()] == [here, switch]


def test_a_switch_waits_no_longer_than_the_affinity_bound(desk: Desk) -> None:
    switch = desk.add(1, "b")
    for _ in range(29):
        desk.now += 1.0
        desk.add(2, "a")
        assert desk.serve().model == "a"
    desk.now += 1.0
    desk.add(2, "a")
    assert desk.next() == switch


def test_the_bound_grows_with_the_load_time_of_the_waiting_model(desk: Desk) -> None:
    desk.add(1, "b", load_seconds=9.0)
    desk.add(2, "a")
    desk.now += 89.0
    assert desk.next() is not None
    assert desk.next().model == "a"  # type: ignore[union-attr]
    desk.now += 1.0
    assert desk.next().model == "b"  # type: ignore[union-attr]


def test_the_bound_counts_from_the_arrival_of_the_resident_model(desk: Desk) -> None:
    """Else tickets that waited for long would switch back at once: two editors would thrash."""
    desk.add(1, "b")
    desk.now += 100.0
    desk.resident, desk.since = resolved("c"), desk.now
    here = desk.add(2, "c")
    assert desk.next() == here


def test_two_editors_with_two_models_alternate_in_batches(desk: Desk) -> None:
    """Each turn takes 4 s and each editor sends its next one at once: 10 turns each."""
    left = {1: 10, 2: 10}
    models = {1: "a", 2: "b"}
    switches = 0
    for client in left:
        desk.add(client, models[client])
    finished = 0
    while finished < 20:
        before = desk.resident
        ticket = desk.serve()
        switches += desk.resident != before
        desk.now += 4.0
        finished += 1
        left[ticket.client] -= 1
        if left[ticket.client]:
            desk.add(ticket.client, models[ticket.client])
    assert left == {1: 0, 2: 0}
    assert switches <= 3  # 20 turns of 4 s in batches of about 30 s


def test_a_hold_keeps_the_switch_of_another_waiting(desk: Desk) -> None:
    desk.queue.hold(2, "client 2", "a", "run", desk.now)
    switch = desk.add(1, "b")
    assert desk.next() is None
    assert desk.queue.next_moment(desk.now, desk.resident, desk.since) == desk.now + SETTINGS.hold_ttl
    desk.now += SETTINGS.hold_ttl
    assert desk.next() == switch


def test_a_hold_that_is_renewed_yields_at_the_affinity_bound(desk: Desk) -> None:
    switch = desk.add(1, "b")
    waited = 0.0
    while desk.next() is None or waited == 0.0:
        desk.queue.hold(2, "client 2", "a", "run", desk.now)
        desk.now += 5.0
        waited += 5.0
        assert waited <= SETTINGS.affinity_bound
    assert desk.next() == switch
    assert waited == SETTINGS.affinity_bound


def test_a_switch_waits_a_moment_for_the_next_turn_of_another(desk: Desk) -> None:
    switch = desk.add(1, "b")
    desk.queue.note_use(2, desk.now)
    assert desk.next() is None
    assert desk.queue.next_moment(desk.now, desk.resident, desk.since) == desk.now + LINGER
    here = desk.add(2, "a")
    assert desk.serve() == here
    desk.now += LINGER
    assert desk.next() == switch


def test_a_switch_does_not_wait_for_its_own_client_nor_for_one_that_has_gone(desk: Desk) -> None:
    switch = desk.add(1, "b")
    desk.queue.note_use(1, desk.now)
    assert desk.next() == switch
    desk.queue.note_use(2, desk.now)
    desk.queue.drop_client(2)
    assert desk.next() == switch


def test_a_clients_own_hold_does_not_keep_its_own_switch_waiting(desk: Desk) -> None:
    desk.queue.hold(1, "client 1", "a", "run", desk.now)
    switch = desk.add(1, "b")
    assert desk.next() == switch


def test_a_released_hold_is_over(desk: Desk) -> None:
    desk.queue.hold(2, "client 2", "a", "run", desk.now)
    desk.queue.release(2, "run")
    switch = desk.add(1, "b")
    assert desk.next() == switch


def test_a_load_under_way_counts_as_its_model(desk: Desk) -> None:
    desk.resident = asked("b")
    desk.add(1, "a")
    here = desk.add(2, "b")
    assert desk.next() == here


# --- consent -----------------------------------------------------------------------------------


def users_of(desk: Desk, uses: Uses, client: int) -> list[str]:
    return uses.in_use_by(client, desk.now, desk.queue, resolved("a"))


def test_only_others_that_used_it_within_a_minute_are_asked_for(desk: Desk) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "Zed", desk.now)
    uses.used(2, "VS Code", desk.now - 61)
    assert users_of(desk, uses, 3) == ["Zed"]
    assert users_of(desk, uses, 1) == []
    desk.now += 60
    assert users_of(desk, uses, 3) == []


def test_holders_and_waiters_are_asked_for(desk: Desk) -> None:
    uses = Uses(SETTINGS)
    desk.queue.hold(1, "Zed", "a", "run", desk.now)
    desk.add(2, "a")
    desk.add(4, "b")
    assert users_of(desk, uses, 3) == ["Zed", "client 2"]


def test_a_model_that_has_gone_has_no_users(desk: Desk) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "Zed", desk.now)
    uses.forget()
    assert users_of(desk, uses, 3) == []


def test_the_minute_counts_from_the_end_of_a_turn(desk: Desk) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "Zed", desk.now)
    uses.used(2, "VS Code", desk.now)
    uses.ended(1, desk.now + 30.0)
    desk.now += 60.0
    assert users_of(desk, uses, 3) == ["Zed"]
    desk.now += 30.0
    assert users_of(desk, uses, 3) == []


def test_nobody_is_asked_for_himself_nor_twice_nor_for_another_model(desk: Desk) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "client 1", desk.now)
    desk.queue.hold(1, "client 1", "a", "run", desk.now)
    desk.queue.hold(4, "client 4", "b", "run", desk.now)
    desk.add(1, "a")
    assert users_of(desk, uses, 1) == []
    assert users_of(desk, uses, 3) == ["client 1"]


def test_a_client_that_has_gone_is_not_asked_for(desk: Desk) -> None:
    uses = Uses(SETTINGS)
    uses.used(1, "Zed", desk.now)
    uses.used(2, "VS Code", desk.now)
    uses.drop_client(1)
    uses.drop_client(1)
    uses.ended(1, desk.now)
    assert users_of(desk, uses, 3) == ["VS Code"]
