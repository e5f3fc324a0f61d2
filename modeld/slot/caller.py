"""Who asks something of the slot, and what that caller allows."""

from __future__ import annotations

from shared.protocol.api import OnBusy


class Client:
    """Who asks: `number` identifies the connection, `name` is for people."""

    __slots__ = ("name", "number")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name


class Permission:
    """What a caller allows: to load into an empty slot, to switch, to hurt another client, and how to wait."""

    __slots__ = ("consent", "load", "on_busy", "switch", "wait_s")

    def __init__(
        self,
        *,
        load: bool = False,
        switch: bool = False,
        consent: bool = False,
        on_busy: OnBusy = "wait",
        wait_s: float | None = None,
    ) -> None:
        self.load = load
        self.switch = switch
        self.consent = consent
        self.on_busy = on_busy
        self.wait_s = wait_s
