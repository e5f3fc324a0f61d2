"""Code actions: commands for the editor's side, with what they are about; nothing is asked of a model before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.models.view import Advertised
from bridge_fakes import Bench, row
from lsp_fakes import Window, window

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
PROBLEM = {
    "range": {"start": {"line": 2, "character": 4}, "end": {"line": 2, "character": 9}},
    "severity": 1,
    "code": 17,
    "source": "linter",
    "message": "`thing` is not defined",
}
SELECTION = {"start": {"line": 2, "character": 0}, "end": {"line": 4, "character": 0}}
CURSOR = {"start": {"line": 2, "character": 4}, "end": {"line": 2, "character": 4}}


@pytest.fixture
def bench(short_tmp: Path) -> Bench:
    (short_tmp / "run").mkdir(mode=0o700)
    return Bench(short_tmp, row("alpha"))


async def actions(editor: Window, span: dict[str, Any], **context: Any) -> list[dict[str, Any]]:
    params = {
        "textDocument": {"uri": "file:///home/me/proj/ä b.py"},
        "range": span,
        "context": {"diagnostics": [], **context},
    }
    found: list[dict[str, Any]] = await editor.request("textDocument/codeAction", params)
    return found


async def test_problems_and_selections_have_their_commands(bench: Bench) -> None:
    async with window(bench) as editor:
        await editor.request("modeld/models")
        found = await actions(editor, SELECTION, diagnostics=[PROBLEM])
        assert [(one["command"]["command"], one["kind"]) for one in found] == [
            ("modeld.fix", "quickfix"),
            ("modeld.explain", "quickfix"),
            ("modeld.document", "refactor.rewrite"),
            ("modeld.tests", "refactor.rewrite"),
        ]
        assert found[0]["command"]["arguments"] == [
            {
                "uri": "file:///home/me/proj/ä b.py",
                "startLine": 2,
                "startCharacter": 0,
                "endLine": 4,
                "endCharacter": 0,
                "problems": ["line 3: `thing` is not defined"],
            }
        ]
        assert found[0]["diagnostics"] == [PROBLEM]
        assert await actions(editor, CURSOR) == []
        assert len(await actions(editor, CURSOR, diagnostics=[PROBLEM])) == 2


async def test_an_action_is_about_the_whole_of_its_problems_and_a_hint_is_none(bench: Bench) -> None:
    hint = {**PROBLEM, "severity": 4, "message": "could be shorter"}
    async with window(bench) as editor:
        await editor.request("modeld/models")
        (fix, _) = await actions(editor, CURSOR, diagnostics=[PROBLEM, hint])
        (target,) = fix["command"]["arguments"]
        assert (target["startLine"], target["startCharacter"]) == (2, 4)
        assert (target["endLine"], target["endCharacter"]) == (2, 9)
        assert target["problems"] == ["line 3: `thing` is not defined"]
        assert await actions(editor, CURSOR, diagnostics=[hint]) == []


async def test_only_what_is_wanted(bench: Bench) -> None:
    async with window(bench) as editor:
        await editor.request("modeld/models")
        for only, count in ((["quickfix"], 2), (["refactor"], 2), (["source"], 0), (["quickfix", "refactor"], 4)):
            assert len(await actions(editor, SELECTION, diagnostics=[PROBLEM], only=only)) == count


async def test_nothing_is_offered_without_a_model(bench: Bench) -> None:
    bench.inventory.advertised = Advertised(rows=(), reason="modeld stopped")
    async with window(bench) as editor:
        await editor.request("modeld/models")
        assert await actions(editor, SELECTION, diagnostics=[PROBLEM]) == []
