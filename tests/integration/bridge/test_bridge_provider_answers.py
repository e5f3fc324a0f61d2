"""Each answer of the table through a real socket and the real client: what a person gets of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import anyio
import pytest

from acp_bridge.cancel import Cancel
from acp_bridge.providers.client import ProviderClient
from acp_bridge.providers.config import Provider
from acp_bridge.providers.endpoint import Certificates
from provider_answers import CASES, Handler, Server
from shared.errors import ModeldError
from shared.protocol import api

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        Server.closing.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", CASES)
async def test_an_answer(address: str, certificates: Certificates, name: str) -> None:
    case = CASES[name]
    provider = ProviderClient(Provider(name="lab", base_url=address, timeout_s=20), certificates)
    events: list[api.Event] = []
    result, error = None, ""
    with anyio.fail_after(15):
        try:
            asked = api.TurnParams(model=f"lab/{name}", messages=[{"role": "user", "content": "go"}])
            result = await provider.turn(asked, events.append, Cancel())
        except ModeldError as refused:
            error = refused.message
    await provider.close()
    assert "".join(event.text for event in events if isinstance(event, api.TextDelta)) == case.text
    assert "".join(event.text for event in events if isinstance(event, api.ReasoningDelta)) == case.thinking
    if case.error:
        assert case.error in error
        return
    assert result is not None, error
    assert result.finish_reason == case.finish
    reported = [(call.name, json.loads(call.arguments)) for call in result.tool_calls]
    assert reported == [(name, json.loads(arguments)) for name, arguments in case.calls]
    assert sum(bool(call.fault) for call in result.tool_calls) == case.faults
    assert len({call.id for call in result.tool_calls}) == len(reported), "each call has an id of its own"
    said = " ".join(result.warnings)
    assert (case.warning in said) if case.warning else said == ""


def test_the_table_is_large() -> None:
    assert len(CASES) >= 200
