"""Marked secrets in every place that takes one, servers that echo them in every way, and a look at every byte after."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from clients.bridge import Bridge, BridgeError, private_environment
from clients.editor import Editor, LspError
from clients.schema import WireCheck
from hostile_server import SCENARIOS, HostileServer, hostile_server
from secret_search import echoes, encodings, found, written

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

KEY = "sk-Kq7/x+Y\"z'<&>\\w%41~Marked-Provider"
LISTED = "sk-listed/Marked+key"
PROXIED = "sk-proxied-Marked-key"
PROXY = "pr0xy:Pass/w+rd@Marked"
MCP_ENVIRONMENT = "env-Marked/secret+1"
MCP_PLAIN = "any-value-Marked"
MCP_HEADER = "hdr-Marked/secret+2"
MCP_ADDRESS = "adr-Marked-secret-3"
MCP_QUERY = "qry-Marked-secret-4"
MCP_TOKEN = "tool-Marked-secret-5"
SECRETS = {name: value for name, value in globals().items() if name.isupper() and "Marked" in str(value)}

#: An MCP server with a tool that tells the variable PREFIX.
ECHO = str(Path(__file__).parent / "mcp_echo.py")
#: An MCP server that starts only to say what it was given.
TELLS = "import os,sys; sys.stderr.write(repr(dict(os.environ)) + ' '.join(sys.argv)); sys.exit(3)"
#: One that tells it more often than is kept.
FLOODS = "import os,sys; sys.stderr.write(os.environ['API_TOKEN'] * 9001); sys.exit(3)"


class Tape(WireCheck):
    """Keeps each line that the agent wrote."""

    def __init__(self) -> None:  # other tests hold the wire against its schema
        self.problems: list[str] = []
        self.lines: list[str] = []

    def to_agent(self, line: str) -> None:
        """Not judged here."""

    def from_agent(self, line: str) -> None:
        """Kept."""
        self.lines.append(line)


class User:
    """A home with providers that echo, and everything that was shown in it."""

    def __init__(self, folder: Path, server: HostileServer) -> None:
        from urllib.parse import quote

        self.folder = folder
        self.server = server
        self.shown: dict[str, bytes] = {}
        config = folder / "config.toml"
        models = json.dumps([*SCENARIOS, "call-mcp"])
        config.write_text(
            f'[providers.lab]\nbase_url = "{server.url}/v1"\nkey_env = "LAB"\nmodels = {models}\ntimeout_s = 20\n'
            f'[providers.listed]\nbase_url = "{server.url}/v1"\nkey_env = "LISTED_KEY"\n'
            f'[providers.proxied]\nbase_url = "http://proxied.invalid/v1"\nkey_env = "PROXIED_KEY"\nmodels = {models}\n'
        )
        self.environ = private_environment(
            folder,
            MODELD_CONFIG=str(config),
            LAB=f" \t{KEY}\r\n",
            LISTED_KEY=f"{LISTED}\n",
            PROXIED_KEY=PROXIED,
            HTTP_PROXY=f"http://me:{quote(PROXY, safe='')}@127.0.0.1:{server.server_address[1]}",
            NO_PROXY="127.0.0.1",
        )
        self.work = folder / "work"
        self.work.mkdir()

    def run(self, *command: str) -> None:
        """A command line; what it said is kept."""
        line = [sys.executable, "-P", "-m", *command]
        done = subprocess.run(line, env=self.environ, cwd=self.work, capture_output=True, check=False, timeout=60)
        self.shown[" ".join(command)] = done.stdout + done.stderr

    def leaks(self) -> list[str]:
        """Every place where a secret was shown or written."""
        texts = {**self.shown, **written(self.folder)}
        return [f"{name} in {place}" for name, secret in SECRETS.items() for place in found(secret, texts)]


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with hostile_server() as running, hostile_server() as elsewhere:
        running.elsewhere = elsewhere.url
        yield running
        assert elsewhere.seen == [], "a key followed a redirect"


@pytest.fixture
def user(short_tmp: Path, server: HostileServer) -> User:
    return User(short_tmp, server)


def joined(lines: list[str]) -> bytes:
    """What a person read: texts that came in pieces, put together by the message that they belong to."""
    texts: dict[str, str] = {}
    for line in lines:
        message = json.loads(line)
        params = message.get("params") or {}
        update = params.get("update") or params.get("value") or {}
        content = update.get("content") if isinstance(update, dict) else None
        text = content.get("text", "") if isinstance(content, dict) else update.get("text", "")
        place = f"{params.get('sessionId') or params.get('token')} {update.get('sessionUpdate') or update.get('type')}"
        texts[place] = texts.get(place, "") + str(text)
        texts["values"] = texts.get("values", "") + "\n" + "\n".join(strings(message))
    return json.dumps(texts, ensure_ascii=False).encode() + "\n".join(texts.values()).encode()


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in strings(item)]
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []


def command_lines(process: psutil.Process) -> bytes:
    """What `ps` shows of a process and its children."""
    return "\n".join(" ".join(one.cmdline()) for one in [process, *process.children(recursive=True)]).encode()


def test_no_secret_is_ever_shown_or_written_by_the_acp_face(user: User, server: HostileServer) -> None:
    tape = Tape()
    command = (sys.executable, "-m", "acp_bridge", "acp")
    with Bridge(command, user.environ, tape, cwd=user.work) as bridge:
        bridge.initialize()
        turns = [(bridge.new_session(user.work), model) for model in [f"lab/{name}" for name in SCENARIOS]]
        turns += [(bridge.new_session(user.work), f"proxied/{name}") for name in ("hello", "json-400", "sse-text")]
        bridge.find_model(turns[0][0], "lab/hello")
        pending, kinds = [], []
        for made, model in turns:
            bridge.choose(made["sessionId"], "model", model)
            pending.append(bridge.begin_prompt(made["sessionId"], "go"))
        user.shown["ps"] = command_lines(psutil.Process(bridge.process.pid))
        for one in pending:
            try:
                bridge.end_prompt(one, 60)
            except BridgeError as error:
                kinds.append(error.kind)
        assert "internal_error" not in kinds
        last = turns[-1][0]["sessionId"]
        bridge.prompt(last, "/doctor")
        shown = "".join(tape.lines)
        assert "<hidden>" in shown, "nothing was echoed at all"
        user.shown["the ACP wire"] = shown.encode()
        user.shown["what was read in the editor"] = joined(tape.lines)
    for command_line in (
        ("acp_bridge", "doctor", "--bundle", str(user.folder / "bridge.zip")),
        ("acp_bridge", "models", "--json"),
        ("acp_bridge", "export", "--list", "--json", "--all"),
        ("modeld", "doctor", "--bundle", str(user.folder / "modeld.zip")),
        ("acp_bridge", "chat", "--model", "lab/json-400", "hi"),
    ):
        user.run(*command_line)
    assert user.leaks() == []
    # what must have happened, else the rest proves nothing
    assert f"Bearer {KEY}" in server.headers("Authorization")
    assert f"Bearer {LISTED}" in server.headers("Authorization")
    assert f"Bearer {PROXIED}" in server.headers("Authorization")
    assert f"me:{PROXY}" in server.basic("Proxy-Authorization")
    planted = {}
    for name, secret in SECRETS.items():
        for place, text in enumerate(encodings(secret).values()):
            file = user.folder / "data" / f"planted-{name}-{place}"
            file.write_text(f"x{text}y")
            planted[f"{name} in {file}"] = file
    seen = user.leaks()
    assert all(any(leak.startswith(f"{each}:") for leak in seen) for each in planted), "the search sees what is there"


def mcp_servers(server: HostileServer) -> list[dict[str, Any]]:
    """Servers that are given secrets in each way and fail, telling them."""
    tells = {"command": sys.executable, "args": ["-c", TELLS, "--token", MCP_ENVIRONMENT]}
    address = f"{server.url.replace('//', f'//me:{MCP_ADDRESS}@')}/mcp?token={MCP_QUERY}"
    header = {"name": "X-Api-Key", "value": f"{MCP_HEADER}\n"}
    variables = [{"name": "API_TOKEN", "value": MCP_ENVIRONMENT}, {"name": "OTHER", "value": MCP_PLAIN}]
    return [
        {"name": "tells", **tells, "env": variables},
        {
            "name": "absent",
            "command": f"/no/such --token {MCP_ENVIRONMENT}",
            "args": [f"--key={MCP_ENVIRONMENT}"],
            "env": variables,
        },
        {"name": "flood", "command": sys.executable, "args": ["-c", FLOODS], "env": variables},
        {"name": "web", "type": "http", "url": address, "headers": [header]},
        {"name": "inside", "type": "http", "url": address, "headers": [{**header, "value": f"a\n{MCP_HEADER}"}]},
        {"name": "letters", "type": "http", "url": address, "headers": [{**header, "value": f"é{MCP_HEADER}"}]},
        {"name": "named", "type": "http", "url": address, "headers": [{"name": "X Y\n", "value": MCP_HEADER}]},
        {"name": "away", "type": "http", "url": f"http://me:{MCP_ADDRESS}@[::bad/?key={MCP_QUERY}", "headers": []},
        {"name": "older", "type": "sse", "url": address, "headers": [header]},
    ]


def test_what_an_mcp_server_is_given_is_reported_to_nobody(user: User, server: HostileServer) -> None:
    tape = Tape()
    with Bridge((sys.executable, "-m", "acp_bridge", "acp"), user.environ, tape, cwd=user.work) as bridge:
        bridge.initialize()
        made = bridge.request("session/new", {"cwd": str(user.work), "mcpServers": mcp_servers(server)})
        bridge.choose(made["sessionId"], "model", bridge.find_model(made, "lab/hello"))
        said = bridge.prompt(made["sessionId"], "go").text
        assert "secret+1" not in said, "nor the end of one that was cut"
        for name in ("tells", "absent", "flood", "web", "inside", "letters", "named", "away", "older"):
            assert f"The MCP server {name} is not available" in said, said
        assert "its header X-Api-Key holds a blank or a line end inside" in said
        user.shown["the ACP wire"] = "".join(tape.lines).encode()
        user.shown["what was read in the editor"] = joined(tape.lines)
    user.run("acp_bridge", "export")
    assert "is not available" in user.shown["acp_bridge export"].decode()
    assert user.leaks() == []
    assert MCP_HEADER in server.headers("X-Api-Key")
    assert f"me:{MCP_ADDRESS}" in server.basic("Authorization")
    assert any(path.endswith(f"token={MCP_QUERY}") for path, _ in server.seen)


def test_what_an_mcp_tool_tells_is_cleaned_before_a_model_gets_it(user: User, server: HostileServer) -> None:
    tape = Tape()
    variables = [{"name": "PREFIX", "value": f"{MCP_TOKEN} and "}, {"name": "PASSWORD", "value": MCP_TOKEN}]
    echo = {"name": "echo", "command": sys.executable, "args": [ECHO], "env": variables}
    with Bridge((sys.executable, "-m", "acp_bridge", "acp"), user.environ, tape, cwd=user.work) as bridge:
        bridge.initialize()
        made = bridge.request("session/new", {"cwd": str(user.work), "mcpServers": [echo]})
        bridge.choose(made["sessionId"], "model", bridge.find_model(made, "lab/call-mcp"))
        assert bridge.prompt(made["sessionId"], "go").text == "Hello"
        user.shown["the ACP wire"] = "".join(tape.lines).encode()
    reported = next(message["content"] for message in server.bodies[-1]["messages"] if message["role"] == "tool")
    assert reported == "<hidden> and there"
    assert user.leaks() == []


class Window(Editor):
    """Keeps each message that the bridge wrote."""

    def _take(self, body: Any) -> None:
        self.tape = [*getattr(self, "tape", []), body.decode()]
        super()._take(body)


def test_no_secret_is_ever_shown_or_written_by_the_lsp_face(user: User, server: HostileServer) -> None:
    with Window(user.environ, user.work) as window:
        window.initialize()
        window.model("lab/hello")
        kinds = []
        for scenario in SCENARIOS:  # a remote model answers only where it was picked
            window.request("modeld/pick", {"model": f"lab/{scenario}", "workspace": f"/{scenario}"})
        pending = [window.turn("", "go", workspace=f"/{scenario}") for scenario in SCENARIOS]
        for one in pending:
            try:
                window.wait(one)
            except LspError as error:
                kinds.append(error.kind)
        assert "internal_error" not in kinds
        source = f"{server.url.replace('//', f'//me:{MCP_ADDRESS}@')}/x.gguf?X-Amz-Signature={MCP_QUERY}"
        with pytest.raises(LspError):
            window.request("modeld/pull", {"source": source})
        user.shown["the LSP wire"] = "\n".join(window.tape).encode()
        user.shown["what was read in the editor"] = joined(window.tape)
    assert user.leaks() == []
    assert f"Bearer {KEY}" in server.headers("Authorization")
    assert f"me:{MCP_ADDRESS}" in server.basic("Authorization")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("sk-\u00e9t\u00e9-Marked", "not ASCII"),
        ("sk-Marked\nsecond-line", "a line end inside"),
        ("sk-Marked\tand more", "a blank or a line end inside"),
        ("sk-Marked and more", "a blank or a line end inside"),
        ("sk-Marked" * 2000, "18000 characters"),
    ],
)
def test_a_key_that_cannot_be_sent_is_one_sentence_without_it(
    user: User, server: HostileServer, key: str, reason: str
) -> None:
    user.environ["LAB"] = key
    with Bridge((sys.executable, "-m", "acp_bridge", "acp"), user.environ, Tape(), cwd=user.work) as bridge:
        bridge.initialize()
        made = bridge.new_session(user.work)
        bridge.choose(made["sessionId"], "model", bridge.find_model(made, "lab/hello"))
        with pytest.raises(BridgeError) as refused:
            bridge.prompt(made["sessionId"], "go")
    assert refused.value.kind == "backend_unavailable"
    assert "Marked" not in refused.value.message
    assert reason in refused.value.message
    assert not any("chat/completions" in path for path, _ in server.seen)


def test_the_echo_of_a_server_holds_every_encoding() -> None:
    said = {"said": echoes(KEY).encode()}
    assert {place.split(": ")[1] for place in found(KEY, said)} == set(encodings(KEY))
