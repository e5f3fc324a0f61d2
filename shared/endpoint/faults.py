"""What dialling and binding can meet.

    EndpointError
    ├── NobodyListens       proven: refused, or no such socket or pipe
    ├── EndpointBusy        a time-out, or this process is out of descriptors: proves nothing
    ├── EndpointForbidden   no right to connect, or the peer is not who it should be
    └── FolderUnusable      no private folder for the socket

Local to this side; callers turn them into what they say to people.
"""

from __future__ import annotations


class EndpointError(Exception):
    """`address` as it was dialled or bound, `reason` in one line."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address: str = address
        self.reason: str = reason


class NobodyListens(EndpointError):
    """`refused` is true for a socket without a listener, false where nothing of that name exists.

    A sandbox may hide a socket that exists: absence proves death only while no lease moves.
    """

    def __init__(self, address: str, reason: str, *, refused: bool) -> None:
        super().__init__(address, reason)
        self.refused: bool = refused


class EndpointBusy(EndpointError):
    """Not reached, and nothing proven about who is there."""


class EndpointForbidden(EndpointError):
    """Reached or seen, and not ours to use."""


class FolderUnusable(EndpointError):
    """A folder that must be private is not, and cannot be made so."""
