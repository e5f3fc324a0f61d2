"""Forwards events to the attached face; without one they are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acp_bridge.conversations.events import Shown
    from acp_bridge.conversations.face import Face
    from acp_bridge.core.live import LiveConversation


class Audience:
    """The one face of this process, or none yet."""

    def __init__(self) -> None:
        self._face: Face | None = None

    def attach(self, face: Face) -> None:
        """The face that shows what happens from now on."""
        self._face = face

    @property
    def attached(self) -> bool:
        """Whether anybody looks."""
        return self._face is not None

    @property
    def face(self) -> Face:
        """The face that was attached."""
        assert self._face is not None
        return self._face

    @property
    def client_name(self) -> str:
        """The editor's name for other clients."""
        return self._face.client if self._face is not None else "acp-bridge"

    def show(self, live: LiveConversation, event: Shown) -> None:
        """Show an event of a conversation that is still open."""
        if not live.closed:
            self.face.show(live.id, event)
