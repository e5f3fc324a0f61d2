"""What service managers are given, read back by parsers of their formats. systemd's own tool judges it elsewhere."""

from __future__ import annotations

import plistlib
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from modeld.service import files, manager
from shared.paths import DataRoot

pytestmark = pytest.mark.unit

AWKWARD = ["/opt/my tools/50% off/$HOME/python", "-P", "-m", "modeld", "serve", 'a "b"', ""]
ENVIRON = {"MODELD_DATA_ROOT": "/data/of mine", "XDG_CONFIG_HOME": "/cfg", "SECRET": "never"}


def of(platform: str, **environ: str) -> manager.Service:
    start = manager.daemon("llama")
    return manager.service(platform, Path("/home/ada"), DataRoot(Path("/data")), start, {**ENVIRON, **environ})


def test_systemd_runs_an_absolute_interpreter_and_knows_when_it_listens() -> None:
    found = of("linux")
    assert found.path == Path("/cfg/systemd/user/modeld.service")
    lines = found.text.splitlines()
    assert "Type=notify" in lines
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    words = shlex.split(start.removeprefix("ExecStart="))
    assert Path(words[0]).is_absolute()
    assert words[1:] == ["-P", "-m", "modeld", "serve", "--quiet", "--backend", "llama"]
    assert 'Environment="MODELD_DATA_ROOT=/data/of mine"' in lines
    assert "never" not in found.text
    assert found.install[-1] == ["systemctl", "--user", "enable", "--now", "modeld.service"]


def test_words_of_a_unit_mean_themselves() -> None:
    assert files.systemd_quoted("50%") == "50%%"
    assert files.systemd_quoted("$HOME") == "$$HOME"
    assert files.systemd_quoted('a "b" \\') == '"a \\"b\\" \\\\"'
    assert files.systemd_quoted("") == '""'


def test_launchd_reads_it() -> None:
    text = files.launchd_plist(AWKWARD, ENVIRON, Path("/data/logs"))
    content = plistlib.loads(text.encode())
    assert content["ProgramArguments"] == AWKWARD
    assert content["EnvironmentVariables"] == ENVIRON
    assert content["KeepAlive"] == {"SuccessfulExit": False}, "a stop is a stop"
    assert content["RunAtLoad"] is True
    found = of("darwin")
    assert found.path == Path("/home/ada/Library/LaunchAgents/org.modeld.modeld.plist")
    assert plistlib.loads(found.text.encode())["Label"] == found.path.stem


def test_windows_reads_it() -> None:
    found = of("win32", USERDOMAIN="PC", USERNAME="Ada & Co")
    root = ET.fromstring(found.text.encode("utf-16"))
    space = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    assert [each.text for each in root.findall(".//t:UserId", space)] == ["PC\\Ada & Co"] * 2
    assert root.findtext(".//t:RunLevel", namespaces=space) == "LeastPrivilege"
    assert root.findtext(".//t:ExecutionTimeLimit", namespaces=space) == "PT0S", "never ended for its age"
    assert root.findtext(".//t:Arguments", namespaces=space) == "-P -m modeld serve --quiet --backend llama"
    order = [each.tag.partition("}")[2] for each in root]
    assert order == ["RegistrationInfo", "Triggers", "Principals", "Settings", "Actions"], "its schema has an order"


@pytest.mark.parametrize(
    ("word", "quoted"),
    [("a", "a"), ("", '""'), ("a b", '"a b"'), ('a"b', '"a\\"b"'), ("a b\\", '"a b\\\\"'), ('a\\"b', '"a\\\\\\"b"')],
)
def test_words_of_a_windows_command_line(word: str, quoted: str) -> None:
    assert files.windows_quoted(word) == quoted


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_http_face_is_a_service_of_its_own_beside_modelds(platform: str) -> None:
    root = DataRoot(Path("/data"))
    found = manager.service(platform, Path("/home/ada"), root, manager.http(root, 8199), ENVIRON)
    daemon = of(platform)
    assert found.path != daemon.path
    assert found.status != daemon.status
    for word in ("acp_bridge", "http", "--port", "8199", "--key-file", "service.key"):
        assert word in found.text
    if platform == "linux":
        assert "After=modeld.service" in found.text.splitlines()
        assert "Type=exec" in found.text.splitlines(), "it says nothing to systemd"
        assert "notify" in daemon.text
    if platform == "darwin":
        assert plistlib.loads(found.text.encode())["Label"] == found.path.stem == "org.modeld.http"
