"""Downloads of the daemon: they outlive their command, which asks, and whoever wants ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from file_server import FileServer, Request, file_server
from gguf_bytes import model
from modeld_process import Modeld
from shared.errors import DownloadFailed
from shared.paths import DataRoot
from shared.protocol import api
from waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.timeout(120)]
CONTENT = model() + bytes(2_000_000)


class Slow:
    """Half of a file, and the rest when it is let."""

    def __init__(self) -> None:
        self.half_sent = threading.Event()
        self.rest = threading.Event()

    def __call__(self, request: Request) -> None:
        start = request.asked_from()
        if start is not None:
            request.send_part(CONTENT, start)
            return
        request.send_response(200)
        request.send_header("ETag", '"v1"')
        request.send_header("Content-Length", str(len(CONTENT)))
        request.end_headers()
        request.wfile.write(CONTENT[:1_000_000])
        request.wfile.flush()
        self.half_sent.set()
        while not self.rest.wait(0.02):
            request.wfile.write(b"")
        request.wfile.write(CONTENT[1_000_000:])


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.rest.set()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "modeld", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


async def modeld(*arguments: str) -> subprocess.CompletedProcess[str]:
    return await anyio.to_thread.run_sync(lambda: command(*arguments))


async def test_a_download_is_cancelled_by_anybody_and_resumed_later(
    data_root: DataRoot, server: FileServer, slow: Slow
) -> None:
    url = server.serve("/m.gguf", slow)
    async with Modeld(data_root, "none") as running, running.client() as client, running.client("other") as other:
        failures: list[str] = []

        async def wait_for_it() -> None:
            try:
                await client.call("library/pull", api.PullParams(source=url), api.PullResult)
            except DownloadFailed as error:
                failures.append(error.reason)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_it)
            await eventually(slow.half_sent.is_set, "half of it")
            nothing = api.PullCancelParams(source="hf:o/r")
            assert (await other.call("library/pull_cancel", nothing, api.PullCancelResult)).cancelled == []
            busy = await modeld("pull", "--clean")
            assert "is fetched now" in busy.stdout
            done = await modeld("pull", "--cancel")
            assert (done.returncode, done.stdout.startswith(f"Cancelled {url}")) == (0, True), done
        assert failures == ["cancelled"], "though the server is still silent"
        slow.rest.set()
        listed = json.loads((await modeld("pull", "--partial", "--json")).stdout)
        assert [(one["name"], one["resumable"]) for one in listed] == [("m.gguf", True)]
        again = await modeld("pull", url)
        assert "Added m " in again.stdout, again
        assert "to fetch" in again.stderr
        assert server.requests[-1][1]["Range"].startswith("bytes=")
        assert (await modeld("pull", "--cancel")).stdout == "modeld fetches nothing now\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of the tests")
@pytest.mark.parametrize("answer", ["y", "n"])
async def test_ctrl_c_asks_what_becomes_of_it(data_root: DataRoot, server: FileServer, slow: Slow, answer: str) -> None:
    import pty  # Unix has it alone

    url = server.serve("/m.gguf", slow)
    async with Modeld(data_root, "none"):
        terminal, inside = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "modeld", "pull", url], stdin=inside, stdout=inside, stderr=inside
        )
        os.close(inside)
        shown = Shown(terminal)
        await eventually(lambda: "downloading" in shown.text, "it downloads")
        process.send_signal(signal.SIGINT)
        await eventually(lambda: "Cancel it? [y/N]" in shown.text, "the question")
        os.write(terminal, f"{answer}\n".encode())
        assert await anyio.to_thread.run_sync(lambda: process.wait(30)) == 130
        slow.rest.set()
        if answer == "n":
            await eventually((data_root.models / "m.gguf").exists, "the daemon went on")
        else:
            await eventually(lambda: f"Cancelled {url}" in shown.text, "it says so")
            assert not (data_root.models / "m.gguf").exists()
        os.close(terminal)


class Shown:
    """What a terminal shows, read by a thread of its own."""

    def __init__(self, terminal: int) -> None:
        self.text = ""
        self._terminal = terminal
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self._terminal, 4096):
                self.text += data.decode(errors="replace")
        except OSError:
            return  # closed with its process


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("startr",), 7, "did you mean starter?"),
        (("o/r",), 7, "did you mean hf:o/r?"),
        (("starter", "--digest", "abc"), 2, "it has 3 hex digits where a SHA-256 has 64"),
        ((), 2, "name what to fetch"),
        (("--partial",), 0, "no unfinished downloads"),
        (("--cancel",), 0, "modeld fetches nothing now"),
    ],
)
def test_what_is_typed_without_a_daemon(
    data_root: DataRoot, short_tmp: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = command("pull", *arguments)
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done
