"""The arithmetic of a load, and contexts that never ratchet down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeld.memory.policy import (
    OPENVINO_PROCESS,
    Arithmetic,
    DeviceMemory,
    Footprint,
    Line,
    plan,
    require,
    reserve_bytes,
    under_pressure,
)
from modeld.memory.probe import linux_memory
from shared.catalog.advertised import fit
from shared.catalog.entry import KvSpan, ModelEntry
from shared.catalog.identity import RequestedIdentity
from shared.errors import InsufficientMemory, UnsupportedFeature
from shared.settings import Settings

pytestmark = pytest.mark.unit

GIB = 1 << 30
MIB = 1 << 20
SETTINGS = Settings()
ENTRY = ModelEntry(
    name="m",
    path="/m",
    source="store",
    size_bytes=GIB,
    weights_bytes=GIB,
    context_train=32768,
    n_layers=16,
    n_embd=1024,
    vocab_size=32000,
    kv=(KvSpan(layers=16, k=512, v=512),),
)
#: 16 layers x 1024 elements x 2 bytes
KV_TOKEN = 32768


def asked(**fields: Any) -> RequestedIdentity:
    return RequestedIdentity(backend="llama", name="m", digest="d", path="/m", **fields)


def memory(free: int, total: int = 16 * GIB) -> DeviceMemory:
    return DeviceMemory(device="CPU", total=total, free=free)


def test_the_sum_is_shown() -> None:
    found = plan(ENTRY, asked(), memory(8 * GIB), SETTINGS)
    assert found.kv_bytes == 32768 * KV_TOKEN
    assert found.required_bytes == found.weights_bytes + found.kv_bytes + found.compute_bytes
    assert (found.num_ctx, found.fits, found.estimate) == (32768, 32768, True)
    assert require(found) is found


@pytest.mark.parametrize(
    ("total", "reserve"),
    [
        (GIB, GIB // 4),
        (2 * GIB, 512 * MIB),
        (4 * GIB, 512 * MIB),
        (16 * GIB, int(1.6 * GIB)),
        (64 * GIB, int(6.4 * GIB)),
    ],
)
def test_the_reserve_is_a_tenth_with_a_floor_and_a_cap(total: int, reserve: int) -> None:
    assert abs(reserve_bytes(total, SETTINGS) - reserve) <= 1


def test_auto_takes_the_largest_context_that_fits() -> None:
    found = plan(ENTRY, asked(), memory(3 * GIB), SETTINGS)
    assert SETTINGS.least_context <= found.num_ctx < 32768
    require(found)
    more = found.required_bytes + fit.STEP * KV_TOKEN
    assert more + found.reserve_bytes > found.free_bytes


def test_auto_does_not_go_below_the_smallest_useful_context() -> None:
    found = plan(ENTRY, asked(), memory(int(2.65 * GIB)), SETTINGS)
    assert found.num_ctx == SETTINGS.least_context
    with pytest.raises(InsufficientMemory) as caught:
        require(found)
    assert caught.value.required_bytes == found.required_bytes
    assert caught.value.free_bytes == int(2.65 * GIB)
    assert caught.value.reserve_bytes == found.reserve_bytes
    assert caught.value.fits is None, "not even the smallest step fits"
    with pytest.raises(InsufficientMemory) as caught:
        require(plan(ENTRY, asked(), memory(int(2.75 * GIB)), SETTINGS))
    assert caught.value.fits == 2304, "what fits is reported, though auto does not go so low"


def test_an_explicit_context_is_never_lowered_and_the_refusal_says_what_would_fit() -> None:
    found = plan(ENTRY, asked(num_ctx=32768), memory(3 * GIB), SETTINGS)
    assert found.num_ctx == 32768
    with pytest.raises(InsufficientMemory) as caught:
        require(found)
    fits = caught.value.fits
    require(plan(ENTRY, asked(num_ctx=fits), memory(3 * GIB), SETTINGS))


def test_min_ctx_is_a_floor_for_auto() -> None:
    with pytest.raises(InsufficientMemory):
        require(plan(ENTRY, asked(min_ctx=30000), memory(3 * GIB), SETTINGS))
    assert plan(ENTRY, asked(min_ctx=5000), memory(8 * GIB), SETTINGS).num_ctx == 32768


@given(st.integers(0, 16 * GIB), st.sampled_from(["auto", "q8_0", "f16"]))
def test_the_same_machine_gives_the_same_context_again_and_again(free: int, kv_type: str) -> None:
    """describe -> load -> describe -> load: the answer of one is never the request of the next."""
    first = plan(ENTRY, asked(kv_type=kv_type), memory(free), SETTINGS)
    for _ in range(3):
        again = plan(ENTRY, asked(kv_type=kv_type), memory(free), SETTINGS)
        assert again.num_ctx == first.num_ctx


def test_a_smaller_kv_type_needs_less() -> None:
    full = plan(ENTRY, asked(), memory(8 * GIB), SETTINGS)
    small = plan(ENTRY, asked(kv_type="q8_0"), memory(8 * GIB), SETTINGS)
    assert small.kv_bytes < full.kv_bytes
    with pytest.raises(UnsupportedFeature):
        plan(ENTRY, asked(kv_type="f17"), memory(8 * GIB), SETTINGS)


def test_what_was_measured_corrects_the_estimate() -> None:
    measured = Footprint(weights_bytes=3 * GIB)
    found = plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS, measured)
    assert found.required_bytes == 3 * GIB + 4096 * KV_TOKEN + fit.compute_bytes(ENTRY)
    assert (found.estimate, found.source) == (False, "measured")
    stale = Footprint(weights_bytes=3 * GIB, stale=True)
    assert plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS, stale).estimate is True


def test_pressure_is_less_free_than_the_reserve() -> None:
    assert under_pressure(memory(GIB), SETTINGS)
    assert not under_pressure(memory(2 * GIB), SETTINGS)


# --- the probe ---------------------------------------------------------------------------------


def machine(tmp_path: Path, membership: str, files: dict[str, str]) -> DeviceMemory:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 16777216 kB\nMemFree: 1024 kB\nMemAvailable: 8388608 kB\n")
    (proc / "self" / "cgroup").write_text(membership)
    for name, text in files.items():
        path = cgroup / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return linux_memory(proc, cgroup)


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    found = machine(tmp_path, "0::/user\n", {"user/memory.max": "max\n", "user/memory.current": "5\n"})
    assert (found.total, found.free) == (16 * GIB, 8 * GIB)


def test_the_limit_of_a_cgroup_above_counts_too(tmp_path: Path) -> None:
    files = {
        "a/memory.max": str(4 * GIB),
        "a/memory.current": str(3 * GIB),
        "a/memory.stat": f"anon 1\ninactive_file {GIB}\nactive_file 0\n",
        "a/b/memory.max": "max",
        "a/b/memory.current": str(GIB),
    }
    found = machine(tmp_path, "0::/a/b\n", files)
    assert (found.total, found.free) == (4 * GIB, 2 * GIB)


def test_version_one_is_understood(tmp_path: Path) -> None:
    files = {"memory/x/memory.limit_in_bytes": str(2 * GIB), "memory/x/memory.usage_in_bytes": str(GIB)}
    found = machine(tmp_path, "4:cpu,memory:/x\n", files)
    assert (found.total, found.free) == (2 * GIB, GIB)


def test_the_engines_own_arithmetic_goes_before_the_formula_and_what_was_measured_before_both() -> None:
    """Hybrid models need a fraction of what the formula says: more context fits."""
    hybrid = Arithmetic(
        weights=GIB,
        kv=Line(fixed=10 * MIB, per_token=KV_TOKEN / 4),
        compute=Line(fixed=20 * MIB, per_token=64.0),
    )
    plain = plan(ENTRY, asked(), memory(int(2.8 * GIB)), SETTINGS)
    found = plan(ENTRY, asked(), memory(int(2.8 * GIB)), SETTINGS, None, hybrid)
    assert (plain.source, found.source) == ("header", "engine")
    assert found.num_ctx > plain.num_ctx
    assert found.kv_bytes == 10 * MIB + found.num_ctx * KV_TOKEN // 4
    assert found.compute_bytes == 20 * MIB + found.num_ctx * 64
    assert found.estimate
    measured = plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS, Footprint(weights_bytes=2 * GIB), hybrid)
    assert (measured.weights_bytes, measured.kv_bytes) == (2 * GIB, 10 * MIB + 4096 * KV_TOKEN // 4)
    assert (measured.source, measured.estimate) == ("measured", False)


def test_adapters_count_until_they_were_measured_with_the_model() -> None:
    bare = plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS)
    found = plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS, adapters=100 * MIB)
    assert (found.adapters_bytes, found.required_bytes) == (100 * MIB, bare.required_bytes + 100 * MIB)
    known = plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS, Footprint(weights_bytes=GIB), adapters=MIB)
    assert known.adapters_bytes == 0


def test_a_projector_is_part_of_the_weights_until_it_was_measured_with_the_model() -> None:
    bare = plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS)
    found = plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS, projector=100 * MIB)
    assert found.weights_bytes == bare.weights_bytes + 100 * MIB
    assert found.required_bytes == bare.required_bytes + 100 * MIB
    known = plan(ENTRY, asked(num_ctx=4096), memory(8 * GIB), SETTINGS, Footprint(weights_bytes=GIB), projector=MIB)
    assert known.weights_bytes == GIB


def test_what_openvino_unpacks_is_counted_unpacked() -> None:
    packed = msgspec.structs.replace(ENTRY, tensor_types={"Q4_0": GIB})
    found = plan(
        packed, RequestedIdentity(backend="openvino", name="m", digest="d", path="/m"), memory(8 * GIB), SETTINGS
    )
    assert found.weights_bytes == GIB * 20 // 18 + OPENVINO_PROCESS


@given(st.integers(int(1.5 * GIB), 16 * GIB), st.integers(0, 2 * GIB))
def test_the_next_plan_never_asks_for_less_because_of_the_last_answer(free: int, weights: int) -> None:
    """What a load measured may correct the plan, but the context that it found is no input of the next one."""
    measured = Footprint(weights_bytes=weights)
    first = plan(ENTRY, asked(), memory(free), SETTINGS, measured)
    again = plan(ENTRY, asked(), memory(free), SETTINGS, Footprint(weights_bytes=first.weights_bytes))
    assert again.num_ctx == first.num_ctx
