"""Folders of several graphs: words as an ordinary model has them, images as OpenVINO itself reads them."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

import pytest
from openvino_bench import NUM_CTX, Bench, Direct, request_for

from modeld.engine.contract import AbortFlag, DecodeOptions
from modeld.engine.images import PromptImage, open_image
from modeld.engine.openvino.blocks import BLOCK
from modeld.engine.openvino.engine import OpenVinoEngine
from modeld.engine.openvino.options import generation_config
from modeld.engine.openvino.vision.image_encoder import ImageEncoder
from several_graphs import TOKENS, write_vision_model
from shared.catalog.formats.openvino import read_folder
from shared.catalog.multi_graph import IMAGES
from shared.errors import ImageUnusable
from tiny_projector import png

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
LONG = DecodeOptions(max_tokens=24)


Opened = Callable[..., Bench]


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """Loads a folder."""
    engines: list[OpenVinoEngine] = []

    def load(path: Path, *, blind: bool = False) -> Bench:
        abort = AbortFlag()
        seen_by = "" if blind else f"{IMAGES}.xml"
        engines.append(OpenVinoEngine(abort))
        engines[-1].prepare()
        return Bench(engines[-1], engines[-1].load(request_for(path, projector=seen_by), lambda done, of: None), abort)

    yield load
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp("several"))


@pytest.fixture(scope="module")
def seer(opened: Opened, folder: Path) -> Bench:
    """Of sixteen tokens an image. One for all tests, which begin with words of their own."""
    return opened(folder)


@pytest.fixture(scope="module")
def tiled(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """An image is up to thirteen squares."""
    return opened(write_vision_model(tmp_path_factory.mktemp("tiled"), family="internvl_chat"))


@pytest.fixture(scope="module")
def direct(seer: Bench, folder: Path) -> Direct:
    """The pipeline without its prefix cache."""
    return Direct(seer.engine, folder)


def image(width: int, height: int, seed: int) -> PromptImage:
    return open_image(base64.b64encode(png(width, height, seed=seed)).decode(), 0)


NOISE, OTHER = image(50, 50, 1), image(50, 50, 2)


def encoder_of(bench: Bench) -> ImageEncoder:
    encoder = bench.engine.image_encoder
    assert encoder is not None
    return encoder


def prompt_of(bench: Bench, *parts: PromptImage | str) -> tuple[list[int], list[PromptImage]]:
    encoder = encoder_of(bench)
    text = "".join(one if isinstance(one, str) else encoder.mark for one in parts)
    images = [one for one in parts if isinstance(one, PromptImage)]
    return encoder.ids(text, images), images


def look(
    bench: Bench,
    *parts: PromptImage | str,
    options: DecodeOptions = LONG,
    on_chunk: Callable[[int], None] | None = None,
) -> list[int] | None:
    """The answer to words and images, None when it was aborted."""
    tokens, images = prompt_of(bench, *parts)
    encoder_of(bench).show(tokens, images)
    return bench.ask(tokens, options, on_chunk)


def cold(bench: Bench, direct: Direct, *parts: PromptImage | str) -> list[int]:
    """The same without any reuse."""
    tokens, images = prompt_of(bench, *parts)
    encoder_of(bench).show(tokens, images)
    encoder_of(bench).encode(AbortFlag(), lambda: None)
    return direct.ask(tokens, LONG.max_tokens)


def mismatches(bench: Bench) -> int:
    assert bench.engine._pipeline is not None
    return bench.engine._pipeline.mismatches


def test_words_are_answered_and_reused_as_by_an_ordinary_model(opened: Opened, seer: Bench, folder: Path) -> None:
    ordinary = opened(folder.parent / "words")
    assert ordinary.engine.image_encoder is None
    chance = random.Random(3)
    prompt: list[int] = seer.engine.tokenize("Once upon a time there was", special=False)
    reused = 0
    for _ in range(12):
        answer = seer.ask(prompt)
        assert answer == ordinary.ask(prompt)
        assert seer.reused == ordinary.reused
        reused += seer.reused
        words = seer.engine.tokenize("and so it went on " * chance.randint(1, 6), special=False)
        prompt = [*prompt[: chance.randint(1, len(prompt))], *(answer or []), *words][:400]
    assert reused > 0
    assert mismatches(seer) == mismatches(ordinary) == 0


@pytest.mark.parametrize("family", ["seer", "tiled"])
def test_an_image_becomes_what_openvino_itself_makes_of_it(request: pytest.FixtureRequest, family: str) -> None:
    bench: Bench = request.getfixturevalue(family)
    for size in ((32, 32), (100, 40), (300, 200), (20, 10)):
        shown = image(*size, seed=1)
        answer = look(bench, "say ", shown, "what?")
        assert answer == _its_own(bench, "say <ov_genai_image_0>what?", shown), size


def _its_own(bench: Bench, prompt: str, shown: PromptImage) -> list[int]:
    """The answer of the pipeline's own reading of a prompt."""
    import numpy as np
    from PIL import Image

    library, pipeline = bench.engine._library, bench.engine._pipeline
    assert library is not None
    assert pipeline is not None
    pixels = np.asarray(Image.open(BytesIO(shown.data)).convert("RGB"))[None]
    config = generation_config(library.genai, LONG, bench.engine.special.end)
    handle = pipeline._native.add_request(99, prompt, [library.openvino.Tensor(pixels.copy())], config)
    answer: list[int] = []
    while pipeline._native.has_non_finished_requests():
        pipeline._native.step()
        answer += [token for output in handle.read().values() for token in output.generated_ids]
    return answer


def test_what_an_image_shows_decides_the_answer_and_the_same_one_is_computed_once(seer: Bench) -> None:
    assert seer.loaded.capabilities.vision is True
    reported = ("The very same words stand before it. ", NOISE, "what?")
    total = len(prompt_of(seer, *reported)[0])
    first = look(seer, *reported)
    assert seer.reused == 0
    assert look(seer, *reported) == first
    assert seer.reused == total // BLOCK * BLOCK
    assert look(seer, reported[0], OTHER, "what?") != first
    assert BLOCK <= seer.reused <= total - TOKENS
    assert look(seer, *reported) == first


@pytest.mark.parametrize("kept", [NUM_CTX, 0])
def test_answers_do_not_depend_on_reuse(
    seer: Bench, direct: Direct, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """Nor on whether an image's rows were still there."""
    monkeypatch.setattr(encoder_of(seer), "_most", kept)
    before = mismatches(seer)
    conversations: list[Sequence[PromptImage | str]] = [
        (NOISE, "b"),
        (NOISE, OTHER, "b"),
        ("a ", NOISE, NOISE, "b"),
        (NOISE, OTHER, "words " * 30, NOISE, "and so on"),
        ("a ", NOISE, NOISE, "c"),
    ]
    reused = 0
    for parts in conversations:
        answer = look(seer, *parts)
        reused += seer.reused
        assert answer == cold(seer, direct, *parts)
    assert reused > 3 * TOKENS
    assert mismatches(seer) == before


def test_progress_and_cancel_go_through_an_image(opened: Opened, tiled: Bench) -> None:
    """Thirteen squares are more than two chunks: what a cancel between them leaves is whole."""
    reported = ("before it. ", image(200, 150, 7), "and behind it")
    bench, chunks = opened(Path(tiled.loaded.identity.path)), list[int]()

    def stop(done: int) -> None:
        chunks.append(done)
        bench.abort.set()

    assert look(bench, *reported, on_chunk=stop) is None
    assert chunks == [BLOCK], "the first chunk is the least one"
    assert bench.engine.valid()
    assert look(bench, *reported) == look(tiled, *reported)
    assert (bench.reused, tiled.reused, mismatches(bench)) == (BLOCK, 0, 0)


def test_a_cancel_while_an_image_is_encoded_leaves_nothing_of_it(seer: Bench) -> None:
    new = image(60, 60, 9)
    seer.abort.set()
    assert look(seer, "Look: ", new) is None
    assert seer.engine.valid()
    assert new.digest not in encoder_of(seer)._known
    first = look(seer, "Look: ", new)
    assert first is not None
    assert seer.reused == 0
    assert look(seer, "Look: ", new) == first


def test_an_image_that_cannot_be_decoded_costs_its_turn(seer: Bench) -> None:
    broken = open_image(base64.b64encode(NOISE.data[:-60]).decode(), 4)
    with pytest.raises(ImageUnusable, match="cannot be decoded") as refused:
        look(seer, "Look: ", broken)
    assert refused.value.index == 4
    assert look(seer, "Look: ", NOISE)


@pytest.mark.parametrize(
    ("fault", "why"), [("family", "OpenVINO's own reading"), ("size", "no size"), ("width", "rows of 64")]
)
def test_a_folder_whose_images_cannot_be_taken_is_a_model_for_words(
    opened: Opened, folder: Path, tmp_path: Path, fault: str, why: str
) -> None:
    path = write_vision_model(tmp_path, width=96) if fault == "width" else shutil.copytree(folder, tmp_path / "m")
    if fault == "family":
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "model_type": "llava_next"}))
    elif fault == "size":
        (path / "preprocessor_config.json").write_text('{"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}')
    bench = opened(path)
    assert bench.engine.image_encoder is None
    assert bench.loaded.capabilities.vision is False
    (warning,) = bench.loaded.warnings
    assert warning.startswith("images are refused: ")
    assert why in warning
    assert bench.ask(bench.engine.tokenize("words", special=False))


def test_one_that_is_to_be_for_words_does_not_see(opened: Opened, folder: Path) -> None:
    bench = opened(folder, blind=True)
    assert bench.engine.image_encoder is None
    assert (bench.loaded.capabilities.vision, bench.loaded.identity.projector) == (False, "")
    assert not bench.loaded.warnings, "who left it out says so"
    assert bench.ask(bench.engine.tokenize("words", special=False))


def test_a_schema_holds_behind_an_image(seer: Bench) -> None:
    schema = {"type": "object", "properties": {"red": {"enum": ["yes"]}}, "required": ["red"]}
    options = DecodeOptions(max_tokens=40, json_schema=json.dumps({**schema, "additionalProperties": False}))
    answer = look(seer, "Is it red? ", NOISE, options=options)
    assert answer is not None
    assert json.loads(seer.text(answer)) == {"red": "yes"}


def test_the_catalog_says_what_the_engine_does(folder: Path) -> None:
    facts = read_folder(str(folder))
    assert (facts.unusable, facts.vision, facts.takes_rows, facts.n_layers) == ("", True, True, 2)
