"""Which projectors a model is loaded without."""

from __future__ import annotations

import os
import signal
import sys

import msgspec
import pytest

from modeld.pipe import exits
from modeld.slot.loading.projectors import Projectors, Signature
from modeld.slot.request import identity_of
from modeld.template.message_parts import holds_images
from shared.catalog.entry import ModelEntry
from shared.protocol.api import LoadConfig

pytestmark = pytest.mark.unit

MODEL = ModelEntry(name="m", path="/m.gguf", source="store", projector="/mmproj.gguf", vision=True)


def test_one_that_ended_a_worker_is_left_out_until_the_file_is_another() -> None:
    files: dict[str, Signature] = {"/mmproj.gguf": (1, 2, 3)}
    projectors = Projectors(files.get)
    assert projectors.without(MODEL) == MODEL
    reported = projectors.note("/m.gguf", "/mmproj.gguf", "killed by SIGABRT")
    assert "mmproj.gguf, which it needs for images, is left out" in reported
    blind = projectors.without(MODEL)
    assert (blind.projector, blind.vision) == ("", False)
    assert projectors.without(blind) == blind
    files["/mmproj.gguf"] = (1, 2, 4)
    assert projectors.without(MODEL) == MODEL
    assert projectors.warnings(MODEL) == []


def test_a_folder_has_vision_by_its_vision_graph() -> None:
    folder = ModelEntry(name="f", path="/seer", source="store", format="openvino", vision=True, takes_rows=True)
    graph = "openvino_vision_embeddings_model.xml"
    assert identity_of(folder, LoadConfig(), "openvino").projector == graph
    assert identity_of(folder, LoadConfig(), "llama").projector == ""
    pulled = msgspec.structs.replace(folder, path="/store/seer", copies=("/seer",))
    assert identity_of(pulled, LoadConfig(), "openvino").projector == graph, "a copy that is loaded serves on"
    files: dict[str, Signature] = {os.path.join("/seer", graph): (1, 1, 1)}
    projectors = Projectors(files.get)
    projectors.note("/seer", graph, "killed by SIGSEGV")
    blind = projectors.without(folder)
    assert (blind.vision, identity_of(blind, LoadConfig(), "openvino").projector) == (False, "")
    assert "openvino_vision_embeddings_model.xml, which it needs for images" in str(projectors.warnings(blind))


def test_what_was_left_out_is_reported_with_how_it_ended() -> None:
    projectors = Projectors(lambda path: (1, 1, 1))
    projectors.note("/m.gguf", "/mmproj.gguf", "killed by SIGSEGV")
    (reported,) = projectors.warnings(projectors.without(MODEL))
    assert (
        reported == "images are refused: mmproj.gguf, which it needs for images, ended the engine (killed by SIGSEGV)"
    )


def test_images_are_found_in_parts() -> None:
    assert holds_images([{"role": "user", "content": "a"}, {"content": [{"type": "image_url", "image_url": "x"}]}])
    assert not holds_images([{"content": [{"type": "text", "text": "image_url"}, "b"]}, {"content": None}])


@pytest.mark.skipif(sys.platform == "win32", reason="codes of signals")
def test_a_fault_of_native_code_is_distinguished_from_a_kill() -> None:
    assert exits.crashed(-signal.SIGABRT)
    assert exits.crashed(-signal.SIGSEGV)
    assert not any(exits.crashed(code) for code in (None, 0, 1, exits.ENGINE_FAULT, -signal.SIGKILL, -signal.SIGTERM))
