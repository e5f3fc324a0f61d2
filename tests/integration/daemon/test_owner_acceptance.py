"""The acceptance tests of owner coordination that need whole daemons and bridges, under their own names.

The others stand in tests/integration/lease/test_lease_processes.py: single_owner, self_fence_on_renew_failure,
takeover_after_crash, coordination_survives_takeover.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from churn import STALE, Unjudged
from clients.bridge import Bridge, BridgeError, private_environment
from leaks import end_processes_of
from modeld_process import Client, Modeld, write_models, write_script
from shared.errors import NotOwner
from shared.lease.reader import survey
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(90)]


def scripted(root: DataRoot) -> Modeld:
    environ = write_script(root.path, [{"pieces": ["Paris"]}])
    return Modeld(root, "scripted", MODELD_DATA_ROOT=str(root.path), MODELD_LEASE_TTL="1", **environ)


async def test_follower_defer(data_root: DataRoot) -> None:
    """follower_defer: a modeld that cannot get the lease never loads a second resident copy, whatever it is asked."""
    write_models(data_root, "a", "b")
    async with scripted(data_root) as owner, owner.client() as client:
        await client.load("a")
        async with scripted(data_root) as follower, follower.client() as other:
            await role(other, "standby")
            for name in ("a", "b"):
                with pytest.raises(NotOwner) as refused:
                    await other.load(name, allow_switch=True)
                assert refused.value.owner["instance"] == client.hello.instance
                with pytest.raises(NotOwner):
                    await other.turn(name, allow_switch=True).end()
            with pytest.raises(NotOwner):
                await other.unload()
            assert follower.workers() == []
            assert len(owner.workers()) == 1
            assert (await client.status()).state == "Ready"
            assert (await other.status()).active is None


async def test_client_call_and_failover(short_tmp: Path) -> None:
    """client_call_and_failover: a bridge's turn goes to the owner; that is killed; the next turn goes to its successor,
    meant for that instance, and nothing is sent to the dead one.
    """
    root = DataRoot(short_tmp / "data")
    root.path.mkdir(mode=0o700)
    write_models(root, "paris")
    environ = private_environment(short_tmp, MODELD_LEASE_TTL="1", **write_script(root.path, [{"pieces": ["Paris"]}]))
    first, second = (Modeld(root, "scripted", **environ) for _ in range(2))
    async with first, second:
        bridge = Bridge([sys.executable, "-m", "acp_bridge", "acp"], environ, Unjudged(), cwd=short_tmp)
        try:
            session = await anyio.to_thread.run_sync(picked, bridge, short_tmp)
            assert "Paris" in await anyio.to_thread.run_sync(said, bridge, session)
            owner = survey(root).owner
            assert owner is not None
            dies, follows = (first, second) if owner.pid == first.pid else (second, first)
            async with follows.client() as client:
                await role(client, "standby")
                await dies.end(signal.SIGKILL)
                await role(client, "owner")
                assert "Paris" in await anyio.to_thread.run_sync(said, bridge, session)
                status = await client.status()
                assert status.instance == client.hello.instance != owner.instance
                assert status.last_turn is not None, "the turn was run by the successor"
        finally:
            await anyio.to_thread.run_sync(bridge.close)
        assert STALE not in first.log()
    assert not end_processes_of(root.path)


async def role(client: Client, wanted: str) -> None:
    with anyio.fail_after(15.0):
        while (await client.status()).role != wanted:
            await anyio.sleep(0.02)


def picked(bridge: Bridge, folder: Path, part: str = "paris") -> str:
    """A new session that has picked the model."""
    bridge.initialize()
    session = bridge.new_session(folder)
    bridge.choose(str(session["sessionId"]), "model", bridge.find_model(session, part))
    return str(session["sessionId"])


def said(bridge: Bridge, session: str) -> str:
    """The answer; a bridge that finds out only now that its owner has died may say so once."""
    try:
        return bridge.prompt(session, "the capital of France?", 30.0).text
    except BridgeError as error:
        if not error.data.get("retryable"):
            raise
        return bridge.prompt(session, "the capital of France?", 30.0).text


#: A bridge on a machine without modeld: neither the package nor the command is found.
WITHOUT_MODELD = """
import importlib.util, shutil, sys
find, which = importlib.util.find_spec, shutil.which
importlib.util.find_spec = lambda name, *rest: None if name == "modeld" else find(name, *rest)
shutil.which = lambda name, *rest, **more: None if name == "modeld" else which(name, *rest, **more)
import acp_bridge.__main__ as bridge
sys.exit(bridge.main())
"""


class Cloud(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint with one model."""

    def do_GET(self) -> None:
        self._say("application/json", json.dumps({"data": [{"id": "big", "max_model_len": 4096}]}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        chunk = {"choices": [{"delta": {"content": "from afar"}, "finish_reason": "stop"}]}
        self._say("text/event-stream", b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")

    def _say(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def cloud(short_tmp: Path) -> Iterator[Path]:
    """A config file with that endpoint, which serves during the test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    path = short_tmp / "config.toml"
    path.write_text(f'[providers.lab]\nbase_url = "http://127.0.0.1:{server.server_port}/v1"\ntimeout_s = 5\n')
    yield path
    server.shutdown()
    thread.join()
    server.server_close()


def test_modeld_absent(short_tmp: Path, cloud: Path) -> None:
    """modeld_absent: without modeld a local request says how to install it; a remote one is answered."""
    environ = private_environment(short_tmp, MODELD_CONFIG=str(cloud))
    bridge = Bridge([sys.executable, "-c", WITHOUT_MODELD, "acp"], environ, Unjudged(), cwd=short_tmp)
    try:
        bridge.initialize()
        session = bridge.new_session(short_tmp)
        name = str(session["sessionId"])
        with pytest.raises(BridgeError) as refused:
            bridge.prompt(name, "hi", 30.0)
        assert refused.value.kind == "daemon_not_installed"
        assert "pip install modeld" in refused.value.message
        bridge.choose(name, "model", bridge.find_model(session, "lab/big"))
        assert bridge.prompt(name, "hi", 30.0).text == "from afar"
    finally:
        bridge.close()
