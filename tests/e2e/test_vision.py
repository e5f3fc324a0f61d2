"""An image from the editor to a model with vision, through bridge, daemon and worker; tiny weights and projector."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.bridge import Bridge, BridgeError, Turn
from clients.home import Home
from several_graphs import write_vision_model
from tiny_gguf import write_tiny_gguf
from tiny_projector import TOKENS, png, write_tiny_projector

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ENGINES = [pytest.param("llama", marks=pytest.mark.llama), pytest.param("openvino", marks=pytest.mark.openvino)]
ONE, OTHER = png(50, 50, seed=1), png(50, 50, seed=2)


@pytest.fixture(params=ENGINES[:1])
def with_vision(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A user with one model with vision, one without, and a running modeld with the engine that is asked for."""
    if request.param == "llama":
        write_tiny_gguf(tmp_path / "seer" / "seer.gguf", context=8192)
        write_tiny_projector(tmp_path / "seer" / "mmproj-seer.gguf")
        write_tiny_gguf(tmp_path / "blind" / "blind.gguf", seed=2, context=8192)
    else:
        write_vision_model(tmp_path).rename(tmp_path / "seer")
        (tmp_path / "words").rename(tmp_path / "blind")
    with Home(MODELD_MODEL_FOLDERS=str(tmp_path), MODELD_TURN_TOKENS="12") as home:
        home.start(request.param)
        yield home


def show(editor: Bridge, session: str, data: bytes, words: str) -> Turn:
    """One prompt of an image and words, as an editor sends them."""
    image = {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}
    prompt = [image, {"type": "text", "text": words}]
    return editor.end_prompt(editor.begin("session/prompt", {"sessionId": session, "prompt": prompt}))


def usage(home: Home) -> dict[str, int]:
    counts: dict[str, int] = home.status()["last_turn"]["usage"]
    return counts


def opened(editor: Bridge, home: Home, model: str) -> str:
    editor.initialize()
    session: dict[str, Any] = editor.new_session(home.work)
    editor.choose(session["sessionId"], "model", editor.find_model(session, model))
    return str(session["sessionId"])


@pytest.mark.parametrize("with_vision", ENGINES, indirect=True)
def test_the_model_gets_the_image_and_keeps_it(with_vision: Home) -> None:
    described = with_vision.json("modeld", "describe", with_vision.model("seer"))
    assert described["vision"] is True
    with with_vision.bridge() as editor:
        session = opened(editor, with_vision, "seer")
        first = show(editor, session, ONE, "What is this?")
        assert first.text
        assert "left out" not in first.text
        status = with_vision.status()
        assert status["active"]["capabilities"]["vision"] is True
        if status["backend"] == "llama":
            assert status["active"]["projector"].endswith("mmproj-seer.gguf")
        before = usage(with_vision)
        whole = before.get("reused", 0) + before["prefilled"]
        editor.prompt(session, "And what else?")
        assert usage(with_vision)["reused"] >= whole, "the image is in memory and is not computed again"
        other = opened(editor, with_vision, "seer")
        show(editor, other, OTHER, "What is this?")
        assert usage(with_vision)["prefilled"] >= TOKENS, "another image is another prompt"


def test_an_image_of_an_earlier_turn_is_still_seen_when_the_model_was_unloaded(with_vision: Home) -> None:
    with with_vision.bridge() as editor:
        session = opened(editor, with_vision, "seer")
        show(editor, session, ONE, "What is this?")
        before = usage(with_vision)
        with_vision.run("modeld", "unload")
        assert "left out" not in editor.prompt(session, "And what else?").text
        after = usage(with_vision)
        assert after.get("reused", 0) + after["prefilled"] > before.get("reused", 0) + before["prefilled"]


def test_a_broken_image_is_said_and_costs_its_turn_alone(with_vision: Home) -> None:
    with with_vision.bridge() as editor:
        session = opened(editor, with_vision, "seer")
        with pytest.raises(BridgeError) as refused:
            show(editor, session, ONE[:-60], "What is this?")
        assert refused.value.kind == "image_unusable"
        assert "cannot be decoded" in str(refused.value)
        generation = with_vision.status()["generation"]
        assert show(editor, session, ONE, "And this?").text
        assert with_vision.status()["generation"] == generation, "the model stayed where it was"


@pytest.mark.parametrize("with_vision", ENGINES, indirect=True)
def test_a_model_without_vision_is_said_to(with_vision: Home) -> None:
    with with_vision.bridge() as editor:
        session = opened(editor, with_vision, "blind")
        turn = show(editor, session, ONE, "What is this?")
        said = str(turn.updates)
        assert "does not see images" in said
        assert with_vision.status()["active"]["capabilities"]["vision"] is False
