"""What makes two resident models the same, and which request another resident may serve all the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from modeld.slot.core import events as ev
from modeld.slot.core.machine import Machine
from modeld.slot.core.state import SlotState
from modeld.slot.request import bounded
from shared.catalog.identity import RequestedIdentity, ResolvedIdentity, covers, serves
from shared.errors import ModelSwitchRequired
from shared.protocol.api import Sampling
from shared.settings import Settings
from unit_slot_identities import asked, resolved

pytestmark = pytest.mark.unit

SETTINGS = Settings()
#: Every field of the identity with a value that the resident model of these tests does not have.
OTHER_VALUES: dict[str, Any] = {
    "backend": "openvino",
    "name": "other",
    "digest": "d-other",
    "path": "/m/other",
    "runtime_digest": "other",
    "device": "GPU",
    "num_ctx": 8192,
    "min_ctx": 8192,
    "num_batch": 256,
    "gpu_layers": 7,
    "tensor_split": (0.5, 0.5),
    "flash_attention": True,
    "kv_type": "q8_0",
    "template_digest": "other",
    "bos_policy": "other",
    "reasoning_format": "think",
    "adapters": ("x",),
    "projector": "/p.gguf",
}


def wanting(name: str) -> RequestedIdentity:
    return msgspec.structs.replace(asked("a"), **{name: OTHER_VALUES[name]})


def test_no_field_of_the_identity_is_left_out() -> None:
    assert set(OTHER_VALUES) | {"copies"} == set(RequestedIdentity.__struct_fields__)
    assert set(OTHER_VALUES) - {"min_ctx"} == set(ResolvedIdentity.__struct_fields__)


@pytest.mark.parametrize("field", OTHER_VALUES)
def test_the_same_file_with_another_value_of_any_field_is_another_identity(field: str) -> None:
    machine = Machine(SETTINGS, SlotState(name="Ready", active=resolved("a"), worker=1, next_worker=2))
    with pytest.raises(ModelSwitchRequired):
        machine.feed(ev.LoadAsked(target=wanting(field), caller=2), 1.0)
    machine.feed(ev.LoadAsked(target=wanting(field), caller=2, allow_switch=True), 2.0)
    assert (machine.state.name, machine.state.generation) == ("Switching", 1)


@pytest.mark.parametrize("field", OTHER_VALUES)
def test_what_a_request_leaves_open_is_served_by_any_value(field: str) -> None:
    """The compatible subset: `auto`, and a smaller least context."""
    if field in ("backend", "name", "digest", "path", "adapters", "projector"):
        return  # these say which model it is; a request cannot leave them open
    if field == "min_ctx":
        assert serves(resolved("a", num_ctx=8192), asked("a", min_ctx=4096))
        return
    assert serves(msgspec.structs.replace(resolved("a"), **{field: OTHER_VALUES[field]}), asked("a"))


@pytest.mark.parametrize(("least", "enough"), [(4095, True), (4096, True), (4097, False)])
def test_a_context_of_exactly_the_least_is_enough(least: int, enough: bool) -> None:
    wanted = asked("a", min_ctx=least)
    assert serves(resolved("a", num_ctx=4096), wanted) is enough
    assert covers(asked("a", num_ctx=4096), wanted) is enough
    assert covers(asked("a", min_ctx=4096), wanted) is enough


def test_the_very_same_file_elsewhere_serves() -> None:
    """A model that is pulled while it is loaded from a cache moves to the store in the list, not loaded again."""
    moved = msgspec.structs.replace(asked("a"), path="/store/a", copies=(resolved("a").path,))
    assert serves(resolved("a"), moved)
    assert not serves(resolved("a"), msgspec.structs.replace(moved, copies=("/elsewhere/a",)))
    assert not serves(resolved("a"), msgspec.structs.replace(moved, digest="d-other"))


def test_a_resolved_identity_names_every_value_in_use_and_serves_the_request_that_names_them_all() -> None:
    held = resolved("a")
    exact = RequestedIdentity(**msgspec.structs.asdict(held))
    assert serves(held, exact)


# --- sharing a load ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "wanted", "shared"),
    [
        ({}, {}, True),
        ({"num_ctx": 8192}, {}, True),
        ({}, {"num_ctx": 8192}, False),
        ({"num_ctx": 8192}, {"min_ctx": 4096}, True),
        ({"num_ctx": 8192}, {"min_ctx": 16384}, False),
        ({"min_ctx": 8192}, {"min_ctx": 4096}, True),
        ({}, {"min_ctx": 4096}, False),
        ({}, {"kv_type": "q8_0"}, False),
        ({"kv_type": "q8_0"}, {"kv_type": "q8_0"}, True),
        ({"adapters": ("x",)}, {}, False),
        ({"projector": "/p.gguf"}, {}, False),
        ({"projector": "/p.gguf"}, {"projector": "/p.gguf"}, True),
    ],
)
def test_a_load_is_shared_only_where_it_is_sure_to_serve(
    target: dict[str, Any], wanted: dict[str, Any], shared: bool
) -> None:
    assert covers(asked(**target), asked(**wanted)) is shared


def test_a_resolved_context_as_a_request_is_another_identity_only_by_what_it_says() -> None:
    assert covers(asked(), msgspec.structs.replace(asked(), name="b")) is False


# --- what belongs to the turn ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "num_ctx", "limit", "bound"),
    [
        (None, 4096, 8192, 2048),  # half of the window: the conversation can go on
        (None, 131072, 8192, 8192),
        (None, 4096, 50, 50),
        (None, 1, 8192, 1),
        (100_000, 4096, 8192, 100_000),  # the client's own word stands; the window bounds it
        (None, 4096, 0, None),  # switched off: the window alone
    ],
)
def test_a_turn_without_a_limit_of_its_client_is_bounded(
    given: int | None, num_ctx: int, limit: int, bound: int | None
) -> None:
    assert bounded(Sampling(max_tokens=given), num_ctx, Settings(turn_tokens=limit)).max_tokens == bound
