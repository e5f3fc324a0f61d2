"""Rows: one state by precedence, actions by table, and nothing that moves in a gap."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from shared.catalog.advertised.capability import Servable
from shared.catalog.advertised.rows import ACTIONS, Live, hidden_reason, library_rows, missing_reason, picker_rows
from shared.catalog.entry import ModelEntry
from shared.diagnosis.remedy import install_command
from shared.protocol.api import ActiveModel, BusyOperation, LibraryRow, RowAction, RowState, Status, Waiting
from shared.text.words import START_MODELD

pytestmark = pytest.mark.unit

LIVE = Servable(backend="llama", standing="live")
GAP = Servable(backend="llama", standing="grace", remaining=40.0)
STOPPED = Servable(backend="llama", standing="grace", stopped=True, remaining=40.0)
PAST = Servable(backend="", standing="none", stopped=True)


def entry(name: str, *backends: str, **changes: Any) -> ModelEntry:
    reasons = {} if "openvino" in backends else {"openvino": "not for it"}
    fields: dict[str, Any] = {
        "name": name,
        "title": name,
        "digest": f"fp1-{name}",
        "path": f"/{name}",
        "source": "store",
        "architecture": "llama",
        "complete": True,
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
    found = row("a", Live(servable=LIVE, status=state))
    assert (found.state, found.actions) == (name, kept)


def test_the_place_in_the_queue_and_the_holder_are_said() -> None:
    live = Live(servable=LIVE, status=status("Busy", "b", queue=("x", "a")))
    assert row("a", live).reason == "place 2 in the queue"
    assert row("b", live).reason == "in use by Zed"


def test_rows_are_the_same_throughout_a_gap() -> None:
    before = picker_rows(ENTRIES, Live(servable=LIVE, status=status("Ready", "a")))
    for servable in (GAP, STOPPED, LIVE):
        during = picker_rows(ENTRIES, Live(servable=servable))
        assert [(r.name, r.title, r.backend, r.path) for r in during] == [
            (r.name, r.title, r.backend, r.path) for r in before
        ]
        assert {r.state for r in during} == {"restarting"}


def test_the_gap_says_what_to_do() -> None:
    assert row("a", Live(servable=GAP)).actions == ["wait"]
    stopped = row("a", Live(servable=STOPPED))
    assert (stopped.actions, stopped.reason) == (["start_modeld"], "stopped, start modeld")


def test_past_the_grace_the_picker_is_empty_and_the_library_is_not() -> None:
    live = Live(servable=PAST)
    assert picker_rows(ENTRIES, live) == []
    assert [r.name for r in library_rows(ENTRIES, live)] == ["a", "b", "c", "d", "e"]
    assert row("a", live).actions == ["start_modeld"]


def test_models_that_are_all_damaged_or_refused_are_reported_and_not_called_missing() -> None:
    live = Live(servable=LIVE, rejected={"fp1-b": "no tokenizer"})
    reported = "d cannot run: the file ends at byte 7"
    assert hidden_reason([ENTRIES[3]], live) == f"{reported}; see `modeld library`"
    assert hidden_reason([ENTRIES[3], ENTRIES[1]], live).startswith(f"{reported} (1 more cannot run either)")
    assert hidden_reason([ENTRIES[3], ENTRIES[0]], live) == ""
    assert hidden_reason([], live) == ""


@pytest.mark.parametrize(
    ("engines", "backend"),
    [(None, "llama"), ({"llama", "openvino"}, "llama"), ({"openvino"}, "openvino"), (set[str](), "llama")],
)
def test_a_stopped_modelds_rows_name_the_engine_that_is_installed(engines: set[str] | None, backend: str) -> None:
    live = Live(servable=PAST, engines=None if engines is None else frozenset(engines))
    assert row("a", live).backend == backend


def test_the_other_backends_models_are_explained_not_shown() -> None:
    live = Live(servable=LIVE, status=status("Empty"))
    assert [r.name for r in picker_rows(ENTRIES, live)] == ["a", "b", "e"]
    hidden = row("c", live)
    assert hidden.state == "not servable"
    assert "modeld serves llama" in hidden.reason
    assert "1 more model needs the openvino backend" in hidden_reason(ENTRIES, live)
    assert hidden_reason(ENTRIES[:2], live) == ""
    assert hidden_reason(ENTRIES, Live(servable=PAST)) == ""


def test_a_rejected_model_is_dropped_with_its_reason() -> None:
    live = Live(servable=LIVE, status=status("Empty"), rejected={"fp1-a": "template error"})
    assert [r.name for r in picker_rows(ENTRIES, live)] == ["b", "e"]
    assert (row("a", live).state, row("a", live).reason) == ("rejected", "template error")
    assert missing_reason("a", ENTRIES, live) == "template error"


@pytest.mark.parametrize("servable", [GAP, STOPPED])
def test_a_rejection_is_kept_apart_from_a_daemon_that_is_away(servable: Servable) -> None:
    """What was rejected does not come back in the gap; what merely cannot be asked about now stays."""
    live = Live(servable=servable, rejected={"fp1-a": "template error"})
    assert [r.name for r in picker_rows(ENTRIES, live)] == ["b", "e"]
    assert {r.state for r in picker_rows(ENTRIES, live)} == {"restarting"}


def test_a_repaired_file_is_not_the_rejected_one() -> None:
    live = Live(servable=LIVE, status=status("Empty"), rejected={"fp1-of-before": "template error"})
    assert [r.name for r in picker_rows(ENTRIES, live)] == ["a", "b", "e"]


def test_broken_files_are_listed_with_their_reason() -> None:
    assert (row("d", Live(servable=LIVE)).state, row("d", Live(servable=LIVE)).actions) == ("not servable", [])
    assert "byte 7" in row("d", Live(servable=LIVE)).reason


def test_a_missing_engine_is_offered() -> None:
    live = Live(servable=LIVE, status=status("Empty"), engines=frozenset({"openvino"}))
    assert row("a", live).actions == ["install_engine"]


def test_fit_is_shown_for_what_is_not_loaded() -> None:
    live = Live(servable=LIVE, status=status("Empty"), fits={"a": "fits with context 8,192"})
    assert row("a", live).reason == "fits with context 8,192"
    stopped = Live(servable=PAST, fits={"a": "fits with context 8,192"})
    assert row("a", stopped).reason == "stopped, start modeld; fits with context 8,192"
    in_use = Live(servable=LIVE, status=status("Busy", "a"), fits={"a": "fits with context 8,192"})
    assert row("a", in_use).reason == "in use by Zed"


@pytest.mark.parametrize(
    ("name", "servable", "words"),
    [
        ("gone", LIVE, "not in the library any more"),
        ("c", LIVE, "llama.cpp reads GGUF files only; modeld serves llama"),
        ("d", LIVE, "ends at byte 7"),
        ("a", PAST, "modeld start"),
        ("a", Servable(backend="", standing="none", ever=False), "has not been started"),
    ],
)
def test_why_a_remembered_pick_is_missing(name: str, servable: Servable, words: str) -> None:
    assert words in missing_reason(name, ENTRIES, Live(servable=servable))


def test_the_table_is_complete() -> None:
    states = set(get_args(RowState)) - {"restarting"}
    assert states <= set(ACTIONS)
    assert {action for actions in ACTIONS.values() for action in actions} == set(get_args(RowAction))


def test_a_modeld_without_an_engine_says_how_to_get_one() -> None:
    live = Live(servable=Servable(backend="none", standing="live"))
    assert "here, but modeld runs without an engine" in hidden_reason(ENTRIES, live)
    for row in library_rows(ENTRIES, live):
        if row.reason.startswith("modeld runs without"):
            assert row.actions == ["install_engine"]
            assert "modeld restart" in row.reason
            break
    else:
        raise AssertionError("no row says it")


def test_a_row_has_vision_where_files_and_engine_do_and_the_loaded_one_as_its_engine_says() -> None:
    eyes = entry("a", "llama", "openvino", vision=True, projector="/mmproj")
    assert [row.vision for row in picker_rows([eyes, entry("b", "llama")], Live(servable=LIVE))] == [True, False]
    beside = Servable(backend="openvino", standing="live")
    assert [row.vision for row in picker_rows([eyes], Live(servable=beside))] == [False]
    for able in (True, False):
        loaded = msgspec.structs.replace(active("a"), capabilities={"vision": able})
        status = Status(instance="i", role="owner", pid=1, backend="llama", state="Ready", generation=1, active=loaded)
        assert [row.vision for row in picker_rows([eyes], Live(servable=LIVE, status=status))] == [able]


def test_a_row_says_all_that_is_known_of_its_file() -> None:
    known = entry(
        "a",
        "llama",
        title="A model",
        format="gguf",
        size_bytes=7,
        parameters=8,
        quantization="Q4_K_M",
        context_train=9,
        source="lmstudio",
        template="{{ x }}",
        tools=True,
        thinking=True,
        fim=(1, 2, 3),
        embedding_only=True,
        projector="/sight",
    )
    (row,) = library_rows([known], Live(servable=LIVE, status=status("Empty")))
    assert row == LibraryRow(
        name="a",
        title="A model",
        backend="llama",
        format="gguf",
        path="/a",
        size_bytes=7,
        state="not loaded",
        architecture="llama",
        parameters=8,
        quantization="Q4_K_M",
        context_train=9,
        digest="fp1-a",
        source="lmstudio",
        has_template=True,
        tools=True,
        thinking=True,
        vision=False,
        fim=True,
        embedding_only=True,
        parts=["/a", "/sight"],
        reason="",
        actions=["activate"],
    )
    (plain,) = library_rows([entry("p")], Live(servable=LIVE))
    assert (plain.backend, plain.fim, plain.has_template) == ("", False, False)


NO_ENGINE = f"modeld runs without an engine: `{install_command('openvino')}` (or [llama]), then `modeld restart`"
OTHER = Servable(backend="openvino", standing="live")
BOTH = frozenset({"llama", "openvino"})


@pytest.mark.parametrize(
    ("model", "live", "said"),
    [
        (entry("d", problem="the file ends"), Live(servable=LIVE), ("not servable", [], "the file ends")),
        (entry("d", "llama", problem="the file ends"), Live(servable=PAST), ("not servable", [], "the file ends")),
        (entry("d"), Live(servable=LIVE), ("not servable", [], "no engine can run it")),
        (entry("a", "llama"), Live(servable=PAST), ("not loaded", ["start_modeld"], "stopped, start modeld")),
        (
            entry("a", "llama"),
            Live(servable=PAST, engines=BOTH),
            ("not loaded", ["start_modeld"], "stopped, start modeld"),
        ),
        (
            entry("a", "llama"),
            Live(servable=PAST, engines=frozenset({"openvino"})),
            ("not loaded", ["install_engine"], "no engine that can run it is installed"),
        ),
        (
            entry("a", "llama"),
            Live(servable=Servable(backend="none", standing="live")),
            ("not servable", ["install_engine"], NO_ENGINE),
        ),
        (
            entry("c", "openvino", format="openvino"),
            Live(servable=LIVE),
            ("not servable", [], "llama.cpp reads GGUF files only; modeld serves llama"),
        ),
        (
            entry("a", "llama", shards=("/1", "/2")),
            Live(servable=OTHER),
            ("not servable", [], "OpenVINO's GGUF reader takes single files only; modeld serves openvino"),
        ),
        (
            entry("a", "llama", architecture="odd"),
            Live(servable=OTHER),
            ("not servable", [], "OpenVINO's GGUF reader does not know the architecture odd; modeld serves openvino"),
        ),
        (
            entry("a", "llama"),
            Live(servable=LIVE, engines=frozenset({"openvino"})),
            ("not servable", ["install_engine"], "the llama engine is not installed"),
        ),
        (entry("a", "llama"), Live(servable=GAP, status=status("Empty")), ("restarting", ["wait"], "restarting")),
        (entry("a", "llama"), Live(servable=LIVE), ("restarting", ["wait"], "restarting")),
        (
            entry("a", "llama"),
            Live(servable=STOPPED, engines=BOTH),
            ("restarting", ["start_modeld"], "stopped, start modeld"),
        ),
    ],
)
def test_the_first_reason_in_the_order_of_precedence_is_said(
    model: ModelEntry, live: Live, said: tuple[str, list[str], str]
) -> None:
    (row,) = library_rows([model], live)
    assert (row.state, row.actions, row.reason) == said


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (status("Loading", target="a"), ""),
        (status("Switching", "a", "b"), ""),
        (status("Unloading", "a"), ""),
        (status("Busy", "a"), "in use by Zed"),
        (msgspec.structs.replace(status("Busy", "a"), busy=None), ""),
        (status("Ready", "a"), ""),
        (status("Ready", "a", pending_reload=True), "changed settings wait for the next load"),
        (status("Ready", "b"), ""),
        (status("Ready", "b", queue=("a", "a")), "place 1 in the queue"),
    ],
)
def test_why_a_running_model_is_as_it_is(state: Status, reason: str) -> None:
    assert row("a", Live(servable=LIVE, status=state)).reason == reason


def test_a_load_that_names_no_model_shows_on_no_row() -> None:
    """A status without its operation, or with one that does not say of what."""
    for state in (msgspec.structs.replace(status("Loading"), busy=None), status("Loading", target="")):
        rows = library_rows([entry(name, "llama") for name in ("None", "XXXX")], Live(servable=LIVE, status=state))
        assert [found.state for found in rows] == ["not loaded"] * 2


def test_models_of_other_engines_are_counted_under_the_one_that_serves_most_of_them() -> None:
    many = [entry(name, "openvino") for name in "pq"] + [entry("r", "else"), entry("s", "openvino", kind="adapter")]
    serves = "modeld serves llama (`modeld restart --backend openvino`)"
    live = Live(servable=LIVE)
    assert hidden_reason([ENTRIES[0], *many], live) == f"3 more models need the openvino backend; {serves}"
    assert hidden_reason(many[:1], live) == f"1 more model needs the openvino backend; {serves}"
    even = hidden_reason([entry("r", "else"), many[0]], live)
    assert even == f"2 more models need the openvino backend; {serves}", "of as many, the last by name"
    none = Live(servable=Servable(backend="none", standing="live"))
    assert hidden_reason(many, none) == f"3 models are here, but {NO_ENGINE}"
    assert hidden_reason(many[:1], none) == f"1 model is here, but {NO_ENGINE}"


@pytest.mark.parametrize(
    ("name", "live", "why"),
    [
        ("gone", Live(servable=LIVE), "it is not in the library any more"),
        ("d", Live(servable=LIVE), "the file ends at byte 7"),
        ("a", Live(servable=Servable(backend="none", standing="live")), NO_ENGINE),
        ("a", Live(servable=Servable(backend="other", standing="live")), "not servable; modeld serves other"),
        ("a", Live(servable=PAST), f"modeld is stopped; {START_MODELD}"),
        ("a", Live(servable=Servable(backend="", standing="none", ever=False)), "modeld has not been started"),
    ],
)
def test_why_a_pick_is_missing_word_for_word(name: str, live: Live, why: str) -> None:
    assert missing_reason(name, ENTRIES, live) == why


def test_a_model_whose_header_is_not_read_yet_is_no_base_model() -> None:
    reported = [
        library_rows([entry("m", "llama", **changes)], Live(servable=LIVE))[0].has_template
        for changes in ({"complete": False}, {"complete": True}, {"complete": False, "problem": "the file ends"})
    ]
    assert reported == [True, False, False]


def test_a_row_keeps_the_names_that_its_model_had_before() -> None:
    entry = msgspec.structs.replace(ENTRIES[0], aliases=("old-name",))
    assert [row.aliases for row in library_rows([entry], Live(servable=PAST))] == [["old-name"]]
