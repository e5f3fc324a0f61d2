"""Every wrong state is met by the right word: made for real, then looked at by the command a person would type."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from frozen import freeze
from modeld import client
from modeld.cli.commands.doctor import look
from modeld.doctor import runtime
from modeld.engine import backends
from modeld_process import Modeld, hide_engines, write_models, write_script
from shared import codes
from shared.diagnosis.finding import Finding, lines, problems
from shared.lease.reader import survey
from shared.paths import DataRoot
from versions import OtherVersion

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(90)]

Report = dict[str, list[dict[str, str]]]


def by_subject(found: list[dict[str, str]]) -> Report:
    report: Report = {}
    for one in found:
        report.setdefault(one["what"], []).append(one)
    return report


async def command(*arguments: str) -> Report:
    """The findings of the command as it is typed, the bridge's part included."""
    done = await anyio.run_process([sys.executable, "-P", "-m", "modeld", "doctor", "--json", *arguments], check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return by_subject(json.loads(done.stdout))


async def doctor(**environ: str) -> Report:
    """The same looks in this process, without the bridge's."""

    def looked() -> Report:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "bridge", list)
            for name, value in environ.items():
                patch.setenv(name, value)
            return by_subject([msgspec.to_builtins(one) for one in look()[1]])

    return await anyio.to_thread.run_sync(looked)


def problem(report: Report, what: str) -> dict[str, str]:
    """The one problem about `what`; it has a way out."""
    (found,) = [one for one in report[what] if one["verdict"] == "problem"]
    assert found["fix"], f"{found} says no way out"
    return found


def modeld(root: DataRoot, **environ: str) -> Modeld:
    return Modeld(root, "scripted", **{**write_script(root.path), "MODELD_TEMPLATE_DEADLINE": "30", **environ})


async def test_all_is_well_and_stopped(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    report = await command()
    assert not [one for found in report.values() for one in found if one["verdict"] == "problem"]
    assert "protocol 1" in report["version"][0]["text"]
    assert report["modeld"][0]["fix"] == "`modeld start`"
    assert "conversations" in report, "the bridge was asked"


async def test_both_doctors_tell_in_one_shape_and_end_with_one_meaning(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    for broken in (False, True):
        environ = {**os.environ, **({"MODELD_QUEUE_LIMIT": "none"} if broken else {})}
        for program in ("modeld", "acp_bridge"):
            line = [sys.executable, "-P", "-m", program, "doctor"]
            done = await anyio.run_process([*line, "--json"], env=environ, check=False)
            found = msgspec.json.decode(done.stdout, type=list[Finding], strict=True)
            assert all(set(one) == {"what", "verdict", "text", "fix"} for one in json.loads(done.stdout))
            assert problems(found) is broken
            assert done.returncode == (codes.FAILED if broken else codes.OK)
            words = (await anyio.run_process(line, env=environ, check=False)).stdout.decode().splitlines()
            stable = [one for one in found if one.what in ("modeld", "editors", "conversations", "settings")]
            assert stable
            assert set(lines(stable)) <= set(words)


async def test_no_model(data_root: DataRoot) -> None:
    report = await doctor()
    assert "modeld pull starter" in report["library"][0]["fix"]


async def test_no_engine(data_root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that cannot be found, as in an installation without extras."""
    monkeypatch.setattr(backends, "_spec", lambda package: None)
    assert "modeld[openvino]" in problem(await doctor(), "engines")["fix"]


async def test_a_stale_lease(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    async with modeld(data_root) as daemon:
        async with daemon.client() as client:
            await client.load("a")
        os.kill(daemon.pid, signal.SIGKILL)
        await daemon.end()
        report = await doctor()
        (lease,) = report["lease"]
        assert "stale" in lease["text"]
        assert "modeld start" in lease["fix"]
        assert report["modeld"][0]["text"] == "stopped"


async def test_a_daemon_that_hangs(data_root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.5)
    async with modeld(data_root) as daemon:
        freeze(daemon.pid)
        try:
            report = await doctor(MODELD_DIAL_TIMEOUT="0.3")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        assert "modeld stop" in problem(report, "modeld")["fix"]


async def test_rights_that_are_wrong(data_root: DataRoot) -> None:
    async with modeld(data_root) as daemon:
        view = daemon.view()
        assert view is not None
        os.chmod(view.token_file, 0o644)
        report = await doctor()
        assert "modeld restart" in problem(report, "token")["fix"]
        os.chmod(view.token_file, 0o600)


@pytest.mark.skipif(os.name == "nt", reason="owners and modes are those of Unix")
async def test_a_root_of_somebody_else(data_root: DataRoot) -> None:
    if os.geteuid() == 0:
        os.chown(data_root.path, 12345, -1)
    else:
        data_root.path.chmod(0o500)
    try:
        report = await doctor()
        found = problem(report, "data root")
        assert str(data_root.path) in found["text"]
        assert "MODELD_DATA_ROOT" in found["fix"]
    finally:
        if os.geteuid() == 0:
            os.chown(data_root.path, 0, -1)
        data_root.path.chmod(0o700)


async def test_a_root_that_cannot_be_written(data_root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is mounted read-only, where root has no more rights than others."""
    real = os.access
    readable = lambda path, mode: real(path, mode) and not (mode & os.W_OK and str(path) == str(data_root.path))  # noqa: E731
    monkeypatch.setattr(os, "access", readable)
    found = problem(await doctor(), "data root")
    assert "cannot be written" in found["text"]
    assert "MODELD_DATA_ROOT" in found["fix"]


async def test_a_file_in_the_place_of_the_root(data_root: DataRoot) -> None:
    data_root.path.rmdir()
    data_root.path.write_text("in the way")
    report = await doctor()
    assert "MODELD_DATA_ROOT" in problem(report, "data root")["fix"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of half a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("NOT PROVEN HERE: this machine does not permit mounting a tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_full_disk(small_disk: Path, private_home: Path) -> None:
    report = await doctor(MODELD_DATA_ROOT=str(small_disk / "data"))
    found = problem(report, "disk")
    assert "full" in found["text"]
    assert "modeld rm" in found["fix"]


async def test_a_start_on_a_full_disk_says_so(small_disk: Path, private_home: Path) -> None:
    with (small_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(b"x" * 4096)
    environ = {**os.environ, "MODELD_DATA_ROOT": str(small_disk / "data")}
    command = [sys.executable, "-P", "-m", "modeld", "start", "--backend", "none"]
    done = await anyio.run_process(command, env=environ, check=False)
    assert done.returncode == 1
    assert b"disk full" in done.stderr
    assert b"free some space" in done.stderr


async def test_a_start_without_an_engine_says_how_to_get_one(data_root: DataRoot, tmp_path: Path) -> None:
    """The packages are hidden from every process, as in an installation without extras."""
    hide_engines(tmp_path)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "modeld"]
    try:
        done = await anyio.run_process([*command, "start"], env=environ, check=False)
        assert done.returncode == 0, done.stderr
        assert b"modeld[openvino]" in done.stdout
    finally:
        await anyio.run_process([*command, "stop"], env=environ, check=False)


async def test_too_little_memory(data_root: DataRoot) -> None:
    write_models(data_root, "a")
    report = await doctor(
        MODELD_MEMORY_RESERVE_FLOOR=str(1 << 60), MODELD_MEMORY_RESERVE_CAP="1.0", MODELD_LEAST_CONTEXT="1"
    )
    assert "too little" in problem(report, "memory")["text"]


async def test_an_old_protocol_and_a_version_that_was_replaced(data_root: DataRoot, tmp_path: Path) -> None:
    async with modeld(data_root, **OtherVersion(tmp_path / "far", "9.0.0", protocol=(7, 7)).environ) as daemon:
        report = await doctor()
        assert "modeld stop" in problem(report, f"pid {daemon.pid}")["fix"]
    async with modeld(data_root, **OtherVersion(tmp_path / "near", "0.0.9").environ) as daemon:
        report = await doctor()
        (found,) = report[f"pid {daemon.pid}"]
        assert "runs version 0.0.9" in found["text"]
        assert found["fix"] == "`modeld restart`"


async def test_settings_that_are_wrong_hide_nothing_else(data_root: DataRoot, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("lease_ttl = 'long'\n")
    report = await doctor(MODELD_CONFIG=str(config))
    assert str(config) in problem(report, "settings")["text"]
    assert report["data root"][0]["verdict"] == "ok"
    assert report["engine openvino"]


async def test_no_home_and_no_path(private_home: Path) -> None:
    report = await doctor(HOME="")
    assert "HOME" in problem(report, "HOME")["fix"]
    report = await doctor(PATH="")
    assert report["PATH"][0]["verdict"] == "note"
    assert str(Path(sys.executable).parent) in report["PATH"][0]["fix"]


async def test_a_damaged_database(data_root: DataRoot) -> None:
    data_root.database.write_bytes(b"no database at all" * 100)
    report = await doctor()
    assert report["database"][0]["verdict"] == "note"
    assert "creates a new one" in report["database"][0]["fix"]
    data_root.database.unlink()
    sqlite3.connect(data_root.database).close()


async def test_records_that_cannot_be_read(data_root: DataRoot) -> None:
    data_root.owner.mkdir(mode=0o700)
    (data_root.owner / "3.lease").write_text("{ cut")
    report = await doctor()
    assert "epoch 3 cannot be read" in report["lease"][0]["text"]
    assert survey(data_root).last is not None


@pytest.mark.parametrize(
    ("entry", "verdict", "words"),
    [
        (None, "note", "does not name modeld"),
        ({"command": "/gone/python", "args": []}, "problem", "not there any more"),
        ({"command": "/bin/false", "args": []}, "problem", "does not have modeld installed"),
        ({"command": sys.executable, "args": []}, "ok", sys.executable),
    ],
)
async def test_editors(
    data_root: DataRoot, private_home: Path, entry: dict[str, Any] | None, verdict: str, words: str
) -> None:
    settings = private_home / ".config" / "zed" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"agent_servers": {} if entry is None else {"modeld": entry}}))
    (found,) = (await command())["editor zed"]
    assert found["verdict"] == verdict
    assert words in found["text"]
    assert (verdict == "ok") == (not found["fix"])


async def test_a_report_to_show_to_others(data_root: DataRoot, private_home: Path, tmp_path: Path) -> None:
    write_models(data_root, "a")
    bundle = tmp_path / "report.zip"
    async with modeld(data_root) as daemon:
        async with daemon.client("Ada's editor") as client:
            await client.turn("a", "the prompt nobody may see").end()
        view = daemon.view()
        assert view is not None
        token = Path(view.token_file).read_text().strip()
        await command("--bundle", str(bundle))
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    with zipfile.ZipFile(bundle) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {"report.txt", "status.json", "versions.txt", "logs/modeld.log", "records.json"} <= set(texts)
    assert "owns the hardware" in texts["logs/modeld.log"]
    for name, text in texts.items():
        assert token not in text, name
        assert "nobody may see" not in text, name
        assert str(private_home) not in text, name
