"""Stop strings: found across token borders, never leaked, and what was held for them never lost. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from modeld.output.markers import Markers


class StopFilter:
    """Passes text on until one of `stops` appears; holds back only what might become one."""

    __slots__ = ("_held", "_markers", "stopped")

    def __init__(self, stops: Iterable[str]) -> None:
        self._markers = Markers(stops)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that is certain by now. After a stop everything is dropped."""
        return self._advance(text, ended=False)

    def finish(self) -> str:
        """What was still held."""
        return self._advance("", ended=True)

    def _advance(self, text: str, ended: bool) -> str:
        if self.stopped:
            return ""
        if not self._markers.literals:
            return text
        whole = self._held + text
        found = self._markers.search(whole, 0, ended)
        if found is not None:
            self.stopped = True
            self._held = ""
            return whole[: found[0]]
        safe = len(whole) if ended else self._markers.partial(whole, 0)
        self._held = whole[safe:]
        return whole[:safe]
