"""Which call may act on which instance. Pure."""

from __future__ import annotations

import hmac

import msgspec

from shared.errors import ProtocolUnsupported, SessionClosed, SlotGenerationStale, StaleFence, Unauthenticated
from shared.protocol import api

#: What every version answers, so that any two can at least tell each other who they are and stop.
TIMELESS = frozenset({"hello", "ping", "status", "daemon/shutdown"})


class Handle(msgspec.Struct, frozen=True):
    """A session's name: `<instance>/<generation>/<n>`."""

    instance: str
    generation: int
    number: int

    def __str__(self) -> str:
        return f"{self.instance}/{self.generation}/{self.number}"


def parse_handle(text: str) -> Handle:
    """Raises SessionClosed for what is no handle of any modeld."""
    instance, _, rest = text.rpartition("/")
    instance, _, generation = instance.rpartition("/")
    if not instance or not generation.isdigit() or not rest.isdigit():
        raise SessionClosed(handle=text)
    return Handle(instance, int(generation), int(rest))


def check_handle(handle: Handle, instance: str, generation: int) -> None:
    """A handle acts only on the instance and the slot generation it was made for. Raises StaleError."""
    if handle.instance != instance:
        raise StaleFence(expected=handle.instance, actual=instance)
    if handle.generation != generation:
        raise SlotGenerationStale(expected=handle.generation, actual=generation)


def check_fence(fence: str, instance: str) -> None:
    """Raises StaleFence unless the call is meant for this instance."""
    if fence != instance:
        raise StaleFence(expected=fence, actual=instance)


def check_token(given: str, token: str) -> None:
    """Raises Unauthenticated. Takes the same time however much of it is right."""
    if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode("ascii")):
        raise Unauthenticated


def spoken(protocol: int) -> int:
    """The version that both sides speak: the client's if we know it, else our nearest."""
    return min(max(protocol, api.PROTOCOL_MIN), api.PROTOCOL_MAX)


def check_method(method: str, protocol: int) -> None:
    """Raises ProtocolUnsupported when a client of another window asks for more than the timeless methods."""
    if method not in TIMELESS and not api.PROTOCOL_MIN <= protocol <= api.PROTOCOL_MAX:
        raise ProtocolUnsupported(min=api.PROTOCOL_MIN, max=api.PROTOCOL_MAX)
