"""Writes the reference pages of docs/ from the tables and parsers in the code (`make docs`).

A test compares the files with what this would write.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import commands_page as commands_reference  # noqa: E402 - after the path
import licences  # noqa: E402 - after the path
from acp_bridge.cli import app as cli  # noqa: E402 - after the path
from acp_bridge.faces.lsp import wire  # noqa: E402 - after the path
from modeld.cli import app  # noqa: E402 - after the path
from shared import errors, settings, version  # noqa: E402 - after the path

DOCS = ROOT / "docs"
NOTE = "Written by `make docs` from `{source}`; a test keeps both in step.\n"


def errors_page() -> str:
    """The error table: kind, code, fields, and what the message says to do."""
    lines = [
        "# Errors",
        "",
        NOTE.format(source="shared/errors.py"),
        "Every error is a JSON-RPC error object: `code`, a one-line `message` that says what to do next, and `data`",
        "with the stable `kind` and the fields below. Codes and kinds never change meaning; they may gain fields.",
        "What the engine raises is what the editor shows.",
        "",
        "| kind | code | fields | message |",
        "| --- | --- | --- | --- |",
    ]
    for error in sorted(errors.BY_KIND.values(), key=lambda each: (-each.code, each.kind)):
        fields = ", ".join(f"`{name}`" for name in error.fields) or "-"
        lines.append(f"| `{error.kind}` | {error.code} | {fields} | {_cell(error.summary)} |")
    lines += ["", "## What the fields hold", ""]
    lines += [
        f"- `{each.kind}`: {_sentence(each.__doc__)}"
        for each in errors.BY_KIND.values()
        if "__doc__" in vars(each) and each.__doc__
    ]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """The numbers: name, default, environment variable, reason."""
    defaults = settings.Settings()
    lines = [
        "# Settings",
        "",
        NOTE.format(source="shared/settings.py"),
        "A command line flag goes before an environment variable, that before the config file (`config.toml` in the",
        "platform's config folder, or what `MODELD_CONFIG` names), that before the default. A value that cannot be",
        "used is an error that names where it came from. Seconds and bytes unless the name says otherwise.",
        "",
        "| name | default | environment variable | what it is |",
        "| --- | --- | --- | --- |",
    ]
    for name in settings.Settings.__struct_fields__:
        value = _value(getattr(defaults, name))
        lines.append(f"| `{name}` | {value} | `MODELD_{name.upper()}` | {_cell(settings.REASONS[name])} |")
    lines += ["", "`MODELD_DATA_ROOT` names the data root itself; it must be on a local disk.", ""]
    return "\n".join(lines)


LSP = """\
`acp-bridge lsp` serves an editor that speaks the Language Server Protocol, on standard input and output. One process
belongs to one window. It is what the VS Code extension in `editors/vscode` starts; any LSP client can.

## What it answers of LSP

- `initialize`: answered before anything else is imported. `capabilities.experimental.modeld` holds the version of this
  page (`wire`), the version of the bridge and the methods below. `initializationOptions`: see `Options`.
- `textDocument/inlineCompletion`: ghost text by the resident model's own fill-in-the-middle tokens. Always with a
  range. The newest request ends the older one, in the daemon too. Silent while there is no such model, while a turn
  runs and while modeld is away; it never loads a model.
- `textDocument/codeAction`: commands for the editor's side (`modeld.fix`, `modeld.explain`, `modeld.document`,
  `modeld.tests`), each with one `ActionTarget`.
- Work-done progress for requests that carry a `workDoneToken`; `window/workDoneProgress/cancel` and `$/cancelRequest`
  reach the daemon at once. `modeld/cancel` lets a request end in order instead, with its counts.
- Params that cannot be read are answered with -32602 and the place of the value; nothing of a message is ever logged.

The process ends when its input ends, at `exit`, at a signal, and when the process that `initialize` names as the editor
has ended.

## Methods of its own

"""


def lsp_page() -> str:
    """The methods and values of the LSP face."""
    lines = ["# The LSP face", "", NOTE.format(source="acp_bridge/faces/lsp/wire.py"), LSP.rstrip("\n"), ""]
    lines += ["| method | sent by | params | answer | what it is |", "| --- | --- | --- | --- | --- |"]
    for method in wire.METHODS:
        answer = f"`{method.result.__name__}`" if method.result is not None else "none"
        params = f"`{method.params.__name__}`"
        lines.append(f"| `{method.name}` | {method.sender} | {params} | {answer} | {_cell(method.summary)} |")
    lines += [
        "",
        "A request that carries a `partialResultToken` streams `TurnEvent`s as `$/progress`. Errors carry the",
    ]
    lines += ["kinds of [the error table](errors.md) in `data.kind`.", "", "## Values", ""]
    lines += ["Field names are camelCase on the wire. Optional fields, of what the editor sends, are marked `?`.", ""]
    for cls in _values():
        lines += [f"### {cls.__name__}", "", _sentence(cls.__doc__ or ""), ""]
        fields = msgspec.structs.fields(cls)
        sent = issubclass(cls, wire.Outgoing)
        marks = [f"`{one.encode_name}{'' if one.required or sent else '?'}`" for one in fields]
        if cls.__struct_config__.tag is not None:
            marks.insert(0, f"`type: {cls.__struct_config__.tag}`")
        lines += [", ".join(marks) if marks else "no fields", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _values() -> list[type[msgspec.Struct]]:
    bases = (wire.Incoming, wire.Outgoing)
    own = [kind for kind in vars(wire).values() if isinstance(kind, type) and kind.__module__ == wire.__name__]
    return [kind for kind in own if issubclass(kind, bases) and kind not in bases]


def commands_page() -> str:
    """Both commands with every option, from their parsers."""
    lines = [
        "# Commands",
        "",
        NOTE.format(source="modeld/cli/app.py` and `acp_bridge/cli/app.py"),
        "`python -m modeld` and `python -m acp_bridge` are the same commands. Completion in a shell: put",
        "`source <(modeld completion bash)` and `source <(acp-bridge completion bash)` into its start file (zsh and",
        "fish have theirs).",
        "",
        *commands_reference.page(parsers()),
    ]
    return "\n".join(lines).rstrip() + "\n"


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each program."""
    return {"modeld": app.parser(), "acp-bridge": cli.parser()}


def licences_page() -> str:
    """What comes with an installation, and under which licences."""
    lines = [
        "# Licences",
        "",
        NOTE.format(source="scripts/licences.py"),
        "modeld itself: Apache-2.0. These distributions come with it, with the licence that their own metadata states;",
        "the versions of a release are those of `constraints.txt`. llama-cpp-python carries llama.cpp (MIT).",
        "",
        "| distribution | comes with | licence |",
        "| --- | --- | --- |",
        *(f"| {name} | {extras} | {_cell(licence)} |" for name, extras, licence in licences.rows()),
    ]
    return "\n".join(lines) + "\n"


def man_page(program: str) -> str:
    """The man page of a command."""
    return commands_reference.man(program, parsers()[program], version.__version__)


PAGES: dict[str, Callable[[], str]] = {
    "errors.md": errors_page,
    "settings.md": settings_page,
    "lsp.md": lsp_page,
    "commands.md": commands_page,
    "licences.md": licences_page,
    "man/modeld.1": lambda: man_page("modeld"),
    "man/acp-bridge.1": lambda: man_page("acp-bridge"),
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value >> 20} MiB"
    return f"`{value}`" if isinstance(value, str) else str(value) if value != () else "none"


def main() -> int:
    """Write the pages."""
    DOCS.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
