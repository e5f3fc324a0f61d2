"""The LSP face's connection: the product's own `Peer` carries the messages, pygls knows LSP.

From pygls come the types, the capabilities, the open documents and the folders. Framing, ids, cancels, limits, the
errors of the table and the rule for an editor that stalls are those of every connection here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator, Hashable
from typing import TYPE_CHECKING, Any

import msgspec
from lsprotocol import converters, types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from shared.errors import ModeldError
from shared.protocol.faults import BadAnswer, InvalidParams, InvalidRequest, MethodNotFound, PeerGone, error_from_wire
from shared.protocol.framing import HeaderFramer
from shared.protocol.message import Notification, decode_params
from shared.protocol.peer import Peer
from shared.protocol.stream import EDITOR_PATIENCE_S

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from shared.protocol.requests import Call
    from shared.settings import Settings

#: pygls logs what an editor sends; it may be a prompt.
SILENT = logging.CRITICAL + 1


class NotInitialized(ModeldError):
    """LSP's own error for a request that comes before `initialize`."""

    kind = "server_not_initialized"
    code = -32002
    summary = "the first request has to be initialize"


class EditorConnection:
    """One editor. Before `serve` and after its end nothing is reported; `on_exit(code)` is called for `exit`.

    `pygls` is where features are registered. `on_initialize` may change the capabilities before they are answered.
    """

    def __init__(self, settings: Settings, version: str, on_defect: Callable[[str, BaseException], None]) -> None:
        logging.getLogger("pygls").setLevel(SILENT)
        self.on_exit: Callable[[int], None] = _nothing
        self.on_initialize: Callable[[types.InitializeParams, types.ServerCapabilities], None] = _accept
        self._converter = converters.get_converter()
        self.pygls = LanguageServer("modeld", version, converter_factory=lambda: self._converter)
        self._settings = msgspec.structs.replace(settings, stalled_seconds=EDITOR_PATIENCE_S)
        self._on_defect = on_defect
        self._peer: Peer | None = None
        self._begun = False
        self._shutdown = False

    # --- life ----------------------------------------------------------------------------------

    async def serve(self, stream: ByteStream) -> None:
        """Until the editor has gone, or `close`. What is still being answered then ends."""
        self._peer = Peer(
            stream,
            HeaderFramer(self._settings.message_limit),
            on_request=self._answer,
            on_notification=self._notified,
            settings=self._settings,
            cancel_method=types.CANCEL_REQUEST,
            on_defect=self._on_defect,
        )
        await self._peer.run()

    def close(self) -> None:
        """End the connection; what was reported before is still written, for a bounded time."""
        if self._peer is not None:
            self._peer.close()

    # --- telling and asking --------------------------------------------------------------------

    def tell(self, method: str, params: Any, latest: Hashable = None) -> None:
        """A notification. `latest`: it replaces an unwritten one of the same key."""
        if self._peer is not None:
            self._peer.notify(method, params, latest=latest)

    async def ask(self, method: str, params: Any) -> Any:
        """A request to the editor; plain data comes back. Cancelling the wait withdraws it.

        Raises the typed errors; an editor that has gone, or answers what cannot be read, has refused it.
        """
        if self._peer is None:
            raise MethodNotFound(method=method)
        try:
            return await self._peer.request(method, params)
        except (PeerGone, BadAnswer) as error:
            raise InvalidRequest(reason=str(error)) from error

    # --- requests ------------------------------------------------------------------------------

    async def _answer(self, call: Call) -> Any:
        self._require_callable(call)
        params = self._params(call.method, call.raw)
        self._begun = True
        try:
            result = await self._run(call.method, params)
        except JsonRpcException as error:
            raise error_from_wire({"code": error.code, "message": error.message}) from error
        if call.method == types.INITIALIZE:
            self.on_initialize(params, result.capabilities)
        # LSP's values as plain data; the product's own are encoded as they are
        return result if isinstance(result, msgspec.Struct) else self._converter.unstructure(result)

    def _require_callable(self, call: Call) -> None:
        """Raises NotInitialized, InvalidRequest, MethodNotFound."""
        if call.id is None:
            raise InvalidRequest(reason="an id is a number or a string")
        if self._shutdown:
            raise InvalidRequest(reason="nothing is answered after shutdown")
        if self._begun == (call.method == types.INITIALIZE):
            if self._begun:
                raise InvalidRequest(reason="initialize was called before")
            raise NotInitialized
        if not self._serves(call.method, answers=True):
            raise MethodNotFound(method=call.method)
        self._shutdown = call.method == types.SHUTDOWN

    def _serves(self, method: str, *, answers: bool) -> bool:
        """Whether `method` is served as a request (`answers`) or as a notification; all of ours are requests."""
        features = self.pygls.protocol.fm
        ours = self.pygls.protocol.get_message_type(method) is None
        known = method in features.builtin_features or method in features.features
        return known and answers == (ours or self.pygls.protocol.get_result_type(method) is not None)

    def _params(self, method: str, raw: msgspec.Raw) -> Any:
        """Params of LSP's own methods as pygls wants them, of all others raw. Raises InvalidParams."""
        kind = self.pygls.protocol.get_message_type(method)
        if kind is None:
            return raw
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": method, "params": decode_params(raw, object)}
        try:
            return self._converter.structure(message, kind).params
        except Exception as error:  # cattrs raises groups of many kinds; their texts may hold a document
            raise InvalidParams(at="$", reason=f"not the params of {method}") from error

    async def _run(self, method: str, params: Any) -> Any:
        """What pygls or a feature of ours makes of it."""
        result = self._begin(method, params)
        return await result if inspect.isawaitable(result) else result

    def _begin(self, method: str, params: Any) -> Any:
        """Pygls' own handler, which calls ours where there is one; else ours."""
        features = self.pygls.protocol.fm
        handler = features.builtin_features.get(method) or features.features[method]
        made: Any = handler(params)
        return _finished(made) if inspect.isgenerator(made) else made

    # --- notifications -------------------------------------------------------------------------

    def _notified(self, note: Notification) -> None:
        if note.method == types.EXIT:
            self.on_exit(0 if self._shutdown else 1)
        elif self._begun and not self._shutdown and self._serves(note.method, answers=False):
            self._begin(note.method, self._params(note.method, note.raw))


def _finished(steps: Generator[Any, Any, Any]) -> Any:
    """The result of a handler of pygls, which yields each call of ours that it wants made: (function, args, kwargs)."""
    answer: Any = None
    try:
        while True:
            ours, arguments, named = steps.send(answer)
            answer = ours(*arguments, **(named or {}))
    except StopIteration as end:
        return end.value


def _nothing(code: int) -> None:
    """Nobody listens yet."""


def _accept(params: types.InitializeParams, capabilities: types.ServerCapabilities) -> None:
    """Nobody listens yet."""
