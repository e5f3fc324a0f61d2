"""The agent side of one ACP connection: which method is answered by what, and what an exception becomes."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import msgspec

from acp_bridge.acp import methods
from acp_bridge.acp.editor import Editor
from acp_bridge.acp.errors import translated
from acp_bridge.acp.schema import CancelRequestParams, SessionParams
from acp_bridge.core import UnknownConversation
from shared.errors import ModeldError
from shared.protocol.faults import MethodNotFound
from shared.protocol.framing import LineFramer
from shared.protocol.message import Notification
from shared.protocol.peer import Peer
from shared.protocol.requests import Call

if TYPE_CHECKING:
    from acp_bridge.core import Core
    from acp_bridge.session.live import LiveConversation
    from shared.settings import Settings

Handler = Callable[["AcpServer", Call], Awaitable[Any]]

#: Between the answer that opens a session and its first updates: some editors drop updates that come right behind.
FIRST_UPDATES_AFTER_S = 0.1
#: An editor that is suspended or slow is given this long before the connection counts as dead.
EDITOR_PATIENCE_S = 120.0


class AcpServer:
    """Serves one editor. `core` runs from the first answer on, so that starting costs nothing."""

    def __init__(self, core: Core, settings: Settings) -> None:
        self.core = core
        self._settings = msgspec.structs.replace(settings, stalled_seconds=EDITOR_PATIENCE_S)
        self._group: anyio.abc.TaskGroup | None = None
        self._started = False
        self._editor: Editor | None = None

    @property
    def editor(self) -> Editor:
        """The editor of the connection that is being served."""
        assert self._editor is not None
        return self._editor

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        """Until the editor closes its side."""
        peer = Peer(
            stream,
            LineFramer(self._settings.message_limit),
            on_request=self._request,
            on_notification=self._notification,
            settings=self._settings,
            on_defect=report_defect,
        )
        self._editor = Editor(peer, self.core)
        self.core.attach(self._editor)
        async with anyio.create_task_group() as group:
            self._group = group
            await peer.run()
            group.cancel_scope.cancel()

    def stop(self) -> None:
        """End the connection from this side."""
        self.editor.peer.close()

    def start_core(self) -> None:
        """Begin what runs beside the calls. Safe to call again."""
        if not self._started and self._group is not None:
            self._started = True
            self.core.store.start()
            self._group.start_soon(self.core.run)

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
        handler = methods.HANDLERS.get(call.method)
        if handler is None:
            raise MethodNotFound(method=call.method)
        if call.method != "initialize":
            self.start_core()
        try:
            return await handler(self, call)
        except ModeldError as error:
            raise translated(error, "") or error from None
        except Exception as error:
            known = translated(error, _session_of(call))
            if known is None:
                raise
            raise known from None

    def _notification(self, notification: Notification) -> None:
        if notification.method == "session/cancel":
            params = notification.params(SessionParams)
            try:
                self.core.get(params.session_id).cancel()
            except UnknownConversation:
                return  # closed meanwhile: nothing runs in it


def _session_of(call: Call) -> str:
    try:
        return call.params(SessionParams).session_id
    except ModeldError:
        return ""


def report_defect(method: str, error: BaseException) -> None:
    """A defect of ours, on standard error: where it happened, never what it was about (that may be a prompt)."""
    import traceback

    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f"{place[0].filename}:{place[0].lineno}" if place else "unknown place"
    sys.stderr.write(f"acp-bridge: {type(error).__name__} in {method} at {where}\n")


__all__ = ["AcpServer", "CancelRequestParams", "Handler"]
