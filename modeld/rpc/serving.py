"""What the methods of the wire use of the daemon. The daemon itself is wired elsewhere and hands itself over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from shared.protocol import api

if TYPE_CHECKING:
    from modeld.rpc.handles import Handles
    from modeld.slot.counting import Counter
    from modeld.slot.driver import Slot
    from modeld.store.slot_records import StoreRecords
    from modeld.store.store import Store
    from shared.catalog.library import Library
    from shared.settings import Settings


class Jobs(Protocol):
    """Library jobs that go on when their caller has gone."""

    async def pull(
        self, params: api.PullParams, holder: str, progress: Callable[[api.JobProgress], None]
    ) -> api.PullResult:
        """Join the pull of this source or begin it. Raises DownloadError, DiskFull, RootUnusable."""
        ...

    def cancel(self, source: str) -> list[str]:
        """End the pulls of this source, or all for ""; their sources."""
        ...

    async def remove(self, name: str) -> api.RemoveResult:
        """Raises ModelNotFound, ModelInUse, UnsupportedFeature, RootUnusable."""
        ...


class Endings(Protocol):
    """The ways to end between two turns."""

    def end(self, reason: str, patience: float, *, again: bool = False) -> None:
        """End within `patience` seconds; `again`: this process becomes a fresh one."""
        ...


class Identified(Protocol):
    """What a handshake and each call's fence are checked against, and what a greeting tells."""

    @property
    def instance(self) -> str:
        """The fence of every call."""
        ...

    @property
    def token(self) -> str:
        """The secret of the handshake."""
        ...

    @property
    def role(self) -> api.Role:
        """`owner`, `standby` or `idle`."""
        ...

    @property
    def backend(self) -> str:
        """The engine that it serves with."""
        ...

    @property
    def version(self) -> str:
        """The version of the product."""
        ...

    @property
    def ends_for(self) -> str:
        """Why it is ending, or will between two turns; "" while it goes on."""
        ...


class Serving(Identified, Protocol):
    """The daemon as the methods see it: its parts, and its own life."""

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        ...

    @property
    def slot(self) -> Slot:
        """The place for the resident model."""
        ...

    @property
    def handles(self) -> Handles:
        """Sessions, and turns that are taken step by step."""
        ...

    @property
    def counter(self) -> Counter:
        """Counts tokens beside the slot."""
        ...

    @property
    def library(self) -> Library:
        """The models on disk."""
        ...

    @property
    def jobs(self) -> Jobs:
        """Pulls and removals."""
        ...

    @property
    def store(self) -> Store:
        """What is kept across owners."""
        ...

    @property
    def records(self) -> StoreRecords:
        """What is kept for each model."""
        ...

    @property
    def succession(self) -> Endings:
        """Ends for a successor."""
        ...

    @property
    def ending(self) -> bool:
        """Whether its end has begun."""
        ...

    def end(self, reason: str, drain: float | None = None) -> None:
        """Begin to end. A second call shortens the drain."""
        ...

    def log(self, line: str) -> None:
        """Write one line for people to the log."""
        ...

    async def own(self) -> None:
        """Before a resident operation. Raises NotOwner, RootError."""
        ...

    def require_not_standby(self) -> None:
        """For operations on what is resident. Raises NotOwner."""
        ...

    def status(self) -> api.Status:
        """The status of this instance; touches no engine."""
        ...

    async def inventory(self, *, live_only: bool) -> api.LibraryResult:
        """The library's rows with the live state; `live_only`: those that this daemon can serve."""
        ...
