"""Evaluates while idle what is sure to follow an answer, so that the next prompt costs only its own tokens.

The last token of an answer, the marks that end it and those that begin a user's message stand in the next prompt
whatever will be asked: a third of what a short question costs. They are found by rendering the conversation with two
questions that have nothing in common, and only ever added behind what the engine holds: where a template writes the
past again (thoughts dropped, text trimmed), nothing is certain and nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from modeld.engine.contract import Aborted, Capabilities, Engine
from modeld.engine.prefix import common_prefix
from modeld.pipe.messages import Turn
from modeld.worker.chat import Chat
from shared.errors import ModeldError

#: More than a template writes between two messages is no such thing.
MOST_TOKENS = 64
_QUESTIONS = ("x", "0")


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that ended by itself. `held`: tokens that the engine holds of it. `thinking` as it was rendered."""

    job: Turn
    text: str
    held: int
    thinking: str | None


class PrefillAhead:
    """Runs on the engine thread, between two jobs."""

    def __init__(self, engine: Engine, chat: Chat, capabilities: Capabilities, num_ctx: int) -> None:
        self._engine = engine
        self._chat = chat
        self._num_ctx = num_ctx
        #: Only where it can be stopped at once, and costs no copy of a state that cannot be cut.
        self._able = capabilities.trim and capabilities.cancel_prefill == "node"
        self._ended: Ended | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is an answer to go on from."""
        return self._ended is not None

    def note(self, ended: Ended | None) -> None:
        """The turn that ended last; None where the next prompt is not known to begin with it."""
        self._ended = ended if self._able else None

    def evaluate(self, interrupted: Callable[[], bool]) -> int:
        """Evaluate what is certain; how many tokens. The abort flag stops it like any prefill. Raises EngineFailed."""
        ended, self._ended = self._ended, None
        if ended is None:
            return 0
        tokens = self._certain(ended, interrupted)
        more = len(tokens) - ended.held
        if not 0 < more <= MOST_TOKENS or len(tokens) >= self._num_ctx or interrupted():
            return 0
        if self._engine.common_prefix(tokens) < ended.held:
            return 0
        try:
            self._engine.ensure_prefix(tokens, "warm", ended.job.conversation)
            self._engine.prefill_suffix(None, lambda done, total: None)
        except Aborted:
            return 0
        finally:
            self._engine.end_turn()
        return more

    def _certain(self, ended: Ended, interrupted: Callable[[], bool]) -> list[int]:
        """What every next prompt begins with; [] where that cannot be determined."""
        found: list[list[int]] = []
        for question in _QUESTIONS:
            if interrupted():
                return []
            said = [{"role": "assistant", "content": ended.text}, {"role": "user", "content": question}]
            try:
                prompt = self._chat.prompt([*ended.job.messages, *said], ended.job.tools, ended.thinking)
            except ModeldError:
                return []  # this conversation cannot go on so: its next turn will say why
            found.append(prompt.tokens)
        first, second = found
        return first[: common_prefix(first, second)]
