"""The command line as people and scripts use it: words, JSON, exit codes, with and without a daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from modeld_process import hide_engines, write_models, write_script
from shared import codes
from shared.lease.reader import survey
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


class Command:
    """`modeld ...` on this test's data root."""

    def __init__(self, root: DataRoot, environ: dict[str, str]) -> None:
        self.root = root
        self.environ = {**os.environ, **environ}

    def __call__(
        self, *arguments: str, code: int = 0, told_on_stdout: bool = False
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "modeld", *arguments],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        if code not in (0, 2) and not told_on_stdout:
            assert done.stderr.startswith("modeld: "), done.stderr
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.fixture
def modeld(data_root: DataRoot) -> Iterator[Command]:
    write_models(data_root, "a", "b")
    command = Command(data_root, write_script(data_root.path))
    yield command
    command("stop")


def test_reading_commands_without_a_daemon(modeld: Command) -> None:
    assert "start it with `modeld start`" in modeld("status", code=codes.NOT_RUNNING).stderr
    modeld("list", code=codes.NOT_RUNNING)
    modeld("load", "a", code=codes.NOT_RUNNING)
    rows = modeld.json("library")["rows"]
    assert [row["name"] for row in rows] == ["a", "b"]
    assert "NAME" in modeld("library").stdout
    assert "modeld is not running" in modeld("stop").stdout
    assert modeld.json("version")["version"]
    assert modeld("--help").stdout.count("\n") > 20


def test_a_whole_day(modeld: Command) -> None:
    assert "is running (pid" in modeld("start", "--backend", "scripted").stdout
    assert "is running already" in modeld("start", "--backend", "scripted").stdout
    status = modeld.json("status")
    assert list(status)[:7] == ["instance", "role", "pid", "backend", "state", "generation", "active"]
    assert [row["name"] for row in modeld.json("library")["rows"]] == ["a", "b"]
    assert "a is loaded in" in modeld("load", "a").stdout
    assert "it was loaded already" in modeld("load", "a").stdout
    refused = modeld("load", "b", code=codes.REFUSED).stderr
    assert "Switching from a to b will unload a and drop its warm context." in refused
    assert "load b --switch`" in refused
    other = modeld("load", "a", "--ctx", "512", code=codes.REFUSED).stderr
    assert "load a --ctx 512 --switch`" in other, "what was asked for is asked again"
    switched = modeld("load", "b", "--switch").stdout
    assert switched.startswith("Switching from a to b will unload a and drop its warm context.\nb is loaded")
    text = modeld("status").stdout
    assert "slot       Ready" in text
    assert "model      b" in text
    assert modeld.json("load", "b")["active"]["name"] == "b"
    assert modeld("load", "nothing", code=codes.NOT_FOUND).stderr.count("\n") == 1
    mistyped = modeld("load", "nothing", "--switch", code=codes.NOT_FOUND)
    assert not mistyped.stdout, "what would be unloaded is said when it is known that it will be"
    assert modeld.json("status")["active"]["name"] == "b"
    assert "0 connected" in modeld("status").stdout, "the command that asks is no client"
    assert "b is unloaded" in modeld("unload").stdout
    assert "no model was loaded" in modeld("unload").stdout
    assert "context 1024" in modeld("describe", "a", "--ctx", "1024").stdout
    assert "Saved settings" in modeld("configure", "a", "--ctx", "1024").stdout
    assert modeld.json("load", "a")["active"]["num_ctx"] == 1024
    assert "loaded a" in modeld("logs").stdout
    assert "problem" not in modeld("doctor").stdout
    assert len(modeld.json("status", "--all")) == 1
    assert "stopped (pid" in modeld("stop").stdout
    modeld("status", code=codes.NOT_RUNNING)


def test_how_a_name_begins_is_enough_but_not_to_remove(modeld: Command) -> None:
    write_models(modeld.root, "gemma-3-270m", "smollm2-135m-q4_1", "smollm2-360m-q4_1")
    modeld("start", "--backend", "scripted")
    loaded = modeld("load", "Gemma")
    assert loaded.stdout.startswith("gemma-3-270m is loaded")
    assert loaded.stderr == "modeld: using gemma-3-270m\n"
    refused = modeld("load", "smollm2-1", code=codes.REFUSED).stderr
    assert "load smollm2-135m-q4_1 --switch`" in refused
    assert "gemma-3-270m: " in modeld("describe", "gemma").stdout
    assert "Saved settings for gemma-3-270m: --ctx 1024" in modeld("configure", "gemma", "--ctx", "1024").stdout
    several = modeld("load", "smollm2", code=codes.NOT_FOUND).stderr
    assert "smollm2-135m-q4_1" in several
    assert "smollm2-360m-q4_1" in several
    assert "gemma-3-270m" in modeld("rm", "gemma", code=codes.NOT_FOUND).stderr


def test_the_bridges_commands_end_with_the_same_codes(modeld: Command, tmp_path: Path) -> None:
    def bridge(*words: str) -> int:
        line = [sys.executable, "-P", "-m", "acp_bridge", *words]
        done = subprocess.run(
            line,
            env=modeld.environ,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=40,
            check=False,
        )
        assert b"Traceback" not in done.stderr
        return done.returncode

    assert bridge("chat", " ") == codes.USAGE
    assert bridge("chat", "hi", "--model", "nothing") == codes.NOT_FOUND
    assert bridge("chat", "hi") == codes.NOT_RUNNING
    assert bridge("export", "nothing") == codes.NOT_FOUND
    table = subprocess.run(
        [sys.executable, "-m", "acp_bridge", "--help"], capture_output=True, text=True, check=True, timeout=40
    ).stdout
    assert codes.epilog() in table
    assert codes.epilog() in modeld("--help").stdout


def test_starters_that_race_leave_one_daemon(modeld: Command) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: modeld("start", "--backend", "scripted"), range(4)))
    assert all("modeld" in one.stdout for one in done)
    living = survey(modeld.root).living
    assert len({view.pid for view in living}) == 1, living


def test_restart_comes_back_with_the_same_backend(modeld: Command) -> None:
    modeld("start", "--backend", "scripted")
    before = modeld.json("status")
    modeld("restart")
    after = modeld.json("status")
    assert after["instance"] != before["instance"]
    assert after["backend"] == "scripted"
    modeld("restart", "--backend", "none")
    assert modeld.json("status")["backend"] == "none"


def test_a_damaged_record_starts_no_second_modeld(modeld: Command) -> None:
    """The instance behind it lives and rewrites its record at its next look: a start waits for that."""
    modeld("start", "--backend", "scripted")
    (view,) = survey(modeld.root).living
    (modeld.root.instances / f"{view.instance}.json").write_bytes(b"{ cut")
    again = modeld("start", "--backend", "scripted")
    assert "a record is damaged" in again.stderr
    assert f"is running already (pid {view.pid}" in again.stdout
    assert [one.pid for one in survey(modeld.root).living] == [view.pid]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not take such names")
@pytest.mark.parametrize("arguments", [("start",), ("serve",), ("status",), ("library",)])
def test_a_root_whose_name_is_no_text_is_refused_in_a_sentence(
    modeld: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    modeld.environ["MODELD_DATA_ROOT"] = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    try:
        refused = modeld(*arguments, code=codes.FAILED)
    finally:
        modeld.environ["MODELD_DATA_ROOT"] = str(modeld.root.path)
    assert refused.stderr.count("\n") == 1
    assert "its name is not UTF-8; set MODELD_DATA_ROOT to" in refused.stderr
    assert "caf\\udce9" in refused.stderr


@pytest.mark.parametrize(
    "arguments", [("start",), ("serve",), ("pull", "/etc/hostname"), ("doctor",)], ids=lambda words: words[0]
)
def test_a_file_in_the_place_of_the_root_is_named(modeld: Command, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    place = tmp_path / "in the way"
    place.write_text("mine")
    modeld.environ["MODELD_DATA_ROOT"] = str(place)
    try:
        done = modeld(*arguments, code=codes.FAILED) if arguments != ("doctor",) else None
        reported = done.stderr if done is not None else doctored(modeld)
    finally:
        modeld.environ["MODELD_DATA_ROOT"] = str(modeld.root.path)
    assert f"{place} is not a directory; move it away, or set MODELD_DATA_ROOT" in reported
    assert place.read_text() == "mine"


def doctored(modeld: Command) -> str:
    """What the doctor says, which finds something."""
    command = [sys.executable, "-m", "modeld", "doctor"]
    done = subprocess.run(command, env=modeld.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert f"-> move {modeld.environ['MODELD_DATA_ROOT']} away" in done.stdout
    return done.stdout


def test_a_bad_setting_names_its_source(modeld: Command) -> None:
    modeld.environ["MODELD_QUEUE_LIMIT"] = "many"
    assert "MODELD_QUEUE_LIMIT: it must be a whole number" in modeld("start", "--backend", "scripted").stderr
    assert modeld.json("status")["state"] == "Empty"
    assert "MODELD_QUEUE_LIMIT" in modeld("stop").stderr, "what needs no setting works"
    del modeld.environ["MODELD_QUEUE_LIMIT"]


def test_settings_of_a_model_are_shown_set_and_given_back(modeld: Command) -> None:
    modeld("start", "--backend", "scripted")
    assert "a has no settings of its own." in modeld("configure", "a").stdout
    modeld("configure", "a", "--ctx", "2048", "--flash-attention", "off")
    assert "--batch 64" in modeld("configure", "a", "--batch", "64").stdout
    shown = modeld("configure", "a").stdout
    assert "Settings of a: --ctx 2048 --batch 64 --flash-attention off" in shown, "looking erases nothing"
    assert modeld.json("configure", "a")["config"]["num_ctx"] == 2048
    assert (
        "Saved settings for a: --ctx 2048 --flash-attention off" in modeld("configure", "a", "--reset", "batch").stdout
    )
    assert "a has no settings of its own now." in modeld("configure", "a", "--reset").stdout
    assert "--reset" in modeld("configure", "a", "--reset", "nonsense", code=codes.USAGE).stderr


@pytest.mark.skipif(sys.platform != "linux", reason="whether a signal stopped it is known on Linux")
def test_a_modeld_that_a_signal_stopped_is_called_that(modeld: Command) -> None:
    modeld("start", "--backend", "scripted")
    pid = modeld.json("status")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        for words in (["status"], ["list"], ["library"], ["load", "a"]):
            told = modeld(*words, code=codes.NOT_RUNNING).stderr
            assert f"a signal stopped it, so it does not answer; `kill -CONT {pid}`" in told, words
            assert "`modeld stop` ends it" in told
            assert "modeld start" not in told
    finally:
        os.kill(pid, signal.SIGCONT)
    assert modeld.json("status")["pid"] == pid


def test_a_relative_root_means_the_folder_of_its_caller(modeld: Command) -> None:
    given = modeld.environ["MODELD_DATA_ROOT"]
    modeld.environ["MODELD_DATA_ROOT"] = os.path.relpath(given)
    try:
        modeld("start", "--backend", "scripted")
        assert modeld.json("status")["endpoint"]
        assert survey(modeld.root).living, "it is where its caller says"
        modeld("stop")
    finally:
        modeld.environ["MODELD_DATA_ROOT"] = given


def test_a_daemon_that_cannot_start_says_why(modeld: Command) -> None:
    modeld.environ["MODELD_BACKEND"] = "nonsense"
    assert "'nonsense' is none of auto, llama" in modeld("start", code=codes.USAGE).stderr
    del modeld.environ["MODELD_BACKEND"]


def test_a_folder_is_added_to_the_library(modeld: Command, tmp_path: Path) -> None:
    from tiny_gguf import write_tiny_gguf

    config = tmp_path / "config.toml"
    modeld.environ["MODELD_CONFIG"] = str(config)
    config.write_text("# mine\nqueue_limit = 8\n")
    folder = tmp_path / "more models ✓"
    write_tiny_gguf(folder / "c.gguf", name="c", seed=9)
    assert "now among" in modeld("library", "add", str(folder)).stdout
    assert "already among" in modeld("library", "add", str(folder)).stdout
    assert "# mine" in config.read_text(encoding="utf-8")
    assert [row["name"] for row in modeld.json("library")["rows"]] == ["a", "b", "c"]
    modeld("library", "add", str(tmp_path / "nowhere"), code=codes.USAGE)


def without_engines(modeld: Command, folder: Path) -> None:
    """As in an installation without extras: the packages are hidden from every process."""
    hide_engines(folder)
    modeld.environ["PYTHONPATH"] = str(folder)


def test_without_an_engine_every_command_says_so_and_how_to_get_one(modeld: Command, tmp_path: Path) -> None:
    without_engines(modeld, tmp_path)
    stopped = modeld("library").stdout
    assert "no engine that can run it is installed" in stopped
    assert "No engine is installed: `" in stopped
    assert "to use these models" not in stopped, "a start would not"
    modeld("start")
    assert "modeld[openvino]" in modeld("list").stdout
    again = modeld("start", "--backend", "llama", code=codes.FAILED, told_on_stdout=True).stdout
    assert "It serves none, not llama: the llama engine is not available" in again
    assert "modeld[llama]" in again
    before = modeld.json("status")["pid"]
    assert "modeld[llama]" in modeld("restart", "--backend", "llama", code=codes.FAILED).stderr
    assert modeld.json("status")["pid"] == before, "one that serves is not stopped for one that cannot start"


def test_only_engines_of_people_are_named(modeld: Command) -> None:
    del modeld.environ["MODELD_SCRIPTED_ENGINE"]
    refused = modeld("start", "--backend", "foo", code=codes.USAGE).stderr
    assert "scripted" not in refused
    assert "'openvino'" in refused


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not take such names")
def test_names_that_are_no_text_are_refused_in_a_sentence(
    modeld: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder)
    for arguments in (("pull", f"{folder}/m.gguf"), ("load", "\udce9"), ("library", "add", folder)):
        refused = modeld(*arguments, code=codes.USAGE).stderr
        assert refused.startswith("modeld: '"), refused
        assert "is not valid UTF-8: give the file or folder another name" in refused
    config = tmp_path / "settings" / "config.toml"
    modeld.environ["MODELD_CONFIG"] = str(config)
    monkeypatch.chdir(folder)
    assert "give the folder another name" in modeld("library", "add", ".", code=codes.USAGE).stderr
    assert not config.parent.exists(), "nothing is begun"
    assert modeld.json("library")["rows"], "what needs no name of it works there"
    line = [sys.executable, "-P", "-m", "acp_bridge", "export", "--list", "--json"]
    done = subprocess.run(line, env=modeld.environ, capture_output=True, text=True, timeout=30, check=False)
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("running", [False, True])
def test_a_model_that_is_pulled_from_elsewhere_stays_what_it_was_called(
    modeld: Command, tmp_path: Path, running: bool
) -> None:
    from tiny_gguf import write_tiny_gguf

    source = write_tiny_gguf(tmp_path / "picked.gguf", name="picked", seed=7)
    modeld("library", "add", str(tmp_path))
    if running:
        modeld("start", "--backend", "scripted")
        modeld("load", "picked")
    assert "picked" in [row["name"] for row in modeld.json("library")["rows"]]
    assert modeld.json("pull", str(source), "--name", "other.gguf")["name"] == "picked"
    (row,) = [row for row in modeld.json("library")["rows"] if row["name"] not in ("a", "b")]
    assert row["name"] == "picked"
    assert row["path"] == str(modeld.root.models / "other.gguf")
    if running:
        assert "it was loaded already" in modeld("load", "picked").stdout
        modeld("unload")
    source.unlink()
    assert "picked" in [row["name"] for row in modeld.json("library")["rows"]]
    assert modeld.json("rm", "picked")["removed"] == [row["path"]]


@pytest.mark.parametrize("running", [False, True])
def test_pull_and_remove_with_and_without_a_daemon(modeld: Command, tmp_path: Path, running: bool) -> None:
    from tiny_gguf import write_tiny_gguf

    source = write_tiny_gguf(tmp_path / "pulled.gguf", name="pulled", seed=7)
    if running:
        modeld("start", "--backend", "scripted")
    pulled = modeld.json("pull", str(source))
    assert pulled["name"] in [row["name"] for row in modeld.json("library")["rows"]]
    if running:
        modeld("load", pulled["name"])
        assert "unload it first" in modeld("rm", pulled["name"], code=codes.REFUSED).stderr
        modeld("unload")
    assert modeld.json("rm", pulled["name"])["removed"]
    assert source.exists(), "what we did not write is never deleted"
    modeld("rm", pulled["name"], code=codes.NOT_FOUND)
