"""Who may ask and how: each rule of the HTTP face by a client that breaks it, and one beside it that does not."""

from __future__ import annotations

import hmac
import json
import os
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from acp_bridge.cli.app import run
from acp_bridge.faces.http import connection, exchange, guard
from acp_bridge.faces.http.app import make_app
from acp_bridge.faces.http.protocol.errors import Refusal
from acp_bridge.faces.http.server import open_port
from acp_bridge.faces.http.server import serving as listening
from http_world import HELLO, HttpServer, serving
from lsp_world import World
from shared.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]
BODY = json.dumps({"model": "alpha", "messages": HELLO, "max_tokens": 1}).encode()
POST = "/v1/chat/completions"


def still_serves(server: HttpServer) -> bool:
    return server.ask("GET", "/v1/models").status == 200


def head(server: HttpServer, *lines: str, first: str = f"POST {POST} HTTP/1.1") -> bytes:
    """A request's head with the right key, and these lines."""
    return "\r\n".join([first, f"Authorization: Bearer {server.key}", *lines]).encode("latin-1") + b"\r\n\r\n"


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


# --- the key -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer wrong", "Bearer ", "Bearer", "Basic {key}", "{key}", "Bearer {key}x", "Bearer {short}", "Token {key}"],
)
@pytest.mark.parametrize("path", ["/v1/models", "/health", "/metrics", "/nowhere"])
def test_without_the_key_nothing_is_told(server: HttpServer, authorization: str, path: str) -> None:
    given = authorization.format(key=server.key, short=server.key[:-1])
    answer = server.ask("GET", path, authorization=given)
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert server.key not in answer.body.decode()
    assert still_serves(server), "the control"


@pytest.mark.parametrize("query", ["api_key={}", "key={}", "authorization=Bearer%20{}", "access_token={}"])
def test_a_key_in_the_address_or_a_cookie_is_none(server: HttpServer, query: str) -> None:
    told = query.format(server.key)
    assert server.ask("GET", f"/v1/models?{told}", authorization="").status == 401
    assert server.ask("GET", "/v1/models", authorization="", cookie=told).status == 401


def test_two_keys_are_none(server: HttpServer) -> None:
    lines = ["Host: localhost", "Authorization: Bearer other"]
    assert status_of(server.raw(head(server, *lines, first="GET /v1/models HTTP/1.1"))) == 401


def test_the_key_file_is_its_users_alone_and_goes_with_the_run(world: World) -> None:
    with serving(world) as one, serving(world) as other:
        file = Path(one.where["key_file"])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert one.key != other.key
        assert one.ask("GET", "/v1/models", authorization=f"Bearer {other.key}").status == 401, "each run has its own"
    assert not file.exists()


def test_a_key_of_the_user_is_taken_from_the_environment_or_kept_in_a_file(world: World) -> None:
    with serving(world, "--key-env", "MY_KEY", MY_KEY="my-own-key-of-16-letters") as server:
        assert server.where["key_file"] is None
        server.key = "my-own-key-of-16-letters"
        assert still_serves(server)
    kept = world.folder / "kept" / "key"
    keys = []
    for _ in range(2):
        with serving(world, "--key-file", str(kept)) as server:
            keys.append(server.key)
            assert still_serves(server)
    assert keys[0] == keys[1]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("options", "environ", "told"),
    [
        (("--key-env", "MY_KEY"), {}, "MY_KEY"),
        (("--key-env", "MY_KEY"), {"MY_KEY": "short"}, "16 to 512"),
        (("--key-file", "{folder}/open"), {}, "chmod 600"),
        (("--key-file", "{folder}"), {}, "not a regular file"),
        (("--port", "70000"), {}, "0 to 65535"),
        (("--remote", "local"), {}, "PROVIDER/MODEL"),
        (("--socket", "{folder}/open"), {}, "something else stands there"),
        (("--port", "1", "--socket", "x"), {}, "not allowed with"),
    ],
)
def test_a_start_that_cannot_be_right_is_refused(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    environ: dict[str, str],
    told: str,
) -> None:
    wide = world.folder / "open"
    wide.write_text("a-key-that-all-can-read")
    wide.chmod(0o644)
    for name, value in {**world.environ, **environ}.items():
        monkeypatch.setenv(name, value)
    try:
        code = run(["http", *(option.format(folder=world.folder) for option in options)])
    except SystemExit as error:  # argparse's own
        code = int(str(error.code))
    said = capfd.readouterr().err
    assert code in (1, 2), said
    assert told in said
    assert environ.get("MY_KEY", "a-key-that") not in said, "a key is never shown"
    assert wide.read_text() == "a-key-that-all-can-read"


def test_neither_key_nor_prompt_is_written_anywhere(server: HttpServer) -> None:
    secret = "a very private question 4711"
    answer = server.chat(messages=[{"role": "user", "content": secret}], frobnicate=1)
    assert answer.status == 400
    assert server.chat(messages=[{"role": "user", "content": secret}]).status == 200
    assert server.chat(messages=[{"role": "user", "content": [secret]}]).status == 400
    process = psutil.Process(server.process.pid)
    assert server.key not in " ".join(process.cmdline())
    assert server.key not in str(process.environ())
    for path in server.world.folder.rglob("*"):
        if path.is_file() and path != Path(server.where["key_file"]):
            content = path.read_bytes()
            assert server.key.encode() not in content, path
            assert secret.encode() not in content, path


def test_the_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    checked = guard.Guard(None, b"right", None)  # type: ignore[arg-type]
    for given in ([], [(b"authorization", b"Bearer right")]):
        if given:
            checked._check_key(given)
        else:
            with pytest.raises(Refusal):
                checked._check_key(given)
    assert compared == [(b"", b"right"), (b"right", b"right")]


# --- web pages ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:{port}", "file://", "vscode-webview://x"]
)
def test_a_web_page_is_refused_even_with_the_key(server: HttpServer, origin: str) -> None:
    given = origin.format(port=server.port)
    answer = server.ask("POST", POST, BODY, origin=given)
    assert (answer.status, answer.error["code"]) == (403, "origin_refused")
    preflight = server.ask("OPTIONS", POST, origin=given, access_control_request_method="POST", authorization="")
    assert preflight.status == 403
    assert not [name for name in (*answer.headers, *preflight.headers) if name.startswith("access-control")]


HOSTS = [
    "evil.example", "evil.example:{port}", "127.0.0.1.nip.io:{port}", "localhost.evil.example", "0.0.0.0:{port}",
    "0.0.0.0", "0", "127.1", "127.1:{port}", "2130706433:{port}", "0x7f.0.0.1", "0177.0.0.1", "[::]:{port}",
    "[::ffff:127.0.0.1]:{port}", "[0:0:0:0:0:0:0:1]", "::1", "localhost.", "localhost:", "localhost:1.evil.example",
    "user@127.0.0.1", "127.0.0.1, evil.example", "127.0.0.1:1:2", "",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_a_name_that_is_not_this_machines_own_is_refused(server: HttpServer, host: str) -> None:
    """What a browser sends whose DNS was rebound to 127.0.0.1, and the spellings of addresses that lead here."""
    answer = server.raw(head(server, f"Host: {host.format(port=server.port)}", first="GET /v1/models HTTP/1.1"))
    assert status_of(answer) in (400, 403), answer
    assert b"alpha" not in answer


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:{port}", "localhost", "LOCALHOST:{port}", "[::1]:{port}"])
def test_the_loopback_names_are_taken(server: HttpServer, host: str) -> None:
    answer = server.raw(head(server, f"Host: {host.format(port=server.port)}", first="GET /v1/models HTTP/1.1"))
    assert status_of(answer) == 200


@pytest.mark.parametrize(
    "lines", [(), ("Host: localhost", "Host: evil.example"), ("Host: evil.example", "Host: localhost")]
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_no_host_or_two_are_refused(server: HttpServer, lines: tuple[str, ...], version: str) -> None:
    answer = server.raw(head(server, *lines, first=f"GET /v1/models HTTP/{version}"))
    assert status_of(answer) in (400, 403)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "text/plain; application/json", "application/x-www-form-urlencoded", "multipart/form-data", "",
     "application/jsonp", "application/json, text/plain", "application/json; charset=utf-7"],
)  # fmt: skip
def test_what_a_form_can_send_is_not_taken(server: HttpServer, kind: str) -> None:
    answer = server.ask("POST", POST, BODY, content_type=kind)
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
    assert server.ask("POST", POST, BODY, content_type="application/json; charset=utf-8").status == 200


def test_no_other_protocol_is_spoken(server: HttpServer) -> None:
    lines = ["Host: localhost", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]  # fmt: skip
    assert status_of(server.raw(head(server, *lines, first="GET /v1/models HTTP/1.1"))) == 200, "an ordinary request"
    for method in ("TRACE", "CONNECT", "PUT", "DELETE"):
        assert server.ask(method, "/v1/models").status == 405
    assert server.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 403", b"")


# --- two readings of one request ---------------------------------------------------------------


SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHAPES: dict[str, list[str]] = {
    "a length and chunks": ["Content-Length: 4", "Transfer-Encoding: chunked"],
    "two lengths": ["Content-Length: 4", "Content-Length: 6"],
    "a list of lengths": ["Content-Length: 4, 6"],
    "a signed length": ["Content-Length: +4"],
    "a negative length": ["Content-Length: -4"],
    "a length in hex": ["Content-Length: 0x4"],
    "an unknown coding": ["Transfer-Encoding: xchunked"],
    "two codings": ["Transfer-Encoding: chunked, identity"],
    "chunks twice": ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
    "a space before the colon": ["Transfer-Encoding : chunked"],
    "a NUL": ["X-A: a\0b"],
    "a bare return": ["X-A: a\rTransfer-Encoding: chunked"],
    "a header without a name": [": x"],
}


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_request_that_can_be_read_in_two_ways_is_refused_and_closed(server: HttpServer, shape: str) -> None:
    lines = ["Host: localhost", "Content-Type: application/json", *SHAPES[shape]]
    answer = server.raw(head(server, *lines) + b"0\r\n\r\n" + SMUGGLED)
    assert answer.count(b"HTTP/1.1 ") <= 1, "what stands behind it is no request"
    assert status_of(answer) in (0, 400, 501), answer
    assert still_serves(server)


@pytest.mark.parametrize(
    "chunk", [b"-1\r\nx\r\n", b"zz\r\nx\r\n", b"fffffffffffffffffffff\r\nx\r\n", b"1\nx\n0\n\n", b"1\r\nxx\r\n"]
)
def test_a_broken_chunk_ends_the_request(server: HttpServer, chunk: bytes) -> None:
    lines = ["Host: localhost", "Content-Type: application/json", "Transfer-Encoding: chunked"]
    answer = server.raw(head(server, *lines) + chunk + b"0\r\n\r\n" + SMUGGLED)
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert status_of(answer) in (0, 400)
    assert still_serves(server)


# --- too much ----------------------------------------------------------------------------------


def test_a_body_of_100_megabytes_is_refused_before_it_comes(server: HttpServer) -> None:
    lines = ["Host: localhost", "Content-Type: application/json", "Content-Length: 104857600"]
    answer = server.raw(head(server, *lines))
    assert status_of(answer) == 413
    assert b"message_too_large" in answer


def test_a_body_without_a_length_is_cut_at_the_limit(world: World) -> None:
    with serving(world, MODELD_MESSAGE_LIMIT="100000") as server, server.connect() as made:
        lines = ["Host: localhost", "Content-Type: application/json", "Transfer-Encoding: chunked"]
        made.sendall(head(server, *lines))
        for _ in range(30):
            made.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
        assert b"413" in made.recv(4096)


@pytest.mark.parametrize("flood", ["one long header", "many headers", "a long address"])
def test_a_flood_of_headers_is_cut(server: HttpServer, flood: str) -> None:
    lines = {"one long header": ["X-A: " + "a" * 200_000], "many headers": [f"X-{n}: 1" for n in range(20_000)]}
    first = "GET /" + "a" * 200_000 + " HTTP/1.1" if flood == "a long address" else "GET /v1/models HTTP/1.1"
    with server.connect() as made:
        try:
            made.sendall(head(server, "Host: localhost", *lines.get(flood, []), first=first))
            answer = made.recv(4096)
        except (ConnectionResetError, BrokenPipeError):
            answer = b""
    assert status_of(answer) in (0, 400, 431)
    assert still_serves(server)


def test_a_thousand_idle_connections_keep_nobody_out(server: HttpServer) -> None:
    with ExitStack() as idle:
        for _ in range(1000):
            idle.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
        assert server.chat(max_tokens=1).status == 200
        held = len(psutil.Process(server.process.pid).net_connections(kind="inet"))
        assert held <= connection.MOST_CONNECTIONS + 2


class _Idle:
    """A gateway for requests that never come to it."""

    settings = Settings()
    cancels: Any = ()

    def __init__(self) -> None:
        from acp_bridge.faces.http.metrics import Counters

        self.counters = Counters()

    def wait_s(self) -> float:
        return 0.0


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("slow", "patched"), [("nothing", "HEAD_S"), ("half a head", "HEAD_S"), ("between", "KEEP_ALIVE_S")]
)
async def test_who_only_holds_a_connection_is_closed(monkeypatch: pytest.MonkeyPatch, slow: str, patched: str) -> None:
    monkeypatch.setattr(connection, patched, 0.2)
    app = make_app(_Idle(), b"k" * 16)  # type: ignore[arg-type]
    listener = open_port(0)
    async with listening(app, listener):
        stream = await anyio.connect_tcp("127.0.0.1", listener.getsockname()[1])
        async with stream:
            if slow == "half a head":
                await stream.send(b"GET / HTTP/1.1\r\nHost: loc")
            if slow == "between":
                await stream.send(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 401 " in await stream.receive()
            with anyio.fail_after(10), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                while True:
                    await stream.receive()
    listener.close()


@pytest.mark.anyio
async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BODY_S", 0.2)
    app = make_app(_Idle(), b"k" * 16)  # type: ignore[arg-type]
    listener = open_port(0)
    async with listening(app, listener):
        stream = await anyio.connect_tcp("127.0.0.1", listener.getsockname()[1])
        async with stream:
            lines = [f"POST {POST} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {'k' * 16}",
                     "Content-Type: application/json", "Content-Length: 100"]  # fmt: skip
            await stream.send("\r\n".join(lines).encode() + b"\r\n\r\n{")
            with anyio.fail_after(10):
                assert b" 408 " in await stream.receive()
    listener.close()


# --- where it listens --------------------------------------------------------------------------


def test_it_listens_on_loopback_alone(server: HttpServer) -> None:
    listeners = [
        one for one in psutil.Process(server.process.pid).net_connections(kind="inet") if one.status == "LISTEN"
    ]
    assert [one.laddr.ip for one in listeners] == ["127.0.0.1"]


def test_a_port_that_is_taken_is_an_error(server: HttpServer) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "acp_bridge", "http", "--port", str(server.port)],
        env=server.world.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, "port" in done.stderr) == (2, True)


@pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")
def test_a_socket_is_its_users_alone_and_no_port_is_opened(world: World) -> None:
    path = world.folder / "h.sock"
    with serving(world, "--socket", str(path)) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert still_serves(server)
        assert server.ask("GET", "/v1/models", authorization="").status == 401
        found = psutil.Process(server.process.pid).net_connections(kind="inet")
        assert [one for one in found if one.status == "LISTEN"] == []
        again = subprocess.run(
            [sys.executable, "-P", "-m", "acp_bridge", "http", "--socket", str(path)],
            env=world.environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "another server listens there" in again.stderr
        assert still_serves(server)
    assert not path.exists()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with serving(world, "--socket", str(path)) as server:
        assert still_serves(server), "one that nobody listens to is replaced"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs a second user")
def test_another_user_is_turned_away_though_the_modes_let_them_in(world: World) -> None:
    path = world.folder / "wide.sock"
    with serving(world, "--socket", str(path)) as server:
        world.folder.chmod(0o755)
        path.chmod(0o666)
        other = (
            "import os, socket, sys; os.setgid(65534); os.setuid(65534); s = socket.socket(socket.AF_UNIX);"
            "s.connect(sys.argv[1]); print('connected', flush=True);"
            "s.sendall(sys.stdin.buffer.read()); print(s.recv(4096))"
        )
        request = head(server, "Host: localhost", first="GET /v1/models HTTP/1.1")
        done = subprocess.run(
            [sys.executable, "-c", other, str(path)], input=request, capture_output=True, timeout=60, check=False
        )
        assert done.stdout.startswith(b"connected"), "the modes let it in"
        assert b"HTTP" not in done.stdout, "and the server did not"
        assert still_serves(server)
