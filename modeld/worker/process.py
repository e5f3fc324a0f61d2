"""The engine process: `python -P -m modeld.worker.process <backend> --watchdog SECONDS --owner PID`.

Standard input and output are the daemon's pipes, standard error is the log. The pipes are moved to
private descriptors before anything else, so that a library that prints reaches the log and nothing
else. The process ends by itself when the pipe closes, when its owner dies, and when the owner has not
been heard for the watchdog's time.

Threads: this one runs the engine, a reader (never waits for work), a writer, a side thread that counts
tokens beside a decode, and the watchdog. The native library is imported after the hello.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from io import FileIO
from queue import Empty, SimpleQueue
from typing import NoReturn

from modeld.engine.contract import AbortFlag, Engine
from modeld.engine.factory import make_engine
from modeld.pipe import exits
from modeld.pipe.frames import BadFrame, frame, to_worker_reader
from modeld.pipe.messages import (
    SPARE,
    WORKER_PROTOCOL,
    Account,
    AskDevices,
    Cancel,
    Close,
    Count,
    Devices,
    Failed,
    FromWorker,
    Heartbeat,
    Imported,
    Job,
    Load,
    Sample,
    ToWorker,
    WorkerHello,
)
from modeld.pipe.pipe_writer import Outgoing
from modeld.worker.place import Place, of_error, of_frame
from modeld.worker.resident import Resident
from modeld.worker.turn_gate import Activity, TurnGate
from modeld.worker.watchdog import Watchdog, end_with_owner, unread
from shared.errors import EngineFailed, ModeldError, ModelLoadFailed, TextFailed
from shared.lease.process.identity import start_token
from shared.version import __version__

#: One read of the pipe, into one buffer for good: buffers recreated and cut down leave holes in the heap.
_READ_SIZE = 1 << 14
#: Seconds without work before the engine is used for what nobody waits for: turns that are queued come sooner.
SPARE_AFTER = 0.05


class Worker:
    """One process, one engine, at most one model."""

    def __init__(self, backend: str, source: int, sink: int, watchdog: Watchdog) -> None:
        self._source = source
        self._outgoing = Outgoing(sink, lambda: _leave(exits.OWNER_GONE))
        self._watchdog = watchdog
        self._abort = AbortFlag()
        self._gate = TurnGate(self._abort)
        self._activity = Activity()
        self._backend = backend
        self._engine: Engine | None = None
        self._resident: Resident | None = None
        self._jobs: SimpleQueue[Load | Job | Close] = SimpleQueue()
        self._counts: SimpleQueue[Count | AskDevices] = SimpleQueue()
        self._engine_thread = threading.get_ident()

    def run(self) -> None:
        """Serve until the process ends, with the engine in this thread; never returns."""
        self._engine_thread = threading.get_ident()
        self._send(
            WorkerHello(
                protocol=WORKER_PROTOCOL,
                version=__version__,
                pid=os.getpid(),
                start_token=start_token(os.getpid()) or "",
            )
        )
        self._start(self._read_all)
        self._start(self._watchdog.run)
        self._start(self._count_all)
        engine = self._import()
        while True:
            job = self._next_job(engine)
            if isinstance(job, Close):
                self._leave_in_order()
            else:
                self._serve(engine, job)

    def _next_job(self, engine: Engine) -> Load | Job | Close:
        """Wait for work; meanwhile, once none has come for a moment, do what nobody waits for."""
        resident = self._resident
        if resident is not None and resident.wants_spare_time:
            try:
                return self._jobs.get(timeout=SPARE_AFTER)
            except Empty:
                self._use_spare_time(engine, resident)
        return self._jobs.get()

    def _use_spare_time(self, engine: Engine, resident: Resident) -> None:
        self._gate.begin_spare()
        self._activity.enter(SPARE, None)
        try:
            resident.use_spare_time(lambda: not self._jobs.empty())
        except Exception as error:  # nobody waits for an answer: an engine that is not sound ends its process
            _log_fault(error)
            if not engine.valid():
                _leave(exits.ENGINE_FAULT)
        finally:
            self._gate.end()
            self._activity.enter("idle", None)

    def _leave_in_order(self) -> NoReturn:
        """Keep what is warm, then end. A fault here costs warm conversations and nothing else."""
        try:
            if self._resident is not None:
                self._resident.shelve()
        except Exception as error:
            _log_fault(error)
        _leave(exits.CLOSED)

    @staticmethod
    def _start(target: Callable[[], None]) -> None:
        threading.Thread(target=target, name=target.__name__, daemon=True).start()

    def _send(self, message: FromWorker) -> None:
        self._outgoing.put(frame(message))

    def _hand_over(self, message: FromWorker) -> None:
        """As `_send`, and let the writer have it: what follows may keep it from moving for a whole evaluation."""
        self._outgoing.hand_over(frame(message))

    # --- the engine thread ---------------------------------------------------------------------

    def _import(self) -> Engine:
        """A failure is reported as the answer to the load that follows, and at once as `Failed` of turn 0."""
        began = time.perf_counter()
        self._activity.enter("import", None)
        engine = make_engine(self._backend, self._abort)
        try:
            digest = engine.prepare()
        except ModeldError as error:
            self._send(Failed(turn=0, error=error.to_wire(), state_valid=False))
        else:
            self._engine = engine  # before it is reported: the daemon may ask of it at once
            self._send(Imported(runtime_digest=digest, seconds=time.perf_counter() - began))
        self._activity.enter("idle", None)
        return engine

    def _serve(self, engine: Engine, job: Load | Job) -> None:
        self._gate.start(job.turn)
        self._activity.enter("beginning", job.turn)
        try:
            answer = self._answer(engine, job)
        except ModeldError as error:
            answer = Failed(turn=job.turn, error=error.to_wire(), state_valid=engine.valid())
        except Exception as error:  # the process's own border: reported and logged
            _log_fault(error)
            answer = _failed(engine, job, error)
        finally:
            self._gate.end()
            self._activity.enter("idle", None)
        self._send(answer)

    def _answer(self, engine: Engine, job: Load | Job) -> FromWorker:
        if isinstance(job, Load):
            self._activity.enter("loading", job.turn)
            self._resident = Resident(engine, job, self._activity)
            return self._resident.load(self._send)
        if self._resident is None:
            raise EngineFailed(reason="nothing is loaded")
        return self._resident.serve(job, self._hand_over if engine.holds_lock else self._send)

    # --- the side threads ----------------------------------------------------------------------

    def _read_all(self) -> None:
        reader, pipe = to_worker_reader(), FileIO(self._source, closefd=False)
        data = memoryview(bytearray(_READ_SIZE))
        while True:
            size = pipe.readinto(data)
            if not size:
                _leave(exits.OWNER_GONE)
            self._watchdog.heard()  # a part of a long message too
            try:
                messages = reader.feed(data[:size])
            except BadFrame:
                _leave(exits.BAD_PROTOCOL)
            for message in messages:
                self._receive(message)

    def _receive(self, message: ToWorker) -> None:
        match message:
            case Heartbeat():
                return
            case Cancel():
                self._gate.cancel(message.turn)
            case Sample():
                self._send(self._account())
            case Count() | AskDevices():
                self._counts.put(message)
            case Close():
                resident = self._resident
                if resident is None or not resident.keeps or self._activity.running is not None:
                    _leave(exits.CLOSED)
                self._give(message)  # what is warm is written by the thread that may touch it
            case _:
                self._give(message)

    def _give(self, job: Load | Job | Close) -> None:
        self._jobs.put(job)
        self._gate.interrupt_spare()

    def _account(self) -> Account:
        activity, engine = self._activity, self._engine
        frame = sys._current_frames().get(self._engine_thread)  # noqa: SLF001 - the one way to see another thread
        place = of_frame(frame) if frame is not None else Place(in_engine=True, name="")
        account = Account(
            running=activity.running,
            stage=activity.stage,
            mark=activity.seen,
            in_engine=place.in_engine,
            place=place.name,
            longest_s=activity.longest,
        )
        if engine is not None:
            held = engine.measure()
            account.rss_bytes, account.parked_bytes = held.rss_bytes, held.parked_bytes
            account.parked, account.lanes_used = held.parked, held.lanes_used
        return account

    def _count_all(self) -> None:
        while True:
            job = self._counts.get()
            try:
                self._send(self._beside(job))
            except ModeldError as error:
                self._send(Failed(turn=job.turn, error=error.to_wire()))
            except Exception as error:  # as in _serve; a count touches no state
                _log_fault(error)
                self._send(Failed(turn=job.turn, error=EngineFailed(reason=type(error).__name__).to_wire()))

    def _beside(self, job: Count | AskDevices) -> FromWorker:
        """What is answered beside the engine thread."""
        if isinstance(job, AskDevices):
            if self._engine is None:
                raise EngineFailed(reason="the engine is not imported yet")
            return Devices(turn=job.turn, found=list(self._engine.accelerators(job.identity)))
        if self._resident is None:
            raise EngineFailed(reason="nothing is loaded")
        return self._resident.count(job)


def _failed(engine: Engine, job: Load | Job, error: Exception) -> Failed:
    """What an exception without a type of ours means: a defect in reading or writing text costs the turn, one of the
    engine its model.
    """
    place = of_error(error)
    reason = f"{type(error).__name__} at {place.name}"
    if place.in_engine:
        return Failed(turn=job.turn, error=EngineFailed(reason=type(error).__name__).to_wire(), state_valid=False)
    if isinstance(job, Load):
        failed = ModelLoadFailed(model=job.identity.name, stage="template", reason=reason)
        return Failed(turn=job.turn, error=failed.to_wire(), state_valid=False)
    return Failed(turn=job.turn, error=TextFailed(reason=reason).to_wire(), state_valid=_settled(engine))


def _settled(engine: Engine) -> bool:
    """Whether the engine is idle with its memory proven good, after a turn that was left in the middle."""
    try:
        engine.end_turn()
    except Exception as error:  # then it is not
        _log_fault(error)
        return False
    return engine.valid()


def _log_fault(error: BaseException) -> None:
    """Where it happened, never what it was about: a message may hold a prompt."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    sys.stderr.write(f"{type(error).__name__}\n{frames}")
    sys.stderr.flush()


def _leave(code: int) -> NoReturn:
    """End at once: the system frees everything, and no native destructor can hang."""
    os._exit(code)


def take_pipes() -> tuple[int, int]:
    """Private copies of descriptors 0 and 1; after this 0 is empty and 1 is the log."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        for descriptor in (source, sink):
            msvcrt.setmode(descriptor, os.O_BINARY)
    return source, sink


def main(arguments: list[str]) -> None:
    """Entry of the process; `arguments` as in the module's first line."""
    source, sink = take_pipes()
    if sys.platform != "win32":  # a daemon waits for these in a thread of its own, and what it starts inherits that
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    os.umask(0o077)  # what a native library writes is as private as what we write
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    owner = int(options["--owner"])
    end_with_owner(owner)
    watchdog = Watchdog(float(options["--watchdog"]), owner, arrived=lambda: unread(source))
    Worker(arguments[0], source, sink, watchdog).run()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as fault:  # code 1 is taken by the render deadline
        _log_fault(fault)
        os._exit(exits.ENGINE_FAULT)
