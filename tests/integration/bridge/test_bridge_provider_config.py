"""Providers as the config file has them now: seen by every command, one bad entry alone lost, edits noticed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge_fakes import Bench, Client, bridge
from bridge_world import World
from provider_endpoint import Endpoint, refused, said
from shared import codes
from shared.errors import ModeldError

pytestmark = [pytest.mark.integration]


@pytest.fixture
def good() -> Iterator[Endpoint]:
    with Endpoint(big={"max_model_len": 32768}) as endpoint:
        yield endpoint


@pytest.fixture
def other() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        endpoint.routes["POST /v1/chat/completions"] = said("from the other")
        yield endpoint


def entry(name: str, url: str, *lines: str) -> str:
    return "\n".join([f"[providers.{name}]", f'base_url = "{url}"', *lines, ""])


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


# --- the commands -------------------------------------------------------------------------------


def run(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", *words]
    return subprocess.run(
        command, env=world.environ, cwd=world.work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def test_both_doctors_and_the_list_see_each_provider_and_what_is_wrong_with_it(world: World, good: Endpoint) -> None:
    with Endpoint() as wants_key, Endpoint() as no_list:
        wants_key.routes["GET /v1/models"] = refused(401, "no key")
        del no_list.routes["GET /v1/models"]
        file = world.folder / "config.toml"
        file.write_text(
            entry("good", good.url)
            + entry("locked", wants_key.url, 'key_env = "LOCKED_KEY"', 'models = ["m"]')
            + entry("away", closed_port(), 'models = ["m"]')
            + entry("misspelt", good.url, 'models = ["bigg"]')
            + entry("plain", no_list.url, 'models = ["m"]')
            + entry("typo", good.url, "typo = 1")
            + '[providers."My Lab"]\nbase_url = "http://x/v1"\n'
        )
        world.environ["MODELD_CONFIG"] = str(file)
        for program in ("acp_bridge", "modeld"):
            done = run(world, program, "doctor", "--json")
            found = {one["what"]: one for one in json.loads(done.stdout) if one["what"].startswith("provider ")}
            told = {
                what.removeprefix("provider "): (one["verdict"], one["text"] + one["fix"])
                for what, one in found.items()
            }
            assert {name: verdict for name, (verdict, _) in told.items()} == {
                "good": "ok", "locked": "problem", "away": "problem", "misspelt": "note", "plain": "note",
                "typo": "problem", "My Lab": "problem",
            }, program  # fmt: skip
            for name, part in (("good", "window 32,768"), ("locked", "LOCKED_KEY"), ("away", "127.0.0.1"),
                               ("misspelt", "bigg"), ("plain", "lists no models"), ("typo", str(file)),
                               ("My Lab", "letters, digits")):  # fmt: skip
                assert part in told[name][1], (program, name)
            assert done.returncode == codes.FAILED
        listed = run(world, "acp_bridge", "models")
        assert "good/big  remote, window 32,768" in listed.stdout
        assert "typo" in listed.stderr
        assert [one["id"] for one in json.loads(run(world, "acp_bridge", "models", "--json").stdout)["remotes"]] == [
            "away/m", "good/big", "locked/m", "misspelt/bigg", "plain/m",
        ]  # fmt: skip


def test_chat_takes_a_remote_model_cold_and_warm(world: World, good: Endpoint) -> None:
    file = world.folder / "config.toml"
    file.write_text(entry("good", good.url))
    world.environ["MODELD_CONFIG"] = str(file)
    for typed in ("good/b", "good/big"):  # cold by its beginning, then warm
        done = run(world, "acp_bridge", "chat", "--model", typed, "hi")
        assert (done.returncode, done.stdout) == (codes.OK, "hello\n"), (typed, done.stderr)
    lost = run(world, "acp_bridge", "chat", "--model", "elsewhere/big", "hi")
    assert lost.returncode == codes.NOT_FOUND
    assert "no provider elsewhere" in lost.stderr
    assert str(file) in lost.stderr
    assert "modeld library" not in lost.stderr


# --- a bridge that runs -------------------------------------------------------------------------


async def pick(client: Client, session: str, model: str) -> None:
    setting = {"sessionId": session, "configId": "model", "value": model}
    await client.request("session/set_config_option", setting)


async def failure(client: Client, session: str) -> ModeldError:
    with pytest.raises(ModeldError) as caught:
        await client.prompt(session, "what is in my files?")
    return caught.value


def shown(client: Client, made: dict[str, Any]) -> str:
    """The options as the editor was told last."""
    updates = [update for _, update in client.updates if update["sessionUpdate"] == "config_option_update"]
    return str(updates[-1] if updates else made)


@pytest.mark.anyio
async def test_an_edit_of_the_file_counts_for_the_next_request(bench: Bench, good: Endpoint, other: Endpoint) -> None:
    file = bench.folder / "config.toml"
    async with bridge(bench) as client:
        await client.initialize()
        made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        session = made["sessionId"]
        file.write_text(entry("lab", good.url))  # the first provider of all
        await pick(client, session, "lab/big")
        await client.prompt(session, "hi")
        file.write_text(entry("lab", other.url))  # another place under the same name
        await client.prompt(session, "hi")
        assert client.text() == "hellofrom the other"
        file.write_text(entry("lab", other.url, "typo = 1"))
        assert "typo" in (await failure(client, session)).message
        file.write_text(entry("someone", other.url))
        error = await failure(client, session)
        assert (error.kind, error.wanted) == ("no_satisfactory_model", "lab/big")
        assert "no provider lab" in error.message
        assert (len(good.bodies()), len(other.bodies())) == (1, 1)
        file.write_text(entry("lab", good.url))
        await client.prompt(session, "hi")
        assert len(good.bodies()) == 2


@pytest.mark.anyio
async def test_the_picker_follows_the_file_by_itself(
    bench: Bench, good: Endpoint, other: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.providers.registry.WATCH_S", 0.02)
    file = bench.folder / "config.toml"
    file.write_text(entry("lab", good.url))
    async with bridge(bench) as client:
        await client.initialize()
        made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        await client.wait_for(lambda: "lab/big" in shown(client, made))
        file.write_text(entry("lab", good.url) + entry("more", other.url))
        await client.wait_for(lambda: "more/big" in shown(client, made))
        file.write_text(entry("more", other.url, 'alias = {short = "big"}'))
        await client.wait_for(lambda: "more/short" in shown(client, made) and "lab/big" not in shown(client, made))
        file.unlink()
        await client.wait_for(lambda: "more/" not in shown(client, made))


@pytest.mark.anyio
async def test_a_file_that_cannot_be_read_stops_requests_and_keeps_the_list(bench: Bench, good: Endpoint) -> None:
    file = bench.folder / "config.toml"
    file.write_text(entry("lab", good.url))
    async with bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await pick(client, session, "lab/big")
        file.write_text("[providers.lab")
        error = await failure(client, session)
        assert error.kind == "setting_invalid"
        assert str(file) in error.message
        assert "lab/big" in str(await client.request("session/new", {"cwd": "/tmp", "mcpServers": []}))
        assert good.bodies() == []
        await client.prompt(session, "/doctor")
        assert str(file.name) in client.text()
        file.write_text(entry("lab", good.url))
        await client.prompt(session, "hi")
        assert len(good.bodies()) == 1


@pytest.mark.anyio
async def test_a_provider_removed_between_two_rounds_of_tools_gets_nothing_more(bench: Bench, good: Endpoint) -> None:
    file = bench.folder / "config.toml"
    file.write_text(entry("lab", good.url))
    call = {"index": 0, "id": "1", "function": {"name": "list_files", "arguments": "{}"}}
    asks = said("")._replace(
        body=f"data: {json.dumps({'choices': [{'delta': {'tool_calls': [call]}, 'finish_reason': 'tool_calls'}]})}\n\n"
        "data: [DONE]\n\n"
    )

    def answer(asked: object) -> Any:
        file.write_text(entry("someone", good.url))
        return asks

    good.routes["POST /v1/chat/completions"] = answer
    async with bridge(bench) as client:
        await client.initialize()
        session = await client.new()
        await pick(client, session, "lab/big")
        assert "no provider lab" in (await failure(client, session)).message
    assert len(good.bodies()) == 1


def test_the_file_is_the_only_thing_that_is_asked_for(tmp_path: Path) -> None:
    """A root without a config file: no provider, no request, no error."""
    import anyio

    from acp_bridge.providers.registry import Providers

    async def look() -> list[Any]:
        return list(await Providers(tmp_path / "config.toml").look())

    assert anyio.run(look) == []
