"""The worker's one model: loads it and runs every job on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from modeld.engine.contract import Aborted, Engine, LoadedModel, LoadRequest
from modeld.engine.kv_disk_cache import KvDiskCache
from modeld.pipe.messages import (
    Count,
    Counted,
    Done,
    Embed,
    Emitted,
    Fill,
    FromWorker,
    Job,
    Load,
    Loaded,
    Progress,
    Step,
    TrimParked,
    Turn,
    Warm,
)
from modeld.worker.chat import Chat
from modeld.worker.sampling import advice_for, describe_capabilities
from modeld.worker.steps import StepRunner
from modeld.worker.template_limits import RenderGuard
from modeld.worker.turn import TurnRunner
from modeld.worker.turn_gate import Activity
from shared.catalog.identity import ResolvedIdentity
from shared.errors import EngineFailed, ModelLoadFailed, UnsupportedFeature
from shared.paths import data_root
from shared.protocol.api import Event, Usage

_PROGRESS_STEP = 0.01
#: How long a closing worker may begin to write further conversations.
SHELVE_SECONDS = 5.0
#: Texts of an embedding between two signs of progress: many batches of an engine, and seconds of a slow one.
EMBED_AT_ONCE = 256
Emit = Callable[[FromWorker], None]


class Resident:
    """Runs on the engine thread, `count` apart."""

    def __init__(self, engine: Engine, job: Load, activity: Activity) -> None:
        self._engine = engine
        self._job = job
        self._activity = activity
        self._chat: Chat | None = None
        self._embedding_only = False
        self._runner: TurnRunner | None = None
        self._steps: StepRunner | None = None
        self._reported = -1.0
        #: Whether what is warm is to be written before the process ends.
        self.keeps = False

    def load(self, emit: Emit) -> Loaded:
        """Raises ModelLoadFailed with its stage; a cancel is one whose reason is `cancelled`."""
        job, began = self._job, time.perf_counter()
        request = LoadRequest(
            identity=job.identity,
            model=job.model,
            num_ctx=job.num_ctx,
            threads=job.threads,
            parked_bytes=job.parked_bytes,
            vocabulary_only=job.vocabulary_only,
            speculation=job.speculation,
        )

        def progress(done: int, of: int) -> None:
            self._activity.step()
            fraction = done / of if of else 1.0
            if fraction - self._reported >= _PROGRESS_STEP:
                self._reported = fraction
                emit(Progress(turn=job.turn, fraction=fraction))

        try:
            loaded = self._engine.load(request, progress)
        except Aborted as error:
            self._engine.close()
            raise ModelLoadFailed(model=job.identity.name, stage="weights", reason="cancelled") from error
        loaded = msgspec.structs.replace(loaded, sampling=advice_for(job.model))
        return self._ready(loaded, began)

    def _ready(self, loaded: LoadedModel, began: float) -> Loaded:
        job = self._job
        chat, notes = Chat.for_model(self._engine, loaded, job.identity.name, RenderGuard(job.template_deadline))
        identity = chat.identify(loaded.identity, job.identity)
        self._runner = TurnRunner(self._engine, chat, loaded, self._activity)
        self._steps = StepRunner(self._engine, self._runner, self._activity, chat.special.end)
        self._chat = chat
        unkept = self._attach(loaded, identity)
        self._embedding_only = loaded.capabilities.embedding_only
        return Loaded(
            turn=job.turn,
            identity=identity,
            capabilities=describe_capabilities(loaded.capabilities),
            measured_bytes=loaded.measured_bytes,
            seconds=time.perf_counter() - began,
            warnings=[*loaded.warnings, *unkept],
            notes=notes,
        )

    def _attach(self, loaded: LoadedModel, identity: ResolvedIdentity) -> list[str]:
        """Conversations that an earlier process kept on disk, if that is wanted; a warning where it cannot be."""
        job = self._job
        if job.disk_cache_bytes <= 0 or job.vocabulary_only or not loaded.capabilities.snapshot:
            return []
        try:
            self._engine.attach(KvDiskCache(data_root().parked, identity, job.disk_cache_bytes))
        except OSError as error:
            return [f"conversations are not kept on disk: {error.strerror or error}"]
        self.keeps = True
        return []

    def shelve(self) -> int:
        """Write what is warm, for `SHELVE_SECONDS` at most; conversations written. Raises OSError."""
        if not self.keeps or not self._engine.valid():
            return 0
        until = time.monotonic() + SHELVE_SECONDS
        return self._engine.shelve(lambda: time.monotonic() > until)

    @property
    def wants_spare_time(self) -> bool:
        """Whether something is to be done once nobody waits."""
        return self._runner is not None and self._runner.prefill_ahead.wanted

    def use_spare_time(self, interrupted: Callable[[], bool]) -> None:
        """Do it, or leave it as soon as work has come. Raises EngineFailed."""
        if self._runner is not None:
            self._runner.prefill_ahead.evaluate(interrupted)

    def serve(self, job: Job, emit: Emit) -> FromWorker:
        """One job to its final message. Raises the errors of `shared.errors`."""
        if isinstance(job, TrimParked):
            self._engine.trim_parked(job.limit)
            return Done(turn=job.turn, finish_reason="stop", usage=Usage())
        runner, steps, chat = self._runner, self._steps, self._chat
        if runner is None or steps is None or chat is None or self._job.vocabulary_only:
            raise EngineFailed(reason="no model is loaded")

        runner.prefill_ahead.note(None)  # it speaks of what ran last
        if self._embedding_only and not isinstance(job, Embed):
            raise UnsupportedFeature(feature="chat (this model makes vectors only)")

        def send(events: list[Event]) -> None:
            emit(Emitted(turn=job.turn, events=events))

        if isinstance(job, Step):
            return steps.serve(job, send)
        steps.close()
        if isinstance(job, Turn):
            return runner.turn(job, send)
        if isinstance(job, Warm):
            return runner.warm(job, send)
        if isinstance(job, Fill):
            return runner.fill(job, send)
        return self._embed(chat, job)

    def _embed(self, chat: Chat, job: Embed) -> Done:
        self._activity.enter("embedding", job.turn)
        lists = [chat.with_bos(chat.ordinary(text)) for text in job.texts]
        usage = Usage(prefilled=sum(map(len, lists)))
        try:
            vectors: list[list[float]] = []
            for start in range(0, len(lists), EMBED_AT_ONCE):
                vectors += self._engine.embed(lists[start : start + EMBED_AT_ONCE])
                self._activity.step()
        except Aborted:
            return Done(turn=job.turn, finish_reason="cancelled", usage=Usage(), state_valid=self._engine.valid())
        return Done(turn=job.turn, finish_reason="stop", usage=usage, vectors=vectors)

    def count(self, job: Count) -> Counted:
        """Tokens under the model's own template; safe beside a decode. Raises TemplateFailed."""
        chat = self._chat
        if chat is None:
            raise EngineFailed(reason="no model is loaded")
        if job.text is not None:
            each = chat.count(job.text)
            return Counted(turn=job.turn, each=each, total=sum(each))
        messages: list[dict[str, Any]] = job.messages or []
        if not messages:
            raise UnsupportedFeature(feature="counting nothing")
        each = chat.count_each(messages)
        return Counted(turn=job.turn, each=each, total=len(chat.prompt(messages, job.tools, None).tokens))
