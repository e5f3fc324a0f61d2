"""What a remote model does beside answering: completion at the cursor, counts, thinking levels, images by model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge_fakes import Bench
from lsp_fakes import Window, window
from provider_endpoint import Asked, Endpoint, Reply, refused, said
from shared.errors import ModeldError

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
URI = "file:///home/me/proj/a.py"
TEXT = "def add(a, b):\n    \n\nprint(add(1, 2))\n"
FILLED = Reply(body={"choices": [{"text": "return a + b"}], "usage": {"completion_tokens": 5}})


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint(big={"max_model_len": 4096}, small={}) as made:
        made.routes["POST /v1/completions"] = FILLED
        made.routes["POST /tokenize"] = Reply(body={"count": 77})
        yield made


@pytest.fixture
async def editor(short_tmp: Path, endpoint: Endpoint) -> AsyncIterator[Window]:
    (short_tmp / "run").mkdir(mode=0o700)
    bench = Bench(short_tmp)
    (short_tmp / "config.toml").write_text(
        f'[providers.lab]\nbase_url = "{endpoint.url}"\n'
        '[providers.lab.model."big"]\ninline_completion = true\nthinking = "effort"\nvision = true\n'
    )
    async with window(bench) as made:
        await made.request("modeld/status")
        item = {"uri": URI, "languageId": "python", "version": 1, "text": TEXT}
        made.peer.notify("textDocument/didOpen", {"textDocument": item})
        yield made


async def complete(editor: Window) -> list[dict[str, Any]]:
    where = {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 4}, "context": {"triggerKind": 1}}
    items: list[dict[str, Any]] = (await editor.request("textDocument/inlineCompletion", where))["items"]
    return items


async def test_ghost_text_comes_from_the_pick_where_the_file_allows_it_and_from_no_other(
    editor: Window, endpoint: Endpoint
) -> None:
    assert await complete(editor) == []
    assert endpoint.bodies("/v1/completions") == [], "a model that nobody picked is sent nothing"
    await editor.request("modeld/pick", {"model": "lab/small"})
    assert await complete(editor) == []
    assert endpoint.bodies("/v1/completions") == [], "nor one that was picked to chat alone"
    await editor.request("modeld/pick", {"model": "lab/big"})
    (item,) = await complete(editor)
    assert item["insertText"] == "return a + b"
    (sent,) = endpoint.bodies("/v1/completions")
    assert (sent["model"], sent["prompt"], sent["suffix"]) == ("big", TEXT[:19], TEXT[19:])


async def test_a_server_that_takes_no_suffix_is_asked_once_and_the_doctor_says_so(
    editor: Window, endpoint: Endpoint
) -> None:
    endpoint.routes["POST /v1/completions"] = refused(400, "suffix is not currently supported")
    await editor.request("modeld/pick", {"model": "lab/big"})
    for _ in range(3):
        assert await complete(editor) == []
    assert len(endpoint.bodies("/v1/completions")) == 1
    report = await editor.request("modeld/doctor")
    (about,) = [one for one in report["findings"] if one["about"] == "provider lab"]
    assert "suffix is not currently supported" in about["text"]
    assert "{prefix}" in about["text"]


async def test_the_server_counts_for_the_pick_alone(editor: Window, endpoint: Endpoint) -> None:
    asked = {"model": "lab/big", "messages": [{"role": "user", "content": "word " * 20}]}
    before = await editor.request("modeld/count", asked)
    assert before["exact"] is False
    assert endpoint.bodies("/tokenize") == [], "a text goes to another machine only where its model is picked"
    await editor.request("modeld/pick", {"model": "lab/big"})
    counted = await editor.request("modeld/count", asked)
    assert (counted["total"], counted["exact"]) == (77, True)


async def test_what_the_file_says_of_a_model_is_offered_and_sent(editor: Window, endpoint: Endpoint) -> None:
    await editor.request("modeld/pick", {"model": "lab/big"})
    rows = {row["id"]: row for row in (await editor.request("modeld/models"))["models"]}
    assert (rows["lab/big"]["thinkingLevels"], rows["lab/big"]["vision"], rows["lab/big"]["fim"]) == (
        ["default", "off", "low", "medium", "high"], True, True,
    )  # fmt: skip
    assert (rows["lab/small"].get("thinkingLevels", []), rows["lab/small"].get("vision", False)) == ([], False)
    await editor.turn("lab/big", options={"thinking": "high"}).end()
    assert endpoint.bodies()[-1]["reasoning_effort"] == "high"
    await editor.request("modeld/pick", {"model": "lab/small"})
    with pytest.raises(ModeldError) as caught:
        await editor.turn("lab/small", options={"thinking": "high"}).end()
    assert caught.value.kind == "unsupported_feature"


async def test_an_overlong_history_is_refused_or_trimmed_as_asked(editor: Window, endpoint: Endpoint) -> None:
    def answer(asked: Asked) -> Reply:
        if len(asked.body["messages"]) > 3:
            return refused(400, "request (3230 tokens) exceeds the available context size (2048 tokens)")
        return said("short enough")

    endpoint.routes["POST /v1/chat/completions"] = answer
    endpoint.routes.pop("POST /tokenize")
    await editor.request("modeld/pick", {"model": "lab/small"})
    roles = ["user", "assistant"] * 3 + ["user"]
    history = [{"role": role, "content": "word " * 400} for role in roles]
    with pytest.raises(ModeldError) as caught:
        await editor.turn("lab/small", messages=history, overflow="refuse").end()
    assert (caught.value.kind, caught.value.context) == ("context_overflow", 2048)
    done = await editor.turn("lab/small", messages=history, overflow="trim").end()
    assert done["leftOut"] >= 4
    assert len(endpoint.bodies()[-1]["messages"]) <= 3
