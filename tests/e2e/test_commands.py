"""The commands a person types, one after the other."""

from __future__ import annotations

import subprocess

import pytest

from clients.home import Home, command
from waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

CAPITAL = "What is the capital of France? Answer in one word."


@pytest.mark.openvino
def test_start_and_stop_may_be_repeated(home: Home) -> None:
    home.start("openvino")
    first = home.status()
    home.start("openvino")
    assert home.status()["instance"] == first["instance"]
    home.run("modeld", "stop")
    assert not home.processes()
    home.run("modeld", "stop")


@pytest.mark.openvino
def test_a_second_serve_waits_as_standby_and_says_so(home: Home) -> None:
    home.start("openvino")
    owner = home.status()
    home.run("modeld", "load", home.model("smollm2"))
    output = home.folder / "second.out"
    with output.open("wb") as sink:
        second = subprocess.Popen(
            [command("modeld"), "serve", "--backend", "openvino"],
            env=home.environ,
            cwd=home.work,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    until(lambda: "standby" in output.read_text().lower(), "says that it is a standby", 10)
    status = home.status()
    assert status["instance"] == owner["instance"]
    assert status["role"] == "owner"
    home.run("modeld", "stop")
    assert second.wait(20) == 0, "a stop ends standbys too"


def test_the_library_is_listed_while_modeld_is_stopped(home: Home) -> None:
    names = [home.model("smollm2"), home.model("gemma")]
    text = home.run("modeld", "library").stdout
    for name in names:
        assert name in text


def test_load_switch_and_unload(engine: Home) -> None:
    small = engine.model("smollm2")
    engine.run("modeld", "load", small)
    loaded = engine.status()
    assert loaded["active"]["name"] == small
    engine.run("modeld", "load", small)
    assert engine.status()["generation"] == loaded["generation"], "the same identity is not loaded again"
    engine.run("modeld", "unload")
    empty = engine.status()
    assert empty["state"] == "Empty"
    assert empty["generation"] > loaded["generation"]
    engine.run("modeld", "unload")
    assert engine.status()["generation"] == empty["generation"]


@pytest.mark.llama
def test_one_active_model_slot(home: Home) -> None:
    home.start("llama")
    small, other = home.model("smollm2"), home.model("gemma")
    home.run("modeld", "load", small)
    worker = home.status()["worker_pid"]
    refused = home.run("modeld", "load", other, check=False)
    assert refused.returncode != 0
    assert "switch" in refused.stderr
    assert home.status()["active"]["name"] == small
    home.run("modeld", "load", other, "--switch")
    status = home.status()
    assert status["active"]["name"] == other
    assert status["worker_pid"] != worker
    workers = [p for p in home.processes() if "modeld.worker.process" in " ".join(p.cmdline())]
    assert [p.pid for p in workers] == [status["worker_pid"]], "one resident model, one worker"


@pytest.mark.openvino
def test_chat_is_one_whole_turn_and_leaves_nothing(home: Home) -> None:
    secret = "xyzzy-plugh-4711"
    done = home.run("acp-bridge", "chat", "--start", f"{CAPITAL} ({secret})", MODELD_BACKEND="openvino")
    assert done.stdout.strip()
    assert not home.processes()
    logs = [path for path in (home.root / "logs").rglob("*") if path.is_file()]
    assert logs
    for log in logs:
        assert secret.encode() not in log.read_bytes(), log.name


@pytest.mark.openvino
def test_wrong_usage_is_distinguished_from_failure(home: Home) -> None:
    assert home.run("modeld", "no-such-command", check=False).returncode == 2
    absent = home.run("modeld", "load", "x", check=False)
    assert absent.returncode not in (0, 2)
    assert "modeld start" in absent.stderr
    assert home.run("modeld", "status", check=False, MODELD_LEASE_TTL="soon").returncode != 0
