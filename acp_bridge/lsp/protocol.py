"""pygls' protocol with the product's manners.

What is different: params of our own methods stay as they came until their type is known; only whole messages are read
as messages (pygls takes every nested object that looks like one); what cannot be read is answered; errors keep their
kind and fields; nothing of a message is ever logged, and nothing pops up in the editor by itself.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage
from pygls.protocol.language_server import lsp_method

from shared.defects import sole
from shared.errors import MessageTooLarge, ModeldError
from shared.protocol.faults import (
    BadAnswer,
    InternalFault,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    RequestCancelled,
    error_from_wire,
)
from shared.protocol.framing import Oversized
from shared.protocol.message import (
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    decode_params,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse,
    salvage,
)

if TYPE_CHECKING:
    from cattrs import Converter
    from pygls.lsp.server import LanguageServer

    from acp_bridge.lsp.transport import Pipe

CANCEL = types.CANCEL_REQUEST
#: pygls logs params of requests that fail, at ERROR; they may be prompts.
SILENT = logging.CRITICAL + 1


class NotInitialized(ModeldError):
    """LSP's own error for a request that comes before `initialize`."""

    kind = "server_not_initialized"
    code = -32002
    summary = "the first request has to be initialize"


class FaceProtocol(LanguageServerProtocol):
    """Reads bodies of a `Pipe` and writes to it. `on_exit(code)` is called for `exit`."""

    def __init__(self, server: LanguageServer, converter: Converter) -> None:
        logging.getLogger("pygls").setLevel(SILENT)
        super().__init__(server, converter)
        self.pipe: Pipe | None = None
        self.on_exit: Callable[[int], None] = _nothing
        self.on_initialize: Callable[[types.InitializeParams, types.ServerCapabilities], None] = _accept
        self.on_defect: Callable[[str, BaseException], None] = _unheard
        self._begun = False
        self._names: dict[RequestId, str] = {}
        self._answering: set[RequestId] = set()
        self._asked: dict[RequestId, asyncio.Future[Any]] = {}

    # --- reading -------------------------------------------------------------------------------

    def receive(self, body: bytes | Oversized) -> None:
        """One message of the editor. Never raises."""
        if isinstance(body, Oversized):
            limit = self.pipe.limit if self.pipe is not None else 0
            message: Message = salvage(body, MessageTooLarge(limit=limit, size=body.size))
        else:
            message = parse(body)
        if isinstance(message, Request):
            self._requested(message)
        elif isinstance(message, Notification):
            self._notified(message)
        elif isinstance(message, Response):
            self._answered(message)
        else:
            self._refuse(message)

    def _refuse(self, message: Malformed) -> None:
        self._put(encode_error(message.id, message.error))

    def _requested(self, request: Request) -> None:
        try:
            self._require_callable(request)
            message = JsonRPCRequestMessage(
                id=request.id,  # type: ignore[arg-type]  # checked above
                method=request.method,
                jsonrpc=self.VERSION,
                params=self._params(request.method, request.raw),
            )
        except ModeldError as error:
            self._put(encode_error(request.id, error))
            return
        if request.id in self._answering:
            reason = f"id {request.id!r} is in use by a request that still runs"
            self._put(encode_error(None, InvalidRequest(reason=reason)))
            return
        self._begun = True
        self._answering.add(request.id)
        self._names[request.id] = request.method
        super().handle_message(message)

    def _require_callable(self, request: Request) -> None:
        """Raises NotInitialized, InvalidRequest, MethodNotFound."""
        if request.id is None:
            raise InvalidRequest(reason="an id is a number or a string")
        if self._shutdown:
            raise InvalidRequest(reason="nothing is answered after shutdown")
        if self._begun == (request.method == types.INITIALIZE):
            if self._begun:
                raise InvalidRequest(reason="initialize was called before")
            raise NotInitialized
        if not self._serves(request.method, answers=True):
            raise MethodNotFound(method=request.method)

    def _notified(self, note: Notification) -> None:
        if note.method == types.EXIT:
            self.on_exit(0 if self._shutdown else 1)
            return
        if not self._begun or self._shutdown:
            return
        try:
            if note.method == CANCEL:
                self._cancel(note)
                return
            if not self._serves(note.method, answers=False):
                return
            message = JsonRPCNotification(
                method=note.method, jsonrpc=self.VERSION, params=self._params(note.method, note.raw)
            )
        except ModeldError:
            return  # JSON-RPC: a notification has no answer, not even a bad one
        super().handle_message(message)

    def _serves(self, method: str, *, answers: bool) -> bool:
        """Whether `method` is served as a request (`answers`) or as a notification; all of ours are requests."""
        ours = self.get_message_type(method) is None
        known = method in self.fm.builtin_features or method in self.fm.features
        return known and answers == (ours or self.get_result_type(method) is not None)

    def _cancel(self, note: Notification) -> None:
        number = note.params(_CancelParams).id
        if number in self._answering:
            self._handle_cancel_notification(number)

    def _answered(self, response: Response) -> None:
        """The editor's answer to a request of ours."""
        future = self._asked.pop(response.id, None)
        if future is None or future.done():
            return
        if response.error is not None:
            future.set_exception(error_from_wire(response.error))
        else:
            try:
                future.set_result(msgspec.json.decode(response.raw))
            except (msgspec.DecodeError, RecursionError) as error:
                future.set_exception(BadAnswer("the editor's", str(error)))

    def _params(self, method: str, raw: msgspec.Raw) -> Any:
        """Params of LSP's own methods as pygls wants them, of all others raw. Raises InvalidParams."""
        kind = self.get_message_type(method)
        if kind is None:
            return raw
        message: dict[str, Any] = {"jsonrpc": self.VERSION, "id": 0, "method": method}
        message["params"] = decode_params(raw, object)
        try:
            return self._converter.structure(message, kind).params
        except Exception as error:  # cattrs raises groups of many kinds; their texts may hold a document
            raise InvalidParams(at="$", reason=f"not the params of {method}") from error

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Nested objects are what they are."""
        return data

    # --- answering -----------------------------------------------------------------------------

    def _send_handler_result(self, future: Future[Any], *, msg_id: Any) -> None:
        self._request_futures.pop(msg_id, None)
        self._answering.discard(msg_id)
        method = self._names.pop(msg_id, "")
        if future.cancelled():
            self._put(encode_error(msg_id, RequestCancelled()))
            return
        error = future.exception()
        if error is None:
            self._send_response(msg_id, result=future.result())
        else:
            self._put(encode_error(msg_id, self._told(method, error)))

    def _told(self, method: str, error: BaseException) -> ModeldError:
        """What the editor is told of an exception: the table's errors as they are, of a defect only its kind."""
        single = sole(error)
        if isinstance(single, ModeldError):
            return single
        if isinstance(single, JsonRpcException):
            return error_from_wire({"code": single.code, "message": single.message})
        self.on_defect(method, single)
        return InternalFault(type=type(single).__name__)

    def _send_response(self, msg_id: Any, result: Any = None, error: types.ResponseError | None = None) -> None:
        self._answering.discard(msg_id)
        self._names.pop(msg_id, None)
        if error is not None:
            raw = {"code": error.code, "message": error.message}
            self._put(encode_error(msg_id, error_from_wire(raw)))
            return
        body = encode_result(msg_id, self._plain(result))
        if self.pipe is not None and len(body) > self.pipe.limit:
            body = encode_error(msg_id, MessageTooLarge(limit=self.pipe.limit, size=len(body)))
        self._put(body)

    def _plain(self, value: Any) -> Any:
        """LSP's values as plain data; the product's own are encoded as they are."""
        return value if isinstance(value, msgspec.Struct) else self._converter.unstructure(value)

    # --- telling and asking --------------------------------------------------------------------

    def tell(self, method: str, params: Any, latest: str | None = None) -> None:
        """A notification of the product's own values. `latest`: it replaces an unwritten one of the same key."""
        self._put(encode_notification(method, params), latest)

    def notify(self, method: str, params: Any | None = None) -> None:
        """A notification of LSP's values."""
        self._put(encode_notification(method, self._plain(params)))

    async def ask(self, method: str, params: Any) -> Any:
        """A request to the editor; plain data comes back. Cancelling the wait withdraws it. Raises the typed errors."""
        number = f"ask-{uuid.uuid4()}"
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._put(encode_request(number, method, self._plain(params)))
        try:
            return await future
        except asyncio.CancelledError:
            self.tell(CANCEL, {"id": number})
            raise
        finally:
            self._asked.pop(number, None)

    def _put(self, body: bytes, latest: str | None = None) -> None:
        if self.pipe is not None:
            self.pipe.put(body, latest)

    def _send_data(self, data: Any) -> None:
        if data:
            self._put(msgspec.json.encode(self._plain(data)))

    # --- life ----------------------------------------------------------------------------------

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """As pygls does, and then what the window adds."""
        result = yield from super().lsp_initialize(params)
        self.on_initialize(params, result.capabilities)
        return result

    def cancel_all(self) -> None:
        """End every request that is being answered; the editor has gone."""
        for future in list(self._request_futures.values()):
            future.cancel()


class _CancelParams(msgspec.Struct):
    id: int | str


def _nothing(code: int) -> None:
    """Nobody listens yet."""


def _accept(params: types.InitializeParams, capabilities: types.ServerCapabilities) -> None:
    """Nobody listens yet."""


def _unheard(method: str, error: BaseException) -> None:
    """Nobody listens yet."""
