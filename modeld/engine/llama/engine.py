"""The llama.cpp engine: one conversation in the KV memory, the others parked in host RAM, abort between graph nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

from modeld.engine.contract import (
    Aborted,
    AbortFlag,
    Account,
    Capabilities,
    DecodeOptions,
    LoadedModel,
    LoadRequest,
    PoolExhausted,
    ProgressCallback,
    Purpose,
    SpecialTokens,
)
from modeld.engine.dry_run import Sizes
from modeld.engine.footprint import resident_bytes
from modeld.engine.images import image_end, positions, words_end, words_of_prompt
from modeld.engine.kv_disk_cache import KvDiskCache
from modeld.engine.llama.devices import discrete
from modeld.engine.llama.dry_run import measure, without_memory
from modeld.engine.llama.embedding import Embedder
from modeld.engine.llama.lanes import Lane
from modeld.engine.llama.library import Library
from modeld.engine.llama.memory import Memory
from modeld.engine.llama.model import FILL_TOKENS, ContextPlan, LoadedContext
from modeld.engine.llama.resolved import resolved_identity, template_of
from modeld.engine.llama.sampling.sampler import Batch, SamplerChain
from modeld.engine.llama.sampling.tool_call_grammar import OPENER_TOKENS, HeldTools
from modeld.engine.llama.threads import Threads
from modeld.engine.llama.vision import ImageEncoder, open_image_encoder
from modeld.engine.llama.vocabulary import Vocabulary
from modeld.engine.llama.warm import WarmStore
from modeld.engine.prompt_lookup import Lookup
from modeld.engine.required import required
from modeld.output.grammar.values import Opened
from shared.catalog.identity import RequestedIdentity
from shared.errors import ContextOverflow, EngineFailed, ModelLoadFailed, UnsupportedFeature
from shared.protocol.api import Accelerator

_NO_CELLS, _ABORTED = 1, 2  # llama_decode's answers


class LlamaEngine:
    """`modeld.engine.contract.Engine` on llama-cpp-python's low-level binding."""

    holds_lock: ClassVar[bool] = False

    def __init__(self, abort: AbortFlag) -> None:
        self._abort = abort
        self._library: Library | None = None
        self._native: LoadedContext | None = None
        self._vocabulary: Vocabulary | None = None
        self._warm: WarmStore | None = None
        self._embedder: Embedder | None = None
        self._digest = ""
        self._prompt: Sequence[int] = ()
        self._words: Sequence[int] = ()  # the prompt without its images
        self._image_encoder: ImageEncoder | None = None
        self._behind = 0  # tokens of images in the lane that move no position on
        self._lane: Lane | None = None
        self._sampler: SamplerChain | None = None
        self._latest = 0  # sampled and not yet evaluated
        self._ahead = 0  # evaluated and not yet sampled, behind what the lane counts
        self._tools: HeldTools | None = None
        self._proven = True
        self._notes: tuple[str, ...] = ()

    def prepare(self) -> str:
        """Import the binding; the build's name."""
        self._library = Library()
        self._digest = self._library.digest()
        return self._digest

    def accelerators(self, identity: RequestedIdentity) -> tuple[Accelerator, ...]:
        """As the contract says."""
        return discrete(self._library_of().api, identity)

    # --- load ----------------------------------------------------------------------------------

    def load(self, request: LoadRequest, progress: ProgressCallback) -> LoadedModel:
        """As the contract says; stages weights, context, probe."""
        if self._library is None:
            raise EngineFailed(reason="the llama.cpp library is not loaded")
        before = resident_bytes()
        self._native = native = LoadedContext(self._library, request)
        native.load_model(lambda fraction: progress(int(fraction * 1000), 1000), self._abort)
        self._vocabulary = vocabulary = Vocabulary(self._library.api, native.model)
        capabilities, plan = Capabilities(), None
        if not request.vocabulary_only:
            capabilities, plan = self._open(native, vocabulary, request)
        return LoadedModel(
            identity=resolved_identity(self._library_of(), request, plan, self._digest),
            capabilities=capabilities,
            measured_bytes=max(0, resident_bytes() - before),
            template=template_of(native, request),
            warnings=self._notes,
        )

    def dry_run(
        self, request: LoadRequest, contexts: Sequence[int], began: Callable[[str], None]
    ) -> tuple[LoadedModel, list[Sizes]]:
        """As the contract says."""
        library = self._library_of()
        self._native, self._vocabulary, sizes = measure(library, request, contexts, began, self._abort)
        return without_memory(library, request, self._native, self._digest), sizes

    def _open(
        self, native: LoadedContext, vocabulary: Vocabulary, request: LoadRequest
    ) -> tuple[Capabilities, ContextPlan]:
        api, name = native.api, request.identity.name
        special = vocabulary.special
        fim = None not in (special.fim_prefix, special.fim_suffix, special.fim_middle)
        decoder = bool(api.llama_model_has_decoder(native.model))
        embedding_only = not decoder or bool(request.model.get("embedding_only"))
        plan = native.open_context(fill=fim and not embedding_only, abort=self._abort)
        recurrent = bool(api.llama_model_is_recurrent(native.model) or api.llama_model_is_hybrid(native.model))
        memory = Memory(api, native.context, window=api.llama_model_n_swa(native.model), recurrent=recurrent)
        self._warm = WarmStore(memory, request.parked_bytes, fill=plan.fill)
        self._batch = Batch(api, plan.batch)
        self._threads = Threads(api, native.context, plan, fixed=request.threads > 0)
        if request.identity.projector and not embedding_only:
            opened = open_image_encoder(self._library_of(), native.model, plan, request.identity)
            self._image_encoder, self._notes = opened
        self._embedder = Embedder(api, native, plan, self._abort, self._library_of().abort_callback)
        if not embedding_only:
            self._warm_up(api, native, vocabulary, name)
        capabilities = Capabilities(
            snapshot=True,
            reuse_counts=True,
            trim=memory.cuttable,
            cancel_prefill="node",
            cancel_decode="node",
            cancel_load=True,
            fim=plan.fill,
            grammar=True,
            vision=self._image_encoder is not None,
            embeddings=True,
            embedding_only=embedding_only,
        )
        return capabilities, plan

    def _warm_up(self, api: Any, native: LoadedContext, vocabulary: Vocabulary, name: str) -> None:
        """Evaluate one token: touches every page of the weights and proves that the model computes."""
        token = vocabulary.special.bos if vocabulary.special.bos is not None else 0
        api.llama_set_warmup(native.context, True)
        done = api.llama_decode(native.context, self._batch.fill([token], 0, 0, logits=True))
        api.llama_set_warmup(native.context, False)
        api.llama_memory_clear(api.llama_get_memory(native.context), True)
        if done == _ABORTED:
            raise Aborted
        if done != 0:
            reason = self._library_of().tap.take_reason(f"the first evaluation failed ({done})")
            raise ModelLoadFailed(model=name, stage="probe", reason=reason)

    # --- vocabulary ----------------------------------------------------------------------------

    @property
    def special(self) -> SpecialTokens:
        """The vocabulary's marks."""
        return self._vocabulary_of().special

    @property
    def threads(self) -> int:
        """As the contract says."""
        return self._threads.count

    @property
    def image_encoder(self) -> ImageEncoder | None:
        """As the contract says."""
        return self._image_encoder

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """As the contract says."""
        return self._vocabulary_of().tokenize(text, special)

    def piece(self, token: int, *, special: bool) -> bytes:
        """As the contract says."""
        return self._vocabulary_of().piece(token, special)

    # --- turns ---------------------------------------------------------------------------------

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Warm tokens of this prompt, wherever they are."""
        return self._warm_of().warmth(tokens)

    def ensure_prefix(self, tokens: Sequence[int], purpose: Purpose = "turn", conversation: str | None = None) -> int:
        """As the contract says. Raises ContextOverflow for a fill that is larger than its lane."""
        warm = self._warm_of()
        if purpose == "fill" and len(tokens) >= FILL_TOKENS:
            raise ContextOverflow(context=FILL_TOKENS, resident=0, additional=len(tokens))
        self._prompt, self._words = tokens, words_of_prompt(tokens)
        self._lane = lane = warm.take(tokens, conversation, fill=purpose == "fill")
        self._behind = len(lane.state.tokens) - positions(lane.state.tokens)
        return len(lane.state.tokens)

    def prefill_suffix(self, options: DecodeOptions | None, progress: ProgressCallback) -> None:
        """Batch by batch; a model that cannot be cut keeps a checkpoint before the last token."""
        lane, warm, prompt = self._lane_of(), self._warm_of(), self._prompt
        size, total = self._plan_of().batch, len(prompt)
        held = lane.state.tokens
        step = self._threads.begin_prefill(total - len(held), size)
        while len(held) < total:
            start = len(held)
            if prompt[start] < 0:
                self._see(lane, image_end(prompt, start), progress)
                held = lane.state.tokens
                continue
            end, step = words_end(prompt, start, min(start + step, total)), size
            if end == total and start < total - 1 and not warm.memory.cuttable:
                end = total - 1
            self._evaluate(lane, prompt[start:end], logits=end == total and options is not None)
            if end == total - 1:
                warm.memory.checkpoint(lane)
            progress(end, total)

    def _see(self, lane: Lane, end: int, progress: ProgressCallback) -> None:
        """Encode an image and evaluate it, whole or not at all."""
        encoder, prompt, start = required(self._image_encoder), self._prompt, len(lane.state.tokens)
        total, seen = len(prompt), start

        def on_batch(count: int) -> bool:
            nonlocal seen
            seen += count
            self._threads.computed()
            progress(seen, total)
            return not self._abort

        chunk, place = encoder.encode(prompt[start], self._abort, lambda: progress(start, total)), start - self._behind
        if done := encoder.decode(self._native_of().context, chunk, lane.sequence, place, on_batch):
            self._proven = self._warm_of().memory.settle(lane)
            if done == _ABORTED:
                raise Aborted
            self._refuse(done, lane, prompt[start:end])
        lane.state.tokens.extend(prompt[start:end])
        self._behind += end - start - positions(prompt[start:end])

    def _evaluate(self, lane: Lane, tokens: Sequence[int], *, logits: bool, every: bool = False) -> None:
        api, held = self._native_of().api, lane.state.tokens
        batch = self._batch.fill(tokens, len(held) - self._behind, lane.sequence, logits=logits, every=every)
        if self._abort:
            raise Aborted
        if done := api.llama_decode(self._native_of().context, batch):
            self._refuse(done, lane, tokens)
        held.extend(tokens)
        self._threads.computed()

    def _refuse(self, done: int, lane: Lane, tokens: Sequence[int]) -> NoReturn:
        """Raise what the answer means, with the lane's books in order."""
        if done == _ABORTED:
            lane.state.tokens.extend(tokens)  # settled to what the memory holds
            self._proven = self._warm_of().memory.settle(lane)
            raise Aborted
        self._proven = False
        if done == _NO_CELLS:
            raise PoolExhausted
        raise EngineFailed(reason=self._library_of().tap.take_reason(f"llama_decode answered {done}"))

    def decode(self, options: DecodeOptions) -> Iterator[int]:
        """Sample, hand the token out, then evaluate it: the reader has it before the next step begins.

        Drafted tokens are evaluated with it; each counts once the chain has sampled it from the logits before it.
        """
        lane, native = self._lane_of(), self._native_of()
        api, context, held, abort = native.api, native.context, lane.state.tokens, self._abort
        self._sampler = sampler = SamplerChain(api, self._vocabulary_of(), options, self._words)
        sample, evaluate, chain = api.llama_sampler_sample, api.llama_decode, sampler.pointer
        end, one, behind = self.special.end, self._batch.one, self._behind
        self._tools = None if options.tools is None else HeldTools(options.tools)
        if self._tools is not None:
            self._tools.begin(sampler, self._vocabulary_of())
        self._batch.fill([0], 0, lane.sequence, logits=True)
        self._threads.begin_decode(options)
        most = self._plan_of().drafts
        lookup, index = Lookup(self._words) if most else None, -1
        for left in range(options.max_tokens - 1, -1, -1):
            held_to = sampler.held
            token = sample(chain, context, index) if held_to is None else held_to.sample(context, index)
            self._latest = token
            yield token
            if token in end or left == 0:
                return
            if abort:
                raise Aborted
            if lookup is not None:
                if lookup.accept(token):
                    held.append(token)
                    self._ahead -= 1
                    index += 1
                    continue
                self._take_back(lane)
                draft = lookup.draft(min(left, most))
                if draft:
                    self._evaluate(lane, (token, *draft), logits=True, every=True)
                    del held[-len(draft) :]
                    self._ahead = len(draft)
                    index = 0
                    continue
            if done := evaluate(context, one(token, len(held) - behind)):
                self._refuse(done, lane, (token,))
            held.append(token)
            index = -1
            self._threads.computed()

    def _take_back(self, lane: Lane) -> None:
        """Cut off what was evaluated ahead and not sampled. Raises EngineFailed, with the lane empty."""
        if self._ahead:
            self._ahead = 0
            memory = self._warm_of().memory
            if not memory.settle(lane):
                memory.clear(lane)
                raise EngineFailed(reason="tokens that were drafted wrong cannot be taken back")

    def constrain(self, opened: Opened) -> None:
        """As the contract says: a grammar in front of the chain, from the token that opened the call."""
        if self._tools is not None and self._sampler is not None:
            held = [*words_of_prompt(self._lane_of().state.tokens[-OPENER_TOKENS:]), self._latest]
            self._tools.open(self._sampler, self._vocabulary_of(), opened, held)

    def end_turn(self) -> None:
        """Free the sampler; note how far back the lane can be cut now."""
        if self._image_encoder is not None:
            self._image_encoder.hide()
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
        if self._lane is not None:
            lane, self._lane = self._lane, None
            self._take_back(lane)
            self._warm_of().memory.note_floor(lane)

    def valid(self) -> bool:
        """False after an evaluation whose effect on the memory could not be proven."""
        return self._proven

    def embed(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """As the contract says, in a context of their own."""
        if self._embedder is None:
            raise UnsupportedFeature(feature="embeddings")
        return self._embedder.embed(texts)

    def trim_parked(self, limit: int) -> int:
        """As the contract says."""
        return self._warm_of().trim(limit)

    def attach(self, disk_cache: KvDiskCache) -> int:
        """As the contract says."""
        return self._warm_of().attach(disk_cache)

    def shelve(self, until: Callable[[], bool]) -> int:
        """As the contract says."""
        return 0 if self._warm is None else self._warm.shelve(until)

    def measure(self) -> Account:
        """As the contract says."""
        warm = self._warm
        if warm is None:
            return Account(rss_bytes=resident_bytes())
        return Account(
            rss_bytes=resident_bytes(), parked_bytes=warm.parked_bytes, parked=warm.parked, lanes_used=warm.lanes_used
        )

    def close(self) -> None:
        """As the contract says."""
        self.end_turn()
        self._warm = None
        if self._embedder is not None:
            self._embedder.close()
            self._embedder = None
        if self._image_encoder is not None:
            self._image_encoder.close()
            self._image_encoder = None
        if self._native is not None:
            self._native.close()
            self._native = None

    # --- what must be there by now -------------------------------------------------------------

    def _library_of(self) -> Library:
        return required(self._library)

    def _native_of(self) -> LoadedContext:
        return required(self._native)

    def _vocabulary_of(self) -> Vocabulary:
        return required(self._vocabulary)

    def _warm_of(self) -> WarmStore:
        return required(self._warm)

    def _lane_of(self) -> Lane:
        return required(self._lane)

    def _plan_of(self) -> ContextPlan:
        return required(self._native_of().plan)
