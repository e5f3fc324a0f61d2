"""modeld as the bridge sees it: one connection, kept; found again when the owner changes; never started from here.

A call goes to the instance it is meant for or fails with a typed error. While modeld is away the records are looked at
every half second, since nobody can push; while it is connected it pushes and nothing is polled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from acp_bridge.daemon.liveness import Silent, answers, watched
from shared.client.errors import misunderstood
from shared.client.link import Link, OnEvent
from shared.client.locate import Detection, Target
from shared.errors import (
    ConnectionRefused,
    DaemonError,
    DaemonRestarting,
    DaemonUnreachable,
    NotOwner,
    StaleFence,
)
from shared.protocol import api
from shared.protocol.faults import BadAnswer, PeerGone

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from acp_bridge.cancel import Cancel
    from shared.clock import Clock
    from shared.settings import Settings

R = TypeVar("R")
#: How often one call may find the owner changed under it before it gives up.
REDIRECTS = 3
#: A modeld that is there but does not answer is dialled again when its records move, or after a while: at first soon,
#: since one that has just begun on a busy machine only needs a moment, then each so many seconds.
REDIAL_S = 5.0
#: A connection ends a moment before its process does, and some daemons are back at once: the first looks come sooner.
FIRST_LOOKS_S = (0.05, 0.1, 0.2)

#: A turn that shows nothing for this long has its instance asked for a sign of life, within the same time.
TURN_CHECK_S = 10.0


class Dialler:
    """What the daemon client needs of the machine: the records and the sockets. Tests give their own."""

    def __init__(
        self,
        detect: Callable[[], Detection],
        change_key: Callable[[], object],
        connect: Callable[[Target, float], Awaitable[anyio.abc.ByteStream]],
        read_token: Callable[[Target], str],
    ) -> None:
        self.detect = detect
        self.change_key = change_key
        self.connect = connect
        self.read_token = read_token


class Daemon:
    """The one connection. `status` is the last one pushed, None while away; `detection` the last look around."""

    def __init__(
        self, dialler: Dialler, settings: Settings, clock: Clock, client: Callable[[], api.ClientInfo]
    ) -> None:
        self._dialler = dialler
        self._settings = settings
        self._clock = clock
        self._client = client
        self._group: anyio.abc.TaskGroup | None = None
        self._lock = anyio.Lock()
        self._link: Link | None = None
        self._listeners: list[Callable[[], None]] = []
        self.status: api.Status | None = None
        self.detection = Detection(state="not_running")
        self.looked = anyio.Event()
        self._key: object = None

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` runs in the loop after each change of `status` or `detection`."""
        self._listeners.append(listener)

    @property
    def client_name(self) -> str:
        """How modeld names this client."""
        return self._client().name

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None

    @property
    def backend(self) -> str:
        """The backend of the connected instance, "" while away."""
        return self._link.hello.backend if self._link is not None and self._link.hello is not None else ""

    async def records_key(self) -> object:
        """Changes when the records do: what was concluded before may be wrong now. A few milliseconds."""
        return await anyio.to_thread.run_sync(self._dialler.change_key, abandon_on_cancel=True)

    # --- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        async with anyio.create_task_group() as group:
            self._group = group
            soon: list[float] = []
            patience = self._settings.away_check
            while True:
                try:
                    link = await self.link()
                except (DaemonError, ConnectionRefused):
                    moved = await self._away(soon, patience)
                    patience = self._settings.away_check if moved else min(patience * 2, REDIAL_S)
                else:
                    await link.peer.closed.wait()
                    self._lost(link)
                    soon = [pause for pause in FIRST_LOOKS_S if pause < self._settings.away_check]
                    patience = self._settings.away_check

    async def _away(self, soon: list[float], patience: float) -> bool:
        """Until the records move (true), or a silent daemon deserves another try after `patience` seconds.

        `soon`: the pauses of the first looks, used up.
        """
        key = self._key
        waited = 0.0
        while waited < patience or self.detection.state not in ("running", "unreachable"):
            pause = soon.pop(0) if soon else self._settings.away_check
            await anyio.sleep(pause)
            waited += pause
            if self._link is not None:
                return True
            moved, after = await anyio.to_thread.run_sync(self._look, abandon_on_cancel=True)
            if moved != key or self._looks_different(after):
                return True
        return False

    def _look(self) -> tuple[object, Detection]:
        """Blocking: all that one look tells, in one visit to another thread. An idle editor should sleep."""
        return self._dialler.change_key(), self._dialler.detect()

    def _looks_different(self, after: Detection) -> bool:
        """States also change by time alone (the grace passes): reported to the listeners, no reconcile."""
        before = self.detection
        if after.state != before.state:
            self.detection = after
            self._tell()
        return after.state == "running" and before.state not in ("running", "unreachable")

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _lost(self, link: Link) -> None:
        if self._link is link:
            self._link = None
            self.status = None
            self._tell()

    def loaded(self, active: api.ActiveModel) -> None:
        """What a load answered holds from now on: the push that says it too may come a moment later."""
        if self.status is not None:
            self.status = msgspec.structs.replace(self.status, active=active)

    def _pushed(self, status: api.Status) -> None:
        self.status = status
        self._tell()

    # --- connection ----------------------------------------------------------------------------

    async def link(self) -> Link:
        """The connection, made now if there is none. Raises a typed daemon error; bounded in time."""
        if self._link is not None and not self._link.peer.closed.is_set():
            return self._link
        async with self._lock:
            if self._link is not None:
                if not self._link.peer.closed.is_set():
                    return self._link
                self._lost(self._link)  # it may have ended before anybody watched it
            self._key = await anyio.to_thread.run_sync(self._dialler.change_key, abandon_on_cancel=True)
            self.detection = await anyio.to_thread.run_sync(self._dialler.detect, abandon_on_cancel=True)
            self.looked.set()
            return await self._dial(self.detection)

    async def reconnect(self) -> None:
        """Look around again, and dial if somebody is there. Never raises: the detection says how it went."""
        try:
            await self.link()
        except (DaemonError, ConnectionRefused):
            return

    async def _dial(self, detection: Detection) -> Link:
        failure: DaemonError | ConnectionRefused | None = None
        for target in detection.targets:
            try:
                link = await self._open(target)
            except (DaemonError, ConnectionRefused) as error:
                failure = failure or error
                continue
            self._link = link
            return link
        if failure is not None:
            if isinstance(failure, DaemonUnreachable):
                self.detection = Detection(state="unreachable", last_seen=detection.last_seen)
            elif isinstance(failure, ConnectionRefused):
                self.detection = Detection(state="unreachable", last_seen=detection.last_seen, hint=str(failure))
            self._tell()
            raise failure
        self._tell()
        raise detection.error()

    async def _open(self, target: Target) -> Link:
        assert self._group is not None
        token = await anyio.to_thread.run_sync(self._dialler.read_token, target, abandon_on_cancel=True)
        stream = await self._dialler.connect(target, self._settings.dial_timeout)
        link = Link(stream, target, self._settings, self._pushed)
        self._group.start_soon(link.peer.run)
        greeted = False
        try:
            await link.greet(token, self._client())
            link.require_protocol()
            with anyio.fail_after(self._settings.dial_timeout):
                self._pushed(await link.call("status/watch", api.WatchParams(), api.Status))
            greeted = True
        except PeerGone as error:
            raise DaemonRestarting(hint=str(error), retryable=True) from error
        except TimeoutError as error:
            raise DaemonUnreachable(hint="it does not answer", retryable=True) from error
        except BadAnswer as error:
            raise misunderstood(error) from error
        finally:
            if not greeted:
                link.peer.close()
        return link

    def _leave(self, link: Link) -> None:
        """This instance does not own any more: never call it again on this connection."""
        link.peer.close()
        self._lost(link)

    # --- calls ---------------------------------------------------------------------------------

    async def call(self, method: str, params: api.Fenced, result_type: type[R], on_event: OnEvent | None = None) -> R:
        """A call that may be repeated safely. Raises the typed errors; the owner is found again when it changed, and
        a modeld that does not answer is not waited for.
        """
        for _ in range(REDIRECTS):
            link = await self.link()

            async def work(noticed: OnEvent, link: Link = link) -> R:
                return await link.call(method, params, result_type, on_event=noticed)

            try:
                return await watched(link, work, on_event, limit=self._settings.dial_timeout)
            except (StaleFence, NotOwner):
                self._leave(link)
            except PeerGone:
                self._lost(link)
            except Silent as error:
                if not await self._forsake(link):
                    raise DaemonUnreachable(hint="it does not answer", retryable=True) from error
            except BadAnswer as error:
                raise misunderstood(error) from error
        raise DaemonRestarting(hint="the owner keeps changing", retryable=True)

    async def tell(self, method: str, params: api.Fenced) -> None:
        """A call that only matters to the connection there is: none is made for it. Raises the typed errors."""
        link = self._link
        if link is None or link.peer.closed.is_set():
            return
        try:
            await link.call(method, params, api.Value)
        except PeerGone:
            return  # and with it what was to be undone

    async def turn(self, params: api.TurnParams, on_event: OnEvent, cancel: Cancel) -> api.TurnResult:
        """One turn on modeld. A cancel is carried through, and the daemon's own end of the turn is awaited, bounded.

        Raises the typed errors; a connection that ends in the turn is DaemonRestarting (or why modeld is away),
        never a second try, since the user may have seen half of the answer. The same where the owner lost its lease
        in the middle of the turn: only one that it had not begun goes on at the next owner.
        """
        begun: list[api.Event] = []

        def noticed(event: api.Event) -> None:
            if not begun and not isinstance(event, api.Queued | api.Loading):
                begun.append(event)
            on_event(event)

        deadline: float | None = None
        while deadline is None or self._clock.awake() < deadline:
            try:
                link = await self.link()
                return await self._turn_on(link, params, noticed, cancel)
            except (StaleFence, NotOwner) as error:
                self._leave(link)
                if begun:
                    hint = "the owner changed in the middle of the turn"
                    raise DaemonRestarting(hint=hint, retryable=True) from error
                # nothing was begun there, and the next owner may need a moment to be there
                deadline = deadline or self._clock.awake() + self._settings.gap_wait
            except DaemonRestarting:
                if deadline is None:
                    raise
            except (PeerGone, Silent) as error:
                self._leave(link)
                raise await self._broken_off(link, error) from error
            except BadAnswer as error:
                raise misunderstood(error) from error
            await cancel.race(lambda: anyio.sleep(self._settings.away_check / 5))
        raise DaemonRestarting(hint="the owner keeps changing", retryable=True)

    async def _broken_off(self, link: Link, error: PeerGone | Silent) -> DaemonRestarting:
        """Why a connection ended in the middle of a turn, as far as the records tell it soon after."""
        found = await anyio.to_thread.run_sync(self._dialler.detect, abandon_on_cancel=True)
        for pause in () if isinstance(error, Silent) else (*FIRST_LOOKS_S, self._settings.away_check):
            if all(target.instance != link.instance for target in found.targets):
                break
            await anyio.sleep(pause)
            found = await anyio.to_thread.run_sync(self._dialler.detect, abandon_on_cancel=True)
        problem = found.error(str(error))
        return problem if isinstance(problem, DaemonRestarting) else DaemonRestarting(hint=str(error), retryable=True)

    async def _proven_link(self) -> Link:
        """A connection whose other end answers now: a frozen owner may have been replaced while nobody called it."""
        link = await self.link()
        if not await answers(link, self._settings.dial_timeout):
            await self._forsake(link)
            self.detection = Detection(state="unreachable")
            raise DaemonUnreachable(hint="it does not answer", retryable=True)
        return link

    async def _forsake(self, link: Link) -> bool:
        """It does not answer: the next call looks around again. False where the connection was kept: it may only be
        busy, others wait on it, and closing it would end their turns. Their own watch judges more slowly.
        """
        if link.waiting:
            found = await anyio.to_thread.run_sync(self._dialler.detect, abandon_on_cancel=True)
            if found.targets and found.targets[0].instance == link.instance:
                return False
        self._leave(link)
        return True

    async def _turn_on(self, link: Link, params: api.TurnParams, on_event: OnEvent, cancel: Cancel) -> api.TurnResult:
        with anyio.CancelScope() as scope:

            def started(request: int) -> None:
                cancel.on_request(lambda: stop(request))

            def stop(request: int) -> None:
                link.cancel(request)
                # the daemon kills a worker that does not stop within its limit; one more for the way
                scope.deadline = anyio.current_time() + self._settings.cancel_limit * 2

            async def work(noticed: OnEvent) -> api.TurnResult:
                return await link.call("session/turn", params, api.TurnResult, on_event=noticed, on_id=started)

            return await watched(link, work, on_event, limit=TURN_CHECK_S)
        return api.TurnResult(
            finish_reason="cancelled", model=params.model, usage=api.Usage(), timings=api.Timings(), generation=0
        )

    async def wait(self, cancel: Cancel, on_wait: Callable[[str], None]) -> None:
        """Until modeld can be called: at once when it is there; else, while it restarts or is too busy to answer, at
        most `gap_wait` seconds.

        Raises the typed error of the state, at once where waiting cannot help (after a stop), and TurnCancelled.
        """
        patience = self._settings.gap_wait
        deadline = self._clock.awake() + patience
        error: DaemonError = DaemonUnreachable(hint="it does not answer", retryable=True)
        limit = max(patience, self._settings.dial_timeout)
        while True:
            try:
                with anyio.fail_after(limit):
                    await cancel.race(self._proven_link)
                return
            except TimeoutError:
                raise error from None
            except (DaemonRestarting, DaemonUnreachable) as found:
                if not found.retryable:
                    raise
                error = found
            limit = deadline - self._clock.awake()
            if limit <= 0:
                raise error
            silent = isinstance(error, DaemonUnreachable)
            on_wait(f"Waiting for modeld, which {'does not answer' if silent else self.detection.doing}")
            await cancel.race(lambda: anyio.sleep(self._settings.away_check / 5))
