"""What is learned of an endpoint's models while they answer: names, windows, weights, unknown fields. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from acp_bridge.models.picker import RemoteModel
from acp_bridge.providers.config import Provider, Thinking
from acp_bridge.providers.counting import Calibration
from shared.errors import ContextOverflow
from shared.protocol import api


class Learned:
    """Kept as long as an endpoint is configured as it is. `dropped`: fields that it refused, by model."""

    def __init__(self, provider: Provider) -> None:
        self.dropped: dict[str, frozenset[str]] = {}
        self._provider = provider
        self._models: dict[str, RemoteModel] = {}
        self._windows: dict[str, int] = {}
        self._calibrations: dict[str, Calibration] = {}

    def know(self, models: Sequence[RemoteModel]) -> None:
        """These are listed now, or were listed before. What a refusal said of their windows gives way to a list's."""
        for model in models:
            before = self._models.get(model.id)
            if before is not None and before.context != model.context:
                self._windows.pop(model.id, None)
            self._models[model.id] = model

    def served(self, name: str) -> str:
        """What the endpoint calls the model that is called `name` here (`provider/model`)."""
        known = self._models.get(name)
        own = name.partition("/")[2]
        return known.served if known is not None and known.served else self._provider.alias.get(own, own)

    def window(self, name: str) -> int:
        """Tokens, 0 while nobody said: what a refusal told, else the list, else the config file."""
        known = self._models.get(name)
        return self._windows.get(name, 0) or (known.context if known is not None else self._provider.context)

    def thinking(self, name: str) -> Thinking:
        """How it is told to think."""
        known = self._models.get(name)
        return known.thinking if known is not None else self._provider.facts(self.served(name)).thinking or ""

    def calibration(self, name: str) -> Calibration:
        """What its tokens weigh."""
        return self._calibrations.setdefault(name, Calibration())

    def answered(self, params: api.TurnParams, prompt: int, whole: int) -> None:
        """An answer counted the tokens of its prompt, and with itself of the whole. More than a refusal once said can
        be: then that is forgotten.
        """
        if prompt:
            self.calibration(params.model).learn(params.messages, params.tools, prompt)
        if whole > self._windows.get(params.model, whole):
            del self._windows[params.model]

    def overflowed(self, params: api.TurnParams, overflow: ContextOverflow) -> None:
        """A refusal tells of the window and of the prompt."""
        window, prompt = int(overflow.context or 0), int(overflow.additional or 0)
        if window:
            self._windows[params.model] = window
        if prompt:
            self.calibration(params.model).learn(params.messages, params.tools, prompt)
        elif window:
            self.calibration(params.model).learn_more_than(params.messages, params.tools, window)
