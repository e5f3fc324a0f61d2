"""For each editor: the files to change, the commands to run, and what to tell the person. Reads files, writes none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from acp_bridge.install import editor_paths, neovim
from acp_bridge.install.change import FileChange, current
from acp_bridge.install.edit import remove_value, set_value
from acp_bridge.install.editor_paths import AGENT, Surroundings
from acp_bridge.install.jsonc import Malformed

#: The setting of the VS Code extension that names its interpreter.
CODE_SETTING = "modeld.python"
CODE_ENVIRONMENT = "modeld.environment"
CODE_EXTENSION = "modeld.modeld"


class CannotInstall(Exception):
    """One line for the person: what is in the way, and what to do."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. `settings` names a file other than the editor's usual one."""

    remove: bool = False
    settings: Path | None = None
    vsix: Path | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What will be done. `snippet` is what a person would paste, `hints` what is left for them to do."""

    changes: list[FileChange] = []
    commands: list[list[str]] = []
    snippet: str = ""
    hints: list[str] = []
    warnings: list[str] = []


def zed(around: Surroundings, wanted: Wanted) -> Plan:
    """An entry of `agent_servers` in Zed's settings."""
    command = editor_paths.command_of(around, "acp")
    entry = {"type": "custom", "command": command.command, "args": list(command.args), "env": command.env}
    hint = f"In Zed: open the agent panel, New Thread, {AGENT}. Settings are read at once."
    return settings_plan(wanted, editor_paths.zed_settings(around), ("agent_servers", AGENT), entry, hint)


def jetbrains(around: Surroundings, wanted: Wanted) -> Plan:
    """An entry of `agent_servers` in JetBrains' file of agents."""
    command = editor_paths.command_of(around, "acp")
    entry = {"command": command.command, "args": list(command.args), "env": command.env}
    hint = f"In the IDE: open AI Chat and choose {AGENT} among the agents."
    return settings_plan(wanted, editor_paths.jetbrains_settings(around), ("agent_servers", AGENT), entry, hint)


def vscode(around: Surroundings, wanted: Wanted) -> Plan:
    """The extension, by VS Code's own command, and the interpreter in its settings."""
    found = editor_paths.code_variants(around)
    if wanted.settings is not None:
        found = found[:1] or [(editor_paths.CODE_VARIANTS[0], "")]
    if not found:
        names = ", ".join(variant.command for variant in editor_paths.CODE_VARIANTS)
        raise CannotInstall(f"no VS Code was found ({names}): install it, or name its settings with --settings FILE")
    plan = Plan()
    for variant, executable in found:
        file = wanted.settings or editor_paths.code_settings(around, variant)
        one = settings_plan(wanted, file, (CODE_SETTING,), around.interpreter, "")
        if not wanted.remove:
            one = _with_environment(one, editor_paths.command_of(around, "lsp").env)
        plan = msgspec.structs.replace(plan, changes=plan.changes + one.changes, snippet=one.snippet)
        plan.commands.extend(_code_commands(wanted, executable))
    if not any(executable for _, executable in found):
        plan.warnings.append("VS Code's command `code` is not on PATH: install the extension inside the editor")
    elif wanted.vsix is None and not wanted.remove:
        plan.warnings.append("the extension's package is not part of this installation; name it with --vsix FILE")
    if not wanted.remove:
        plan.hints.append("In VS Code: `Local Models: Open Chat` in the command palette, or pick a model in its chat.")
    return plan


def _with_environment(plan: Plan, environ: dict[str, str]) -> Plan:
    """Where modeld is, for a VS Code that was not started from a shell."""
    (change,) = plan.changes
    text = change.after or ""
    for name, value in environ.items():
        text = set_value(text, (CODE_ENVIRONMENT, name), value)
    return msgspec.structs.replace(plan, changes=[msgspec.structs.replace(change, after=text)])


def _code_commands(wanted: Wanted, executable: str) -> list[list[str]]:
    if not executable:
        return []
    if wanted.remove:
        return [[executable, "--uninstall-extension", CODE_EXTENSION]]
    return [[executable, "--install-extension", str(wanted.vsix), "--force"]] if wanted.vsix is not None else []


def nvim(around: Surroundings, wanted: Wanted) -> Plan:
    """Two files of our own; init.lua belongs to its writer."""
    folder = wanted.settings or editor_paths.neovim_folder(around)
    texts = {
        folder / "lua" / "modeld_acp.lua": neovim.acp_module(editor_paths.command_of(around, "acp")),
        folder / "lsp" / "modeld.lua": neovim.lsp_module(editor_paths.command_of(around, "lsp")),
    }
    changes = []
    for path, text in texts.items():
        before = read_current(path)
        if before is not None and not before.startswith(neovim.MARK):
            raise CannotInstall(f"{path} is there and was not written by acp-bridge; move it away first")
        changes.append(FileChange(path=path, before=before, after=None if wanted.remove else text))
    hints = ["Put one of these into init.lua:", f"  {neovim.CODECOMPANION}", f"  {neovim.AVANTE}", f"  {neovim.LSP}"]
    return Plan(changes=changes, snippet="\n".join(texts.values()), hints=[] if wanted.remove else hints)


EDITORS: dict[str, Callable[[Surroundings, Wanted], Plan]] = {
    "zed": zed,
    "jetbrains": jetbrains,
    "vscode": vscode,
    "neovim": nvim,
}


#: Where editors that list agents under `agent_servers` keep them.
AGENT_SERVERS: dict[str, Callable[[Surroundings], Path]] = {
    "zed": editor_paths.zed_settings,
    "jetbrains": editor_paths.jetbrains_settings,
}


def settings_plan(wanted: Wanted, usual: Path, path: tuple[str, ...], value: Any, hint: str) -> Plan:
    """One value set or removed in settings of JSON with comments, `usual` unless another file is wanted.

    Raises CannotInstall.
    """
    file = wanted.settings or usual
    before = read_current(file)
    if before is None and wanted.remove:
        return Plan()
    try:
        after = remove_value(before or "", path) if wanted.remove else set_value(before or "", path, value)
    except Malformed as error:
        raise CannotInstall(f"{file} is not JSON with comments ({error}); fix it and run this again") from error
    nested: Any = value
    for key in reversed(path):
        nested = {key: nested}
    return Plan(
        changes=[FileChange(path=file, before=before, after=after)],
        snippet=json.dumps(nested, indent=2, ensure_ascii=False),
        hints=[hint] if hint and not wanted.remove else [],
    )


def read_current(path: Path) -> str | None:
    """What a file holds, None when it is not there. Raises CannotInstall."""
    try:
        return current(path)
    except UnicodeDecodeError as error:
        raise CannotInstall(f"{path} is not UTF-8 ({error.reason}); save it as UTF-8, then run this again") from error
    except OSError as error:
        raise CannotInstall(f"{path} cannot be read: {error.strerror or error}") from error


def configured(around: Surroundings) -> dict[str, tuple[Path, list[str] | None]]:
    """For the editors with one file of settings: that file, and the command in it (None: not installed there).

    Raises CannotInstall for a file that cannot be read; only files that are there are named.
    """
    from acp_bridge.install.jsonc import read

    found: dict[str, tuple[Path, list[str] | None]] = {}
    for name, settings_of in AGENT_SERVERS.items():
        file = settings_of(around)
        text = read_current(file)
        if text is None:
            continue
        try:
            content = read(text)
        except Malformed as error:
            raise CannotInstall(f"{file}: {error}") from error
        servers = content.get("agent_servers") if isinstance(content, dict) else None
        entry = servers.get(AGENT) if isinstance(servers, dict) else None
        if isinstance(entry, dict) and isinstance(entry.get("command"), str):
            arguments = entry.get("args") or []
            found[name] = file, [entry["command"], *(str(word) for word in arguments)]
        else:
            found[name] = file, None
    return found
