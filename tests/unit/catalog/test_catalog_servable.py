"""Who can serve what."""

from __future__ import annotations

import pytest
from gguf.constants import MODEL_ARCH_NAMES

from shared.catalog.advertised import servable
from shared.catalog.entry import Facts

pytestmark = pytest.mark.unit


def test_smollm2_is_served_by_both_engines() -> None:
    facts = Facts(architecture="llama", tensor_types={"Q8_0": 1, "F32": 1, "Q4_1": 1})
    assert servable.backends(facts) == (("llama", "openvino"), {})


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_families_of_openvinos_reader(architecture: str) -> None:
    assert servable.backends(Facts(architecture=architecture))[0] == ("llama", "openvino")


def test_other_families_need_llama() -> None:
    able, reasons = servable.backends(Facts(architecture="gemma3"))
    assert able == ("llama",)
    assert "gemma3" in reasons["openvino"]


def test_tensor_types_that_openvino_gets_requantised_or_not_at_all() -> None:
    assert servable.backends(Facts(architecture="llama", tensor_types={"Q5_K": 1, "IQ4_XS": 1}))[0][-1] == "openvino"
    able, reasons = servable.backends(Facts(architecture="llama", tensor_types={"Q8_1": 1, "NVFP4": 1}))
    assert able == ("llama",)
    assert "NVFP4, Q8_1" in reasons["openvino"]


def test_vocabularies_openvino_cannot_read() -> None:
    spm = servable.refusal(Facts(architecture="llama", tokenizer="llama", tokenizer_pre="default"), "openvino")
    assert "byte-level BPE" in spm
    tekken = servable.refusal(Facts(architecture="llama", tokenizer="gpt2", tokenizer_pre="tekken"), "openvino")
    assert "tekken" in tekken
    assert servable.refusal(Facts(architecture="llama", tokenizer="gpt2", tokenizer_pre="smollm"), "openvino") == ""


def test_split_models_need_llama() -> None:
    assert servable.backends(Facts(architecture="llama"), shards=2)[0] == ("llama",)


def test_ir_folders_need_openvino() -> None:
    able, reasons = servable.backends(Facts(format="openvino", architecture="qwen3"))
    assert (able, list(reasons)) == (("openvino",), ["llama"])


def test_an_engine_has_vision_by_a_projector_or_a_folders_own_graph() -> None:
    projector, folder = Facts(vision=True), Facts(format="openvino", vision=True)
    assert [servable.supports_images(projector, one) for one in ("llama", "openvino")] == [True, False]
    assert [servable.supports_images(folder, one) for one in ("llama", "openvino")] == [False, True]
    assert not servable.supports_images(Facts(), "llama")


def test_unknown_architectures_are_served_by_nobody() -> None:
    able, reasons = servable.backends(Facts(architecture="tomorrow"))
    assert able == ()
    assert set(reasons) == {"llama", "openvino"}


@pytest.mark.parametrize("kind", ["projector", "adapter", "other"])
def test_what_belongs_beside_a_model_is_served_by_nobody(kind: str) -> None:
    facts = Facts(kind=kind, architecture="llama")  # type: ignore[arg-type]
    assert servable.backends(facts)[0] == ()


def test_the_reason_of_the_file_comes_first() -> None:
    facts = Facts(architecture="llama", unusable="broken")
    assert servable.refusal(facts, "llama") == "broken"
    assert servable.refusal(Facts(architecture="llama"), "none") == "the none backend runs no models"


def test_the_table_agrees_with_the_gguf_package() -> None:
    assert set(MODEL_ARCH_NAMES.values()) >= servable.LLAMA_ARCHITECTURES
