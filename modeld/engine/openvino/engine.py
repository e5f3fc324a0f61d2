"""The engine contract on OpenVINO GenAI: GGUF files of three families and IR folders, also such that see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import msgspec

from modeld.engine.contract import (
    Aborted,
    AbortFlag,
    Account,
    Capabilities,
    DecodeOptions,
    LoadedModel,
    LoadRequest,
    ProgressCallback,
    Purpose,
    SpecialTokens,
)
from modeld.engine.dry_run import Sizes
from modeld.engine.footprint import resident_bytes
from modeld.engine.no_kv_parking import KeepsNothing
from modeld.engine.openvino.blocks import BLOCK
from modeld.engine.openvino.convert import conversion_of, converted, need_room
from modeld.engine.openvino.devices import discrete
from modeld.engine.openvino.dry_run import check_graph, graphs_of, special_of
from modeld.engine.openvino.gguf_support import check_gguf, notes
from modeld.engine.openvino.library import Library, reason_of
from modeld.engine.openvino.pipeline import Pipeline, Plan
from modeld.engine.openvino.planning import make_plan, refuse_unsupported
from modeld.engine.openvino.vision.image_encoder import ImageEncoder
from modeld.engine.openvino.vision.input_embeddings import Rows, takes_rows
from modeld.engine.openvino.vocabulary import Vocabulary
from modeld.engine.processors.topology import engine_threads
from modeld.engine.required import required
from modeld.output.grammar.call_grammar import any_arguments
from modeld.output.grammar.values import Opened
from shared.catalog.formats.gguf import Header
from shared.catalog.identity import RequestedIdentity, ResolvedIdentity
from shared.errors import ContextOverflow, EngineFailed, ModelLoadFailed, UnsupportedFeature
from shared.paths import data_root
from shared.protocol.api import Accelerator

_STAGES = {"begin": 20, "requantised": 300, "converted": 500, "tokenizer": 600, "pipeline": 950, "ready": 1000}


class OpenVinoEngine(KeepsNothing):
    """`modeld.engine.contract.Engine`. Nothing native is imported before `prepare`."""

    holds_lock: ClassVar[bool] = True

    def __init__(self, abort: AbortFlag) -> None:
        self._abort = abort
        self._library: Library | None = None
        self._vocabulary: Vocabulary | None = None
        self._special: SpecialTokens | None = None
        self._pipeline: Pipeline | None = None
        self._rows: Rows | None = None
        self._plan: Plan | None = None
        self._prompt: Sequence[int] = ()
        self._sampled: list[int] = []
        self._notes: tuple[str, ...] = ()

    def prepare(self) -> str:
        """Import the libraries; the build's name."""
        self._library = Library()
        return self._library.digest()

    def accelerators(self, identity: RequestedIdentity) -> tuple[Accelerator, ...]:
        """As the contract says."""
        return discrete(self._library_of().openvino.Core, identity)

    # --- load ----------------------------------------------------------------------------------

    def load(self, request: LoadRequest, progress: ProgressCallback) -> LoadedModel:
        """As the contract says; stages header, weights, context, probe. A GGUF is converted the first time."""
        library = self._library_of()
        refuse_unsupported(request, library.devices())
        progress(_STAGES["begin"], 1000)
        folder, made = self._folder(request, library, progress)
        progress(_STAGES["converted"], 1000)
        self._go_on()
        vocabulary = self._open_vocabulary(request, library, folder)
        progress(_STAGES["tokenizer"], 1000)
        self._go_on()
        plan = make_plan(request, engine_threads(request.threads))
        capabilities = Capabilities()
        if not request.vocabulary_only:
            self._open_pipeline(request, library, folder, vocabulary, plan)
            capabilities = _capabilities(vocabulary, plan, vision=self.image_encoder is not None)
        progress(_STAGES["ready"], 1000)
        return LoadedModel(
            identity=self._identity(request, library, plan),
            capabilities=capabilities,
            measured_bytes=self.measure().measured_bytes or resident_bytes(),
            template=str(request.model.get("template") or vocabulary.template),
            warnings=self._warnings(vocabulary, plan, made),
        )

    def dry_run(
        self, request: LoadRequest, contexts: Sequence[int], began: Callable[[str], None]
    ) -> tuple[LoadedModel, list[Sizes]]:
        """As the contract says, without arithmetic. What only a conversion would find out is not found out."""
        del contexts
        library, identity = self._library_of(), request.identity
        began("options")
        refuse_unsupported(request, library.devices())
        source, header, template = Path(identity.path), self._header(request), ""
        folder = source if header is None else conversion_of(library, source, identity.digest, _conversions())
        if folder is None and header is not None:
            need_room(_conversions(), source, header)
            self._special = special_of(request.model)
        elif folder is not None:
            began("tokenizer")
            template = self._open_vocabulary(request, library, folder).template
            began("graph")
            for graph in graphs_of(folder):
                check_graph(library, graph, identity.name)
        loaded = LoadedModel(
            identity=self._identity(request, library, make_plan(request, 1)),
            capabilities=Capabilities(),
            measured_bytes=0,
            template=str(request.model.get("template") or template),
        )
        return loaded, []

    def _header(self, request: LoadRequest) -> Header | None:
        """Of a GGUF file that can be read; None for a folder. Raises ModelLoadFailed at stage `header`."""
        path, name = Path(request.identity.path), request.identity.name
        if path.is_dir():
            return None
        if not path.is_file():
            raise ModelLoadFailed(model=name, stage="header", reason=f"{path} is not there")
        return check_gguf(path, name)

    def _folder(self, request: LoadRequest, library: Library, progress: ProgressCallback) -> tuple[Path, bool]:
        path, name = Path(request.identity.path), request.identity.name
        header = self._header(request)
        if header is None:
            return path, False
        self._notes = notes(header)

        def requantising(done: int, of: int) -> None:
            begin, end = _STAGES["begin"], _STAGES["requantised"]
            progress(begin + (end - begin) * done // max(of, 1), 1000)
            self._go_on()

        return converted(library, path, request.identity.digest, _conversions(), name, header, requantising)

    def _open_vocabulary(self, request: LoadRequest, library: Library, folder: Path) -> Vocabulary:
        try:
            self._vocabulary = Vocabulary(library, folder, request.model)
        except (RuntimeError, ValueError) as error:
            raise ModelLoadFailed(model=request.identity.name, stage="weights", reason=reason_of(error)) from error
        return self._vocabulary

    def _open_pipeline(
        self, request: LoadRequest, library: Library, folder: Path, vocabulary: Vocabulary, plan: Plan
    ) -> None:
        name, stage = request.identity.name, "weights"
        try:
            self._plan = plan
            if takes_rows(folder):
                vision, tokenize = bool(request.identity.projector), partial(self.tokenize, special=True)
                self._rows = Rows(library, folder, plan, tokenize, vision=vision)
                self._go_on()
            stage = "context"
            self._pipeline = Pipeline(library, folder, vocabulary, plan, self._rows.tensor if self._rows else None)
            self._go_on()
            stage = "probe"
            self._pipeline.prefill([_probe_token(vocabulary)], None, _silent, self._abort)
            self._pipeline.finish()
        except (RuntimeError, OSError, msgspec.MsgspecError, EngineFailed) as error:
            reason = error.reason if isinstance(error, EngineFailed) else reason_of(error)
            raise ModelLoadFailed(model=name, stage=stage, reason=reason) from error

    def _go_on(self) -> None:
        if self._abort:
            self.close()
            raise Aborted

    def _identity(self, request: LoadRequest, library: Library, plan: Plan) -> ResolvedIdentity:
        asked = request.identity
        return ResolvedIdentity(
            backend="openvino",
            name=asked.name,
            digest=asked.digest,
            path=asked.path,
            runtime_digest=library.digest(),
            device=plan.device,
            num_ctx=request.num_ctx,
            num_batch=plan.batch,
            gpu_layers=0,
            tensor_split=(),
            flash_attention=True,
            kv_type=plan.kv_type,
            template_digest="",
            bos_policy="",
            reasoning_format="",
            adapters=(),
            projector=asked.projector,
        )

    def _warnings(self, vocabulary: Vocabulary, plan: Plan, made: bool) -> tuple[str, ...]:
        warnings = list(self._notes) if made else []
        warnings += [self._rows.note] if self._rows is not None and self._rows.note else []
        warnings += ["the model was converted for OpenVINO; its next load is quicker"] if made else []
        if vocabulary.limit is not None and vocabulary.limit <= plan.num_ctx:
            warnings.append(f"the tokenizer takes texts of {vocabulary.limit} tokens at most")
        return tuple(warnings)

    # --- vocabulary ----------------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """As the contract says."""
        return required(self._plan).threads

    @property
    def image_encoder(self) -> ImageEncoder | None:
        """What images are shown to, where the model has a graph for them."""
        return self._rows.image_encoder if self._rows is not None else None

    @property
    def special(self) -> SpecialTokens:
        """The vocabulary's marks; in a dry run of a file that is not converted yet, what its header says of them."""
        return self._special or self._vocabulary_of().special

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """As the contract says. Raises ContextOverflow where the tokenizer would cut the text."""
        vocabulary = self._vocabulary_of()
        tokens = vocabulary.tokenize(text, special)
        if vocabulary.limit is not None and len(tokens) >= vocabulary.limit:
            raise ContextOverflow(context=vocabulary.limit, resident=0, additional=len(tokens))
        return tokens

    def piece(self, token: int, *, special: bool) -> bytes:
        """As the contract says."""
        return self._vocabulary_of().piece(token, special)

    # --- turns ---------------------------------------------------------------------------------

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Tokens of this prompt whose blocks are in memory."""
        return self._pipeline_of().ledger.match(tokens) if tokens else 0

    def ensure_prefix(self, tokens: Sequence[int], purpose: Purpose = "turn", conversation: str | None = None) -> int:
        """The pipeline finds the blocks by itself when the request is added; this tells what it will find."""
        del purpose, conversation  # blocks are shared by content: there is no lane to choose
        self._prompt = tokens
        self._sampled = []
        return self.common_prefix(tokens)

    def prefill_suffix(self, options: DecodeOptions | None, progress: ProgressCallback) -> None:
        """Images that are not known first, then chunk by chunk; the first token is sampled with the last chunk."""
        pipeline, encoder = self._pipeline_of(), self.image_encoder
        if encoder is not None:
            reused, total = self.common_prefix(self._prompt), len(self._prompt)
            encoder.encode(self._abort, lambda: progress(reused, total))
        try:
            self._sampled = pipeline.prefill(self._prompt, options, progress, self._abort)
        except UnsupportedFeature:
            if options is None or options.tools is None:
                raise
            looser = msgspec.structs.replace(options, tools=any_arguments(options.tools))
            self._sampled = pipeline.prefill(self._prompt, looser, progress, self._abort)
        if not self._sampled:
            pipeline.finish()
            raise Aborted
        if options is None:
            pipeline.finish()

    def decode(self, options: DecodeOptions) -> Iterator[int]:
        """Decode one step a token; sampled tokens are handed out before the next step begins."""
        pipeline, abort, end = self._pipeline_of(), self._abort, self.special.end
        left, tokens = options.max_tokens, self._sampled
        while True:
            for token in tokens:
                yield token
                left -= 1
                if token in end or left == 0:
                    return
            if abort:
                raise Aborted
            if not pipeline.running:
                return
            last = tokens[-1] if tokens else None
            tokens = pipeline.step()
            if last is not None:
                pipeline.ledger.append(last)

    def constrain(self, opened: Opened) -> None:
        """Nothing to do: the pipeline watches for the openers of the grammar by itself."""
        del opened

    def end_turn(self) -> None:
        """Blocks of the prompt and of what was generated stay until their room is needed."""
        if self._pipeline is not None:
            self._pipeline.finish()
        if self.image_encoder is not None:
            self.image_encoder.hide()
        self._sampled = []

    def valid(self) -> bool:
        """Whether the pipeline was seen empty after the last stop."""
        return self._pipeline is not None and self._pipeline.sound

    def embed(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Not offered by this pipeline."""
        raise UnsupportedFeature(feature="embeddings (not offered by the OpenVINO engine)")

    def measure(self) -> Account:
        """Bytes of the process. Memory of the pool comes as it is written, and stays: what one conversation will
        write counts as taken, what lies beyond that as parked.
        """
        plan, pipeline, resident = self._plan, self._pipeline, resident_bytes()
        if plan is None or pipeline is None:
            return Account(rss_bytes=resident)
        touched, one = pipeline.ledger.touched, min(-(-plan.num_ctx // BLOCK), plan.blocks)
        return Account(
            rss_bytes=resident,
            parked_bytes=max(touched - one, 0) * plan.block_bytes,
            lanes_used=plan.lanes,
            measured_bytes=max(resident + (one - touched) * plan.block_bytes, 0),
        )

    def close(self) -> None:
        """As the contract says."""
        if self._pipeline is not None:
            self._pipeline.close()
        self._pipeline = None
        self._rows = None
        self._vocabulary = None

    # --- what must be there by now -------------------------------------------------------------

    def _library_of(self) -> Library:
        return required(self._library)

    def _vocabulary_of(self) -> Vocabulary:
        return required(self._vocabulary)

    def _pipeline_of(self) -> Pipeline:
        return required(self._pipeline)


def _conversions() -> Path:
    return data_root().cache / "openvino"


def _probe_token(vocabulary: Vocabulary) -> int:
    """One that begins no prompt, so that the probe leaves nothing to reuse."""
    return vocabulary.special.eos if vocabulary.special.eos is not None else vocabulary.size - 1


def _silent(done: int, total: int) -> None:
    """The probe shows no progress."""


def _capabilities(vocabulary: Vocabulary, plan: Plan, *, vision: bool) -> Capabilities:
    special = vocabulary.special
    return Capabilities(
        snapshot=False,
        reuse_counts=True,
        trim=True,
        cancel_prefill="chunk",
        cancel_decode="token",
        cancel_load=False,
        lanes=plan.lanes,
        fim=None not in (special.fim_prefix, special.fim_suffix, special.fim_middle),
        grammar=True,
        vision=vision,
        embeddings=False,
    )
