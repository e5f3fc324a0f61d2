"""The daemon's side of one engine worker: start it, give it work, and prove it gone.

Runs on the asyncio loop of the main thread (a worker dies with the *thread* that started it). Every
error is a class of `shared.errors`. A worker that dies is noticed at once: whatever waited on it fails
with EngineFailed, and `exited` is set once the system has reaped the process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio

from modeld.host.worker_link import Link
from modeld.pipe import exits
from modeld.pipe.frames import frame
from modeld.pipe.messages import (
    WORKER_PROTOCOL,
    Account,
    AskDevices,
    Cancel,
    Close,
    Count,
    Counted,
    Devices,
    Done,
    Emitted,
    Failed,
    FromWorker,
    Heartbeat,
    Imported,
    Job,
    Load,
    Loaded,
    Progress,
    Sample,
    ToWorker,
    WorkerHello,
)
from modeld.pipe.pipe_writer import Outgoing
from shared.catalog.identity import RequestedIdentity
from shared.diagnosis.exhausted import exhausted
from shared.errors import EngineFailed, ModeldError, ModelLoadFailed, from_wire
from shared.lease.crashpoint import crash_point
from shared.protocol.api import Accelerator, Event
from shared.settings import Settings

#: From spawn to hello: interpreter and our own imports on a cold disk.
HELLO_SECONDS = 30.0
SAMPLE_SECONDS = 1.0
#: After SIGKILL: how long until a process stuck in the kernel counts as not to be ended.
REAP_SECONDS = 10.0
#: How long an engine thread spins at a barrier before it sleeps (GNU OpenMP; some 30 microseconds). Its default is
#: milliseconds, by which two threads on a busy machine starve each other: 3 tokens/s were seen instead of 30.
BARRIER_SPINS = "10000"
#: How our interpreter runs a worker.
WORKER = ("-P", "-m", "modeld.worker.process")
_BEATS_PER_WATCHDOG = 3
T = TypeVar("T")


class WorkerHost:
    """One worker process. Made by `start`; never reused after `exited`."""

    def __init__(self, backend: str, settings: Settings) -> None:
        self.backend = backend
        self.exited = anyio.Event()
        self.exit_reason = ""
        self.pid = 0
        self.start_token = ""
        #: Asked before each heartbeat, in any thread: where the lease is in doubt, the worker's watchdog decides.
        self.may_beat: Callable[[], bool] = lambda: True
        self._settings = settings
        self._turn = 0
        self._waiting: dict[int, _Waiting] = {}
        self._samples: list[asyncio.Future[Account]] = []
        loop = asyncio.get_running_loop()
        self._hello: asyncio.Future[WorkerHello] = loop.create_future()
        self._imported: asyncio.Future[Imported] = loop.create_future()
        self._link = Link(self._receive, self._gone)
        self._outgoing: Outgoing | None = None
        self._job: Any = None

    @classmethod
    async def start(
        cls,
        backend: str,
        settings: Settings,
        log: Path | None,
        environ: Mapping[str, str] | None = None,
    ) -> WorkerHost:
        """Spawn a worker and see its hello. `log` gets whatever native libraries print; None drops it.

        Raises ModelLoadFailed at stage `worker` when it does not come up. Cancelled, the process is gone first.
        """
        host = cls(backend, settings)
        with anyio.CancelScope(shield=True):
            await host._spawn(log, environ)
        try:
            hello = await asyncio.wait_for(asyncio.shield(host._hello), HELLO_SECONDS)
        except TimeoutError as error:
            await host.close(0)
            raise ModelLoadFailed(model="", stage="worker", reason="no hello from the worker") from error
        except EngineFailed as error:
            raise ModelLoadFailed(model="", stage="worker", reason=host._why_it_did_not_start(error)) from error
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await host.close(0)
            raise
        if hello.protocol != WORKER_PROTOCOL:
            await host.close(0)
            raise ModelLoadFailed(model="", stage="worker", reason="another version is installed; restart modeld")
        host.pid, host.start_token = hello.pid, hello.start_token
        return host

    async def _spawn(self, log: Path | None, environ: Mapping[str, str] | None) -> None:
        loop = asyncio.get_running_loop()
        watchdog = self._settings.worker_watchdog
        command = [sys.executable, *WORKER, self.backend, "--watchdog", repr(watchdog), "--owner", str(os.getpid())]
        with ExitStack() as held:
            try:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                stderr = os.open(os.devnull if log is None else log, flags, 0o600)
                held.callback(os.close, stderr)
                theirs, ours = os.pipe()
                held.callback(os.close, theirs)
                self._outgoing = Outgoing(ours, _nothing, watchdog / _BEATS_PER_WATCHDOG, self._heartbeat)
                await loop.subprocess_exec(
                    lambda: self._link,
                    *command,
                    stdin=theirs,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    env={"GOMP_SPINCOUNT": BARRIER_SPINS, **(os.environ if environ is None else environ)},
                )
            except (OSError, RuntimeError) as error:
                if self._outgoing is not None:
                    self._outgoing.close()
                reason = f"cannot start: {getattr(error, 'strerror', None) or error}"
                raise exhausted(error) or ModelLoadFailed(model="", stage="worker", reason=reason) from error
        self.pid = self._link.pid
        if sys.platform == "win32":
            from shared.system.winjob import Job as JobObject

            self._job = JobObject(self.pid)

    def _why_it_did_not_start(self, error: EngineFailed) -> str:
        """No template was rendered yet: the code that the deadline uses is the interpreter's own here."""
        if self._link.exit_code == exits.TEMPLATE_DEADLINE:
            return "its code could not be imported; `modeld logs --worker` says why"
        return str(error.data["reason"])

    # --- work ----------------------------------------------------------------------------------

    def next_turn(self) -> int:
        """A number for the next message; they rise."""
        self._turn += 1
        return self._turn

    async def imported(self) -> Imported:
        """The native library is in memory. Raises BackendUnavailable, EngineFailed."""
        return await asyncio.shield(self._imported)

    @property
    def by_template(self) -> bool:
        """Whether a chat template that took too long ended the process. Before the import none is rendered."""
        return self._import_done and self._link.exit_code == exits.TEMPLATE_DEADLINE

    @property
    def _import_done(self) -> bool:
        future = self._imported
        return future.done() and not future.cancelled() and future.exception() is None

    async def load(self, message: Load, on_progress: Callable[[float], None]) -> Loaded:
        """Load the one model of this worker. Raises ModelLoadFailed (also when cancelled), BackendUnavailable."""
        try:
            return await self._ask(message, Loaded, on_progress=on_progress)
        except EngineFailed as error:
            stage = "template" if self.by_template else "weights"
            raise ModelLoadFailed(model=message.identity.name, stage=stage, reason=error.data["reason"]) from error

    async def run(self, message: Job, on_events: Callable[[list[Event]], None]) -> Done:
        """One turn or step of it, warm-up, fill or embedding to its end, cancelled ones included.

        `on_events` is called on the loop and must not block. A caller that is itself cancelled cancels
        the turn; the worker stays busy until it has stopped. Raises the errors of `shared.errors`.
        """
        try:
            return await self._ask(message, Done, on_events=on_events)
        except EngineFailed as error:
            if self.by_template:
                raise exits.template_failed() from error
            raise

    async def count(self, message: Count) -> Counted:
        """Tokens, beside whatever runs. Raises TemplateFailed, EngineFailed (also where it hangs)."""
        with anyio.move_on_after(self._settings.load_stall):
            return await self._ask(message, Counted)
        raise EngineFailed(reason=f"nothing was counted within {self._settings.load_stall:.0f} s")

    async def devices(self, identity: RequestedIdentity) -> tuple[Accelerator, ...]:
        """The discrete accelerators that a load would use, with their memory as it is now. Raises EngineFailed."""
        return tuple((await self._ask(AskDevices(turn=self.next_turn(), identity=identity), Devices)).found)

    def cancel(self, turn: int) -> None:
        """Stop that turn and no other; its `run` or `load` then ends by itself."""
        self._send(Cancel(turn=turn))

    async def sample(self) -> Account | None:
        """The worker's own account; None when it gave none in time (which proves nothing)."""
        if self.exited.is_set():
            return None
        future: asyncio.Future[Account] = asyncio.get_running_loop().create_future()
        self._samples.append(future)
        self._send(Sample())
        try:
            return await asyncio.wait_for(future, SAMPLE_SECONDS)
        except (TimeoutError, EngineFailed):
            return None

    @property
    def unsettled(self) -> frozenset[int]:
        """Turns that the worker has not answered yet."""
        return frozenset(self._waiting)

    async def _ask(
        self,
        message: Load | Job | Count | AskDevices,
        answer: type[T],
        *,
        on_progress: Callable[[float], None] | None = None,
        on_events: Callable[[list[Event]], None] | None = None,
    ) -> T:
        if self.exited.is_set():
            raise EngineFailed(reason=self.exit_reason)
        future: asyncio.Future[FromWorker] = asyncio.get_running_loop().create_future()
        self._waiting[message.turn] = _Waiting(future, on_progress, on_events)
        self._send(message)
        crash_point(f"sent.{type(message).__name__.lower()}")
        try:
            reply = await future
        except asyncio.CancelledError:
            self.cancel(message.turn)
            raise
        if not isinstance(reply, answer):
            raise EngineFailed(reason=f"the worker answered {type(reply).__name__}")
        return reply

    @property
    def crashed(self) -> bool:
        """Whether it ended by a fault of native code."""
        return self.exited.is_set() and exits.crashed(self._link.exit_code)

    # --- end -----------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process now; `exited` follows."""
        self._link.kill()

    async def close(self, limit: float) -> None:
        """End the process and see it gone: asked for `limit` seconds, then killed.

        Raises EngineFailed when even that does not end it (a process stuck in a driver).
        """
        if self.pid == 0:
            return
        if limit > 0 and not self.exited.is_set():
            self._send(Close())
            with anyio.move_on_after(limit):
                await self.exited.wait()
        self.kill()
        with anyio.move_on_after(REAP_SECONDS, shield=True):
            await self.exited.wait()
        if not self.exited.is_set():
            raise EngineFailed(reason=f"worker process {self.pid} cannot be ended")

    # --- the pipe ------------------------------------------------------------------------------

    def _send(self, message: ToWorker) -> None:
        if not self.exited.is_set() and self._outgoing is not None:
            self._outgoing.put(frame(message))

    def heartbeat(self) -> None:
        """A heartbeat now, besides the regular ones: after a pause the next one may be far off. In the pipe by the
        return, or a moment has gone.
        """
        if not self.exited.is_set() and self._outgoing is not None:
            self._outgoing.hand_over(self._heartbeat())

    def _heartbeat(self) -> bytes:
        """A heartbeat where one may be sent. Called from the writing thread too, which no busy loop holds up."""
        return frame(Heartbeat()) if self.may_beat() else b""

    def _receive(self, message: FromWorker) -> None:
        match message:
            case Emitted():
                waiting = self._waiting.get(message.turn)
                if waiting is not None and waiting.on_events is not None and not waiting.future.done():
                    waiting.on_events(message.events)
            case Progress():
                waiting = self._waiting.get(message.turn)
                if waiting is not None and waiting.on_progress is not None and not waiting.future.done():
                    waiting.on_progress(message.fraction)
            case Account():
                samples, self._samples = self._samples, []
                for sample in samples:
                    _settle(sample, message)
            case WorkerHello():
                _settle(self._hello, message)
            case Imported():
                _settle(self._imported, message)
            case Failed() if message.turn == 0:
                _fail(self._imported, from_wire(message.error))
            case Failed():
                error = from_wire(message.error)
                error.__dict__["state_valid"] = message.state_valid
                self._answered(message.turn, error)
            case _:
                self._answered(message.turn, message)

    def _answered(self, turn: int, answer: FromWorker | ModeldError) -> None:
        waiting = self._waiting.pop(turn, None)
        if waiting is None:
            return
        if isinstance(answer, ModeldError):
            _fail(waiting.future, answer)
        else:
            _settle(waiting.future, answer)

    def _gone(self, problem: str | None) -> None:
        """Called once, when the process is reaped and its output read to the end."""
        self.exit_reason = problem or exits.describe_exit(self._link.exit_code)
        if self._outgoing is not None:
            self._outgoing.close()
        if self._job is not None:
            self._job.close()
        self.exited.set()
        error = EngineFailed(reason=self.exit_reason)
        for waiting in self._waiting.values():
            _fail(waiting.future, error)
        self._waiting.clear()
        for future in (self._hello, self._imported, *self._samples):
            _fail(cast("asyncio.Future[Any]", future), error)


class _Waiting:
    """One message that the worker owes an answer to."""

    __slots__ = ("future", "on_events", "on_progress")

    def __init__(
        self,
        future: asyncio.Future[FromWorker],
        on_progress: Callable[[float], None] | None,
        on_events: Callable[[list[Event]], None] | None,
    ) -> None:
        self.future = future
        self.on_progress = on_progress
        self.on_events = on_events


def _nothing() -> None:
    """The end of a worker is reported by its exit."""


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # nobody may be waiting: that is no fault of its own
