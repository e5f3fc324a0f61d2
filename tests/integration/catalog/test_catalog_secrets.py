"""Tokens of the hub, passwords and signatures in addresses: sent to whom they are for, and shown or written nowhere."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from file_server import Behaviour, FileServer, Request, file_server, whole
from gguf_bytes import model
from secret_search import echoes, found, written
from shared.errors import DigestMismatch, DownloadFailed, ModeldError, SettingInvalid
from shared.fetch.pull import pull
from shared.paths import DataRoot

pytestmark = pytest.mark.integration

TOKEN = "hf_Marked/token+\"1'2"
PASSWORD = "p@ss/Marked+word\\3"
SIGNATURE = "signed-Marked-4"
CONTENT = model() + bytes(1000)
TREE = "/api/models/o/r/tree/main"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


@pytest.fixture
def other() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def said(request: Request) -> str:
    """Everything secret that came, again."""
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    password = base64.b64decode(value).decode().partition(":")[2] if kind == "Basic" else value
    signature = request.path.rpartition("=")[2]
    return " ".join(echoes(secret) for secret in (password, signature) if secret)


def answer(status: int, body: Callable[[str], str] = str, **headers: Callable[[str], str]) -> Behaviour:
    """A status with an echo in its body, its headers and its words."""

    def behave(request: Request) -> None:
        text = said(request)
        lines = [f"HTTP/1.1 {status} {text}", f"Content-Length: {len(body(text).encode())}", f"X-Echo: {text}"]
        lines += [f"{name.replace('_', '-')}: {value(text)}" for name, value in headers.items()]
        request.close_connection = True
        request.wfile.write("\r\n".join([*lines, "Connection: close", "", body(text)]).encode())

    return behave


def junk(head: str) -> Behaviour:
    def behave(request: Request) -> None:
        request.close_connection = True
        request.wfile.write(head.format(said(request)).encode())

    return behave


def listing(text: str) -> str:
    name = text.replace("/", "_").split(" | ")[0]
    large = {"oid": text, "size": len(CONTENT)}
    return json.dumps([{"type": "file", "path": f"{name}-{n}.gguf", "lfs": large} for n in (1, 2)])


HOSTILE: dict[str, Behaviour] = {
    **{str(status): answer(status) for status in (400, 401, 403, 404, 410, 416, 418, 429, 500, 503)},
    "a listing of two": answer(200, listing),
    "a listing of none": answer(200, lambda text: "[]"),
    "a listing that is none": answer(200, lambda text: json.dumps({"error": text})),
    "no JSON": answer(200),
    "no status": junk("HTTP/1.1 {0}\r\n\r\n"),
    "no header": junk("HTTP/1.1 200 OK\r\n{0}\r\n\r\n"),
    "chunks": junk("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{0}\r\n"),
    "a redirect to another scheme": answer(302, Location=lambda text: f"ftp://x/{text.split(' ')[0]}"),
    "a redirect to a password": answer(302, Location=lambda text: f"http://me:{text.split(' ')[0]}@x/"),
    "a redirect to nowhere": answer(302, Location=lambda text: f"http://[{text.split(' ')[0]}"),
    "a redirect to a port": answer(302, Location=lambda text: f"http://x:{text.split(' ')[0]}/"),
}


def attempt(source: str, data_root: DataRoot, **environ: str) -> ModeldError:
    with pytest.raises((DownloadFailed, DigestMismatch, SettingInvalid)) as refused:
        pull(source, data_root, environ=environ, pause=lambda seconds: None)
    return refused.value


def leaks(secret: str, data_root: DataRoot, *errors: ModeldError) -> list[str]:
    reported = {f"error {number}": json.dumps(error.to_wire()).encode() for number, error in enumerate(errors)}
    reported |= {f"message {number}": error.message.encode() for number, error in enumerate(errors)}
    return found(secret, {**reported, **written(data_root.path)})


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hub_that_echoes_the_token(server: FileServer, data_root: DataRoot, kind: str) -> None:
    server.serve(TREE, HOSTILE[kind])
    error = attempt("hf:o/r", data_root, HF_ENDPOINT=server.url(""), HF_TOKEN=f" {TOKEN}\r\n")
    assert leaks(TOKEN, data_root, error) == []
    assert server.requests[0][1]["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_server_that_echoes_what_stands_in_the_address(server: FileServer, data_root: DataRoot, kind: str) -> None:
    from urllib.parse import quote

    server.serve("/m.gguf", HOSTILE[kind])
    base = server.url("").replace("//", f"//me:{quote(PASSWORD, safe='')}@")
    error = attempt(f"{base}/m.gguf?X-Amz-Signature={SIGNATURE}", data_root)
    assert leaks(PASSWORD, data_root, error) + leaks(SIGNATURE, data_root, error) == []
    assert "/m.gguf" in error.message or isinstance(error, DigestMismatch)
    path, headers = server.requests[0]
    assert path.endswith(SIGNATURE)
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"me:{PASSWORD}"


def test_what_was_fetched_is_recorded_without_them_and_known_again(server: FileServer, data_root: DataRoot) -> None:
    server.serve("/m.gguf", whole(CONTENT))
    base = server.url("").replace("//", f"//me:{SIGNATURE}@")
    for number in (1, 2):  # a second signature is still the same file
        pull(f"{base}/m.gguf?part=a&token={SIGNATURE}{number}", data_root, environ={})
    assert len(server.requests) == 1
    assert leaks(SIGNATURE, data_root) == []
    assert "part=a&token=<hidden>" in (data_root.models / ".m.gguf.own").read_text()
    pull(f"{base}/m.gguf?part=b&token={SIGNATURE}", data_root, environ={})
    assert len(server.requests) == 2, "another file is fetched"


def test_the_token_stays_behind_at_a_redirect_to_another_host(
    server: FileServer, other: FileServer, data_root: DataRoot
) -> None:
    signed = other.serve("/cdn", whole(CONTENT)) + f"?X-Amz-Signature={SIGNATURE}"
    files = json.dumps([{"type": "file", "path": "m.gguf", "size": len(CONTENT)}])
    server.serve(TREE, answer(200, lambda text: files))
    server.serve("/o/r/resolve/main/m.gguf", answer(302, Location=lambda text: signed))
    pull("hf:o/r", data_root, environ={"HF_ENDPOINT": server.url(""), "HF_TOKEN": TOKEN})
    assert all(headers["Authorization"] == f"Bearer {TOKEN}" for _, headers in server.requests)
    assert [(path, "Authorization" in headers) for path, headers in other.requests] == [
        (f"/cdn?X-Amz-Signature={SIGNATURE}", False)
    ]
    assert leaks(TOKEN, data_root) + leaks(SIGNATURE, data_root) == []


def command(data_root: DataRoot, source: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-P", "-m", "modeld", "pull", source]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    given = {**clean, "MODELD_DATA_ROOT": str(data_root.path), **environ}
    return subprocess.run(line, env=given, capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "token", ["hf_Marked\u00e9", "hf_Marked\nsecond", "hf_Marked\tx", "hf_Marked x", "hf_Marked" * 1000]
)
def test_a_token_that_cannot_be_sent_is_one_line(server: FileServer, data_root: DataRoot, token: str) -> None:
    done = command(data_root, "hf:o/r", HF_ENDPOINT=server.url(""), HF_TOKEN=token)
    line = done.stderr.decode()
    assert (done.returncode, line.count("\n"), "Marked" in line) == (2, 1, False), line
    assert "the environment variable HF_TOKEN" in line
    assert server.requests == []


def test_a_token_with_a_line_end_is_sent_without_it(server: FileServer, data_root: DataRoot) -> None:
    server.serve(TREE, answer(401))
    done = command(data_root, "hf:o/r", HF_ENDPOINT=server.url(""), HF_TOKEN=f"{TOKEN}\n")
    assert (done.returncode, done.stderr.count(b"\n")) == (7, 1), done.stderr
    assert server.requests[0][1]["Authorization"] == f"Bearer {TOKEN}"
    assert found(TOKEN, {"the command": done.stdout + done.stderr, **written(data_root.path)}) == []


@pytest.mark.parametrize(
    "address",
    [
        "HTTP://me:{0}@127.0.0.1:1x/m.gguf",
        "https://me:{0}@[bad/m.gguf",
        "htps://me:{0}@example.org/m.gguf",
        "hf:https://me:{0}@example.org/m.gguf",
        "http://me:{0}@example.org/a b\u00fc\n.gguf?token={0}",
        "http://me:{0}@/m.gguf?sig={0}",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_password(data_root: DataRoot, address: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shared.fetch.download.TRIES", 1)
        error = attempt(address.format(SIGNATURE), data_root)
    assert leaks(SIGNATURE, data_root, error) == []


@pytest.mark.parametrize(
    "line", ["modeld rm {}", "modeld library add {}", "modeld pull ./none#token={}", "modeld doctor --bundle {}"]
)
def test_an_address_typed_in_a_wrong_place_is_reported_without_its_password(line: str, data_root: DataRoot) -> None:
    program, *words = line.format(f"https://me:{SIGNATURE}@h/x").split()
    command = [sys.executable, "-m", program.replace("-", "_"), *words]
    home = {"MODELD_DATA_ROOT": str(data_root.path), "HOME": str(data_root.path.parent), "MODELD_CONFIG": "none"}
    done = subprocess.run(command, env={**os.environ, **home}, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "<hidden>" in done.stderr
    assert "Marked" not in done.stderr + done.stdout


def test_pip_that_quotes_an_index_with_a_password(tmp_path: Path, data_root: DataRoot) -> None:
    pip = tmp_path / "pip.py"
    pip.write_text("import os, sys; print('ERROR: no', os.environ['PIP_INDEX_URL']); sys.exit(1)")
    index = f"https://me:{SIGNATURE}@index.invalid/simple"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", index)
        with pytest.raises(DownloadFailed) as refused:
            pull("starter", data_root, pip=[sys.executable, str(pip)])
    assert "index.invalid" in refused.value.message
    assert leaks(SIGNATURE, data_root, refused.value) == []


def test_the_search_finds_what_is_there(data_root: DataRoot) -> None:
    error = DownloadFailed(source=f"http://x/?token={SIGNATURE}", reason=TOKEN, resumable=False)
    assert leaks(SIGNATURE, data_root, error)
    assert leaks(TOKEN, data_root, error)
