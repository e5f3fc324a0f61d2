"""A real modeld process and real clients of it, for integration tests: everything bounded, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import anyio.abc
import msgspec
import psutil

from scripted_engine import script_environ
from shared.endpoint.endpoint import connect
from shared.lease.presence import read_token
from shared.lease.reader import PresenceView, survey
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import MethodNotFound
from shared.protocol.framing import LineFramer
from shared.protocol.message import Notification
from shared.protocol.peer import Peer
from shared.protocol.requests import Call
from shared.settings import Settings
from tiny_gguf import write_tiny_gguf
from waiting import LONG, eventually

T = TypeVar("T")
HELLO = [{"role": "user", "content": "hello"}]


class Turn:
    """A running `session/turn`: its events so far, and its end."""

    def __init__(self) -> None:
        self.events: list[api.Event] = []
        self.id: int | None = None
        self.result: api.TurnResult | None = None
        self.error: Exception | None = None
        self.ended = anyio.Event()

    def seen(self, kind: type[api.Value]) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, api.TextDelta))

    async def until(self, kind: type[api.Value], seconds: float = LONG) -> None:
        await eventually(lambda: self.seen(kind) or self.ended.is_set(), f"a {kind.__name__} event", seconds)
        assert self.seen(kind), f"ended before: {self.result} {self.error!r}"

    async def end(self, seconds: float = LONG) -> api.TurnResult:
        """The final event. Raises the typed error."""
        with anyio.fail_after(seconds):
            await self.ended.wait()
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


class Client:
    """One greeted connection."""

    def __init__(self, peer: Peer, tasks: anyio.abc.TaskGroup) -> None:
        self.peer = peer
        self.tasks = tasks
        self.hello = api.HelloResult(protocol=0, instance="", role="idle", backend="", version="")
        self.statuses: list[api.Status] = []
        self._turns: dict[int | str, Turn] = {}
        self._listeners: dict[int | str, Callable[[api.Event], None]] = {}

    def listen(self, request: int, listener: Callable[[api.Event], None]) -> None:
        """Hand the events of that call to `listener`."""
        self._listeners[request] = listener

    def notified(self, note: Notification) -> None:
        if note.method == "session/event":
            params = note.params(api.EventParams)
            turn = self._turns.get(params.request)
            if turn is not None:
                turn.events.append(params.event)
            listener = self._listeners.get(params.request)
            if listener is not None:
                listener(params.event)
        elif note.method == "status/changed":
            self.statuses.append(note.params(api.Status))

    async def call(self, method: str, params: api.Fenced, kind: type[T], seconds: float = LONG) -> T:
        fenced = msgspec.structs.replace(params, fence=params.fence or self.hello.instance)
        with anyio.fail_after(seconds):
            return await self.peer.request(method, fenced, kind)  # type: ignore[no-any-return]

    async def status(self) -> api.Status:
        return await self.call("status", api.Fenced(), api.Status)

    async def until_state(self, *names: str, seconds: float = LONG) -> api.Status:
        with anyio.fail_after(seconds):
            while True:
                status = await self.status()
                if status.state in names:
                    return status
                await anyio.sleep(0.005)

    async def load(self, model: str, **fields: Any) -> api.LoadResult:
        return await self.call("model/load", api.LoadParams(model=model, **fields), api.LoadResult, 30.0)

    async def unload(self, **fields: Any) -> api.UnloadResult:
        return await self.call("model/unload", api.UnloadParams(**fields), api.UnloadResult)

    def turn(self, model: str, text: str = "hello", **fields: Any) -> Turn:
        """Begin a turn and go on; `messages` go before `text`."""
        fields.setdefault("messages", [{"role": "user", "content": text}])
        fields.setdefault("allow_load", True)
        fields.setdefault("params", api.Sampling(max_tokens=8, temperature=0.0))
        turn = Turn()
        params = api.TurnParams(model=model, **{"fence": self.hello.instance, **fields})

        def on_id(number: int) -> None:
            turn.id = number
            self._turns[number] = turn

        async def run() -> None:
            try:
                turn.result = await self.peer.request("session/turn", params, api.TurnResult, on_id=on_id)
            except Exception as error:
                turn.error = error
            finally:
                turn.ended.set()

        self.tasks.start_soon(run)
        return turn

    def cancel(self, turn: Turn) -> None:
        assert turn.id is not None
        self.peer.cancel(turn.id)

    def vanish(self) -> None:
        """As a killed editor: the connection closes without a word."""
        self.peer.close()


class Modeld:
    """One `modeld serve` process on a data root. `async with`, or `start` and `end`."""

    def __init__(self, root: DataRoot, backend: str = "scripted", **environ: str) -> None:
        self.root = root
        #: What runs it, with its command behind: `sh -c 'ulimit -n 64; exec "$@"' sh`.
        self.prefix: tuple[str, ...] = ()
        self.said = root.path / "said.log"
        self.backend = backend
        # one engine thread: two of them spin at each other's barriers while other tests run
        self.environ = {**os.environ, "MODELD_THREADS": "1", **environ}
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, seconds: float = LONG) -> None:
        command = [*self.prefix, sys.executable, "-P", "-m", "modeld", "serve", "--quiet", "--backend", self.backend]
        with self.said.open("ab") as output:
            self.process = subprocess.Popen(
                command, env=self.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        await eventually(lambda: self.view() or self.process.poll() is not None, "modeld can be found", seconds)  # type: ignore[union-attr]
        assert self.view() is not None, self.said.read_text()

    def view(self) -> PresenceView | None:
        assert self.process is not None
        living = survey(self.root).living
        return next((view for view in living if view.pid == self.process.pid), None)

    def instance(self) -> str:
        """Its instance id, "" while it cannot be found."""
        view = self.view()
        return view.instance if view is not None else ""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def workers(self) -> list[psutil.Process]:
        """Engine processes of this daemon that are not zombies."""
        try:
            children = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if is_alive(child)]

    def log(self) -> str:
        path = self.root.logs / "modeld.log"
        return path.read_text() if path.exists() else ""

    def reported(self, lines: int = 40) -> str:
        """The last of what it and its workers said, for a failure."""
        output = self.said.read_text(errors="replace") if self.said.exists() else ""
        parts = [("modeld.log", self.log()), ("its output", output)]
        shown = [f"--- {name}\n" + "\n".join(text.splitlines()[-lines:]) for name, text in parts if text.strip()]
        return "\n".join(shown) or "modeld said nothing"

    async def end(self, number: int = signal.SIGTERM, seconds: float = LONG) -> int:
        """Signal it and wait; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        await eventually(lambda: self.process is not None and self.process.poll() is not None, "modeld ends", seconds)
        return self.process.returncode

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            code = await self.end()
        said = self.said.read_text()
        if kind is None:
            assert code in (0, -signal.SIGKILL), f"exit {code}\n{said}\n{self.log()}"
            assert "Traceback" not in said, said
            assert "defect" not in self.log(), self.log()
        else:
            print(self.reported())

    @asynccontextmanager
    async def client(self, name: str = "Zed", *, protocol: int = api.PROTOCOL) -> AsyncIterator[Client]:
        """A greeted client."""
        view = self.view()
        assert view is not None
        settings = Settings()
        stream = await connect(view.endpoint, timeout=5.0, expected_pid=view.pid)
        async with anyio.create_task_group() as tasks:
            made: list[Client] = []

            def notified(note: Notification) -> None:
                made[0].notified(note)

            peer = Peer(
                stream,
                LineFramer(settings.message_limit),
                on_request=_refuse,
                on_notification=notified,
                settings=settings,
            )
            client = Client(peer, tasks)
            made.append(client)
            tasks.start_soon(peer.run)
            params = api.HelloParams(
                protocol=protocol, token=read_token(view.token_file), client=api.ClientInfo(name=name)
            )
            try:
                with anyio.fail_after(LONG):
                    client.hello = await peer.request("hello", params, api.HelloResult)
                yield client
            finally:
                peer.close()


async def _refuse(call: Call) -> Any:
    raise MethodNotFound(method=call.method)


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def write_models(root: DataRoot, *names: str) -> None:
    """Tiny real models in the store, each with weights of its own."""
    for seed, name in enumerate(names, start=1):
        write_tiny_gguf(root.models / f"{name}.gguf", name=name, seed=seed)


def write_script(folder: Path, replies: Sequence[dict[str, Any]] = (), **fields: Any) -> dict[str, str]:
    """The script of the scripted engine; the environment that names it."""
    path = folder / "script.json"
    path.write_text(json.dumps({"replies": list(replies) or [{"pieces": ["one ", "two ", "three"]}], **fields}))
    return script_environ(path)


ENDLESS = {"pieces": ["on ", "and "], "endless": True}


def scripted(root: DataRoot, *replies: dict[str, Any], environ: dict[str, str] | None = None, **script: Any) -> Modeld:
    """One that says the replies, or goes on for ever; `script` are its other fields."""
    script.setdefault("token_s", 0.005)
    return Modeld(root, "scripted", **write_script(root.path, replies or [ENDLESS], **script), **(environ or {}))


def hide_engines(folder: Path) -> None:
    """For processes that have `folder` on PYTHONPATH: as in an installation without extras."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('llama_cpp', 'openvino_genai'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
