"""The LSP face of a bridge process: pygls behind the product's pipe, in front of the core.

`initialize` is answered before the core is imported; the core is made in the background right after.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio
import anyio.to_thread
import msgspec
from lsprotocol import types
from pygls import uris

from acp_bridge.faces.lsp import wire
from acp_bridge.faces.lsp.connection import EditorConnection
from acp_bridge.faces.lsp.features import Handler, code_action, handlers, inline_completion
from acp_bridge.faces.lsp.window import Window
from acp_bridge.process.process_exit import stop_with_process
from shared.diagnosis.defect import reporter
from shared.diagnosis.installed import Installed
from shared.errors import ModeldError
from shared.protocol.faults import InternalFault
from shared.protocol.message import decode_params
from shared.version import __version__

if TYPE_CHECKING:
    from anyio.abc import ByteStream, TaskGroup

    from acp_bridge.core.core import Core
    from shared.paths import DataRoot
    from shared.settings import Settings


report_defect = reporter("acp-bridge")


class LspServer:
    """Serves one editor window. `core_of` makes the core, given the window's name for other clients. `problems` of
    the settings are told once it is there.
    """

    def __init__(
        self,
        core_of: Callable[[Callable[[], str]], Core],
        root: DataRoot,
        settings: Settings,
        problems: Sequence[str] = (),
    ) -> None:
        self.exit_code = 0
        self.installed = Installed()  # from the first moment on: what is imported later is compared with this
        self._problems = problems
        self._core_of = core_of
        self._settings = settings
        self._editor = EditorConnection(settings, __version__, report_defect)
        self._pygls = self._editor.pygls
        self._editor.on_exit = self._exit
        self._editor.on_initialize = self._initialized
        self.window = Window(self._editor, root, settings)
        self.window.pid = os.getpid()
        self._group: TaskGroup | None = None
        self._register()

    # --- life ----------------------------------------------------------------------------------

    async def serve(self, stream: ByteStream) -> None:
        """Until the editor closes its side, says `exit`, or is gone."""
        async with anyio.create_task_group() as group:
            self._group = self.window.group = group
            await self._editor.serve(stream)
            group.cancel_scope.cancel()

    def stop(self) -> None:
        """End the connection from this side."""
        self._editor.close()

    def close(self) -> None:
        """Write what is left, after `serve`. Bounded."""
        core = self.window.core_now
        if core is not None:
            core.close()

    def _exit(self, code: int) -> None:
        self.exit_code = code
        self.stop()

    # --- initialize ----------------------------------------------------------------------------

    def _initialized(self, params: types.InitializeParams, capabilities: types.ServerCapabilities) -> None:
        """Before the answer goes out: who the editor is, what is offered; then the core is begun."""
        window = self.window
        window.options = _options(params.initialization_options)
        if params.client_info is not None and params.client_info.name:
            window.editor = params.client_info.name
        window.workspace = _workspace(params) or window.options.workspace
        if not window.options.inline_completion:
            capabilities.inline_completion_provider = None
        if not window.options.code_actions:
            capabilities.code_action_provider = None
        offer = wire.Offer(
            wire=wire.WIRE,
            version=__version__,
            methods=[method.name for method in wire.METHODS if method.sender == "editor"],
        )
        capabilities.experimental = {"modeld": msgspec.to_builtins(offer)}
        assert self._group is not None
        if params.process_id:
            self._group.start_soon(stop_with_process, params.process_id, self.stop)
        self._group.start_soon(self._start_core)

    async def _start_core(self) -> None:
        try:
            core = await self._make_core()
        except ModeldError as error:
            self.window.become_unusable(error)
            return
        except Exception as error:  # an editor that learns why is better off than one whose server dies again and again
            report_defect("the start", error)
            self.window.become_unusable(InternalFault(type=type(error).__name__))
            return
        self._run_core(core)

    async def _make_core(self) -> Core:
        await anyio.to_thread.run_sync(import_core)
        core = self._core_of(lambda: self.window.name)
        core.store.start()
        return core

    def _run_core(self, core: Core) -> None:
        from acp_bridge.faces.lsp.pushes import Pushes

        assert self._group is not None
        pushes = Pushes(self.window, core, self.installed)
        self.window.touch, self.window.changed = pushes.touch, pushes.changed
        self._group.start_soon(core.run)
        self._group.start_soon(pushes.run)
        self.window.become_ready(core)
        for problem in self._problems:
            text = f"Settings: {problem}. Until that is corrected its default holds."
            self.window.tell("modeld/notice", wire.Notice(kind="settings", text=text))

    # --- methods -------------------------------------------------------------------------------

    def _register(self) -> None:
        kinds = {method.name: method.params for method in wire.METHODS}
        for name, handler in handlers().items():
            self._pygls.feature(name)(self._typed(handler, kinds[name]))
        feature = self._pygls.feature

        # pygls marks the functions it is given, which a bound method does not allow
        @feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
        async def complete(params: types.InlineCompletionParams) -> types.InlineCompletionList:
            # only what the editor has open: pygls would read anything else from disk, and block; it keeps decoded URIs
            document = self._pygls.workspace.text_documents.get(unquote(params.text_document.uri))
            if document is None:
                return types.InlineCompletionList(items=[])
            return await inline_completion.complete(self.window, document, params)

        @feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=list(code_action.KINDS)))
        async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
            return await code_action.actions(self.window, params)

        @feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
        def cancel(params: types.WorkDoneProgressCancelParams) -> None:
            self.window.cancel(wire.CancelParams(token=params.token))

        @feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
        def folders_changed(params: types.DidChangeWorkspaceFoldersParams) -> None:
            folders = list(self._pygls.workspace.folders.values())
            self.window.workspace = _path(folders[0].uri) if folders else self.window.options.workspace
            self.window.touch()

    def _typed(self, handler: Handler, kind: type) -> Callable[[msgspec.Raw], Awaitable[Any]]:
        """`handler` with params of `kind`, which raises InvalidParams naming the value."""

        async def call(raw: msgspec.Raw) -> Any:
            return await handler(self.window, decode_params(raw, kind))

        return call


def import_core() -> None:
    """Everything that may be needed later: an upgrade under a running process must not change its code halfway."""


def _options(raw: object) -> wire.Options:
    """What the editor set; what cannot be read is as if it were not there."""
    try:
        return msgspec.convert(raw or {}, wire.Options)
    except msgspec.ValidationError:
        return wire.Options()


def _workspace(params: types.InitializeParams) -> str:
    folders = params.workspace_folders or []
    if folders:
        return _path(folders[0].uri)
    if params.root_uri:
        return _path(params.root_uri)
    return params.root_path or ""


def _path(uri: str) -> str:
    """The path of a file URI; another kind of folder is named by its URI."""
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    return path or uri
