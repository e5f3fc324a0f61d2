"""The slot's notes in the coordination store: written in order, behind the turn's back, never in its way."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec

from modeld.memory.policy import Arithmetic, Footprint
from shared.errors import ModeldError, NotOwner
from shared.protocol.api import LoadConfig
from shared.text.nesting import decode_json

if TYPE_CHECKING:
    from modeld.store.store import Store

Write = Callable[[], Awaitable[None]]
#: Name of the hint that holds the last active model (as in modeld.store.tables).
HINT_MODEL = "active_model"
_CONFIG_PREFIX = "config:"
_ARITHMETIC_PREFIX = "arithmetic:"


class StoreRecords:
    """`modeld.slot.ports.Records` on a Store. A note that cannot be kept is logged once and dropped."""

    def __init__(self, store: Store, log: Callable[[str], None]) -> None:
        self._store = store
        self._log = log
        self._waiting: deque[Write] = deque()
        self._wake = anyio.Event()
        self._turns: dict[int, int] = {}
        self._configs: dict[str, LoadConfig] = {}
        self._complained = ""

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        while True:
            while self._waiting:
                await self._try(self._waiting.popleft())
            await self._wake.wait()

    async def flush(self) -> None:
        """Write what is left, for an orderly end."""
        while self._waiting:
            await self._try(self._waiting.popleft())

    async def _try(self, write: Write) -> None:
        try:
            await write()
        except NotOwner:
            return  # who does not own has nothing to keep
        except ModeldError as error:
            if error.message != self._complained:
                self._complained = error.message
                self._log(f"a note was not kept: {error.message}")

    def _later(self, write: Write) -> None:
        self._waiting.append(write)
        wake, self._wake = self._wake, anyio.Event()
        wake.set()

    # --- modeld.slot.ports.Records -------------------------------------------------------------

    async def footprint(self, key: str, engine: str, device: str) -> Footprint | None:
        """See Records."""
        try:
            found = await self._store.footprint(key, engine, device)
        except ModeldError:
            return None  # unknown: the estimate stands
        return None if found is None else Footprint(weights_bytes=found.bytes, stale=not found.exact)

    def remember_footprint(self, key: str, engine: str, device: str, weights_bytes: int) -> None:
        """See Records."""
        self._later(lambda: self._store.put_footprint(key, engine, device, weights_bytes))

    async def arithmetic(self, key: str) -> Arithmetic | None:
        """See Records."""
        try:
            text = await self._store.hint(_ARITHMETIC_PREFIX + key)
            return decode_json(text, Arithmetic) if text else None
        except (ModeldError, msgspec.DecodeError):
            return None

    def remember_arithmetic(self, key: str, found: Arithmetic) -> None:
        """See Records."""
        text = msgspec.json.encode(found).decode("ascii")
        self._later(lambda: self._store.set_hint(_ARITHMETIC_PREFIX + key, text))

    def save_generation(self, generation: int) -> None:
        """See Records."""
        self._later(lambda: self._store.raise_generation(generation))

    def hint(self, model: str) -> None:
        """See Records."""
        self._later(lambda: self._store.set_hint(HINT_MODEL, model))

    async def config(self, model: str, aliases: Sequence[str] = ()) -> LoadConfig:
        """See Records."""
        for name in (model, *aliases):
            kept = await self._config(name)
            if kept != LoadConfig():
                return kept
        return LoadConfig()

    async def _config(self, model: str) -> LoadConfig:
        if model not in self._configs:
            try:
                text = await self._store.hint(_CONFIG_PREFIX + model)
                self._configs[model] = decode_json(text, LoadConfig) if text else LoadConfig()
            except (ModeldError, msgspec.DecodeError):
                return LoadConfig()
        return self._configs[model]

    async def keep_config(self, model: str, config: LoadConfig) -> None:
        """Remember the settings of a model. Raises NotOwner, RootError."""
        await self._store.set_hint(_CONFIG_PREFIX + model, msgspec.json.encode(config).decode("utf-8"))
        self._configs[model] = config

    def audit(self, kind: str, client: str, detail: dict[str, object]) -> None:
        """See Records."""
        self._later(lambda: self._store.add_audit(kind, client, **detail))

    def turn_begun(self, number: int, client: str, model: str) -> None:
        """See Records."""

        async def write() -> None:
            self._turns[number] = await self._store.begin_turn(client, model)

        self._later(write)

    def turn_ended(self, number: int, how: str) -> None:
        """See Records."""

        async def write() -> None:
            row = self._turns.pop(number, None)
            if row is not None:
                await self._store.end_turn(row, how)

        self._later(write)
