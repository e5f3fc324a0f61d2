"""Rows: one state by precedence, actions by table, and nothing that moves in a gap."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from shared.catalog.advertised.capability import Serveable
from shared.catalog.advertised.rows import ACTIONS, Live, hidden_reason, library_rows, missing_reason, picker_rows
from shared.catalog.entry import ModelEntry
from shared.protocol.api import ActiveModel, BusyOperation, LibraryRow, RowAction, RowState, Status, Waiting

pytestmark = pytest.mark.unit

LIVE = Serveable(backend="llama", standing="live")
GAP = Serveable(backend="llama", standing="grace", remaining=40.0)
STOPPED = Serveable(backend="llama", standing="grace", stopped=True, remaining=40.0)
PAST = Serveable(backend="", standing="none", stopped=True)


def entry(name: str, *backends: str, **changes: Any) -> ModelEntry:
    reasons = {} if "openvino" in backends else {"openvino": "not for it"}
    fields: dict[str, Any] = {
        "name": name,
        "title": name,
        "digest": f"fp1-{name}",
        "path": f"/{name}",
        "source": "store",
        "architecture": "llama",
    }
    return ModelEntry(**(fields | {"backends": backends, "reasons": reasons} | changes))


ENTRIES = [
    entry("a", "llama", "openvino"),
    entry("b", "llama"),
    entry("c", "openvino", format="openvino", reasons={"llama": "llama.cpp reads GGUF files only"}),
    entry("d", problem="the file ends at byte 7"),
    entry("e", "llama", "openvino"),
]


def active(name: str) -> ActiveModel:
    return ActiveModel(
        name=name,
        backend="llama",
        digest="",
        path="",
        device="cpu",
        num_ctx=1,
        num_batch=1,
        gpu_layers=0,
        flash_attention=False,
        kv_type="f16",
        template_digest="",
        bos_policy="",
        reasoning_format="",
        runtime_digest="",
    )


def status(state: str, name: str = "", target: str = "", queue: tuple[str, ...] = (), **changes: Any) -> Status:
    busy = BusyOperation(
        operation="load", stage="", holder="Zed", age_s=1.0, detail={"model": target} if target else {}
    )
    return Status(
        instance="i",
        role="owner",
        pid=1,
        backend="llama",
        state=state,  # type: ignore[arg-type]
        generation=1,
        active=active(name) if name else None,
        busy=busy if target or state == "Busy" else None,
        queue=[Waiting(client="x", model=model, waited_s=0.0) for model in queue],
        **changes,
    )


def row(name: str, live: Live) -> LibraryRow:
    return next(row for row in library_rows(ENTRIES, live) if row.name == name)


@pytest.mark.parametrize(
    ("state", "name", "kept"),
    [
        (status("Empty"), "not loaded", ["activate"]),
        (status("Ready", "a"), "loaded", ["use", "unload"]),
        (status("Ready", "b"), "not loaded", ["switch"]),
        (status("Loading", target="a"), "loading", ["wait", "cancel"]),
        (status("Switching", "b", "a"), "loading", ["wait", "cancel"]),
        (status("Switching", "a", "b"), "unloading", ["wait"]),
        (status("Unloading", "a"), "unloading", ["wait"]),
        (status("Busy", "a"), "active", ["wait", "cancel"]),
        (status("Busy", "a", queue=("a",)), "active", ["wait", "cancel"]),
        (status("Busy", "b", queue=("b", "a")), "queued", ["wait", "cancel"]),
        (status("Failed"), "not loaded", ["activate"]),
    ],
)
def test_state_and_actions(state: Status, name: str, kept: list[str]) -> None:
    found = row("a", Live(serveable=LIVE, status=state))
    assert (found.state, found.actions) == (name, kept)


def test_the_place_in_the_queue_and_the_holder_are_said() -> None:
    live = Live(serveable=LIVE, status=status("Busy", "b", queue=("x", "a")))
    assert row("a", live).reason == "place 2 in the queue"
    assert row("b", live).reason == "in use by Zed"


def test_rows_are_the_same_throughout_a_gap() -> None:
    before = picker_rows(ENTRIES, Live(serveable=LIVE, status=status("Ready", "a")))
    for serveable in (GAP, STOPPED, LIVE):
        during = picker_rows(ENTRIES, Live(serveable=serveable))
        assert [(r.name, r.title, r.backend, r.path) for r in during] == [
            (r.name, r.title, r.backend, r.path) for r in before
        ]
        assert {r.state for r in during} == {"restarting"}


def test_the_gap_says_what_to_do() -> None:
    assert row("a", Live(serveable=GAP)).actions == ["wait"]
    stopped = row("a", Live(serveable=STOPPED))
    assert (stopped.actions, stopped.reason) == (["start_modeld"], "stopped, start modeld")


def test_past_the_grace_the_picker_is_empty_and_the_library_is_not() -> None:
    live = Live(serveable=PAST)
    assert picker_rows(ENTRIES, live) == []
    assert [r.name for r in library_rows(ENTRIES, live)] == ["a", "b", "c", "d", "e"]
    assert row("a", live).actions == ["start_modeld"]


def test_models_that_are_all_damaged_or_refused_are_told_and_not_called_missing() -> None:
    live = Live(serveable=LIVE, rejected={"fp1-b": "no tokenizer"})
    told = "d cannot run: the file ends at byte 7"
    assert hidden_reason([ENTRIES[3]], live) == f"{told}; see `modeld library`"
    assert hidden_reason([ENTRIES[3], ENTRIES[1]], live).startswith(f"{told} (1 more cannot run either)")
    assert hidden_reason([ENTRIES[3], ENTRIES[0]], live) == ""
    assert hidden_reason([], live) == ""


@pytest.mark.parametrize(
    ("engines", "backend"),
    [(None, "llama"), ({"llama", "openvino"}, "llama"), ({"openvino"}, "openvino"), (set[str](), "llama")],
)
def test_a_stopped_modelds_rows_name_the_engine_that_is_installed(engines: set[str] | None, backend: str) -> None:
    live = Live(serveable=PAST, engines=None if engines is None else frozenset(engines))
    assert row("a", live).backend == backend


def test_the_other_backends_models_are_explained_not_shown() -> None:
    live = Live(serveable=LIVE, status=status("Empty"))
    assert [r.name for r in picker_rows(ENTRIES, live)] == ["a", "b", "e"]
    hidden = row("c", live)
    assert hidden.state == "not servable"
    assert "modeld serves llama" in hidden.reason
    assert "1 more model needs the openvino backend" in hidden_reason(ENTRIES, live)
    assert hidden_reason(ENTRIES[:2], live) == ""
    assert hidden_reason(ENTRIES, Live(serveable=PAST)) == ""


def test_a_rejected_model_is_dropped_with_its_reason() -> None:
    live = Live(serveable=LIVE, status=status("Empty"), rejected={"fp1-a": "template error"})
    assert [r.name for r in picker_rows(ENTRIES, live)] == ["b", "e"]
    assert (row("a", live).state, row("a", live).reason) == ("rejected", "template error")
    assert missing_reason("a", ENTRIES, live) == "template error"


@pytest.mark.parametrize("serveable", [GAP, STOPPED])
def test_a_rejection_is_kept_apart_from_a_daemon_that_is_away(serveable: Serveable) -> None:
    """What was rejected does not come back in the gap; what merely cannot be asked about now stays."""
    live = Live(serveable=serveable, rejected={"fp1-a": "template error"})
    assert [r.name for r in picker_rows(ENTRIES, live)] == ["b", "e"]
    assert {r.state for r in picker_rows(ENTRIES, live)} == {"restarting"}


def test_a_repaired_file_is_not_the_rejected_one() -> None:
    live = Live(serveable=LIVE, status=status("Empty"), rejected={"fp1-of-before": "template error"})
    assert [r.name for r in picker_rows(ENTRIES, live)] == ["a", "b", "e"]


def test_broken_files_are_listed_with_their_reason() -> None:
    assert (row("d", Live(serveable=LIVE)).state, row("d", Live(serveable=LIVE)).actions) == ("not servable", [])
    assert "byte 7" in row("d", Live(serveable=LIVE)).reason


def test_a_missing_engine_is_offered() -> None:
    live = Live(serveable=LIVE, status=status("Empty"), engines=frozenset({"openvino"}))
    assert row("a", live).actions == ["install_engine"]


def test_fit_is_shown_for_what_is_not_loaded() -> None:
    live = Live(serveable=LIVE, status=status("Empty"), fits={"a": "fits with context 8,192"})
    assert row("a", live).reason == "fits with context 8,192"
    stopped = Live(serveable=PAST, fits={"a": "fits with context 8,192"})
    assert row("a", stopped).reason == "stopped, start modeld; fits with context 8,192"
    in_use = Live(serveable=LIVE, status=status("Busy", "a"), fits={"a": "fits with context 8,192"})
    assert row("a", in_use).reason == "in use by Zed"


@pytest.mark.parametrize(
    ("name", "serveable", "words"),
    [
        ("gone", LIVE, "not in the library any more"),
        ("c", LIVE, "llama.cpp reads GGUF files only; modeld serves llama"),
        ("d", LIVE, "ends at byte 7"),
        ("a", PAST, "modeld start"),
        ("a", Serveable(backend="", standing="none", ever=False), "has not been started"),
    ],
)
def test_why_a_remembered_pick_is_missing(name: str, serveable: Serveable, words: str) -> None:
    assert words in missing_reason(name, ENTRIES, Live(serveable=serveable))


def test_the_table_is_complete() -> None:
    states = set(get_args(RowState)) - {"restarting"}
    assert states <= set(ACTIONS)
    assert {action for actions in ACTIONS.values() for action in actions} == set(get_args(RowAction))


def test_a_modeld_without_an_engine_says_how_to_get_one() -> None:
    live = Live(serveable=Serveable(backend="none", standing="live"))
    assert "here, but modeld runs without an engine" in hidden_reason(ENTRIES, live)
    for row in library_rows(ENTRIES, live):
        if row.reason.startswith("modeld runs without"):
            assert row.actions == ["install_engine"]
            assert "modeld restart" in row.reason
            break
    else:
        raise AssertionError("no row says it")


def test_a_row_sees_where_files_and_engine_do_and_the_loaded_one_as_its_engine_says() -> None:
    eyes = entry("a", "llama", "openvino", vision=True, projector="/mmproj")
    assert [row.vision for row in picker_rows([eyes, entry("b", "llama")], Live(serveable=LIVE))] == [True, False]
    beside = Serveable(backend="openvino", standing="live")
    assert [row.vision for row in picker_rows([eyes], Live(serveable=beside))] == [False]
    for able in (True, False):
        loaded = msgspec.structs.replace(active("a"), capabilities={"vision": able})
        status = Status(instance="i", role="owner", pid=1, backend="llama", state="Ready", generation=1, active=loaded)
        assert [row.vision for row in picker_rows([eyes], Live(serveable=LIVE, status=status))] == [able]
