"""A default is not a pick: whatever becomes of the local model, a remote one answers only where it was picked.

The endpoint really listens and counts its connections; each test ends with a pick that makes it answer, so that a
count of zero says something.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.models.picker import NOTHING
from acp_bridge.models.view import Advertised
from bridge_fakes import Bench, Client, bridge, row, running
from clients.bridge import BridgeError, model_option
from counting_endpoint import ANSWER, MODEL, CountingEndpoint
from picker_world import End, JsonObject, Seat, World, descriptions, values
from shared.client.locate import Detection
from shared.errors import ModeldError

pytestmark = pytest.mark.integration

STOPPED = "modeld is not running; start it with `modeld start`"
GRACE_S = 2.0


@pytest.fixture
def endpoint() -> Iterator[CountingEndpoint]:
    with CountingEndpoint() as made:
        yield made


# --- real processes ----------------------------------------------------------------------------


def refused(seat: Seat, session: str = "") -> None:
    """A prompt here gets one sentence that says what to do."""
    with pytest.raises(BridgeError) as caught:
        seat.bridge.prompt(session or seat.session, "what is in my files?")
    assert caught.value.kind.startswith(("daemon_", "no_available_model")), caught.value.kind
    assert "modeld" in caught.value.message
    assert "\n" not in caught.value.message


def loaded(seat: Seat, session: str) -> JsonObject:
    """The conversation `session`, loaded into this window; its model option."""
    asked = {"sessionId": session, "cwd": str(seat.work), "mcpServers": []}
    return model_option(seat.bridge.request("session/load", asked))


def is_nothing(option: JsonObject) -> bool:
    return bool(option["currentValue"] == NOTHING)


@pytest.mark.llama
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_local_model_that_went_away_never_becomes_a_remote_call(how: End, endpoint: CountingEndpoint) -> None:
    with World(MODELD_LEASE_TTL="1.0", MODELD_GRACE_WINDOW=str(GRACE_S)) as world:
        world.environ["MODELD_CONFIG"] = endpoint.configure(world.folder / "config.toml")
        world.start()
        seat = world.sit("open")
        shown = seat.until(lambda option: len(values(option)) == 4, "all models are listed")
        assert shown["currentValue"] == "alpha", "the default is a local model"
        kept = seat.bridge.new_session(seat.work)["sessionId"]
        seat.bridge.prompt(kept, "/help")  # so that it is saved
        seat.bridge.request("session/close", {"sessionId": kept})
        asked_soon = seat.bridge.new_session(seat.work)["sessionId"]
        world.end(how)

        refused(seat, asked_soon)  # within the grace
        lost = seat.until(is_nothing, "the grace is over")
        assert values(lost) == [NOTHING, MODEL]
        assert "or pick a remote model" in descriptions(lost)[NOTHING]
        refused(seat)
        refused(seat, asked_soon)
        fresh = seat.bridge.new_session(seat.work)
        assert is_nothing(model_option(fresh))
        refused(seat, fresh["sessionId"])
        assert is_nothing(loaded(seat, kept))
        refused(seat, kept)
        echoed = seat.pick(NOTHING)  # an editor sets again what it was shown
        assert is_nothing(echoed)
        refused(seat)
        world.leave(seat)
        with world.born("open") as later:
            assert is_nothing(model_option(later.made))
            refused(later)
            assert is_nothing(loaded(later, kept))
            refused(later, kept)
            assert endpoint.connections == 0
            later.pick(MODEL)
            assert later.bridge.prompt(later.session, "hello").text == ANSWER
            assert len(endpoint.prompts) == 1


# --- one bridge in this process ----------------------------------------------------------------


async def until_listed(client: Client, made: dict[str, Any]) -> None:
    await client.wait_for(lambda: MODEL in str([made, client.updates]))


async def refusal(client: Client, session: str) -> ModeldError:
    with pytest.raises(ModeldError) as caught:
        await client.prompt(session, "what is in my files?")
    return caught.value


async def picked_it_answers(client: Client, session: str, endpoint: CountingEndpoint) -> None:
    """The positive control: nothing came before, and after a pick the model answers at once."""
    assert endpoint.prompts == []
    setting = {"sessionId": session, "configId": "model", "value": MODEL}
    await client.request("session/set_config_option", setting)
    await client.prompt(session, "hello")
    assert client.text().endswith(ANSWER)
    assert len(endpoint.prompts) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("listed", [False, True], ids=["named in the config", "listed by the endpoint"])
@pytest.mark.parametrize("with_modeld", [False, True], ids=["modeld stopped", "modeld runs"])
async def test_without_any_local_model_nothing_answers_until_the_remote_one_is_picked(
    bench: Bench, endpoint: CountingEndpoint, with_modeld: bool, listed: bool
) -> None:
    endpoint.configure(bench.folder / "config.toml", listed=listed)
    bench.inventory.advertised = Advertised(rows=(), reason="no models yet; `modeld pull starter` gets a small one")

    async def talk() -> None:
        async with bridge(bench) as client:
            await client.initialize()
            made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
            await until_listed(client, made)
            error = await refusal(client, made["sessionId"])
            assert error.kind == ("no_available_model" if with_modeld else "daemon_not_running")
            assert error.message.endswith(", or pick a remote model")
            for command in ("/load", "/model", "/context", "/compact"):
                await client.prompt(made["sessionId"], command)
            await picked_it_answers(client, made["sessionId"], endpoint)

    if with_modeld:
        async with running(bench):
            await talk()
    else:
        await talk()


@pytest.mark.anyio
async def test_a_local_model_deleted_while_it_is_open_leaves_a_refusal(
    bench: Bench, endpoint: CountingEndpoint
) -> None:
    endpoint.configure(bench.folder / "config.toml")
    bench.inventory.advertised = Advertised(rows=(row("alpha"),))
    async with running(bench), bridge(bench) as client:
        await client.initialize()
        made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        answered = await client.new("/elsewhere")
        await until_listed(client, made)
        await client.prompt(answered, "hi")
        assert client.text() == "Hello world"
        bench.inventory.advertised = Advertised(rows=(), reason="no models yet")
        bench.inventory.changed()
        await client.wait_for(lambda: f"'{NOTHING}'" in str(client.updates))
        assert (await refusal(client, made["sessionId"])).kind == "no_available_model"
        assert (await refusal(client, answered)).kind == "no_satisfactory_model", "what answered here is its pick"
        assert (await refusal(client, await client.new("/elsewhere"))).kind == "no_available_model"
        await picked_it_answers(client, made["sessionId"], endpoint)


@pytest.mark.anyio
async def test_a_default_that_an_editor_sets_again_is_no_pick_of_a_remote_model(
    bench: Bench, endpoint: CountingEndpoint
) -> None:
    endpoint.configure(bench.folder / "config.toml")
    async with running(bench) as daemon, bridge(bench) as client:
        await client.initialize()
        made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        session = made["sessionId"]
        await until_listed(client, made)
        echo = {"sessionId": session, "configId": "model", "value": model_option(made)["currentValue"]}
        await client.request("session/set_config_option", echo)
        daemon.close()
        bench.records.detection = Detection(state="not_running", stopped=True)
        bench.inventory.advertised = Advertised(rows=(), reason=STOPPED)
        bench.inventory.changed()
        await client.wait_for(lambda: "not available" in str(client.updates))
        for conversation in (session, await client.new(), await client.new("/elsewhere")):
            assert (await refusal(client, conversation)).kind == "daemon_not_running"
        await picked_it_answers(client, session, endpoint)


@pytest.mark.anyio
async def test_a_pick_answers_at_once_also_before_its_endpoint_was_listed(
    bench: Bench, endpoint: CountingEndpoint
) -> None:
    endpoint.configure(bench.folder / "config.toml", listed=True)
    async with bridge(bench) as client:
        await client.initialize()
        await picked_it_answers(client, await client.new(), endpoint)
    async with bridge(bench) as client:  # another bridge, which remembers the pick
        await client.initialize()
        await client.prompt(await client.new(), "hello")
        assert client.text() == ANSWER


@pytest.mark.anyio
async def test_the_pick_of_a_provider_that_is_gone_stays_and_says_so(bench: Bench, endpoint: CountingEndpoint) -> None:
    config = bench.folder / "config.toml"
    endpoint.configure(config)
    async with running(bench):
        async with bridge(bench) as client:
            await client.initialize()
            made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
            await until_listed(client, made)
            await picked_it_answers(client, made["sessionId"], endpoint)
        seen = endpoint.connections
        _rename_provider(config)
        async with bridge(bench) as client:
            await client.initialize()
            made = await client.request("session/new", {"cwd": "/tmp", "mcpServers": []})
            await client.wait_for(lambda: "other/big" in str([made, client.updates]))
            error = await refusal(client, made["sessionId"])
            assert (error.kind, error.wanted) == ("no_satisfactory_model", MODEL)
            assert "the config file" in error.message
    assert endpoint.connections == seen


def _rename_provider(config: Path) -> None:
    config.write_text(config.read_text().replace("providers.lab", "providers.other"))
