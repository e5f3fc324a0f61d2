"""The pipe between the daemon and its engine worker: length-prefixed msgpack, typed both ways.

`turn` numbers rise within one worker. A `Cancel` names the turn it means, so that a cancel that
comes late never touches the next one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shared.catalog.identity import RequestedIdentity, ResolvedIdentity
from shared.protocol.api import Accelerator, EndedBy, Event, Sampling, ToolCall, Usage

WORKER_PROTOCOL = 4
#: The stage of an engine thread that does what nobody waits for: work that has come meanwhile waits for its next step.
SPARE = "spare"


class Message(msgspec.Struct, kw_only=True):
    """Base of both directions."""


# --- daemon to worker --------------------------------------------------------------------------


class Heartbeat(Message, tag="heartbeat", kw_only=True):
    """The owner lives. Sent three times within the watchdog's time."""


class Load(Message, tag="load", kw_only=True):
    """Load once; answered by `Loaded` or `Failed`, with `Progress` between.

    `model` is the catalog's facts; `num_ctx` one conversation's limit in tokens; `threads` 0 lets the
    worker choose. `vocabulary_only` loads what counting needs and nothing else: no weights.
    `disk_cache_bytes` above 0: conversations are kept on disk when the worker closes.
    """

    turn: int
    identity: RequestedIdentity
    model: dict[str, Any]
    num_ctx: int
    threads: int = 0
    parked_bytes: int = 0
    template_deadline: float = 2.0
    vocabulary_only: bool = False
    disk_cache_bytes: int = 0
    speculation: bool = True


class Turn(Message, tag="turn", kw_only=True):
    """Render, ensure the prefix, prefill, decode. Answered by `Emitted`* then `Done` or `Failed`.

    `prompt` is continued as it stands, in the place of messages.
    """

    turn: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    params: Sampling
    conversation: str | None = None
    prompt: str | None = None


class Warm(Message, tag="warm", kw_only=True):
    """Ensure a prefix alone. Answered by `Done` or `Failed`."""

    turn: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


class Fill(Message, tag="fill", kw_only=True):
    """Fill in the middle, in the lane kept for it. Answered by `Done` (with `text`) or `Failed`."""

    turn: int
    prefix: str
    suffix: str
    params: Sampling


class EnsurePrefix(Message, tag="ensure_prefix", kw_only=True):
    """A turn step by step, the first: render, and bring what is warm of it into a lane. Answered by `Done`.

    Each step has a number of its own; the parameters of the whole turn come with this one.
    """

    turn: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    params: Sampling
    conversation: str | None = None


class PrefillSuffix(Message, tag="prefill_suffix", kw_only=True):
    """The second step: evaluate the rest of the prompt. Answered by `Emitted`* then `Done` or `Failed`."""

    turn: int


class Decode(Message, tag="decode", kw_only=True):
    """The last step: the answer. Answered by `Emitted`* then `Done` or `Failed`."""

    turn: int


class EndSteps(Message, tag="end_steps", kw_only=True):
    """The turn is over, wherever it was; what was evaluated stays warm. Answered by `Done`."""

    turn: int


class Embed(Message, tag="embed", kw_only=True):
    """Vectors. Answered by `Done` or `Failed`."""

    turn: int
    texts: list[str]


class Count(Message, tag="count", kw_only=True):
    """Answered beside a running turn by `Counted` or `Failed`."""

    turn: int
    messages: list[dict[str, Any]] | None
    tools: list[dict[str, Any]]
    text: list[str] | None


class AskDevices(Message, tag="ask_devices", kw_only=True):
    """Before a load: which discrete accelerators would it use? Answered by `Devices` or `Failed`."""

    turn: int
    identity: RequestedIdentity


class Cancel(Message, tag="cancel", kw_only=True):
    """Stop that turn, warm-up, fill, embedding or load, and no other."""

    turn: int


class Sample(Message, tag="sample", kw_only=True):
    """Asks for the worker's own account of what runs; answered by `Account`."""


class TrimParked(Message, tag="trim_parked", kw_only=True):
    """At a turn's border: drop parked conversations down to `limit` bytes. Answered by `Done` or `Failed`."""

    turn: int
    limit: int = 0


class Close(Message, tag="close", kw_only=True):
    """Free everything and exit 0."""


# --- worker to daemon --------------------------------------------------------------------------


class WorkerHello(Message, tag="hello", kw_only=True):
    """Sent before any native import. `start_token` proves the pid (see shared.lease.process.identity)."""

    protocol: int
    version: str
    pid: int
    start_token: str


class Imported(Message, tag="imported", kw_only=True):
    """The engine library is in memory; a load may come. `runtime_digest` names its version."""

    runtime_digest: str
    seconds: float


class Progress(Message, tag="progress", kw_only=True):
    """0 to 1, of the load named by `turn`."""

    turn: int
    fraction: float


class Loaded(Message, tag="loaded", kw_only=True):
    """`measured_bytes`: what the process really took for it.

    `warnings`: what does not work as it should, for the turn that waited. `notes`: what its template is like.
    """

    turn: int
    identity: ResolvedIdentity
    capabilities: dict[str, Any]
    measured_bytes: int
    seconds: float
    warnings: list[str] = []
    notes: list[str] = []


class Emitted(Message, tag="emitted", kw_only=True):
    """Events of a running turn, in order, joined over a few milliseconds."""

    turn: int
    events: list[Event]


class Done(Message, tag="done", kw_only=True):
    """End of a turn, warm, fill or embed. Seconds; `vectors` only for embed, `text` only for fill.

    `threads` as in `Timings`, `ended_by` as in `TurnResult`. `measured_bytes`, `parked_bytes`: of the engine's
    account, where what a load takes shows only as it is used; 0 otherwise.
    `state_valid` false means that the engine could not prove its state good: close the slot.
    """

    turn: int
    finish_reason: str
    usage: Usage
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    decode_s: float = 0.0
    threads: int = 0
    tool_calls: list[ToolCall] = []
    text: str = ""
    vectors: list[list[float]] = []
    state_valid: bool = True
    warnings: list[str] = []
    ended_by: EndedBy = ""
    measured_bytes: int = 0
    parked_bytes: int = 0


class Counted(Message, tag="counted", kw_only=True):
    """Tokens of each item's own words, and of the whole as it would be sent."""

    turn: int
    each: list[int]
    total: int


class Devices(Message, tag="devices", kw_only=True):
    """Discrete accelerators, with their memory at this moment."""

    turn: int
    found: list[Accelerator]


class Failed(Message, tag="failed", kw_only=True):
    """`error` is a wire error object (shared.errors); `state_valid` as in `Done`."""

    turn: int
    error: dict[str, Any]
    state_valid: bool = True


class Account(Message, tag="account", kw_only=True):
    """What the engine thread runs: the turn number or None, and its stage.

    `mark` differs after each progress. `in_engine` and `place`: where in our code that thread is now. `longest_s`: the
    longest step of the engine so far, in seconds.
    """

    running: int | None
    stage: str
    mark: float = 0.0
    in_engine: bool = True
    place: str = ""
    longest_s: float = 0.0
    rss_bytes: int = 0
    parked_bytes: int = 0
    parked: int = 0
    lanes_used: int = 0


Step = EnsurePrefix | PrefillSuffix | Decode | EndSteps
Job = Turn | Warm | Fill | Embed | TrimParked | Step
ToWorker = Heartbeat | Load | Job | Count | AskDevices | Cancel | Sample | Close
FromWorker = WorkerHello | Imported | Progress | Loaded | Emitted | Done | Counted | Devices | Failed | Account
