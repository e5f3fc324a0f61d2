"""Versions side by side and one after the other: handing over between two turns, and files exchanged underneath."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from modeld_process import ENDLESS, Modeld, write_script
from shared.diagnosis.version_order import is_older
from shared.errors import NotOwner
from shared.lease.reader import survey
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import PeerGone
from shared.version import __version__
from versions import OtherVersion
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(90)]


def modeld(root: DataRoot, version: OtherVersion, *replies: dict[str, Any], **environ: str) -> Modeld:
    script = write_script(root.path, replies, token_s=0.005)
    return Modeld(root, "scripted", **{**script, **version.environ, "MODELD_TEMPLATE_DEADLINE": "30", **environ})


async def command(*arguments: str, environ: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return await anyio.run_process([sys.executable, "-P", "-m", "modeld", *arguments], env=environ, check=False)


async def stop_all(root: DataRoot, environ: dict[str, str]) -> None:
    await command("stop", environ=environ)
    await eventually(lambda: not survey(root).living, "all have ended")


async def test_a_newer_start_takes_over_at_the_end_of_the_turn(models: DataRoot, tmp_path: Path) -> None:
    old = OtherVersion(tmp_path / "old", "0.0.9")
    async with modeld(models, old, {"pieces": ["x "] * 200}) as running:
        environ = {key: value for key, value in running.environ.items() if key != "PYTHONPATH"}
        async with running.client() as client:
            assert client.hello.version == "0.0.9"
            turn = client.turn("a", params=api.Sampling(max_tokens=1000))
            await turn.until(api.TextDelta)
            waiting = client.turn("b", allow_switch=True)
            await waiting.until(api.Queued)
            done = await command("start", environ=environ)
            ended = await turn.end()
            assert ended.finish_reason == "stop", "the turn was not cut"
            assert ended.usage.generated >= 200
            with pytest.raises((NotOwner, PeerGone)):
                await waiting.end()
        assert f"modeld {__version__} took over from 0.0.9" in done.stdout.decode(), done.stderr
        assert await running.end() == 0
        found = survey(models)
        assert found.released == "upgrade", "bridges read: it comes back"
        assert [view.version for view in found.living] == [__version__]
        again = await command("start", environ=environ)
        assert b"is running already" in again.stdout
        await stop_all(models, environ)


async def test_a_turn_that_waits_meanwhile_is_answered_by_the_newer_one(models: DataRoot, tmp_path: Path) -> None:
    old = OtherVersion(tmp_path / "old", "0.0.9")
    async with modeld(models, old, {"pieces": ["x "] * 400}, {"pieces": ["second"]}) as running:
        environ = {key: value for key, value in running.environ.items() if key != "PYTHONPATH"}
        async with running.client() as client:
            turn = client.turn("a", params=api.Sampling(max_tokens=1000))
            await turn.until(api.TextDelta)
            chat = [sys.executable, "-P", "-m", "acp_bridge", "chat", "--model", "a", "--json", "hello"]
            with subprocess.Popen(chat, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waits:
                with anyio.fail_after(60.0):
                    while not (await client.status()).queue:
                        await anyio.sleep(0.02)
                done = await command("start", environ=environ)
                assert b"took over" in done.stdout, done.stderr
                assert (await turn.end()).finish_reason == "stop"
                said, complained = await anyio.to_thread.run_sync(waits.communicate)
        assert waits.returncode == 0, complained.decode()
        assert b'"stop_reason":"end_turn"' in said
        await stop_all(models, environ)


async def test_an_older_start_leaves_the_newer_alone(models: DataRoot, tmp_path: Path) -> None:
    new = OtherVersion(tmp_path / "new", "9.0.0")
    async with modeld(models, new) as running:
        environ = {key: value for key, value in running.environ.items() if key != "PYTHONPATH"}
        before = running.instance()
        done = await command("start", environ=environ)
        assert b"version 9.0.0, newer than this command" in done.stdout, done.stderr
        assert running.instance() == before


async def test_a_newer_one_that_does_not_start_costs_nothing(models: DataRoot, tmp_path: Path) -> None:
    old = OtherVersion(tmp_path / "old", "0.0.9")
    broken = OtherVersion(tmp_path / "broken", "0.1.9")
    (broken.folder / "modeld" / "daemon.py").write_text("raise RuntimeError('a build that does not start')\n")
    async with modeld(models, old) as running, running.client() as client:
        await client.load("a")
        done = await command("restart", environ={**running.environ, **broken.environ})
        assert done.returncode == 1
        assert b"RuntimeError in serve at" in done.stderr
        assert f"0.0.9 goes on (pid {running.pid})".encode() in done.stderr
        assert (await client.status()).state == "Ready"


async def test_restart_lets_the_turn_end_and_then_drains(models: DataRoot, tmp_path: Path) -> None:
    version = OtherVersion(tmp_path / "same", __version__)
    async with modeld(models, version, ENDLESS) as running:
        async with running.client() as client:
            turn = client.turn("a", params=api.Sampling(max_tokens=10**6))
            await turn.until(api.TextDelta)
            before = running.instance()
            done = await command("restart", "--drain", "0.3", environ=running.environ)
            assert done.returncode == 0, done.stderr
            assert (await turn.end()).finish_reason == "cancelled_by_other", "a turn without end is ended"
        assert running.instance() not in ("", before)
        assert survey(models).released == "restart"


async def test_a_stop_during_a_restart_is_a_stop(models: DataRoot, tmp_path: Path) -> None:
    version = OtherVersion(tmp_path / "same", __version__)
    async with modeld(models, version, ENDLESS) as running:
        async with running.client() as client:
            turn = client.turn("a", params=api.Sampling(max_tokens=10**6))
            await turn.until(api.TextDelta)
            await client.call("daemon/restart", api.ShutdownParams(drain_s=30.0), api.Value)
            os.kill(running.pid, signal.SIGTERM)
            client.cancel(turn)
            await turn.ended.wait()
        assert await running.end() == 0
        assert survey(models).living == []


async def test_an_upgrade_in_place_is_noticed_and_the_process_starts_again(models: DataRoot, tmp_path: Path) -> None:
    version = OtherVersion(tmp_path / "own", "0.0.9")
    async with modeld(models, version, {"pieces": ["x "] * 100}) as running:
        async with running.client() as client:
            turn = client.turn("a", params=api.Sampling(max_tokens=1000))
            await turn.until(api.TextDelta)
            version.say("0.0.10")
            try:
                await client.load("a", on_busy="wait")  # any call that would use the hardware looks
            except (NotOwner, PeerGone):
                pass
            assert (await turn.end()).finish_reason == "stop"
        await eventually(lambda: (view := running.view()) and view.version == "0.0.10", "it is the new version")
        assert survey(models).released == "upgrade"
        assert "starting again" in running.log()


async def test_a_newer_daemon_and_todays_client_speak(models: DataRoot, tmp_path: Path) -> None:
    newer = OtherVersion(tmp_path / "newer", "9.0.0", protocol=(1, 2))
    async with modeld(models, newer) as running, running.client(protocol=1) as client:
        assert client.hello.protocol == 1
        assert (await client.turn("a").end()).finish_reason == "stop"


def test_which_version_is_older() -> None:
    assert is_older("0.0.9", "0.0.10")
    assert is_older("0.9", "1.0.0")
    assert not is_older("1.0.0", "1.0.0")
    assert not is_older("2.0.0", "1.9.9")
    assert not is_older("", "1.0.0")
    assert not is_older("1.0.0.dev1", "1.0.0"), "what cannot be compared is left alone"
