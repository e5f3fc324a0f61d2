"""The engine of a modeld that has none: it answers status, and every load fails with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NoReturn

from modeld.engine.backends import unavailable
from modeld.engine.contract import (
    AbortFlag,
    Account,
    DecodeOptions,
    LoadedModel,
    LoadRequest,
    ProgressCallback,
    Purpose,
    SpecialTokens,
)
from modeld.engine.dry_run import Sizes
from modeld.engine.no_kv_parking import KeepsNothing
from modeld.output.grammar.values import Opened
from shared.catalog.identity import RequestedIdentity
from shared.protocol.api import Accelerator


class NoEngine(KeepsNothing):
    """`modeld.engine.contract.Engine` without an engine."""

    holds_lock: ClassVar[bool] = False

    def __init__(self, abort: AbortFlag) -> None:
        del abort

    def prepare(self) -> str:
        """Do nothing: there is no library to import."""
        return "none"

    def accelerators(self, identity: RequestedIdentity) -> tuple[Accelerator, ...]:
        """Nothing is ever loaded."""
        del identity
        return ()

    def load(self, request: LoadRequest, progress: ProgressCallback) -> LoadedModel:
        """Always raises BackendUnavailable."""
        del request, progress
        self._refuse()

    def dry_run(
        self, request: LoadRequest, contexts: Sequence[int], began: Callable[[str], None]
    ) -> tuple[LoadedModel, list[Sizes]]:
        """As `load`."""
        del request, contexts, began
        self._refuse()

    @property
    def threads(self) -> int:
        """Nothing computes."""
        return 0

    @property
    def image_encoder(self) -> None:
        """It has no vision."""
        return

    @property
    def special(self) -> SpecialTokens:
        """Raises BackendUnavailable, like everything that needs a model."""
        self._refuse()

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Raises BackendUnavailable."""
        del text, special
        self._refuse()

    def piece(self, token: int, *, special: bool) -> bytes:
        """Raises BackendUnavailable."""
        del token, special
        self._refuse()

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Nothing is ever warm."""
        del tokens
        return 0

    def ensure_prefix(self, tokens: Sequence[int], purpose: Purpose = "turn", conversation: str | None = None) -> int:
        """Raises BackendUnavailable."""
        del tokens, purpose, conversation
        self._refuse()

    def prefill_suffix(self, options: DecodeOptions | None, progress: ProgressCallback) -> None:
        """Raises BackendUnavailable."""
        del options, progress
        self._refuse()

    def decode(self, options: DecodeOptions) -> Iterator[int]:
        """Raises BackendUnavailable."""
        del options
        self._refuse()

    def constrain(self, opened: Opened) -> None:
        """Nothing is decoded."""
        del opened

    def end_turn(self) -> None:
        """Do nothing: no turn ever runs."""

    def valid(self) -> bool:
        """Nothing can be wrong."""
        return True

    def embed(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Raises BackendUnavailable."""
        del texts
        self._refuse()

    def measure(self) -> Account:
        """Report no memory."""
        return Account()

    def close(self) -> None:
        """Do nothing: no memory is held."""

    @staticmethod
    def _refuse() -> NoReturn:
        raise unavailable("none", "this modeld runs without an engine")
