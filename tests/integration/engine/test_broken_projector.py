"""Native code stumbles over a projector or a folder's vision graph: the worker ends, it is reported, words go on."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from frozen import freeze
from modeld_process import Client, Modeld
from several_graphs import write_vision_model
from shared.errors import EngineFailed, ModelLoadFailed, UnsupportedFeature
from shared.paths import DataRoot
from shared.protocol import api
from tiny_gguf import write_tiny_gguf
from tiny_projector import png, write_tiny_projector

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.timeout(90)]
#: what the wrong sizes in these files make llama.cpp do
ABORTED = "mmproj.gguf, which it needs for images, ended the engine (killed by SIGABRT)"

IMAGE = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(50, 50, seed=1)).decode()},
}


async def ask(client: Client, content: Any) -> api.TurnResult:
    params = api.TurnParams(
        model="m",
        messages=[{"role": "user", "content": content}],
        params=api.Sampling(max_tokens=4),
        allow_load=True,
        allow_switch=True,
    )
    return await client.call("session/turn", params, api.TurnResult, 30.0)


async def words_only(client: Client, generation: int, reported: str = ABORTED) -> None:
    """The next turn loads it again, and says what it does not see; then only describe does."""
    result = await ask(client, "hello")
    assert result.usage.generated == 4
    assert any(reported in one for one in result.warnings)
    assert not any("knows no tools" in one for one in result.warnings), "how it is taught is no news to a person"
    assert (await ask(client, "hello")).warnings == [], "reported once, not with each answer"
    info = await client.call("model/describe", api.DescribeParams(model="m"), api.ModelInfo)
    assert any(reported in one for one in info.warnings)
    assert any("knows no tools" in one for one in info.warnings)
    status = await client.status()
    assert (status.state, status.generation) == ("Ready", generation)
    assert status.active is not None
    assert status.active.capabilities["vision"] is False
    with pytest.raises(UnsupportedFeature, match="image_url"):
        await ask(client, [IMAGE])
    assert (await client.status()).generation == generation, "refused, not loaded again"


@pytest.mark.llama
async def test_an_assertion_at_the_first_image(data_root: DataRoot) -> None:
    data_root.models.mkdir()
    write_tiny_gguf(data_root.models / "m.gguf", name="m")
    projector = write_tiny_projector(data_root.models / "mmproj.gguf", spoilt={"v.position_embd.weight": (4, 32)})
    async with Modeld(data_root, "llama") as modeld, modeld.client() as client:
        await client.load("m")
        with pytest.raises(
            EngineFailed, match=r"SIGABRT over an image; mmproj\.gguf, which it needs for images, is left out"
        ):
            await ask(client, [IMAGE])
        status = await client.status()
        assert (status.state, status.generation) == ("Failed", 2)
        assert "mmproj.gguf, which it needs for images, is left out" in str(status.last_error)
        await words_only(client, 3)
        write_tiny_projector(projector)  # a whole one in its place is tried
        assert (await ask(client, [IMAGE])).usage.generated == 4


@pytest.mark.llama
async def test_an_assertion_at_the_load(data_root: DataRoot) -> None:
    data_root.models.mkdir()
    write_tiny_gguf(data_root.models / "m.gguf", name="m")
    write_tiny_projector(data_root.models / "mmproj.gguf", spoilt={"mm.0.weight": (64, 40)})
    async with Modeld(data_root, "llama") as modeld, modeld.client() as client:
        with pytest.raises(
            ModelLoadFailed, match=r"killed by SIGABRT; mmproj\.gguf, which it needs for images, is left out"
        ):
            await client.load("m")
        assert (await client.status()).state == "Failed"
        assert "mmproj.gguf, which it needs for images, is left out" in str((await client.status()).last_error)
        assert (await client.status()).rejected == []
        await words_only(client, 2)


@pytest.mark.openvino
async def test_a_wrong_address_over_an_image_of_a_folder(data_root: DataRoot, tmp_path: Path) -> None:
    """No file was found at which OpenVINO's native code stops: the fault comes from here, in the middle of the turn."""
    data_root.models.mkdir()
    write_vision_model(tmp_path / "made").rename(data_root.models / "m")
    graph = "openvino_vision_embeddings_model.xml, which it needs for images,"
    async with Modeld(data_root, "openvino") as modeld, modeld.client() as client, modeld.client() as other:
        await client.load("m")
        worker = (await client.status()).worker_pid
        assert worker is not None
        freeze(worker)

        async def fault() -> None:
            await other.until_state("Busy")
            os.kill(worker, signal.SIGSEGV)
            os.kill(worker, signal.SIGCONT)

        other.tasks.start_soon(fault)
        with pytest.raises(EngineFailed, match=rf"SIGSEGV over an image; {graph} is left out"):
            await ask(client, [IMAGE])
        await words_only(client, 3, f"{graph} ended the engine (killed by SIGSEGV)")
        (data_root.models / "m" / "openvino_vision_embeddings_model.xml").touch()
        assert (await ask(client, [IMAGE])).usage.generated == 4
