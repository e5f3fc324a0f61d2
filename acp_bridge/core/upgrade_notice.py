"""The notice that the files of this program were exchanged underneath it. Reported once a process."""

from __future__ import annotations

from collections.abc import Callable

RESTART = "Restart the agent to use it (reload the window, or start a new thread); until then this one goes on."


class UpgradeNotice:
    """`upgraded` gives the version on disk when it is another than the one that runs, else ""."""

    def __init__(self, upgraded: Callable[[], str]) -> None:
        self._upgraded = upgraded
        self._reported = False

    def take(self) -> str:
        """The notice, the first time there is one, else ""."""
        version = "" if self._reported else self._upgraded()
        self._reported = self._reported or bool(version)
        return f"acp-bridge was replaced by version {version} on disk. {RESTART}" if version else ""
