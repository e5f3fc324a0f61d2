"""What a failed load says about its file for ever, and what it does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from modeld.slot.loading.rejections import MOST, Rejections, lasting_reason
from shared.catalog.identity import RequestedIdentity
from shared.errors import InsufficientMemory, ModeldError, ModelLoadFailed

pytestmark = pytest.mark.unit

TARGET = RequestedIdentity(backend="llama", name="m", digest="fp1-m", path="/m.gguf")


def failed(stage: str, reason: str) -> dict[str, Any]:
    return ModelLoadFailed(model="m", stage=stage, reason=reason).to_wire()


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        ("header", "the file ends at byte 7"),
        ("weights", "unknown model architecture: 'zebra'"),
        ("weights", "tensor 'output.weight' has the wrong shape"),
        ("template", "expected token 'end of print statement'"),
        ("probe", "the first evaluation failed (-3)"),
    ],
)
def test_what_is_wrong_with_the_file_is_for_good(stage: str, reason: str) -> None:
    assert lasting_reason(TARGET, failed(stage, reason)) == reason


@pytest.mark.parametrize(
    "error",
    [
        ModelLoadFailed(model="m", stage="worker", reason="it was killed by SIGKILL"),
        ModelLoadFailed(model="m", stage="context", reason="llama.cpp cannot make a context of this size"),
        ModelLoadFailed(model="m", stage="weights", reason="cancelled"),
        ModelLoadFailed(model="m", stage="weights", reason="no progress for 60 s"),
        ModelLoadFailed(model="m", stage="weights", reason="unable to allocate CPU buffer"),
        ModelLoadFailed(model="m", stage="weights", reason="Out Of Memory"),
        InsufficientMemory(device="CPU", required_bytes=2, free_bytes=1, reserve_bytes=0, fits=None),
    ],
)
def test_what_may_pass_rejects_nothing(error: ModeldError) -> None:
    assert lasting_reason(TARGET, error.to_wire()) == ""


@pytest.mark.parametrize(
    "special", [{"adapters": ("/a.gguf",)}, {"template_digest": "d"}, {"tensor_split": (0.5, 0.5)}]
)
def test_a_special_request_is_not_the_files_fault(special: dict[str, Any]) -> None:
    target = msgspec.structs.replace(TARGET, **special)
    assert lasting_reason(target, failed("weights", "it does not fit this model")) == ""


def test_an_error_that_says_less_is_read_as_far_as_it_goes() -> None:
    assert lasting_reason(TARGET, {"code": -1, "message": "no"}) == ""
    assert lasting_reason(TARGET, failed("header", "")) == "it cannot be loaded"


def test_a_load_that_works_takes_it_back_and_one_that_was_stopped_does_not() -> None:
    rejections = Rejections()
    rejections.note(TARGET, failed("weights", "bad tensors"))
    rejections.note(TARGET, failed("weights", "cancelled"))
    assert [(one.name, one.digest, one.reason) for one in rejections.rows()] == [("m", "fp1-m", "bad tensors")]
    assert rejections.reasons() == {"fp1-m": "bad tensors"}
    rejections.note(TARGET, None)
    assert rejections.rows() == []


def test_what_has_no_digest_cannot_be_recognised_again() -> None:
    rejections = Rejections()
    rejections.note(msgspec.structs.replace(TARGET, digest=""), failed("weights", "bad tensors"))
    assert rejections.rows() == []


def test_the_memory_of_rejections_is_bounded() -> None:
    rejections = Rejections()
    for number in range(MOST + 5):
        rejections.note(msgspec.structs.replace(TARGET, digest=f"fp1-{number}"), failed("header", "bad"))
    assert len(rejections.rows()) == MOST
    assert rejections.rows()[0].digest == "fp1-5"
