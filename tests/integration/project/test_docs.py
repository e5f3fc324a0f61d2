"""The docs can be built, their links lead somewhere, and what they tell people to type works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acp_bridge.cli import app as cli
from docs_commands import ROOT, Typed, mentioned, pages, typed
from modeld.cli import app
from modeld_process import write_models, write_script
from shared.paths import DataRoot

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

#: Commands that fetch something: run by `tests/e2e/test_newcomer.py` and `test_packaging.py` instead.
ELSEWHERE = ("pip install", "uv tool install", "pipx install", "modeld pull starter")
LINK = re.compile(r"(?<!`)\[[^\]]+\]\(([^)\s]+)\)")


def test_the_site_is_built_without_a_complaint(tmp_path: Path) -> None:
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run([*sphinx, str(ROOT / "docs"), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "index.html").read_text()
    assert "Quick start" in index
    assert "session" in index
    for name in ("commands", "errors", "settings", "security", "editors/zed"):
        assert (tmp_path / f"{name}.html").exists()


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://", "#")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve()
        assert found.exists(), f"{page.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            names = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in names, f"{page.name}: {target}"


def test_every_command_is_one_that_exists() -> None:
    lines = list(typed())
    assert len(lines) > 20
    for one in lines:
        program, *words = shlex.split(one.line)
        parser = {"modeld": app.parser(), "acp-bridge": cli.parser()}.get(program)
        assert parser is not None or one.line.startswith(ELSEWHERE), one
        if parser is not None:
            parser.parse_args(words)


#: Not commands of the parser: what editors, shells and services spawn.
SPAWNED = {"acp", "lsp", "mcp", "complete", "serve"}


def test_every_command_that_a_sentence_names_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """A hint that names a command with an option that is no more would send people astray."""
    parsers = {"modeld": app.parser(), "acp-bridge": cli.parser()}
    named = list(mentioned())
    assert len(named) > 100
    for one in named:
        program, *words = shlex.split(one.line)
        if words[0] in SPAWNED:
            continue
        try:
            parsers[program].parse_args(words)
        except SystemExit:  # help, or a complaint: only a command without its arguments may be named
            complaint = capsys.readouterr().err
            if complaint and "are required" not in complaint and "expected one argument" not in complaint:
                pytest.fail(f"{one}: {complaint}")


def ours() -> list[Typed]:
    """Each line once, those that stop or restart the daemon last."""
    lines = {one.line: one for one in typed() if not one.line.startswith(ELSEWHERE)}
    return sorted(lines.values(), key=lambda one: ("stop" in one.line) * 2 + ("restart" in one.line))


@pytest.fixture
def person(data_root: DataRoot, private_home: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Somebody with a model of the starter's name, VS Code's command, and no service manager."""
    write_models(data_root, "smollm2-135m-instruct-q4_1")
    (private_home / "models").mkdir()
    code = tmp_path / "bin" / "code"
    code.parent.mkdir()
    code.write_text("#!/bin/sh\nexit 0\n")
    code.chmod(0o755)
    environ = {
        **os.environ,
        **write_script(data_root.path, [{"pieces": ["Paris", "."]}]),
        "PATH": f"{Path(sys.executable).parent}:{code.parent}:/usr/bin:/bin",
        "MODELD_TEMPLATE_DEADLINE": "30",
    }
    command = [sys.executable, "-P", "-m", "modeld"]
    subprocess.run([*command, "start", "--backend", "scripted"], env=environ, check=True, capture_output=True)
    yield environ
    subprocess.run([*command, "stop"], env=environ, check=True, capture_output=True)


def test_every_command_works(person: dict[str, str], private_home: Path) -> None:
    for one in ours():
        words = [os.path.expanduser(word) if word.startswith("~") else word for word in shlex.split(one.line)]
        done = subprocess.run(
            words, env=person, cwd=private_home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{one}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, one
