"""What an engine is: the token-level face that the worker runs turns on.

One engine object lives in one worker process and holds at most one model. Two threads call it:
the engine thread (everything), and a side thread that only counts (`tokenize`, `piece`, `special`
must therefore be safe beside a running decode). No method is re-entrant.

The order within one turn is always

    ensure_prefix(tokens) -> prefill_suffix(options, progress) -> decode(options) -> end_turn()

and any of the last three may be left out (a warm-up decodes nothing, a cancel leaves early).
`end_turn` comes on every path.

Nothing here knows of text, templates or messages: see `modeld/worker/turn.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from modeld.engine.dry_run import Sizes
from modeld.engine.images import PromptImage
from modeld.engine.kv_disk_cache import KvDiskCache
from modeld.output.grammar.values import Opened, ToolGrammar
from shared.catalog.identity import RequestedIdentity, ResolvedIdentity
from shared.protocol.api import Accelerator, Sampling

#: `progress(done, total)`: tokens in prefill; in a load, thousandths of it.
ProgressCallback = Callable[[int, int], None]
CancelGranularity = Literal["node", "token", "chunk", "none"]
#: What a prompt is for: only a `turn` may take the lane of another conversation; `fill` keeps to its own.
Purpose = Literal["turn", "warm", "fill"]


class Aborted(Exception):
    """The abort flag was seen: the call stopped early. `Engine.valid` tells in what state."""


class PoolExhausted(Exception):
    """The engine's KV memory has no room for what its plan promised. A fault of the plan."""


class AbortFlag:
    r"""A flag that any thread sets and that native code reads without the interpreter lock.

    Two bytes, `\x01\x00` when set and `\x00\x00` when clear, so that libc's `strlen` over `address`
    is itself a callback that answers 1 or 0.
    """

    __slots__ = ("_buffer", "address")

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(2)
        self.address: int = ctypes.addressof(self._buffer)

    def set(self) -> None:
        """Whatever watches the flag stops at its next look."""
        self._buffer[0] = b"\x01"

    def clear(self) -> None:
        """Ready for the next turn."""
        self._buffer[0] = b"\x00"

    def __bool__(self) -> bool:
        return self._buffer[0] != b"\x00"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What this engine offers for this model; shown in status and describe.

    `trim`: a conversation's memory can be cut at any token (false: recurrent or window models, which
    fall back to a full prefill). `snapshot`: park and restore. `reuse_counts`: `ensure_prefix` tells
    the truth about reuse. `lanes`: conversations held at once without parking.
    """

    snapshot: bool = False
    reuse_counts: bool = False
    trim: bool = False
    cancel_prefill: CancelGranularity = "none"
    cancel_decode: CancelGranularity = "token"
    cancel_load: bool = False
    lanes: int = 1
    fim: bool = False
    grammar: bool = False
    vision: bool = False
    embeddings: bool = False
    embedding_only: bool = False


class SpecialTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The vocabulary's own marks. Ids, or None where the vocabulary has none.

    `end` are all ids that end a generation. `add_bos`: the vocabulary wants its BOS before a prompt.
    `fim_*` are fill-in-the-middle marks. `control`: texts that are one token when tokenised with `special`, and text
    without; `user_defined`: other texts that the vocabulary reads as one token always, structure or not.
    """

    bos: int | None = None
    bos_text: str = ""
    eos: int | None = None
    eos_text: str = ""
    add_bos: bool = False
    end: frozenset[int] = frozenset()
    fim_prefix: int | None = None
    fim_suffix: int | None = None
    fim_middle: int | None = None
    control: frozenset[str] = frozenset()
    user_defined: frozenset[str] = frozenset()


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to load. `model` is the catalog's facts; `num_ctx` one conversation's limit in tokens.

    `threads` 0 means: what this machine's cores and quota allow. `parked_bytes` is the host memory
    that parked conversations may take. `vocabulary_only`: no weights, only `special`, `tokenize` and
    `piece` will be called. `speculation`: tokens may be drafted from the context and evaluated together.
    """

    identity: RequestedIdentity
    model: dict[str, Any]
    num_ctx: int
    threads: int = 0
    parked_bytes: int = 0
    vocabulary_only: bool = False
    speculation: bool = True


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What is resident. `template` is the model's own chat template, "" where it brings none.

    Of the identity the worker itself fills in `template_digest`, `bos_policy` and `reasoning_format`, and `sampling`:
    the model's recommended settings; a turn's own values go before it.
    """

    identity: ResolvedIdentity
    capabilities: Capabilities
    measured_bytes: int
    template: str
    sampling: Sampling = msgspec.field(default_factory=Sampling)
    warnings: tuple[str, ...] = ()


class DecodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling with every default filled in. `temperature` 0 is greedy; `seed` None draws one.

    `max_tokens` is the bound of this generation, always given. `logit_bias` pairs id and bias.
    `json_schema` constrains the whole answer, `tools` the calls in it (capability `grammar`).
    """

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    json_schema: str | None = None
    tools: ToolGrammar | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Measured: bytes of the process, of parked conversations, and lanes in use.

    `measured_bytes` is what the load takes once one conversation fills its window, by all that was touched until now;
    0: what was measured at the load stands.
    """

    rss_bytes: int = 0
    parked_bytes: int = 0
    parked: int = 0
    lanes_used: int = 0
    measured_bytes: int = 0


class ImageEncoder(Protocol):
    """An engine's eyes, where a projector is loaded."""

    @property
    def mark(self) -> str:
        """What a rendered prompt holds where an image belongs; nobody outside this process knows it."""
        ...

    def ids(self, text: str, images: Sequence[PromptImage]) -> list[int]:
        """Ids of a rendered prompt with its marks, as `modeld.engine.images` writes images; no BOS added.

        Safe beside a running decode. Raises ImageUnusable, UnsupportedFeature.
        """
        ...

    def show(self, tokens: Sequence[int], images: Sequence[PromptImage]) -> None:
        """The images of the prompt that `ensure_prefix` gets next, until `end_turn`."""
        ...


class Engine(Protocol):
    """One model in this process. All errors are `shared.errors` classes, `Aborted` or `PoolExhausted`."""

    #: Whether an evaluation keeps the interpreter's lock: no other thread of the process moves until it is over.
    holds_lock: ClassVar[bool]

    def __init__(self, abort: AbortFlag) -> None: ...

    def prepare(self) -> str:
        """Import the native library; its version digest. Raises BackendUnavailable."""
        ...

    def accelerators(self, identity: RequestedIdentity) -> tuple[Accelerator, ...]:
        """The devices with memory of their own that a load of `identity` would use, with what is free now; () for none.

        The same device has the same name in every process of this machine. After `prepare`, from any thread.
        """
        ...

    def load(self, request: LoadRequest, progress: ProgressCallback) -> LoadedModel:
        """Make the model resident. Raises ModelLoadFailed (with its stage), UnsupportedFeature, Aborted."""
        ...

    def dry_run(
        self, request: LoadRequest, contexts: Sequence[int], began: Callable[[str], None]
    ) -> tuple[LoadedModel, list[Sizes]]:
        """All of a load that needs no memory of the model's size: options, files, vocabulary, graphs.

        In a process to throw away; `began` gets the name of each step. What it would take for each of `contexts`, or
        [] where the engine cannot tell. Afterwards `special` is known. Raises as `load`.
        """
        ...

    @property
    def special(self) -> SpecialTokens:
        """The vocabulary's marks; known once loaded."""
        ...

    @property
    def threads(self) -> int:
        """How many threads compute a step now; 0 where nothing computes."""
        ...

    @property
    def image_encoder(self) -> ImageEncoder | None:
        """What images are shown to; None where the loaded model cannot see."""
        ...

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Ids of `text`, no BOS or EOS added; `special`: marks in the text become their own tokens."""
        ...

    def piece(self, token: int, *, special: bool) -> bytes:
        """Bytes of one token; a control token is empty unless `special`."""
        ...

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Tokens of the prompt that are warm now, in a lane or parked. Changes nothing."""
        ...

    def ensure_prefix(self, tokens: Sequence[int], purpose: Purpose = "turn", conversation: str | None = None) -> int:
        """Bring the longest warm prefix of the prompt into a lane; how many tokens need no prefill.

        `conversation` is a hint: the same one goes on, so what is cut off need not be kept. Always
        less than `len(tokens)`, since the last token must be evaluated to have logits.
        """
        ...

    def prefill_suffix(self, options: DecodeOptions | None, progress: ProgressCallback) -> None:
        """Evaluate the rest of the prompt given to `ensure_prefix`. `options` None: nothing will be decoded.

        `progress` counts prompt tokens from what was reused up to the whole. Raises Aborted.
        """
        ...

    def decode(self, options: DecodeOptions) -> Iterator[int]:
        """Token ids one by one, at most `max_tokens`; an id of `special.end` is given and ends it.

        Raises Aborted when the flag is seen between or within tokens.
        """
        ...

    def constrain(self, opened: Opened) -> None:
        """Between two tokens of a decode: a tool call has begun, hold the model to the options' `tools`.

        Does nothing where the engine cannot, or does so by itself.
        """
        ...

    def end_turn(self) -> None:
        """The lane is idle again; what was generated stays warm. Called on every path, also twice."""
        ...

    def valid(self) -> bool:
        """Whether the state is proven good after an abort or error (else the slot must be closed)."""
        ...

    def embed(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Compute one vector for each token list, L2-normalised. Raises UnsupportedFeature, Aborted."""
        ...

    def trim_parked(self, limit: int) -> int:
        """Drop parked conversations, least recently used first, down to `limit` bytes; bytes freed."""
        ...

    def attach(self, disk_cache: KvDiskCache) -> int:
        """Conversations kept on disk under this identity count as parked from now on; how many there are.

        Called once, after the load; 0 without the capability `snapshot`.
        """
        ...

    def shelve(self, until: Callable[[], bool]) -> int:
        """Write what is warm to the attached disk cache, until all is or `until` says so; conversations written.

        Called when nothing runs and nothing else will follow. Raises OSError.
        """
        ...

    def measure(self) -> Account:
        """What is held now. Cheap, and safe beside a running decode."""
        ...

    def close(self) -> None:
        """Free everything; safe to call in any state, and twice."""
        ...
