"""What a caller's options become: the identity that is asked for, the bounds of a turn, the model on the wire."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from modeld.slot.core.state import SlotState
from modeld.slot.request import (
    active_model,
    bounded,
    footprint_key,
    identity_of,
    merged,
    require_expected,
    require_servable,
)
from shared.catalog.entry import ModelEntry
from shared.catalog.identity import AUTO, RequestedIdentity
from shared.errors import BackendMismatch, BackendUnavailable, ModelLoadFailed, SlotGenerationStale
from shared.protocol.api import ActiveModel, Expect, LoadConfig, Sampling
from shared.settings import Settings
from unit_slot_identities import resolved

pytestmark = pytest.mark.unit

ALL = LoadConfig(
    num_ctx=8192,
    min_ctx=2048,
    num_batch=256,
    gpu_layers=0,
    device="GPU",
    flash_attention=False,
    kv_type="q8_0",
    tensor_split=[0.5, 0.5],
    adapters=["/m/lora"],
)


def entry(**fields: Any) -> ModelEntry:
    fields = {"name": "a", "path": "/m/a", "source": "store", "digest": "d", "backends": ("llama",), **fields}
    return ModelEntry(**fields)


def test_what_a_caller_leaves_out_is_auto() -> None:
    asked = identity_of(entry(copies=("/n/a",)), LoadConfig(), "llama")
    assert asked == RequestedIdentity(backend="llama", name="a", digest="d", path="/m/a", copies=("/n/a",))


def test_every_wish_is_asked_for_also_one_for_nothing() -> None:
    assert identity_of(entry(), ALL, "openvino") == RequestedIdentity(
        backend="openvino",
        name="a",
        digest="d",
        path="/m/a",
        num_ctx=8192,
        min_ctx=2048,
        num_batch=256,
        gpu_layers=0,
        device="GPU",
        flash_attention=False,
        kv_type="q8_0",
        tensor_split=(0.5, 0.5),
        adapters=("/m/lora",),
    )


def test_the_projector_is_part_of_it_where_the_engine_uses_it() -> None:
    with_vision = entry(vision=True, projector="/m/sight")
    assert identity_of(with_vision, LoadConfig(), "llama").projector == "/m/sight"
    assert identity_of(with_vision, LoadConfig(), "openvino").projector == ""
    assert identity_of(entry(projector="/m/sight"), LoadConfig(), "llama").projector == ""


def test_the_callers_wishes_go_before_the_kept_settings_field_by_field() -> None:
    assert merged(LoadConfig(), ALL) == ALL
    assert merged(ALL, LoadConfig(num_ctx=1, gpu_layers=99, flash_attention=True, adapters=["other"])) == ALL
    assert merged(LoadConfig(num_ctx=512), ALL) == msgspec.structs.replace(ALL, num_ctx=512)


@pytest.mark.parametrize(
    ("model", "backend"),
    [
        (entry(), "llama"),
        (entry(backends=("openvino", "llama")), "openvino"),
    ],
)
def test_a_model_that_can_be_run_is_let_through(model: ModelEntry, backend: str) -> None:
    require_servable(model, backend)


def test_a_model_of_another_engine_names_the_engines_that_it_needs() -> None:
    with pytest.raises(BackendMismatch) as wrong:
        require_servable(entry(backends=("llama", "other")), "openvino")
    assert (wrong.value.requested, wrong.value.serving) == ("llama or other", "openvino")


def test_a_bad_file_is_said_to_be_one() -> None:
    with pytest.raises(ModelLoadFailed) as bad:
        require_servable(entry(backends=(), problem="it is cut off"), "llama")
    assert (bad.value.model, bad.value.stage, bad.value.reason) == ("a", "header", "it is cut off")


def test_a_model_that_no_engine_can_run_says_why() -> None:
    with pytest.raises(BackendMismatch, match=r"^a cannot be run: unknown architecture$") as wrong:
        require_servable(entry(backends=(), reasons={"llama": "unknown architecture"}), "llama")
    assert (wrong.value.requested, wrong.value.serving) == ("", "llama")
    with pytest.raises(BackendMismatch, match=r"^a cannot be run: it is not servable$"):
        require_servable(entry(backends=(), reasons={"llama": "unknown architecture"}), "openvino")


def test_without_an_engine_the_remedy_is_how_to_install_one() -> None:
    with pytest.raises(BackendUnavailable) as missing:
        require_servable(entry(), "none")
    assert (missing.value.backend, missing.value.reason) == ("none", "this modeld runs without an engine")
    assert missing.value.hint.startswith("install one and restart: `")
    assert "[openvino]" in missing.value.hint
    assert missing.value.hint.endswith("`, or the same with [llama]")


@pytest.mark.parametrize(
    ("asked_tokens", "turn_tokens", "num_ctx", "given"),
    [
        (None, 2048, 8192, 2048),
        (None, 2048, 4096, 2048),
        (None, 2048, 1000, 500),
        (None, 2048, 1001, 500),
        (None, 2048, 1, 1),
        (None, 0, 8192, None),
        (9000, 2048, 8192, 9000),
        (0, 2048, 8192, 0),
    ],
)
def test_a_turn_that_says_nothing_ends_after_half_of_its_window_at_most(
    asked_tokens: int | None, turn_tokens: int, num_ctx: int, given: int | None
) -> None:
    settings = Settings(turn_tokens=turn_tokens)
    found = bounded(Sampling(max_tokens=asked_tokens), num_ctx, settings).max_tokens
    assert (found, type(found)) == (given, type(given))


@pytest.mark.parametrize("mine", [True, False])
def test_loops_end_a_turn_as_the_client_says_and_else_as_is_set(mine: bool) -> None:
    settings = Settings(loop_stop=not mine)
    assert bounded(Sampling(loop_stop=mine), 4096, settings).loop_stop is mine
    assert bounded(Sampling(), 4096, settings).loop_stop is (not mine)
    assert bounded(Sampling(temperature=0.5, max_tokens=3), 4096, settings).temperature == 0.5


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"num_ctx": 1024}, True),
        ({"min_ctx": 1024}, True),
        ({"name": "b", "path": "/m/b", "copies": ("/x",)}, True),
        ({"backend": "openvino"}, False),
        ({"digest": "e"}, False),
        ({"num_batch": 64}, False),
        ({"gpu_layers": 3}, False),
        ({"flash_attention": True}, False),
        ({"kv_type": "q8_0"}, False),
        ({"adapters": ("/m/lora",)}, False),
        ({"projector": "/m/sight"}, False),
    ],
)
def test_a_footprint_is_kept_for_the_model_and_how_it_is_loaded_its_context_apart(
    changes: dict[str, Any], same: bool
) -> None:
    plain = RequestedIdentity(backend="llama", name="a", digest="d", path="/m/a")
    changed = msgspec.structs.replace(plain, **changes)
    assert (footprint_key(plain) == footprint_key(changed)) is same


def test_the_key_of_a_footprint_is_what_earlier_releases_wrote() -> None:
    plain = RequestedIdentity(backend="llama", name="a", digest="d", path="/m/a")
    fields = dict.fromkeys(("num_batch", "gpu_layers", "flash_attention", "kv_type"), AUTO)
    assert msgspec.json.decode(footprint_key(plain)) == {
        "backend": "llama",
        "digest": "d",
        **fields,
        "adapters": [],
        "projector": "",
    }


def test_the_resident_model_goes_on_the_wire_whole() -> None:
    identity = msgspec.structs.replace(resolved(), tensor_split=(0.25, 0.75), adapters=("/m/lora",))
    assert active_model(identity, {"vision": True}, 77) == ActiveModel(
        name="a",
        backend="llama",
        digest="d-a",
        path="/m/a",
        device="CPU",
        num_ctx=4096,
        num_batch=512,
        gpu_layers=0,
        flash_attention=False,
        kv_type="f16",
        template_digest="t",
        bos_policy="b",
        reasoning_format="",
        runtime_digest="r",
        tensor_split=[0.25, 0.75],
        adapters=["/m/lora"],
        projector="",
        reserved_bytes=77,
        capabilities={"vision": True},
    )


READY = SlotState(name="Ready", active=resolved("a"), worker=1, generation=3)


@pytest.mark.parametrize(
    ("state", "expect"),
    [
        (READY, None),
        (READY, Expect()),
        (READY, Expect(generation=3, model="a")),
        (SlotState(generation=3), Expect(generation=3, model="")),
    ],
)
def test_a_slot_that_is_where_it_was_seen_is_acted_on(state: SlotState, expect: Expect | None) -> None:
    require_expected(state, expect)


@pytest.mark.parametrize(
    ("state", "expect", "pair", "text"),
    [
        (READY, Expect(generation=2, model="a"), (2, 3), ""),
        (READY, Expect(model="b"), ("b", "a"), "a is active, not b; ask for the status again"),
        (READY, Expect(model=""), ("", "a"), "a is active, not nothing; ask for the status again"),
        (SlotState(), Expect(generation=0, model="a"), ("a", ""), "nothing is active, not a; ask for the status again"),
    ],
)
def test_a_slot_that_moved_meanwhile_is_left_alone(
    state: SlotState, expect: Expect, pair: tuple[object, object], text: str
) -> None:
    with pytest.raises(SlotGenerationStale) as stale:
        require_expected(state, expect)
    assert (stale.value.expected, stale.value.actual) == pair
    assert not text or stale.value.message == text
