"""The agent side of one ACP connection: which method is answered by what, and what an exception becomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import msgspec

from acp_bridge.faces.acp.methods import handler_of, import_all
from acp_bridge.faces.acp.schema import ClientCapabilities, SessionParams
from shared.diagnosis.defect import reporter
from shared.errors import ModeldError
from shared.protocol.faults import MethodNotFound
from shared.protocol.framing import LineFramer
from shared.protocol.message import Notification
from shared.protocol.peer import Peer
from shared.protocol.requests import Call
from shared.protocol.stream import EDITOR_PATIENCE_S

if TYPE_CHECKING:
    from acp_bridge.core.core import Core
    from acp_bridge.core.live import LiveConversation
    from acp_bridge.faces.acp.editor import Editor
    from shared.settings import Settings

Handler = Callable[["AcpServer", Call], Awaitable[Any]]

#: Between the answer that opens a session and its first updates: some editors drop updates that come right behind.
FIRST_UPDATES_AFTER_S = 0.1


class AcpServer:
    """Serves one editor. `make_core` runs after the first answer, so that starting costs nothing; with a `problem` it
    never does, and each request says what is wrong.
    """

    def __init__(self, make_core: Callable[[], Core], settings: Settings, problem: ModeldError | None = None) -> None:
        self._problem = problem
        self.client = "an ACP client"
        self.offers = ClientCapabilities()
        self._make_core = make_core
        self._settings = msgspec.structs.replace(settings, stalled_seconds=EDITOR_PATIENCE_S)
        self._group: anyio.abc.TaskGroup | None = None
        self._peer: Peer | None = None
        self._core: Core | None = None
        self._editor: Editor | None = None

    @property
    def core(self) -> Core:
        """Everything behind the face; made and begun now if need be."""
        self.start_core()
        assert self._core is not None
        return self._core

    @property
    def editor(self) -> Editor:
        """The editor as the core's face."""
        self.start_core()
        assert self._editor is not None
        return self._editor

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        """Until the editor closes its side."""
        self._peer = Peer(
            stream,
            LineFramer(self._settings.message_limit),
            on_request=self._request,
            on_notification=self._notification,
            settings=self._settings,
            on_defect=reporter("acp-bridge"),
        )
        async with anyio.create_task_group() as group:
            self._group = group
            await self._peer.run()
            group.cancel_scope.cancel()

    def close(self) -> None:
        """Write what is left, after `serve`. Bounded."""
        if self._core is not None:
            self._core.close()

    def stop(self) -> None:
        """End the connection from this side."""
        if self._peer is not None:
            self._peer.close()

    def start_core(self) -> None:
        """Make the core and begin what runs beside the calls. Safe to call again."""
        if self._core is not None:
            return
        from acp_bridge.faces.acp.editor import Editor

        assert self._peer is not None
        assert self._group is not None
        core = self._core = self._make_core()
        self._editor = Editor(self._peer, core, self.client, self.offers)
        core.audience.attach(self._editor)
        core.store.start()
        self._group.start_soon(core.run)
        import_all()

    def opened(self, call: Call, live: LiveConversation) -> None:
        """The answer to this call opens a session: its updates begin a moment after it was written."""
        call.after_response(lambda: self._soon(live))

    def _soon(self, live: LiveConversation) -> None:
        async def announce() -> None:
            await anyio.sleep(FIRST_UPDATES_AFTER_S)
            self.editor.announce(live)

        if self._group is not None:
            self._group.start_soon(announce)

    async def _request(self, call: Call) -> Any:
        handler = handler_of(call.method)
        if handler is None:
            raise MethodNotFound(method=call.method)
        try:
            if self._problem is not None:
                raise self._problem
            return await handler(self, call)
        except ModeldError as error:
            raise self._shown(self._translated(error, call) or error) from None
        except Exception as error:
            known = self._translated(error, call)
            if known is None:
                raise
            raise self._shown(known) from None

    @staticmethod
    def _shown(error: ModeldError) -> ModeldError:
        from acp_bridge.faces.acp.errors import shown

        return shown(error)

    @staticmethod
    def _translated(error: Exception, call: Call) -> ModeldError | None:
        from acp_bridge.faces.acp.errors import translated

        return translated(error, _session_of(call))

    def _notification(self, notification: Notification) -> None:
        if notification.method == "session/cancel" and self._core is not None:
            live = self._core.conversations.find(notification.params(SessionParams).session_id)
            if live is not None:
                live.cancel()


def _session_of(call: Call) -> str:
    try:
        return call.params(SessionParams).session_id
    except ModeldError:
        return ""
