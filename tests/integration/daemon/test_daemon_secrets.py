"""The daemon's token and the hub's: known to who needs them, and in nothing that is shown or written."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from file_server import file_server, status
from modeld_process import Modeld, write_script
from secret_search import found, written
from shared.lease.presence import read_token
from shared.paths import DataRoot

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

TOKEN = "hf_Marked/token+1"
PASSWORD = "Marked-password-2"
SIGNATURE = "Marked-signature-3"


def command(root: DataRoot, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    import os

    environ = {**os.environ, "MODELD_DATA_ROOT": str(root.path)}
    line = [sys.executable, "-P", "-m", "modeld", *arguments]
    return subprocess.run(line, env=environ, capture_output=True, check=False, timeout=60)


async def test_neither_token_is_reported_by_a_running_daemon(data_root: DataRoot) -> None:
    with file_server() as server:
        server.serve("/api/models/o/r/tree/main", status(401, WWW_Authenticate=TOKEN))
        environ = {**write_script(data_root.path), "HF_ENDPOINT": server.url(""), "HF_TOKEN": f"{TOKEN}\n"}
        async with Modeld(data_root, **environ) as daemon:
            view = daemon.view()
            assert view is not None
            secret = read_token(view.token_file)
            pulled = command(data_root, "pull", "hf:o/r")
            assert (pulled.returncode, b"needs a login" in pulled.stderr) == (7, True), pulled.stderr
            address = server.url("/m.gguf").replace("//", f"//me:{PASSWORD}@") + f"?X-Amz-Signature={SIGNATURE}"
            signed = command(data_root, "pull", address)
            assert (signed.returncode, b"404" in signed.stderr) == (7, True), signed.stderr
            bundle = data_root.path / "bundle.zip"
            for arguments in (("status", "--json"), ("logs",), ("doctor", "--json", "--bundle", str(bundle))):
                done = command(data_root, *arguments)
                (data_root.path / f"{arguments[0]}.shown").write_bytes(done.stdout + done.stderr)
            processes = [psutil.Process(daemon.pid), *daemon.workers()]
            (data_root.path / "ps.shown").write_text(" ".join(word for each in processes for word in each.cmdline()))
            texts = {place: data for place, data in written(data_root.path).items() if not place.endswith(".token")}
            texts["pull"] = pulled.stdout + pulled.stderr + signed.stdout + signed.stderr
            assert [leak for each in (secret, TOKEN, PASSWORD, SIGNATURE) for leak in found(each, texts)] == []
            assert server.requests[1][0].endswith(SIGNATURE)
            assert server.requests[0][1]["Authorization"] == f"Bearer {TOKEN}"
            assert found(secret, written(data_root.path)), "the search sees the file of the token itself"
            assert bundle.exists()


async def test_a_token_that_the_daemon_cannot_send_is_one_line_with_the_same_code(data_root: DataRoot) -> None:
    environ = {**write_script(data_root.path), "HF_TOKEN": "hf_Marked\u00e9"}
    async with Modeld(data_root, **environ):
        done = command(data_root, "pull", "hf:o/r")
    assert (done.returncode, done.stderr.count(b"\n"), b"Marked" in done.stderr) == (2, 1, False), done.stderr
