"""What modeld said last, kept for the gap."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.models.row_cache import UNSETTLED, RowCache, Seen
from bridge_fakes import active
from shared.catalog.entry import ModelEntry
from shared.protocol.api import Rejected, SlotStateName, Status

pytestmark = pytest.mark.unit

ENTRY = ModelEntry(name="a", path="/a.gguf", source="store", template="{{ x }}", kv=())


def status(state: SlotStateName, name: str = "", rejected: list[Rejected] | None = None) -> Status:
    return Status(
        instance="i", role="owner", pid=1, backend="llama", state=state, generation=1,
        active=active(name) if name else None, rejected=rejected or [],
    )  # fmt: skip


def test_what_is_loaded_has_its_heading_until_the_slot_is_empty() -> None:
    seen = Seen().after(status("Ready", "a"))
    assert (seen.active, seen.last_active) == ("a", "a")
    assert seen.after(status("Busy", "a")) == seen
    emptied = seen.after(status("Empty"))
    assert (emptied.active, emptied.last_active) == ("", "a")


@pytest.mark.parametrize("state", sorted(UNSETTLED))
def test_a_slot_on_its_way_moves_nothing(state: SlotStateName) -> None:
    seen = Seen().after(status("Ready", "a"))
    assert seen.after(status(state)).active == "a"


@given(st.lists(st.sampled_from([*sorted(UNSETTLED), "Empty", "Ready", "Busy", "Failed"])))
def test_a_daemon_that_ends_leaves_the_picker_as_it_was(states: list[SlotStateName]) -> None:
    """Whatever came before, the statuses of an orderly end do not regroup."""
    seen = Seen()
    for state in states:
        seen = seen.after(status(state, "b" if state in ("Ready", "Busy") else ""))
    assert seen.after(status("ShuttingDown", "b")).after(status("ShuttingDown")).active == seen.active


def test_rejections_are_those_of_the_last_status() -> None:
    seen = Seen().after(status("Failed", rejected=[Rejected(name="a", digest="fp1-a", reason="bad")]))
    assert seen.rejected == {"fp1-a": "bad"}
    assert seen.after(status("Empty")).rejected == {}


def test_the_next_bridge_reads_what_the_last_one_saw(tmp_path: Path) -> None:
    first, second, third = (RowCache(tmp_path / "rows") for _ in range(3))
    assert first.read().seen == Seen()
    first.write([ENTRY], Seen(active="a", last_active="a", rejected={"fp1-b": "bad"}))
    second.write([ENTRY, ENTRY], None)  # away from modeld: it knows the files alone
    remembered = third.read()
    assert remembered.seen == Seen(active="a", last_active="a", rejected={"fp1-b": "bad"})
    assert [entry.name for entry in remembered.entries] == ["a", "a"]
    assert remembered.entries[0].has_template


def test_a_damaged_or_older_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text('{"entries": [], "active": 7, "seen": 3}')
    assert RowCache(tmp_path / "rows").read().entries == ()
