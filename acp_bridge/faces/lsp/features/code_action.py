"""`textDocument/codeAction`: what a model can do for the selection and its problems.

The actions name commands of the editor's side, which shows what would change; nothing is asked of a model before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from acp_bridge.faces.lsp import wire

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window

#: More of a document's problems than this do not help a small model.
PROBLEMS_MOST = 10
#: A hint or an information is no fault; without a severity the editor leaves it to us.
WORTH = (None, types.DiagnosticSeverity.Error, types.DiagnosticSeverity.Warning)
KINDS = (types.CodeActionKind.QuickFix, types.CodeActionKind.RefactorRewrite)


async def actions(window: Window, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Empty while there is no model to do it."""
    core = window.core_now
    if core is None or not (core.models.default or await window.picked()):
        return []
    problems = [problem for problem in params.context.diagnostics if problem.severity in WORTH][:PROBLEMS_MOST]
    found: list[types.CodeAction] = []
    if problems:
        found.append(_action("Fix with a local model", "modeld.fix", types.CodeActionKind.QuickFix, params, problems))
        found.append(
            _action("Explain with a local model", "modeld.explain", types.CodeActionKind.QuickFix, params, problems)
        )
    if params.range.start != params.range.end:
        rewrite = types.CodeActionKind.RefactorRewrite
        found.append(_action("Document with a local model", "modeld.document", rewrite, params, []))
        found.append(_action("Write tests with a local model", "modeld.tests", rewrite, params, []))
    return [action for action in found if _wanted(action, params.context.only)]


def _wanted(action: types.CodeAction, only: object) -> bool:
    if not only:
        return True
    kind = str(getattr(action.kind, "value", action.kind))
    names = [str(getattr(one, "value", one)) for one in only]  # type: ignore[attr-defined]
    return any(kind == name or kind.startswith(f"{name}.") or name == "" for name in names)


def _action(
    title: str,
    command: wire.ActionCommand,
    kind: types.CodeActionKind,
    params: types.CodeActionParams,
    problems: list[types.Diagnostic],
) -> types.CodeAction:
    import msgspec

    spans = [params.range, *(problem.range for problem in problems)]
    start = min((span.start.line, span.start.character) for span in spans)
    end = max((span.end.line, span.end.character) for span in spans)
    target = wire.ActionTarget(
        uri=params.text_document.uri,
        start_line=start[0],
        start_character=start[1],
        end_line=end[0],
        end_character=end[1],
        problems=[f"line {problem.range.start.line + 1}: {problem.message}" for problem in problems],
    )
    return types.CodeAction(
        title=title,
        kind=kind,
        diagnostics=problems or None,
        command=types.Command(title=title, command=command, arguments=[msgspec.to_builtins(target)]),
    )
