"""Keys from the environment and the system's keyring, and model lists that are there before an endpoint answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from acp_bridge.cancel import Cancel
from acp_bridge.models.picker import RemoteModel
from acp_bridge.providers.client import ProviderClient
from acp_bridge.providers.config import Provider, read_configured
from acp_bridge.providers.keys import SERVICE, key_hint, key_of
from acp_bridge.providers.listcache import ListCache
from shared.errors import BackendUnavailable, DownloadFailed
from shared.fetch.pull import pull
from shared.paths import DataRoot
from shared.protocol import api

pytestmark = pytest.mark.integration

ENTRY = Provider(name="lab", base_url="http://lab/v1", key_keyring="cluster")


def revealed(provider: Provider, environ: dict[str, str]) -> str:
    key = key_of(provider, environ)
    assert key is not None
    return key.reveal()


class Memory(KeyringBackend):
    """A keyring that forgets at the end of the test."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked("the collection is locked")
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


@pytest.fixture
def entries() -> Iterator[Memory]:
    before = keyring.get_keyring()
    memory = Memory()
    keyring.set_keyring(memory)
    yield memory
    keyring.set_keyring(before)


def test_a_key_out_of_the_keyring(entries: Memory) -> None:
    entries.set_password(SERVICE, "cluster", "s3cret\n")
    assert revealed(ENTRY, {}) == "s3cret"


def test_the_variable_comes_first(entries: Memory) -> None:
    entries.set_password(SERVICE, "cluster", "stored")
    both = Provider(name="lab", base_url="http://lab/v1", key_env="K", key_keyring="cluster")
    assert revealed(both, {"K": "set"}) == "set"
    assert revealed(both, {}) == "stored"


def test_an_entry_that_is_not_there_says_how_to_make_it(entries: Memory) -> None:
    with pytest.raises(BackendUnavailable) as refused:
        key_of(ENTRY, {})
    assert "keyring set modeld cluster" in refused.value.message


def test_a_locked_keyring_is_typed(entries: Memory) -> None:
    entries.locked = True
    with pytest.raises(BackendUnavailable) as refused:
        key_of(ENTRY, {})
    assert "locked" in refused.value.message


def test_a_machine_without_any_keyring_is_typed(entries: Memory) -> None:
    from keyring.backends.fail import Keyring

    keyring.set_keyring(Keyring())  # type: ignore[no-untyped-call]
    with pytest.raises(BackendUnavailable) as refused:
        key_of(ENTRY, {})
    assert "the keyring cannot be read" in refused.value.message


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(BackendUnavailable) as refused:
        key_of(ENTRY, {})
    assert "modeld[remote]" in refused.value.message


def test_who_needs_no_keyring_does_not_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert revealed(Provider(name="lab", base_url="http://lab/v1", key_env="K"), {"K": "set"}) == "set"
    assert key_of(Provider(name="lab", base_url="http://lab/v1"), {}) is None


@pytest.mark.parametrize("name", ["sk-Marked-0123456789abcdefghij", "hf_Marked0123456789abcdefghij"])
def test_a_key_in_the_place_of_a_name_is_not_reported(entries: Memory, name: str) -> None:
    assert "Marked" not in key_hint(Provider(name="lab", base_url="http://lab/v1", key_env=name))
    with pytest.raises(BackendUnavailable) as refused:
        key_of(Provider(name="lab", base_url="http://lab/v1", key_keyring=name), {})
    assert "Marked" not in refused.value.message


@pytest.mark.parametrize(
    "address", ["http://me:Marked@h/v1", "http://Marked@h/v1", "http://h/v1?key=Marked", "http://h/v1#Marked",
                "http://me:Marked@[::bad/v1", "http://me:Marked@h:port/v1"]
)  # fmt: skip
def test_an_address_that_holds_a_key_is_refused_without_it(tmp_path: Path, address: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[providers.lab]\nbase_url = "{address}"\n')
    configured = read_configured(file)
    assert configured.providers == ()
    assert "Marked" not in configured.problems["lab"]
    assert "base_url" in configured.problems["lab"]


PROXIES = ["http://me:Marked@[::bad", "ftp://me:Marked@h", "me:Marked@127.0.0.1:1", "http://me:Marked@h:port",
           "socks5://me:Marked@127.0.0.1:1", "http://me:Marked\u00e9@127.0.0.1:1", "http://me:Marked@127.0.0.1:1",
           "http://me:Mar%6bed@127.0.0.1:1", "http://me:Marked a@127.0.0.1:1", "://me:Marked@x"]  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("proxy", PROXIES)
async def test_a_proxy_that_cannot_be_used_is_typed_and_its_password_not_reported(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    client = ProviderClient(Provider(name="lab", base_url="http://example.invalid/v1", max_retries=0))
    asked = api.TurnParams(model="lab/m", messages=[])
    for work in (client.models, lambda: client.turn(asked, lambda event: None, Cancel())):
        with pytest.raises(BackendUnavailable) as refused:
            await work()
        assert "Marked" not in refused.value.message
    await client.close()


@pytest.mark.parametrize("proxy", PROXIES)
def test_so_it_is_with_a_pull(data_root: DataRoot, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setattr("shared.fetch.download.TRIES", 1)
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(DownloadFailed) as refused:
        pull("http://example.invalid/m.gguf", data_root, environ={})
    assert "Marked" not in refused.value.message


def test_the_config_file_names_the_entry(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[providers.lab]\nbase_url = "http://lab/v1"\nkey_keyring = "cluster"\n')
    assert read_configured(file).providers == (ENTRY,)


# --- lists --------------------------------------------------------------------------------------

BIG = RemoteModel(id="lab/big", name="big", provider="lab", context=4096)


def test_a_list_is_there_before_the_endpoint_answers(tmp_path: Path) -> None:
    ListCache(tmp_path / "rows").write([ENTRY], {"lab": [BIG]})
    assert ListCache(tmp_path / "rows").read([ENTRY]) == {"lab": [BIG]}


def test_another_address_is_another_endpoint(tmp_path: Path) -> None:
    ListCache(tmp_path / "rows").write([ENTRY], {"lab": [BIG]})
    moved = Provider(name="lab", base_url="http://elsewhere/v1")
    assert ListCache(tmp_path / "rows").read([moved]) == {}


def test_what_the_config_file_names_is_not_cached(tmp_path: Path) -> None:
    named = Provider(name="lab", base_url="http://lab/v1", models=("big",))
    ListCache(tmp_path / "rows").write([named], {"lab": [BIG]})
    assert ListCache(tmp_path / "rows").read([ENTRY]) == {}


@pytest.mark.parametrize("content", [b"", b"{", b'{"lab": 3}', b"\xff"])
def test_a_damaged_file_is_no_list(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows").write_bytes(content)
    assert ListCache(tmp_path / "rows").read([ENTRY]) == {}


def test_a_root_that_cannot_be_written_disturbs_nobody(tmp_path: Path) -> None:
    ListCache(tmp_path / "missing" / "rows").write([ENTRY], {"lab": [BIG]})
    assert ListCache(tmp_path / "missing" / "rows").read([ENTRY]) == {}
