"""Downloads as the net gives them: a resumed file is compared, failures name remedies, nothing fills the disk."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from file_server import Behaviour, FileServer, Request, cut_at, file_server, in_turn, status, whole
from gguf_bytes import model
from shared.errors import DigestMismatch, DiskFull, DownloadFailed
from shared.fetch import download
from shared.fetch.download import CHANGES
from shared.fetch.partial import clean, partials
from shared.fetch.pull import pull
from shared.paths import DataRoot
from shared.protocol.api import PullResult

pytestmark = pytest.mark.integration

OLD, NEW = model(name="old") + bytes(900_000), model(name="new") + bytes(900_000)
FILE = "m.gguf"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def get(source: str, root: DataRoot, **options: Any) -> PullResult:
    usual: dict[str, Any] = {"pause": lambda _: None, "environ": {}}
    return pull(source, root, **(usual | options))


def failed(source: str, root: DataRoot, **options: Any) -> DownloadFailed:
    with pytest.raises(DownloadFailed) as caught:
        get(source, root, **options)
    return caught.value


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def leftovers(root: DataRoot) -> list[str]:
    return sorted(path.name for path in root.models.iterdir()) if root.models.exists() else []


# --- resuming -------------------------------------------------------------------------------------


def rest_of(content: bytes, etag: str, total: int | None = None) -> Behaviour:
    """The rest from where it was asked for, whatever If-Range says, as careless servers do."""

    def behave(request: Request) -> None:
        start = request.asked_from()
        if start is None:
            return whole(content, etag)(request)
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{total or len(content)}")
        if etag:
            request.send_header("ETag", etag)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        request.wfile.write(content[start:])
        return None

    return behave


@pytest.mark.parametrize(
    "then",
    [
        rest_of(NEW, '"v2"'),
        rest_of(NEW + bytes(5000), '"v1"'),
        rest_of(NEW + bytes(5000), ""),
        rest_of(NEW, '"v1"', total=len(NEW) + 1),
    ],
    ids=["another ETag", "longer", "longer without an ETag", "another total"],
)
def test_a_rest_of_another_file_is_never_put_behind_the_beginning(
    data_root: DataRoot, server: FileServer, then: Behaviour
) -> None:
    url = server.serve(f"/{FILE}", in_turn(cut_at(OLD, 400_000), then, whole(NEW, '"v2"')))
    assert get(url, data_root).digest in (sha256(NEW), sha256(NEW + bytes(5000)))


def test_a_file_that_is_another_each_time_is_given_up(data_root: DataRoot, server: FileServer) -> None:
    seen: list[str | None] = []

    def other(request: Request) -> None:
        seen.append(request.headers.get("Range"))
        etag = f'"{len(seen)}"'
        start = request.asked_from() or 0
        request.send_part(OLD, start, etag=etag, stop=start + 100_000)

    error = failed(server.serve(f"/{FILE}", other), data_root)
    assert "changed on the server" in error.reason
    assert len(seen) == 2 * CHANGES
    assert not error.resumable


def test_a_rest_without_a_length_ends_where_its_range_says(data_root: DataRoot, server: FileServer) -> None:
    def chunked(request: Request) -> None:
        start = request.asked_from() or 0
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {start}-{len(OLD) - 1}/{len(OLD)}")
        request.send_header("ETag", '"v1"')
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        rest = OLD[start:-10_000] if len(server.requests) == 2 else OLD[start:]
        request.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest))

    url = server.serve(f"/{FILE}", in_turn(cut_at(OLD, 400_000), chunked))
    assert get(url, data_root).digest == sha256(OLD)
    assert len(server.requests) == 3


def test_an_openvino_folder_is_not_made_of_two_revisions(data_root: DataRoot, server: FileServer) -> None:
    def revision(tag: str) -> dict[str, bytes]:
        return {name: f"{tag} {name}".encode() for name in ("openvino_model.bin", "openvino_model.xml")}

    environ = hub(server, revision("old"))
    server.serve("/o/r/resolve/main/openvino_model.xml", status(404))
    failed("hf:o/r", data_root, environ=environ)
    hub(server, revision("new"))
    path = Path(get("hf:o/r", data_root, environ=environ).path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == revision("new")


# --- the hub --------------------------------------------------------------------------------------


def hub(server: FileServer, files: dict[str, bytes], page: int = 1000) -> dict[str, str]:
    listing = [
        {"type": "file", "path": path, "size": len(data), "oid": sha256(data)[:40],
         "lfs": {"oid": sha256(data), "size": len(data)}}
        for path, data in files.items()
    ]  # fmt: skip

    def listed(request: Request) -> None:
        start = int(request.path.partition("cursor=")[2] or 0)
        body = json.dumps(listing[start : start + page]).encode()
        request.send_response(200)
        if start + page < len(listing):
            following = server.url(f"/api/models/o/r/tree/main?recursive=true&cursor={start + page}")
            request.send_header("Link", f'<{following}>; rel="next"')
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    server.serve("/api/models/o/r/tree/main", listed)
    for path, data in files.items():
        server.serve(f"/o/r/resolve/main/{path}", whole(data))
    return {"HF_ENDPOINT": server.url("")}


def test_a_listing_of_several_pages(data_root: DataRoot, server: FileServer) -> None:
    files = {f"note-{index}.txt": b"x" for index in range(25)} | {"zz/last-Q4_K_M.gguf": model()}
    environ = hub(server, files, page=10)
    assert get("hf:o/r", data_root, environ=environ).name == "last-q4_k_m"


def test_a_next_page_on_another_server_is_not_asked(data_root: DataRoot, server: FileServer) -> None:
    with file_server() as other:
        link = other.serve("/x", whole(b"[]"))
        body = json.dumps([{"type": "file", "path": FILE, "size": len(OLD)}]).encode()

        def listed(request: Request) -> None:
            request.send_response(200)
            request.send_header("Link", f'<{link}>; rel="next"')
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)

        server.serve("/api/models/o/r/tree/main", listed)
        server.serve(f"/o/r/resolve/main/{FILE}", whole(OLD))
        get("hf:o/r", data_root, environ={"HF_ENDPOINT": server.url(""), "HF_TOKEN": "secret"})
        assert other.requests == []


@pytest.mark.parametrize("variable", ["HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME", "HOME"])
def test_the_login_of_the_hubs_own_command_is_used(
    data_root: DataRoot, server: FileServer, short_tmp: Path, variable: str
) -> None:
    place = {"HF_TOKEN_PATH": "", "HF_HOME": "token", "XDG_CACHE_HOME": "huggingface/token",
             "HOME": ".cache/huggingface/token"}[variable]  # fmt: skip
    file = short_tmp / "login" / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("hf_FromTheFile\n")
    environ = hub(server, {FILE: OLD}) | {variable: str(short_tmp / "login")}
    get("hf:o/r", data_root, environ=environ)
    assert {headers.get("Authorization") for _, headers in server.requests} == {"Bearer hf_FromTheFile"}
    server.requests.clear()
    get("hf:o/r", data_root, environ=environ | {"HF_TOKEN": "hf_Named"})
    get("hf:o/r", data_root, environ=environ | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"})
    assert [headers.get("Authorization") for _, headers in server.requests] == ["Bearer hf_Named", None]


@pytest.mark.parametrize("code", [401, 404])
def test_a_repository_that_is_not_there_or_not_for_us(data_root: DataRoot, server: FileServer, code: int) -> None:
    server.serve("/api/models/o/r/tree/main", status(code))
    reason = failed("hf:o/r", data_root, environ={"HF_ENDPOINT": server.url("")}).reason
    assert "no such repository" in reason
    assert "hf auth login" in reason


def test_names_that_say_nothing_take_their_repositorys(data_root: DataRoot, server: FileServer) -> None:
    environ = hub(server, {"ggml-model-Q4_K_M.gguf": OLD, "x/model-00001-of-00002.gguf": NEW,
                           "x/model-00002-of-00002.gguf": model(layers=3)})  # fmt: skip
    assert Path(get("hf:o/r:ggml", data_root, environ=environ).path).name == "r-Q4_K_M.gguf"
    assert get("hf:o/r:x/", data_root, environ=environ).name == "r"
    url = server.serve("/me/Some-7B-GGUF/resolve/main/model.gguf", whole(model(layers=5)))
    assert get(url, data_root).name == "some-7b"


def test_another_repositorys_file_of_the_same_name_does_not_replace_it(data_root: DataRoot, server: FileServer) -> None:
    get(server.serve("/a/m.gguf", whole(OLD)), data_root)
    error = failed(server.serve("/b/m.gguf", whole(NEW)), data_root)
    assert "--name" in error.reason
    assert sha256((data_root.models / FILE).read_bytes()) == sha256(OLD)
    assert get(server.url("/b/m.gguf"), data_root, name="other").name == "other"


# --- checksums ------------------------------------------------------------------------------------


def test_a_checksum_is_looked_at_before_anything_is_fetched(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", whole(OLD))
    assert "this is an MD5" in failed(url, data_root, digest=hashlib.md5(OLD).hexdigest()).reason
    with pytest.raises(DigestMismatch):
        get("starter", data_root, digest=sha256(OLD))
    environ = hub(server, {FILE: OLD})
    with pytest.raises(DigestMismatch):
        get("hf:o/r", data_root, environ=environ, digest=sha256(NEW))
    assert [path for path, _ in server.requests] == ["/api/models/o/r/tree/main?recursive=true"]


@pytest.mark.parametrize("form", ["{0}", "{1}", "sha256:{0}", "SHA256={1}", "sha256-{0}", "sha256-{2}", "{0}  m.gguf"])
def test_a_checksum_in_any_usual_spelling(data_root: DataRoot, server: FileServer, form: str) -> None:
    written = form.format(sha256(OLD), sha256(OLD).upper(), base64.b64encode(bytes.fromhex(sha256(OLD))).decode())
    assert get(server.serve(f"/{FILE}", whole(OLD)), data_root, digest=written).digest == sha256(OLD)


# --- proxies and certificates -----------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without the proxies and certificates of this machine."""
    bundles = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name in bundles]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_a_dead_proxy_is_named(data_root: DataRoot, bare: pytest.MonkeyPatch, variable: str) -> None:
    with socket.socket() as held:  # bound and not listening: nobody else gets the port
        held.bind(("127.0.0.1", 0))
        proxy = f"127.0.0.1:{held.getsockname()[1]}"
        bare.setenv(variable, f"http://me:secret@{proxy}")
        reason = failed("http://models.invalid/m.gguf", data_root).reason
    assert "refused" in reason
    assert f"through the proxy {proxy};" in reason
    assert "secret" not in reason
    assert "secret" not in reason


def test_a_proxy_that_cannot_be_used_is_named(data_root: DataRoot, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("http_proxy", "socks5://127.0.0.1:1080")
    assert "is a SOCKS proxy" in failed("http://models.invalid/m.gguf", data_root).reason


def test_a_proxy_that_wants_a_login(data_root: DataRoot, server: FileServer, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("http_proxy", server.url(""))
    server.behaviours["http://models.invalid/m.gguf"] = status(407)
    assert "the proxy needs a login" in failed("http://models.invalid/m.gguf", data_root).reason


@pytest.fixture
def secure(short_tmp: Path, bare: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A server whose certificate a company signed itself: its address, and the bundle that trusts it."""
    if shutil.which("openssl") is None:
        pytest.skip("NOT PROVEN HERE: no openssl to make a certificate with")
    bundle, key = short_tmp / "company.pem", short_tmp / "key.pem"
    making = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    making += f" -addext subjectAltName=DNS:localhost -keyout {key} -out {bundle}"
    subprocess.run(["openssl", *making.split()], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle, key)
    with file_server() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.serve(f"/{FILE}", whole(OLD))
        yield f"https://localhost:{server.server_address[1]}/{FILE}", bundle


def test_a_certificate_that_is_not_trusted_says_how_it_can_be(data_root: DataRoot, secure: tuple[str, Path]) -> None:
    pauses: list[float] = []
    reason = failed(secure[0], data_root, pause=pauses.append).reason
    assert "certificate is not trusted" in reason
    assert "SSL_CERT_FILE" in reason
    assert pauses == []


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_bundles_of_certificates(
    data_root: DataRoot, secure: tuple[str, Path], bare: pytest.MonkeyPatch, variable: str
) -> None:
    bare.setenv(variable, str(secure[1]))
    assert get(secure[0], data_root).digest == sha256(OLD)
    bare.setenv(variable, "/nowhere/ca.pem")
    error = failed(secure[0], data_root, name="again")
    assert f"the certificates that {variable} names cannot be read" in error.reason


# --- what is left over ------------------------------------------------------------------------------


def test_what_cannot_be_resumed_is_not_kept(
    data_root: DataRoot, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full, of a server that says neither a length nor an ETag."""

    def endless(request: Request) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for _ in range(4):
            request.wfile.write(b"%x\r\n%b\r\n" % (300_000, bytes(300_000)))

    written: list[int] = []
    real = download.write_or_full

    class Full:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def write(self, data: bytes) -> None:
            written.append(len(data))
            if sum(written) > 600_000:
                raise OSError(errno.ENOSPC, "full")
            self.stream.write(data)

    monkeypatch.setattr(download, "write_or_full", lambda stream, *rest: real(Full(stream), *rest))
    with pytest.raises(DiskFull):
        get(server.serve(f"/{FILE}", endless), data_root)
    assert leftovers(data_root) == []


def test_a_failure_of_one_source_leaves_anothers_beginning(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/a/{FILE}", cut_at(OLD, 400_000))
    assert failed(url, data_root, cancelled=after(300_000)[0], progress=after.last).resumable  # type: ignore[attr-defined]
    failed(server.serve(f"/b/{FILE}", status(404)), data_root)
    server.serve(f"/a/{FILE}", whole(OLD))
    assert get(url, data_root).digest == sha256(OLD)
    assert server.requests[-1][1]["Range"].startswith("bytes=")


def after(count: int) -> tuple[Callable[[], bool]]:
    """Cancelled when so many bytes have come."""
    done: list[int] = [0]
    after.last = lambda item: done.append(item.done)  # type: ignore[attr-defined]
    return (lambda: max(done) > count,)


def test_unfinished_downloads_are_listed_and_removed(data_root: DataRoot, server: FileServer) -> None:
    url = server.serve(f"/{FILE}", whole(OLD))
    failed(url, data_root, cancelled=after(300_000)[0], progress=after.last)  # type: ignore[attr-defined]
    (data_root.models / ".folder.part").mkdir()
    (data_root.models / ".folder.part" / "openvino_model.bin").write_bytes(bytes(1000))
    (data_root.models / ".theirs").write_bytes(b"x")
    listed = {one.name: one for one in partials(data_root.models)}
    assert sorted(listed) == ["folder", FILE]
    assert (listed[FILE].source, listed[FILE].total_bytes, listed[FILE].resumable) == (url, len(OLD), True)
    assert listed[FILE].size_bytes > 300_000
    started, proceed = threading.Event(), threading.Event()

    def slow(request: Request) -> None:
        started.set()
        assert proceed.wait(15)
        request.send_part(NEW, 0)

    other = server.serve("/other.gguf", slow)
    fetching = threading.Thread(target=get, args=(other, data_root), kwargs={"pause": time.sleep})
    fetching.start()
    assert started.wait(15)
    (data_root.models / ".other.gguf.part").write_bytes(b"begun")
    result = clean(data_root.models)
    assert ([one.name for one in result.removed], [one.name for one in result.busy]) == (
        ["folder", FILE],
        ["other.gguf"],
    )
    assert result.freed_bytes >= 301_000
    proceed.set()
    fetching.join(15)
    assert leftovers(data_root) == [".other.gguf.own", ".theirs", "other.gguf"]


def test_the_files_of_one_model_are_reported_as_one(data_root: DataRoot, server: FileServer) -> None:
    files = {f"big-0000{n}-of-00002.gguf": model(layers=n) + bytes(400_000 * n) for n in (1, 2)}
    seen: list[tuple[int, int]] = []
    get(
        "hf:o/r",
        data_root,
        environ=hub(server, files),
        progress=lambda item: seen.append((item.done, item.total)) if item.stage == "downloading" else None,
    )
    whole_size = sum(map(len, files.values()))
    assert {total for _, total in seen} == {whole_size}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == whole_size


def test_room_for_all_files_is_looked_for_before_the_first(
    data_root: DataRoot, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = hub(server, {f"big-0000{n}-of-00002.gguf": model(layers=n) + bytes(400_000) for n in (1, 2)})
    free = 500_000 + download.DISK_MARGIN
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free}))
    with pytest.raises(DiskFull):
        get("hf:o/r", data_root, environ=environ)
    assert len(server.requests) == 1
