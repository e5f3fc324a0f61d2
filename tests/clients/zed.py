"""Zed's rules for config options, replayed: what it keeps, sends, shows and ignores.

From its public behaviour: a pick is saved in the user's settings and applied again when a thread is made, loaded or
resumed; a saved value that the agent does not advertise is dropped without a word; a thread that was made without
config options ignores every later update of them; a current value that is none of the options reads "Unknown"; the
button shows 32 characters. Requests have text ids, and one process serves every thread of a project.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clients.bridge import Bridge, Pending, Turn
from clients.child import JsonObject

UNKNOWN = "Unknown"
BUTTON = 32


class ZedThread:
    """One thread. `options` is None when it was made without config options."""

    def __init__(self, zed: Zed, session: str, answer: JsonObject) -> None:
        self.zed = zed
        self.session = session
        self.options: list[JsonObject] | None = answer.get("configOptions")
        self.dropped: list[str] = []
        self._seen = len(zed.bridge.updates)
        for config, value in zed.defaults.items():
            self._apply_default(config, value)

    def _apply_default(self, config: str, value: str) -> None:
        option = self.option(config)
        if option is None or value not in values(option):
            self.dropped.append(value)
        elif option["currentValue"] != value:
            self._set(config, value)

    def option(self, config: str) -> JsonObject | None:
        """One of the options as the thread knows them now."""
        return next((option for option in self.options or [] if option["id"] == config), None)

    def _set(self, config: str, value: str) -> None:
        self.options = self.zed.bridge.choose(self.session, config, value)["configOptions"]

    def pick(self, config: str, value: str) -> None:
        """The user picks in the menu: it goes to the agent and into the settings."""
        self._set(config, value)
        self.zed.defaults[config] = value

    def catch_up(self) -> None:
        """Take in the updates that came since."""
        updates = self.zed.bridge.updates
        while self._seen < len(updates):
            params = updates[self._seen]
            self._seen += 1
            update = params["update"]
            ours = params["sessionId"] == self.session and update["sessionUpdate"] == "config_option_update"
            if ours and self.options is not None:
                self.options = update["configOptions"]

    def button(self, config: str = "model") -> str:
        """What the button under the message box reads."""
        self.catch_up()
        option = self.option(config)
        if option is None:
            return ""
        return next((name for value, name in choices(option) if value == option["currentValue"]), UNKNOWN)[:BUTTON]

    def menu(self, config: str = "model") -> list[str]:
        """The values of its menu."""
        self.catch_up()
        option = self.option(config)
        return [] if option is None else values(option)

    def explained(self, config: str = "model") -> list[str]:
        """The descriptions in its menu."""
        self.catch_up()
        option = self.option(config)
        assert option is not None
        return [entry.get("description", "") for entry in entries(option)]

    def begin(self, text: str) -> Pending:
        return self.zed.bridge.begin_prompt(self.session, text)

    def say(self, text: str) -> Turn:
        return self.zed.bridge.end_prompt(self.begin(text))


class Zed:
    """One window on one project. `defaults` are the user's settings, which outlive windows."""

    def __init__(self, bridge: Bridge, project: Path, defaults: dict[str, str]) -> None:
        self.bridge = bridge
        self.defaults = defaults
        self._opening: dict[str, Any] = {"cwd": str(project), "mcpServers": []}
        self.capabilities = bridge.initialize(fs={"readTextFile": True, "writeTextFile": True}, terminal=True)

    def new(self) -> ZedThread:
        answer = self.bridge.request("session/new", self._opening)
        return ZedThread(self, answer["sessionId"], answer)

    def load(self, session: str) -> ZedThread:
        return ZedThread(self, session, self.bridge.request("session/load", {**self._opening, "sessionId": session}))

    def resume(self, session: str) -> ZedThread:
        return ZedThread(self, session, self.bridge.request("session/resume", {**self._opening, "sessionId": session}))


def entries(option: JsonObject) -> list[JsonObject]:
    """The options of a menu, groups flattened."""
    return [entry for item in option["options"] for entry in item.get("options", [item])]


def values(option: JsonObject) -> list[str]:
    return [entry["value"] for entry in entries(option)]


def choices(option: JsonObject) -> list[tuple[str, str]]:
    return [(entry["value"], entry["name"]) for entry in entries(option)]
