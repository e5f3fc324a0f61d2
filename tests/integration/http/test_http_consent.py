"""Programs and editors share one queue and one model: nobody is pushed aside, and nobody's model goes unasked."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from http_world import HttpServer, modeld, serving
from lsp_world import World
from modeld_process import Modeld

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]
REPLIES = [{"pieces": ["yes"]}, {"when": "count for ever", "pieces": ["on "], "endless": True}]
ENDLESS = [{"role": "user", "content": "count for ever"}]


@pytest.fixture(scope="module")
def daemon(world: World) -> Iterator[Modeld]:
    with modeld(world.scripted("alpha", "beta", replies=REPLIES, token_s=0.002)) as running:
        yield running


@pytest.fixture(scope="module")
def server(world: World, daemon: Modeld) -> Iterator[HttpServer]:
    with serving(world) as running:
        yield running


@pytest.mark.anyio
async def test_a_switch_that_hurts_an_editor_is_409_with_the_sentence(
    world: World, daemon: Modeld, server: HttpServer
) -> None:
    async with daemon.client("Zed (proj)") as editor:
        await editor.turn("alpha", allow_switch=True).end()
        answer = await anyio.to_thread.run_sync(lambda: server.chat("beta"))
        assert (answer.status, answer.error["code"]) == (409, "model_switch_required")
        assert answer.error["message"].startswith("Switching from alpha to beta will unload alpha")
        assert "Zed (proj)" in answer.error["message"]
        assert answer.headers["x-should-retry"] == "false", "an SDK would repeat a 409 by itself"
        assert (await editor.status()).active.name == "alpha"  # type: ignore[union-attr]
        streamed = await anyio.to_thread.run_sync(lambda: server.chat("beta", stream=True))
        assert streamed.status == 409, "a stream that cannot begin is an ordinary error"
    answer = await anyio.to_thread.run_sync(lambda: server.chat("beta"))
    assert answer.status == 200, "the editor has gone: nobody is hurt"


@pytest.mark.anyio
async def test_another_program_is_as_good_as_an_editor(daemon: Modeld, server: HttpServer) -> None:
    def ask(model: str, agent: str) -> int:
        return server.chat(model, agent=agent).status

    assert await anyio.to_thread.run_sync(ask, "beta", "one") in (200, 409)
    assert await anyio.to_thread.run_sync(ask, "alpha", "two") == 409
    assert await anyio.to_thread.run_sync(ask, "beta", "two") == 200


@pytest.mark.anyio
async def test_who_started_it_with_switch_has_said_yes(world: World, daemon: Modeld) -> None:
    async with daemon.client("Zed (proj)") as editor:
        status = await editor.status()
        name = status.active.name if status.active is not None else "alpha"
        other = "beta" if name == "alpha" else "alpha"
        await editor.turn(name).end()
        with serving(world, "--switch") as willing:
            answer = await anyio.to_thread.run_sync(lambda: willing.chat(other))
            assert answer.status == 200
        assert (await editor.status()).active.name == other  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_ten_requests_of_one_program_delay_an_editor_by_one_turn(daemon: Modeld, server: HttpServer) -> None:
    """Each is as long as its bound: the editor's turn, asked for last, is served second."""
    async with daemon.client("Zed (proj)") as editor:
        status = await editor.status()
        model = status.active.name if status.active is not None else "alpha"
        with ThreadPoolExecutor(10) as pool:
            asked = [pool.submit(server.chat, model, messages=ENDLESS, max_tokens=150) for _ in range(10)]
            with anyio.fail_after(30):
                while len((await editor.status()).queue) < 9:
                    await anyio.sleep(0.005)
            await editor.turn(model).end()
            after = await editor.status()
            assert len(after.queue) >= 7, "most of the program's requests still wait"
            done = await anyio.to_thread.run_sync(lambda: [future.result().status for future in asked])
        assert done == [200] * 10


def test_a_full_queue_is_429_with_a_time_that_is_real() -> None:
    """One place to wait, and a turn of known length that runs: the time is about what is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="md-"))
    world = World(folder)
    world.environ["MODELD_QUEUE_LIMIT"] = "1"
    with modeld(world.scripted("alpha", replies=REPLIES, token_s=0.01)), serving(world) as server:
        assert server.chat(messages=ENDLESS, max_tokens=300).status == 200
        with server.begun(messages=ENDLESS, agent="one"), server.begun(messages=ENDLESS, agent="two"):
            server.until(lambda: len(server.status()["queue"]) == 1, "one waits")
            answer = server.chat(agent="three")
        assert (answer.status, answer.error["code"], answer.error["kind"]) == (429, "rate_limit_exceeded", "queue_full")
        assert answer.headers["x-should-retry"] == "true"
        assert 3 <= int(answer.headers["retry-after"]) <= 8, "two turns of three seconds, one of which runs"
    shutil.rmtree(folder, ignore_errors=True)


def test_a_model_by_another_name_never_answers(server: HttpServer) -> None:
    for name in ("Alpha", "alpha ", "alph", "", "gpt-4o", "../alpha", "openai/gpt-4o"):
        answer = server.chat(name)
        assert (answer.status, answer.error["code"]) == (404, "model_not_found"), name
