"""What a person did not allow does not happen: real files and commands, the model's calls scripted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from bridge_fakes import Bench, Emit, FakeDaemon, bridge, result, row, running
from shared.protocol import api

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="the commands are POSIX's"),
]


@pytest.fixture
def agent(short_tmp: Path) -> Bench:
    (short_tmp / "run").mkdir(mode=0o700)
    (short_tmp / "work").mkdir()
    (short_tmp / "outside").mkdir()
    (short_tmp / "outside" / "kept").write_text("kept")
    return Bench(short_tmp, row("alpha", tools=True))


def calling(daemon: FakeDaemon, *rounds: tuple[str, dict[str, Any]]) -> None:
    """One call a round, then the end."""
    left = list(rounds)

    async def script(params: api.TurnParams, emit: Emit, cancelled: anyio.Event) -> api.TurnResult:
        del emit, cancelled
        if not left:
            return result(params)
        name, arguments = left.pop(0)
        call = api.ToolCall(id=f"c{len(left)}", name=name, arguments=json.dumps(arguments))
        return result(params, "tool_calls", tool_calls=[call])

    daemon.script = script
    daemon.answers["run/hold"] = api.Value()


def run(line: str) -> tuple[str, dict[str, Any]]:
    return ("run_command", {"command": line})


def write(path: str, content: str = "x") -> tuple[str, dict[str, Any]]:
    return ("write_file", {"path": path, "content": content})


def answering(*options: str) -> Callable[[str, dict[str, Any]], Awaitable[Any]]:
    """The answers to the first questions; every later one is rejected."""
    left = list(options)

    async def answer(method: str, params: dict[str, Any]) -> Any:
        assert method == "session/request_permission"
        return {"outcome": {"outcome": "selected", "optionId": left.pop(0) if left else "reject_once"}}

    return answer


async def begin(client: Any, bench: Bench, mode: str = "code", **capabilities: Any) -> str:
    await client.initialize(**capabilities)
    session: str = await client.new(str(bench.folder / "work"))
    await client.request("session/set_config_option", {"sessionId": session, "configId": "mode", "value": mode})
    return session


def titles(client: Any) -> list[str]:
    return [params["toolCall"]["title"] for _, params in client.asked]


def reported(daemon: FakeDaemon) -> list[str]:
    return [message["content"] for message in daemon.turns[-1].messages if message["role"] == "tool"]


async def test_always_for_one_line_deletes_nothing_else(agent: Bench) -> None:
    work, outside = agent.folder / "work", agent.folder / "outside"
    (work / "build").write_text("")
    (work / "notes").write_text("mine")
    async with running(agent) as daemon, bridge(agent) as client:
        calling(
            daemon,
            run("rm build"),
            run(f"rm build -rf {outside}"),
            run("cat notes"),
            run(f"cat notes {outside}/kept"),
            run("cat notes"),
        )
        client.answer = answering("allow_always", "reject_once", "allow_always", "reject_once")
        await client.prompt(await begin(client, agent), "tidy up")
        assert titles(client) == [
            "`rm build`",
            f"`rm build -rf {outside}`",
            "`cat notes`",
            f"`cat notes {outside}/kept`",
        ]
        assert (outside / "kept").read_text() == "kept"
        assert not (work / "build").exists(), "what was allowed was done"
        assert "mine" in reported(daemon)[4], "and the same line again was not asked"
        assert "kept" not in "".join(reported(daemon)[3:4])


async def test_settings_of_git_are_asked_for_in_auto_mode_and_are_not_run_unasked(agent: Bench) -> None:
    work = agent.folder / "work"
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    config = (work / ".git" / "config").read_text()
    evil = f"{config}\tfsmonitor = touch {work}/made; false\n"
    async with running(agent) as daemon, bridge(agent) as client:
        calling(
            daemon,
            run("git status"),
            write("app.py"),
            write(".git/config", evil),
            write(".git/config", evil),
            run("git status -s"),
        )
        client.answer = answering("allow_always", "reject_once", "allow_once")
        await client.prompt(await begin(client, agent, "auto"), "look")
        assert titles(client) == ["`git status`", *["Write .git/config (git, which can run programs)"] * 2]
        assert [len(params["options"]) for _, params in client.asked] == [3, 2, 2], "there is no always for it"
        assert (work / "app.py").read_text() == "x", "a plain file is written unasked"
        assert (work / ".git" / "config").read_text() == evil
        assert "?? app.py" in reported(daemon)[4]
        assert not (work / "made").exists()


async def test_all_edits_do_not_cover_a_file_that_runs_code(agent: Bench) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        calling(daemon, write("a.py"), write("b.py"), write(".vscode/tasks.json"), write(".envrc"), write("c.py"))
        client.answer = answering("allow_always")
        await client.prompt(await begin(client, agent), "write")
        assert titles(client) == [
            "Create a.py",
            "Create .vscode/tasks.json (settings of an editor, which can run programs)",
            "Create .envrc (what runs when the folder is entered or opened)",
        ]
        assert (
            client.asked[0][1]["options"][1]["name"]
            == "Always allow edits, except of files that make tools run code, in this session"
        )
        assert sorted(path.name for path in (agent.folder / "work").iterdir()) == ["a.py", "b.py", "c.py"]


async def test_a_parent_that_became_a_link_while_the_person_was_asked(agent: Bench) -> None:
    work, outside = agent.folder / "work", agent.folder / "outside"
    (work / "src").mkdir()
    async with running(agent) as daemon, bridge(agent) as client:
        calling(daemon, write("src/made.py"))

        async def swap(method: str, params: dict[str, Any]) -> Any:
            shutil.rmtree(work / "src")
            (work / "src").symlink_to(outside)
            return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}

        client.answer = swap
        await client.prompt(await begin(client, agent), "write")
        assert "src was replaced after it was checked" in reported(daemon)[0]
        assert os.listdir(outside) == ["kept"]


async def test_the_question_holds_the_whole_line_and_a_harmless_title(agent: Bench) -> None:
    line = "echo '`" + "x" * 5000 + "\n\n# Allowed already\n```\n\u202eevil\x1b[2J'"
    async with running(agent) as daemon, bridge(agent) as client:
        calling(daemon, run(line))
        client.answer = answering("reject_once")
        await client.prompt(await begin(client, agent), "go")
        asked = client.asked[0][1]
        card = asked["toolCall"]
        assert card["rawInput"] == {"command": line}
        assert len(card["title"]) < 250
        assert card["title"].startswith("``echo '`xxx")
        assert card["title"].isprintable()
        text = card["content"][0]["content"]["text"]
        assert text.startswith("````\necho '`xxx")
        assert text.endswith("# Allowed already\n```\n\\u202eevil\\u001b[2J'\n````")
        assert [option["kind"] for option in asked["options"]] == ["allow_once", "reject_once"]


@pytest.mark.parametrize("call", [run("touch made"), write("made")])
async def test_an_editor_that_cannot_ask_is_not_a_user_who_rejected(
    agent: Bench, call: tuple[str, dict[str, Any]]
) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        calling(daemon, call)
        await client.prompt(await begin(client, agent), "go")
        assert "this editor cannot ask for permission" in reported(daemon)[0]
        assert "rejected" not in reported(daemon)[0]
        assert "this editor cannot ask" in json.dumps([update for _, update in client.updates])
        assert os.listdir(agent.folder / "work") == []


@pytest.mark.parametrize("answer", [{}, {"outcome": {"outcome": "selected"}}, {"outcome": 3}, "yes", []])
async def test_an_answer_that_cannot_be_understood_allows_nothing(agent: Bench, answer: Any) -> None:
    async with running(agent) as daemon, bridge(agent) as client:
        calling(daemon, run("touch made"))

        async def odd(method: str, params: dict[str, Any]) -> Any:
            return answer

        client.answer = odd
        await client.prompt(await begin(client, agent), "go")
        assert reported(daemon)[0].startswith("Error: ")
        assert os.listdir(agent.folder / "work") == []


async def test_what_was_allowed_was_allowed_for_those_folders(agent: Bench) -> None:
    (agent.folder / "other").mkdir()
    async with running(agent) as daemon, bridge(agent) as client:
        calling(daemon, run("touch made"))
        client.answer = answering("allow_always")
        session = await begin(client, agent)
        await client.prompt(session, "go")

        async def load(folder: str, *more: str) -> None:
            extra = {"additionalDirectories": [str(agent.folder / name) for name in more]}
            opening = {"sessionId": session, "cwd": str(agent.folder / folder), "mcpServers": [], **extra}
            await client.request("session/load", opening)
            calling(daemon, run("touch made"))
            await client.prompt(session, "again")

        await load("work")
        assert len(client.asked) == 1, "the same folders"
        await load("other")
        assert len(client.asked) == 2
        assert os.listdir(agent.folder / "other") == []
        await load("work", "other")
        assert len(client.asked) == 3


@pytest.fixture
def cluster(agent: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """With a provider whose key stands in the environment."""
    monkeypatch.setenv("CLUSTER_KEY", "marked-secret")
    monkeypatch.setenv("PLAIN_VARIABLE", "kept")
    (agent.folder / "config.toml").write_text(
        '[providers.cluster]\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "CLUSTER_KEY"\nmodels = ["m"]\n'
    )
    return agent


async def test_commands_are_not_given_the_keys_of_providers(cluster: Bench) -> None:
    async with running(cluster) as daemon, bridge(cluster) as client:
        calling(daemon, run("env"), run("env && true"))
        client.answer = answering("allow_once", "allow_once")
        await client.prompt(await begin(client, cluster), "go")
        assert "marked-secret" not in "".join(reported(daemon))
        assert all("PLAIN_VARIABLE=kept" in text for text in reported(daemon))


async def test_nor_where_an_entry_of_the_file_is_wrong(cluster: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "marked-too")
    with (cluster.folder / "config.toml").open("a") as file:
        file.write('[providers.other]\nbase_url = "ftp://x"\nkey_env = "OTHER_KEY"\n')
    async with running(cluster) as daemon, bridge(cluster) as client:
        calling(daemon, run("env"))
        client.answer = answering("allow_once")
        await client.prompt(await begin(client, cluster), "go")
        assert "marked" not in "".join(reported(daemon))


async def test_terminals_of_the_editor_get_the_keys_emptied_and_the_program_that_was_looked_at(cluster: Bench) -> None:
    seen: dict[str, Any] = {}

    async def terminal(method: str, params: dict[str, Any]) -> Any:
        seen.setdefault(method, params)
        answers: dict[str, Any] = {
            "session/request_permission": {"outcome": {"outcome": "selected", "optionId": "allow_once"}},
            "terminal/create": {"terminalId": "T"},
            "terminal/wait_for_exit": {"exitCode": 0},
            "terminal/output": {"output": "", "truncated": False},
        }
        return answers.get(method, {})

    async with running(cluster) as daemon, bridge(cluster) as client:
        calling(daemon, run("git status"))
        client.answer = terminal
        await client.prompt(await begin(client, cluster, terminal=True), "go")
        made = seen["terminal/create"]
        given = {variable["name"]: variable["value"] for variable in made["env"]}
        assert given["CLUSTER_KEY"] == "", "nothing can be taken out of the editor's own"
        assert given["GIT_OPTIONAL_LOCKS"] == "0"
        assert "PLAIN_VARIABLE" not in given
        assert (made["command"], made["args"]) == (shutil.which("git"), ["status"])
