"""Calls one provider: its models, turns streamed from it, counts, completions, embeddings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from acp_bridge.providers import listing, requests, tokenizers
from acp_bridge.providers.counting import apportioned
from acp_bridge.providers.endpoint import ASK_LIMIT_S, Certificates, Endpoint
from acp_bridge.providers.learned import Learned
from acp_bridge.providers.turn_stream import TurnStream
from shared.errors import EngineFailed, LookupFailed, ModeldError, UnsupportedFeature
from shared.protocol import api

if TYPE_CHECKING:
    from acp_bridge.cancel import Cancel
    from acp_bridge.models.picker import RemoteModel
    from acp_bridge.providers.config import Provider

Messages = Sequence[dict[str, Any]]


class ProviderClient:
    """One endpoint."""

    def __init__(self, provider: Provider, certificates: Certificates | None = None) -> None:
        self.provider = provider
        self.endpoint = Endpoint(provider, certificates)
        self.learned = Learned(provider)
        self._root = tokenizers.root_of(provider.base_url)
        self._tokenizer: tokenizers.Kind | None = None
        self._untried = list(tokenizers.KINDS)
        self._no_fill: dict[str, ModeldError] = {}

    async def close(self) -> None:
        """Close its connections, after the answers that still run."""
        await self.endpoint.retire()

    @property
    def troubles(self) -> list[str]:
        """What it refused beside its turns, for a doctor."""
        return [f"inline completion: {error.message}" for error in self._no_fill.values()]

    # --- models --------------------------------------------------------------------------------

    async def models(self) -> list[RemoteModel]:
        """What it serves now. Raises the typed errors."""
        named = self.provider.models
        found = listing.named_models(self.provider) if named else await self.listed()
        self.learned.know(found)
        return found

    async def listed(self) -> list[RemoteModel]:
        """What its own list offers, whatever models the config file names. Raises the typed errors."""
        body = await self.endpoint.ask("GET", f"{self.provider.base_url}/models")
        entries = listing.listed_entries(body)
        more = await self._looked_further(entries)
        return listing.listed_models(self.provider, entries, more, self.endpoint.clean.known)

    async def _looked_further(self, entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """What other routes of a server say of its models; nothing where they fail, for the list is worth showing."""
        owner = "" if self.provider.context else listing.look_further(entries)
        ask, root = self.endpoint.ask, self._root
        try:
            if owner == listing.LLAMA_SERVER:
                return listing.from_props(entries, await ask("GET", f"{root}/props"))
            if owner == listing.LM_STUDIO:
                return listing.from_lm_studio(await ask("GET", f"{root}/api/v0/models"))
            return await self._from_ollama(entries) if owner == listing.OLLAMA else {}
        except ModeldError:
            return {}

    async def _from_ollama(self, entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        ask, root = self.endpoint.ask, self._root
        names = [entry["id"] for entry in entries if self.provider.offers(entry["id"])]
        shown = {name: await ask("POST", f"{root}/api/show", {"model": name}) for name in names}
        loaded = listing.from_ollama_ps(await ask("GET", f"{root}/api/ps"))
        return {name: {**listing.from_ollama_show(said), **loaded.get(name, {})} for name, said in shown.items()}

    # --- answers -------------------------------------------------------------------------------

    async def turn(
        self,
        params: api.TurnParams,
        on_event: Callable[[api.Event], None],
        cancel: Cancel,
        waiting: Callable[[str], None] = lambda title: None,
    ) -> api.TurnResult:
        """One streamed completion; `waiting` is told of pauses. Raises the typed errors and TurnCancelled."""
        await cancel.race(self.endpoint.ready)  # what is cleaned of secrets has to know them
        stream = TurnStream(self.endpoint, self.learned, params, on_event, waiting)
        return await cancel.race(stream.run)

    async def fill(self, params: api.FillParams, limit_s: float = ASK_LIMIT_S) -> api.FillResult:
        """The text between two, or behind the first where the second is empty. Raises the typed errors.

        A server that takes no `suffix` is not asked again for what it refused once.
        """
        served = self.learned.served(params.model)
        if params.suffix and served in self._no_fill:
            raise self._no_fill[served]
        body = requests.fill_body(served, params.prefix, params.suffix, params.params, self.provider.facts(served))
        url = f"{self.provider.base_url}/completions"
        try:
            answer = await self.endpoint.ask("POST", url, body, params.model, limit_s)
        except (UnsupportedFeature, LookupFailed) as error:
            if params.suffix:
                self._no_fill[served] = error
            raise
        text, usage = requests.filled(answer)
        if text is None:
            raise EngineFailed(f"{self.provider.name} answered without a text", reason="no text")
        return api.FillResult(text=self.endpoint.clean.known(text), usage=usage)

    async def embed(self, params: api.EmbedParams) -> api.EmbedResult:
        """A vector for each text, in order. Raises the typed errors."""
        body = requests.embed_body(self.learned.served(params.model), params.texts)
        url, limit_s = f"{self.provider.base_url}/embeddings", self.provider.timeout_s
        answer = await self.endpoint.ask("POST", url, body, params.model, limit_s)
        vectors, tokens = requests.embedded(answer)
        if len(vectors) != len(params.texts):
            text = f"{self.provider.name} gave {len(vectors)} vectors for {len(params.texts)} texts"
            raise EngineFailed(text, reason="not a vector for each text")
        return api.EmbedResult(vectors=vectors, tokens=tokens, generation=0)

    # --- counting ------------------------------------------------------------------------------

    async def count(self, model: str, messages: Messages, tools: Messages) -> tuple[api.CountResult, bool]:
        """Tokens as they would be sent, and whether the server's own tokenizer counted them. Never fails."""
        calibration = self.learned.calibration(model)
        total = await self._counted(self.learned.served(model), messages, tools)
        if not total:
            return calibration.count(messages, tools), False
        calibration.learn(messages, tools, total)
        return apportioned(messages, tools, total), self._tokenizer in tokenizers.EXACT

    async def _counted(self, served: str, messages: Messages, tools: Messages) -> int:
        """By the server's own tokenizer; 0 where it has none, or cannot be asked now."""
        for kind in [self._tokenizer] if self._tokenizer is not None else list(self._untried):
            try:
                total = await self._by(kind)(served, messages, tools)
            except (LookupFailed, UnsupportedFeature):
                total = 0  # it has no such route, or takes something else there
            except ModeldError:
                return 0  # it may have one: it is busy, or away
            if total:
                self._tokenizer = kind
                return total
            if kind in self._untried:
                self._untried.remove(kind)
        return 0

    def _by(self, kind: tokenizers.Kind) -> Callable[[str, Messages, Messages], Awaitable[int]]:
        return {
            "messages": self._messages, "template": self._template, "prompt": self._prompt, "text": self._text,
        }[kind]  # fmt: skip

    async def _messages(self, served: str, messages: Messages, tools: Messages) -> int:
        body = tokenizers.messages_body(served, messages, tools)
        return tokenizers.counted(await self.endpoint.ask("POST", f"{self._root}/tokenize", body))

    async def _template(self, served: str, messages: Messages, tools: Messages) -> int:
        ask = self.endpoint.ask
        written = await ask("POST", f"{self._root}/apply-template", tokenizers.template_body(messages, tools))
        prompt = tokenizers.prompt_of(written)
        body = tokenizers.content_body(prompt)
        return tokenizers.counted(await ask("POST", f"{self._root}/tokenize", body)) if prompt else 0

    async def _prompt(self, served: str, messages: Messages, tools: Messages) -> int:
        body = tokenizers.text_body("prompt", served, messages, tools)
        answer = await self.endpoint.ask("POST", f"{self._root}/tokenize", body)
        return tokenizers.with_marks(tokenizers.counted(answer), messages)

    async def _text(self, served: str, messages: Messages, tools: Messages) -> int:
        body = tokenizers.text_body("input", served, messages, tools)
        answer = await self.endpoint.ask("POST", f"{self._root}/extras/tokenize/count", body)
        return tokenizers.with_marks(tokenizers.counted(answer), messages)
