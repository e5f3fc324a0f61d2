"""The pure parts of the LSP face: rows, status, messages, text around a cursor."""

import msgspec
import pytest

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.inline import CUT_STEP, PREFIX_MOST, SUFFIX_MOST, Around, around, tidy, worth_asking
from acp_bridge.faces.lsp.messages import chat_messages, chat_tools, image_count, since_answer
from acp_bridge.faces.lsp.progress import stage_text, turn_event
from acp_bridge.faces.lsp.rows import Seen, library_models, picker_models, shown, wire_fit
from acp_bridge.faces.lsp.state import service_status, settled, slot_progress
from acp_bridge.models.memory_forecast import Room, forecasts, planned, reserve_bytes
from acp_bridge.models.picker import RemoteModel
from acp_bridge.turn.context import head_length
from modeld.cli.commands.describe import plan_text
from shared.catalog.advertised.fit import SOURCES, Fit, Source, Verdict
from shared.client.locate import Detection
from shared.protocol import api
from shared.settings import Settings

pytestmark = pytest.mark.unit
GIB = 1 << 30


def row(name: str, **more: object) -> api.LibraryRow:
    facts = {"title": name, "backend": "llama", "format": "gguf", "path": "p", "size_bytes": 5, "context_train": 8192}
    return api.LibraryRow(name=name, **{**facts, **more})  # type: ignore[arg-type]


def active(name: str) -> api.ActiveModel:
    return api.ActiveModel(
        name=name, backend="llama", digest="d", path="p", device="cpu", num_ctx=4096, num_batch=1, gpu_layers=0,
        flash_attention=False, kv_type="f16", template_digest="t", bos_policy="", reasoning_format="",
        runtime_digest="r",
    )  # fmt: skip


def status(**more: object) -> api.Status:
    base = {"instance": "i", "role": "owner", "pid": 1, "backend": "llama", "state": "Ready", "generation": 1}
    return api.Status(**{**base, **more})  # type: ignore[arg-type]


def fit(context: int, verdict: Verdict = "fits") -> Fit:
    return Fit(
        verdict=verdict, num_ctx=context, weights_bytes=1, kv_bytes=1, compute_bytes=1, required_bytes=3,
        free_bytes=GIB, reserve_bytes=0,
    )  # fmt: skip


# --- rows --------------------------------------------------------------------------------------


def test_groups_states_and_windows() -> None:
    rows = [row("a", state="loaded", actions=["use", "unload"]), row("b", actions=["switch"])]
    other = row("c", state="not servable", reason="needs openvino")
    vectors = row("e", embedding_only=True)
    remote = RemoteModel(id="cloud/big", name="big", provider="cloud", context=32768)
    seen = Seen(
        advertised=[*rows, vectors], library=[*rows, other, vectors], remotes=[remote],
        status=status(active=active("a")), active="a", speeds={"a": 12.5},
        fits={"a": fit(8192), "b": fit(2048, "fits_smaller")},
    )  # fmt: skip
    models = {model.id: model for model in picker_models(seen, "", "")}
    assert {name: model.group for name, model in models.items()} == {
        "a": "active", "b": "installed", "c": "unavailable", "e": "unavailable", "cloud/big": "remote",
    }  # fmt: skip
    assert [name for name, model in models.items() if model.selectable] == ["a", "b", "cloud/big"]
    assert (models["a"].context, models["a"].window, models["a"].context_own) == (4096, 4096, 8192)
    assert (models["b"].context, models["b"].window) == (0, 2048)
    assert models["a"].tokens_per_s == 12.5
    assert models["a"].fit is None  # it is there: nothing is forecast
    assert models["c"].reason == "needs openvino"


def test_in_a_gap_ids_names_groups_and_order_stay() -> None:
    before = [row("a", state="loaded"), row("b")]
    after = [row("a", state="restarting", reason="restarting"), row("b", state="restarting", reason="restarting")]
    there = Seen(advertised=before, library=before, status=status(active=active("a")), active="a")
    away = Seen(advertised=after, library=after, status=None, active="a")
    one, two = picker_models(there, "b", ""), picker_models(away, "b", "")
    same = [(m.id, m.name, m.group, m.selectable) for m in one]
    assert same == [(m.id, m.name, m.group, m.selectable) for m in two]
    assert [m.state for m in two] == ["restarting", "restarting"]
    assert two[0].detail.startswith("restarting")


def test_past_the_grace_the_pick_stays_marked_and_the_library_says_what_to_do() -> None:
    stopped = [row("a", state="not loaded", reason="stopped, start modeld", actions=["start_modeld"])]
    models = picker_models(Seen(library=stopped), "gone", "modeld is stopped")
    assert [(m.id, m.selectable) for m in models] == [("a", False), ("gone", False)]
    assert models[0].actions == ["start_modeld"]
    assert models[1].detail == "not available: modeld is stopped"
    assert models[1].group == "unavailable"


def test_cancel_is_offered_only_for_what_is_ours() -> None:
    rows = [row("a", state="active", actions=["wait", "cancel"])]
    busy = api.BusyOperation(operation="turn", stage="generating", holder="Zed", age_s=1.0)
    seen = Seen(advertised=rows, library=rows, status=status(state="Busy", busy=busy), me="Code (x)")
    assert library_models(seen)[0].actions == ["wait"]
    assert library_models(msgspec.structs.replace(seen, me="Zed"))[0].actions == ["wait", "cancel"]
    waiting = [api.Waiting(client="Code (x)", model="a", waited_s=1.0)]
    queued = msgspec.structs.replace(seen, status=status(queue=waiting))
    assert library_models(queued)[0].actions == ["wait", "cancel"]


def test_vision_is_what_the_engine_that_runs_says() -> None:
    rows = [row("a", vision=True, state="loaded")]
    seen = Seen(advertised=rows, library=rows, status=status(active=active("a")))
    assert library_models(seen)[0].vision is False
    assert library_models(Seen(advertised=rows, library=rows))[0].vision is True


def test_what_moves_by_itself_is_no_change() -> None:
    rows = [row("a")]
    one = library_models(Seen(advertised=rows, library=rows, fits={"a": fit(8192)}, speeds={"a": 1.0}))
    other = msgspec.structs.replace(fit(8192), free_bytes=5)
    two = library_models(Seen(advertised=rows, library=rows, fits={"a": other}, speeds={"a": 2.0}))
    assert one != two
    assert shown(one) == shown(two)
    worse = library_models(Seen(advertised=rows, library=rows, fits={"a": fit(0, "too_big")}))
    assert shown(one) != shown(worse)


# --- status ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "service", "startable"),
    [
        ("not_running", "not_running", True), ("stale", "stale", True), ("restarting", "restarting", False),
        ("unreachable", "unreachable", False), ("not_installed", "not_installed", False), ("running", "looking", False),
    ],
)  # fmt: skip
def test_each_way_of_being_away_has_its_sentence(state: str, service: str, startable: bool) -> None:
    reported = service_status(None, Detection(state=state), looked=True, speed=0.0, me="me")  # type: ignore[arg-type]
    assert (reported.service, reported.startable) == (service, startable)
    assert reported.text
    if state == "not_running":
        assert "modeld is not running; start it" in reported.text


def test_before_the_first_look_nothing_is_claimed() -> None:
    reported = service_status(None, Detection(state="not_running"), looked=False, speed=0.0, me="me")
    assert reported.service == "looking"


def test_who_holds_the_slot() -> None:
    busy = api.BusyOperation(operation="turn", stage="generating", holder="Zed", age_s=3.0)
    raw = status(active=active("a"), busy=busy, queue=[api.Waiting(client="me", model="b", waited_s=1.0)])
    reported = service_status(raw, Detection(state="running"), looked=True, speed=9.0, me="me")
    assert reported.text == "a on cpu, context 4,096, in use by Zed"
    assert reported.busy is not None
    assert (reported.busy.mine, reported.busy.model, reported.queue[0].mine) == (False, "a", True)
    later = msgspec.structs.replace(busy, age_s=4.0)
    again = service_status(
        msgspec.structs.replace(raw, busy=later), Detection(state="running"), looked=True, speed=9.0, me="me"
    )
    assert reported != again
    assert settled(reported) == settled(again)


def test_progress_of_a_switch() -> None:
    detail = {"model": "b", "unloads": "a", "fraction": 0.5}
    busy = api.BusyOperation(operation="switch", stage="loading", holder="me", age_s=0.1, detail=detail)
    progress = slot_progress(status(state="Switching", busy=busy), "me")
    assert progress is not None
    assert (progress.text, progress.fraction, progress.mine) == ("loading b (50 %), unloading a", 0.5, True)
    turn = api.BusyOperation(operation="turn", stage="", holder="me", age_s=0.1)
    assert slot_progress(status(busy=turn), "me") is None
    assert slot_progress(None, "me") is None


# --- messages ----------------------------------------------------------------------------------


def test_results_come_before_the_words_beside_them() -> None:
    call = wire.CallPart(id="1", name="read", input={"b": 1, "a": 2})
    history = [
        wire.Message(role="assistant", content=[call]),
        wire.Message(role="user", content=[wire.Text(text="so?"), wire.ResultPart(id="1", text="data")]),
    ]
    made = chat_messages(history)
    assert [message["role"] for message in made] == ["assistant", "tool", "user"]
    assert made[0]["tool_calls"][0]["function"]["arguments"] == '{"a":2,"b":1}'
    assert made[1]["name"] == "read"


def test_two_of_a_role_are_one() -> None:
    history = [
        wire.Message(role="user", content="a"), wire.Message(role="user", content="b"),
        wire.Message(role="assistant", content="c"), wire.Message(role="assistant", content="d"),
    ]  # fmt: skip
    assert chat_messages(history) == [{"role": "user", "content": "a\n\nb"}, {"role": "assistant", "content": "cd"}]


def test_images_for_those_who_see() -> None:
    history = [wire.Message(role="user", content=[wire.Image(mime_type="image/png", data="AA"), wire.Text(text="?")])]
    assert image_count(history) == 1
    assert (
        chat_messages(history, supports_images=True)[0]["content"][0]["image_url"]["url"] == "data:image/png;base64,AA"
    )
    assert chat_messages(history)[0]["content"] == "[an image (image/png) that you cannot see]\n\n?"


def test_the_head_is_the_system() -> None:
    history = [wire.Message(role="system", content="s"), wire.Message(role="user", content="u")]
    assert head_length(chat_messages(history)) == 1
    assert head_length(chat_messages(history[:1])) == 1
    assert head_length([]) == 0


def test_a_tool_without_a_schema_takes_an_object() -> None:
    (made,) = chat_tools([wire.Tool(name="now")])
    assert made["function"]["parameters"] == {"type": "object", "properties": {}}


def test_what_is_new_is_what_stands_behind_the_last_answer() -> None:
    roles = ["system", "user", "assistant", "tool", "user"]
    history = [wire.Message(role=role, content=str(place)) for place, role in enumerate(roles)]  # type: ignore[arg-type]
    assert [message.content for message in since_answer(history)] == ["3", "4"]
    assert list(since_answer(history[:2])) == history[:2]
    assert list(since_answer(history[:3])) == []


# --- forecasts ---------------------------------------------------------------------------------


def test_the_reserve_is_bounded_on_both_sides() -> None:
    settings = Settings()
    assert reserve_bytes(64 * GIB, settings) == int(6.4 * GIB)
    assert reserve_bytes(4 * GIB, settings) == 512 * 1024 * 1024
    assert reserve_bytes(GIB, settings) == GIB // 4


def test_a_plan_of_the_daemon_in_the_same_words() -> None:
    plan = api.MemoryPlan(
        device="cpu", weights_bytes=1, kv_bytes=1, compute_bytes=1, required_bytes=3, free_bytes=9, reserve_bytes=1,
        num_ctx=4096, fits=None,
    )  # fmt: skip
    assert planned(plan).verdict == "too_big"
    assert planned(msgspec.structs.replace(plan, fits=8192)).verdict == "fits"
    assert planned(msgspec.structs.replace(plan, fits=1024)).num_ctx == 1024


@pytest.mark.parametrize(("source", "said"), SOURCES.items())
def test_numbers_that_may_differ_for_one_model_say_what_they_are(source: Source, said: str) -> None:
    """A row's are from the header, a description's from the engine or an earlier load: in the same words everywhere."""
    plan = api.MemoryPlan(
        device="cpu", weights_bytes=1, kv_bytes=1, compute_bytes=1, required_bytes=3, free_bytes=9, reserve_bytes=1,
        num_ctx=4096, fits=4096, source=source,
    )  # fmt: skip
    assert f"({said}: " in planned(plan).text
    assert wire_fit(planned(plan)).source == said
    assert f"({said})" in plan_text(plan)


def test_nothing_is_forecast_of_what_is_not_known() -> None:
    assert forecasts([], Room(free=GIB, reserve=0), Settings()) == {}


# --- events ------------------------------------------------------------------------------------


def test_every_event_of_a_turn_has_its_partial_result() -> None:
    events: list[api.Event] = [
        api.Queued(position=1), api.Loading(fraction=0.5, model="a"), api.Prefix(reused=1, total=2),
        api.Prefill(done=1, total=2), api.Thinking(), api.Generating(), api.TextDelta(text="a"),
        api.ReasoningDelta(text="b"), api.ToolCallDelta(index=0, id="c", name="n", arguments="{"),
    ]  # fmt: skip
    for event in events:
        made = turn_event(event)
        assert made is not None
        assert made.__struct_config__.tag == event.__struct_config__.tag
    assert turn_event(api.JobProgress(done=1, total=2)) is None
    assert stage_text(api.Prefill(done=1, total=2)) == ("Reading the conversation (1 of 2 tokens)", 0.5)
    assert stage_text(api.TextDelta(text="a")) is None


# --- text around a cursor ----------------------------------------------------------------------


def test_the_head_of_a_long_prefix_stays_over_many_keys() -> None:
    text = "".join(f"line {number}\n" for number in range(2000))
    heads = {around(text, len(text) - 500 + step).prefix[:40] for step in range(100)}
    assert len(heads) <= 2
    near = around(text, len(text) // 2)
    assert len(near.prefix) <= PREFIX_MOST
    assert len(near.prefix) > PREFIX_MOST - CUT_STEP - 40
    assert len(near.suffix) <= SUFFIX_MOST
    assert near.suffix.endswith("\n")
    assert near.prefix.startswith("line ")


def test_a_short_document_is_sent_whole() -> None:
    assert around("abc", 1) == Around("a", "bc")


@pytest.mark.parametrize(
    ("prefix", "suffix", "asked", "worth"),
    [("x = ", "", False, True), ("x", "yz", False, False), ("x", "_z", False, False), ("x", "yz", True, True),
     ("", "", False, False), ("f(", ")", False, True)],
)  # fmt: skip
def test_when_a_completion_makes_sense(prefix: str, suffix: str, asked: bool, worth: bool) -> None:
    assert worth_asking(Around(prefix, suffix), asked=asked) is worth


@pytest.mark.parametrize(
    ("text", "near", "shown_text"),
    [
        ("1, 2)", Around("f(", ")\n"), "1, 2"),
        ("a\nb\n\n\n", Around("x\n", ""), "a\nb"),
        ("   \n  ", Around("x", ""), ""),
        ("body\nprint(1)\nmore", Around("x\n", "\nprint(1)\n"), "body"),
        ("print(1)", Around("x\n", "\nprint(1)\n"), "print(1)"),
        ("\n".join("abcdefgh"), Around("x", ""), "\n".join("abcdef")),
    ],
)
def test_what_is_shown_of_a_completion(text: str, near: Around, shown_text: str) -> None:
    assert tidy(text, near, asked=False) == shown_text


def test_what_was_asked_for_may_be_long() -> None:
    text = "\n".join("abcdefgh")
    assert tidy(text, Around("x", ""), asked=True) == text
