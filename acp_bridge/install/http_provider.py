"""The block by which an editor finds the models over HTTP, with the key by its name alone. Reads files, writes none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from acp_bridge.install import editor_paths
from acp_bridge.install.change import FileChange
from acp_bridge.install.editor_paths import Surroundings
from acp_bridge.install.editors import CannotInstall, Plan, Wanted, read_current, settings_plan

#: The name of the provider, and of the variable that editors read its key from (Zed makes it of the name).
PROVIDER = "modeld"
KEY_VARIABLE = "MODELD_API_KEY"
#: The first line of a file that is ours alone.
MARK = "# Written by acp-bridge install continue --http"
#: Tokens, where a model's header does not say.
USUAL_CONTEXT = 4096


class ProviderModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as an editor's list of them has it. `context` in tokens, 0 when it is not known."""

    name: str
    title: str
    context: int = 0
    tools: bool = False
    vision: bool = False
    fim: bool = False
    embeds: bool = False


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Where the face is, what it serves, and the file that holds its key."""

    url: str
    models: Sequence[ProviderModel]
    key_file: Path


def zed(around: Surroundings, wanted: Wanted, provider: Provider) -> Plan:
    """A provider of `language_models`: for the inline assistant, commit messages and threads."""
    models = [
        {
            "name": one.name,
            "display_name": one.title or one.name,
            "max_tokens": one.context or USUAL_CONTEXT,
            "capabilities": {
                "tools": one.tools,
                "images": one.vision,
                "parallel_tool_calls": True,
                "prompt_cache_key": True,
            },
        }
        for one in provider.models
        if not one.embeds
    ]
    entry = {"api_url": provider.url, "available_models": models}
    hint = (
        f"In Zed: agent: open settings, LLM Providers, {PROVIDER}: paste the key, or start Zed with {KEY_VARIABLE} set."
    )
    path = ("language_models", "openai_compatible", PROVIDER)
    return _with_key(settings_plan(wanted, editor_paths.zed_settings(around), path, entry, hint), wanted, provider)


def jetbrains(around: Surroundings, wanted: Wanted, provider: Provider) -> Plan:
    """The IDEs keep providers where no other program may write: what is to be typed there."""
    del around
    if wanted.remove:
        return Plan(hints=["In the IDE: Settings, Tools, AI Assistant, Providers & API keys: remove the provider."])
    names = ", ".join(one.name for one in provider.models if not one.embeds)
    typed = f"URL {provider.url}, the key, and one of these models: {names}"
    hint = f"In the IDE: Settings, Tools, AI Assistant, Providers & API keys, OpenAI-compatible: {typed}."
    return _with_key(Plan(snippet=typed, hints=[hint]), wanted, provider)


def continue_(around: Surroundings, wanted: Wanted, provider: Provider) -> Plan:
    """A file of our own among Continue's models, which every configuration of this user has."""
    file = wanted.settings or around.home / ".continue" / "models" / "modeld.yaml"
    before = read_current(file)
    if before is not None and not before.startswith(MARK):
        raise CannotInstall(f"{file} is there and was not written by acp-bridge; move it away first")
    text = _continue_file(provider)
    secrets = around.home / ".continue" / ".env"
    hint = f"In Continue: put {KEY_VARIABLE}=(the key) into {secrets}, then reload its configuration."
    change = FileChange(path=file, before=before, after=None if wanted.remove else text)
    return _with_key(Plan(changes=[change], snippet=text, hints=[hint]), wanted, provider)


def _continue_file(provider: Provider) -> str:
    """YAML, in which texts are written as in JSON."""
    lines = [MARK, f"name: {PROVIDER}", "version: 1.0.0", "schema: v1", "models:"]
    for one in provider.models:
        fields: dict[str, Any] = {
            "name": one.title or one.name,
            "provider": "openai",
            "model": one.name,
            "apiBase": provider.url,
            "apiKey": f"${{{{ secrets.{KEY_VARIABLE} }}}}",
            "roles": _roles(one),
            "capabilities": [word for word, has in (("tool_use", one.tools), ("image_input", one.vision)) if has],
        }
        if not one.embeds:
            fields["defaultCompletionOptions"] = {"contextLength": one.context or USUAL_CONTEXT}
        told = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
        lines += [f"  - {told[0]}", *(f"    {line}" for line in told[1:])]
    return "\n".join(lines) + "\n"


def _roles(one: ProviderModel) -> list[str]:
    if one.embeds:
        return ["embed"]
    return ["chat", "edit", "apply", *(["autocomplete"] if one.fim else [])]


def _with_key(plan: Plan, wanted: Wanted, provider: Provider) -> Plan:
    """The key stands in a file of its own, and in none of the editor's settings."""
    if wanted.remove:
        return plan
    if not provider.models:
        raise CannotInstall("there are no models yet; `modeld pull starter` gets a small one")
    port = provider.url.rpartition(":")[2].removesuffix("/v1")
    start = f"`acp-bridge http --port {port} --key-file {provider.key_file}`"
    how = f"The key is in {provider.key_file} once {start} runs, or `modeld service install --http` at each login."
    return msgspec.structs.replace(plan, hints=[*plan.hints, how])


PROVIDERS: dict[str, Callable[[Surroundings, Wanted, Provider], Plan]] = {
    "zed": zed,
    "jetbrains": jetbrains,
    "continue": continue_,
}
