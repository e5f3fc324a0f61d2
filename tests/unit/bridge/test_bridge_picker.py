"""What the picker shows, and what a pick resolves to."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.models.picker import (
    NO_CHAT_MODEL,
    NOTHING,
    Choice,
    Picker,
    RemoteModel,
    build_picker,
    current_model,
    describe,
    is_remote,
    short_name,
)
from acp_bridge.models.resolve import HealDebounce, checked_pick, resolve, resolve_healed
from acp_bridge.models.view import FILES_CHECK_S
from shared.catalog.library import MAX_AGE
from shared.catalog.names import base_name
from shared.errors import ModelNotFound, NoAvailableModel, NoSatisfactoryModel, RemoteNotPicked
from shared.protocol.api import LibraryRow, RowState
from shared.text.words import size_text

pytestmark = pytest.mark.unit


def row(name: str, state: RowState = "not loaded", **more: object) -> LibraryRow:
    more.setdefault("has_template", True)
    return LibraryRow(
        name=name,
        title=name,
        backend="llama",
        format="gguf",
        path="",
        size_bytes=0,
        state=state,
        **more,  # type: ignore[arg-type]
    )


REMOTE = RemoteModel(id="vllm/big", name="big", provider="vllm")
NAMES = st.lists(st.sampled_from("abcdef"), unique=True)


@pytest.mark.parametrize("stem", ["lab/big", "lab\\big", "lab／big", "/", "a//b", "Lab/Big.Q4_K_M"])
def test_no_local_name_reads_as_a_remote_one(stem: str) -> None:
    assert not is_remote(base_name(stem))
    assert is_remote(REMOTE.id)


@given(NAMES, st.sampled_from(["", "a", "q", "vllm/big"]))
def test_a_remote_model_is_never_current_without_a_pick(names: list[str], default: str) -> None:
    picker = build_picker([row(name) for name in names], [REMOTE], "", default, "modeld stopped")
    assert picker.current == (default if default in names else NOTHING)
    assert current_model("", default) == (NOTHING if is_remote(default) or not default else default)
    assert build_picker([row(name) for name in names], [REMOTE], REMOTE.id, default, "").current == REMOTE.id


def test_where_nothing_answers_a_row_of_its_own_comes_first_and_names_the_ways_out() -> None:
    picker = build_picker([], [REMOTE], "", "", "modeld is not running; start it with `modeld start`")
    first = picker.groups[0].choices[0]
    assert picker.current == first.value == NOTHING
    assert first.name.startswith("No model: modeld is not running")
    assert first.description == "modeld is not running; start it with `modeld start`, or pick a remote model"
    assert picker.values() == [REMOTE.id], "it can be picked, and nothing else was"


@given(NAMES, st.sampled_from(["", "a", "z"]), st.sampled_from(["", "a", "q"]), st.booleans())
def test_the_current_value_is_always_offered(names: list[str], pick: str, default: str, remote: bool) -> None:
    picker = build_picker([row(name) for name in names], [REMOTE] if remote else [], pick, default, "gone")
    every = [choice.value for group in picker.groups for choice in group.choices]
    assert picker.current in every
    assert len(every) == len(set(every))
    if pick:
        assert picker.current == pick


@given(NAMES, st.sampled_from(["", "a", "z"]), st.sampled_from(["", "a", "b", "z"]))
def test_the_gap_changes_descriptions_alone(names: list[str], pick: str, active: str) -> None:
    before = build_picker([row(name, "loaded") for name in names], [], pick, "a", "", active)
    within = build_picker([row(name, "restarting", reason="restarting") for name in names], [], pick, "a", "", active)

    def shape(picker: Picker) -> list[tuple[str, str, list[tuple[str, str]]]]:
        return [
            (group.id, group.name, [(choice.value, choice.name) for choice in group.choices]) for group in picker.groups
        ]

    assert shape(before) == shape(within)
    assert before.current == within.current


def test_the_groups_are_active_installed_and_remote() -> None:
    picker = build_picker([row("a"), row("b", "loaded"), row("c")], [REMOTE], "", "a", "", "b")
    assert [(group.id, group.name, [choice.value for choice in group.choices]) for group in picker.groups] == [
        ("active", "Active", ["b"]),
        ("installed", "Installed", ["a", "c"]),
        ("remote-vllm", "Remote: vllm", ["vllm/big"]),
    ]


def test_an_active_model_that_is_not_advertised_makes_no_group() -> None:
    assert [group.id for group in build_picker([row("a")], [], "", "a", "", "z").groups] == ["installed"]
    embedder = row("e", embedding_only=True)
    assert [group.id for group in build_picker([row("a"), embedder], [], "", "a", "", "e").groups] == ["installed"]


def test_a_lost_pick_stays_with_its_reason() -> None:
    picker = build_picker([], [], "mine", "", "modeld is stopped")
    assert picker.current == "mine"
    assert picker.groups[-1].choices[0].description == "not available: modeld is stopped"


def test_nothing_at_all_is_one_entry_that_explains() -> None:
    picker = build_picker([], [], "", "", "modeld is stopped")
    assert picker.current == NOTHING
    assert [choice.description for group in picker.groups for choice in group.choices] == ["modeld is stopped"]
    assert picker.values() == []


def test_embedding_models_are_not_for_chat() -> None:
    picker = build_picker([row("chat"), row("embed", embedding_only=True)], [], "", "", "")
    assert picker.values() == ["chat"]


def test_a_stopped_daemon_is_said_in_the_description() -> None:
    assert describe(row("m", "restarting", reason="stopped, start modeld")) == "stopped, start modeld"


@pytest.mark.parametrize(
    ("name", "shown"), [("", ""), ("x" * 32, "x" * 32), ("x" * 33, "x" * 31 + "…"), ("x" * 100, "x" * 31 + "…")]
)
def test_names_fit_the_button(name: str, shown: str) -> None:
    assert short_name(name) == shown


def test_a_row_is_described_by_its_state_then_its_numbers() -> None:
    whole = row("m", "loaded", reason="by Zed", context_train=32768, quantization="Q4_K_M", has_template=False)
    assert describe(row("m")) == "not loaded"
    assert describe(msgspec.structs.replace(whole, size_bytes=2_000_000_000)) == (
        f"loaded (by Zed), {size_text(2_000_000_000)}, context 32,768, Q4_K_M, base model, no chat template"
    )
    assert describe(row("m", "restarting")) == "restarting"


def test_a_choice_is_the_row_under_its_title_and_a_remote_one_names_its_provider() -> None:
    titled = msgspec.structs.replace(row("m"), title="A model")
    far = msgspec.structs.replace(REMOTE, context=128000)
    picker = build_picker([titled, msgspec.structs.replace(row("n"), title="")], [REMOTE, far], "m", "", "")
    assert [choice for group in picker.groups for choice in group.choices] == [
        Choice(value="m", name="A model", description="not loaded"),
        Choice(value="n", name="n", description="not loaded"),
        Choice(value="vllm/big", name="big", description="remote, vllm"),
        Choice(value="vllm/big", name="big", description="remote, vllm, context 128,000"),
    ]


def test_remote_models_stand_by_their_provider_in_the_order_of_the_settings() -> None:
    other = RemoteModel(id="cloud/one", name="one", provider="cloud")
    third = RemoteModel(id="vllm/small", name="small", provider="vllm")
    groups = build_picker([], [REMOTE, other, third], "vllm/big", "", "").groups
    assert [(group.id, [choice.value for choice in group.choices]) for group in groups] == [
        ("remote-vllm", ["vllm/big", "vllm/small"]),
        ("remote-cloud", ["cloud/one"]),
    ]


def test_a_row_that_says_why_nothing_answers_has_the_heading_of_what_is_away() -> None:
    for picker in (build_picker([], [], "", "", ""), build_picker([], [], "mine", "", "")):
        assert [(group.id, group.name) for group in picker.groups] == [("unavailable", "Not available")]
    assert build_picker([], [], "", "", "").groups[0].choices[0].description == NO_CHAT_MODEL
    assert build_picker([], [], "x" * 40, "", "").groups[0].choices == (
        Choice(value="x" * 40, name="x" * 31 + "…", description="not available: not found"),
    )


def test_an_active_model_is_asked_for_by_nobody_unless_it_is_named() -> None:
    """Its name is "" where modeld said nothing: no row is that one."""
    assert [group.id for group in build_picker([row("a")], [], "a", "", "").groups] == ["installed"]


def test_resolving_is_strict() -> None:
    rows = [row("a"), row("b", "rejected", reason="bad tensors")]
    assert resolve("a", "", rows, [], "") is rows[0]
    assert resolve("vllm/big", "vllm/big", rows, [REMOTE], "") is REMOTE
    assert resolve("a", "", rows, [REMOTE], "") is rows[0]


@pytest.mark.parametrize(
    ("wanted", "reason", "said"),
    [
        ("b", "", "bad tensors"),
        ("d", "modeld is stopped", "not servable"),
        ("e", "", "rejected"),
        ("c", "", "it is not in the library any more"),
        ("c", "modeld is stopped", "modeld is stopped"),
    ],
)
def test_what_is_wanted_and_not_there_says_why(wanted: str, reason: str, said: str) -> None:
    rows = [row("a"), row("b", "rejected", reason="bad tensors"), row("d", "not servable"), row("e", "rejected")]
    with pytest.raises(NoSatisfactoryModel) as missing:
        resolve(wanted, wanted, rows, [REMOTE], reason)
    assert (missing.value.wanted, missing.value.reason) == (wanted, said)


@pytest.mark.parametrize("wanted", ["", NOTHING])
@pytest.mark.parametrize(
    ("remotes", "reason", "said"),
    [
        ([], "modeld is stopped", "modeld is stopped"),
        ([REMOTE], "modeld is stopped", "modeld is stopped, or pick a remote model"),
        ([], "", NO_CHAT_MODEL),
    ],
)
def test_where_nothing_is_wanted_the_ways_out_are_said(
    wanted: str, remotes: list[RemoteModel], reason: str, said: str
) -> None:
    with pytest.raises(NoAvailableModel) as nothing:
        resolve(wanted, "", [row("a")], remotes, reason)
    assert (nothing.value.wanted, nothing.value.reason) == (wanted, said)


@pytest.mark.parametrize("pick", ["", "a", "vllm/small", NOTHING])
def test_a_remote_model_that_is_named_and_not_picked_is_refused_with_the_remedy(pick: str) -> None:
    with pytest.raises(RemoteNotPicked, match="pick it in the model picker") as refused:
        resolve("vllm/big", pick, [row("a")], [REMOTE], "")
    assert (refused.value.model, refused.value.provider) == ("vllm/big", "vllm")


def test_a_wrong_pick_names_what_is_near() -> None:
    with pytest.raises(ModelNotFound) as wrong:
        checked_pick("smolm2", ["smollm2", "gemma"])
    assert wrong.value.near == ["smollm2"]
    with pytest.raises(ModelNotFound) as short:
        checked_pick("smollm2", ["smollm2-135m-instruct-q4_1", "gemma"])
    assert short.value.near == ["smollm2-135m-instruct-q4_1"], "a pick is a whole name, and how it begins is near"
    with pytest.raises(ModelNotFound) as number:
        checked_pick(7, ["7"])
    assert number.value.requested == "7"
    assert wrong.value.requested == "smolm2"
    assert checked_pick("gemma", ["smollm2", "gemma"]) == "gemma"


def test_a_remote_model_that_is_not_offered_is_refused_with_the_reason() -> None:
    with pytest.raises(ModelNotFound) as gone:
        checked_pick("vllm/gone", ["smollm2"], missing=lambda name: f"{name} is not at its provider")
    assert (gone.value.requested, gone.value.near) == ("vllm/gone", [])
    assert gone.value.message == "no model named vllm/gone: vllm/gone is not at its provider"
    with pytest.raises(ModelNotFound) as near:
        checked_pick("vllm/bog", ["vllm/big"])
    assert near.value.near == ["vllm/big"]
    with pytest.raises(ModelNotFound) as local:
        checked_pick("zzz", ["smollm2"])
    assert "no provider" not in local.value.message


@pytest.mark.anyio
async def test_a_miss_heals_once() -> None:
    rows: list[LibraryRow] = []
    healed = 0

    async def reconcile() -> None:
        nonlocal healed
        healed += 1
        rows.append(row("a"))

    assert (await resolve_healed(lambda: resolve("a", "", rows, [], ""), reconcile)).name == "a"
    assert healed == 1
    with pytest.raises(NoSatisfactoryModel):
        await resolve_healed(lambda: resolve("b", "", rows, [], ""), reconcile)
    assert healed == 2


@pytest.mark.anyio
async def test_other_errors_pass_through_unhealed() -> None:
    def attempt() -> None:
        raise ModelNotFound(requested="x", near=[])

    async def reconcile() -> None:
        raise AssertionError

    with pytest.raises(ModelNotFound):
        await resolve_healed(attempt, reconcile)


def test_fifty_misses_make_one_reconcile() -> None:
    heal = HealDebounce(5.0)
    assert sum(heal.due(1000 + index / 10, "lease") for index in range(50)) == 1
    assert heal.due(1004.9, "another lease")
    assert not heal.due(1005.0, "another lease")
    assert not heal.due(1009.8, "another lease")
    assert heal.due(1009.9, "another lease")
    assert not heal.due(1010.0, "another lease")
    heal.forget()
    assert heal.due(1010.0, "another lease"), "one that did not come to its end does not count"


def test_a_new_file_is_looked_for_in_time() -> None:
    """Each look of a bridge finds the last one of its library old enough, and leaves time to read a header."""
    assert MAX_AGE < FILES_CHECK_S < 15.0 - 2.0


def test_a_base_model_is_distinguished_from_one_that_chats() -> None:
    rows = [row("chats"), row("base", has_template=False), row("vectors", has_template=False, embedding_only=True)]
    reported = [describe(one).endswith("base model, no chat template") for one in rows]
    assert reported == [False, True, False]


def test_a_pick_outlives_a_change_of_names() -> None:
    """A model is called by its repository now; a conversation still says `model@1c0da3`."""
    rows = [row("jan-v1-4b", aliases=["model@1c0da3", "model"]), row("model"), row("gemma")]
    old = "model@1c0da3"
    picker = build_picker(rows, [REMOTE], old, "gemma", "")
    assert (picker.current, len(picker.values())) == ("jan-v1-4b", 4)
    assert resolve(old, old, rows, [REMOTE], "") is rows[0]
    assert checked_pick(old, picker.values(), rows) == "jan-v1-4b"
    assert resolve("model", "model", rows, [REMOTE], "") is rows[1], "who has the name by right comes first"
    with pytest.raises(NoSatisfactoryModel):
        resolve("model@other", "", rows, [], "")
