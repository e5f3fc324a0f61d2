"""The wire between clients and modeld: every request, result and event as a typed value.

JSON-RPC 2.0, one UTF-8 object a line. Fields are snake_case; amounts are bytes, tokens or seconds
as the name says. Unknown fields are ignored by both sides, so that neighbouring versions work
together. Every request and notification after `hello` carries `fence`, the instance it is meant for.

Streaming: `session/turn`, `model/load` and the library jobs send `session/event` notifications
while they run; `request` in them is the JSON-RPC id of the call they belong to. The response of the
call is the final event.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

PROTOCOL = 1
PROTOCOL_MIN = 1
PROTOCOL_MAX = 1

Role = Literal["owner", "standby", "idle"]
SlotStateName = Literal[
    "Empty", "Loading", "Ready", "Busy", "Switching", "Unloading", "Failed", "ShuttingDown", "LostOwner"
]
OnBusy = Literal["fail", "wait", "cancel"]
FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "cancelled_by_other", "context_full", "refusal"]
#: What is to be said of an answer that is no whole one, where `finish_reason` alone does not tell. `nothing` and
#: `thoughts` are the bridge's: no word came, or thoughts alone.
EndedBy = Literal["", "repetition", "nothing", "thoughts"]
Stage = Literal["queued", "loading", "prefix", "prefill", "thinking", "generating"]


class Value(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of the values on the wire: keyword only, defaults left out, unknown fields ignored."""


# --- handshake ---------------------------------------------------------------------------------


#: Clients of this name are commands of a moment, no editors.
COMMAND_LINE = "modeld command"


class ClientInfo(Value, kw_only=True):
    """Who calls: shown to other clients as the holder of the slot (for example "Zed")."""

    name: str
    version: str = ""
    pid: int = 0


class HelloParams(Value, kw_only=True):
    """`hello`: the first message on a connection. `token` is the instance's secret."""

    protocol: int
    token: str
    client: ClientInfo


class HelloResult(Value, kw_only=True):
    protocol: int
    instance: str
    role: Role
    backend: str
    version: str
    #: Why it is about to end (`stop`, `restart`, ...), "" while it goes on.
    ending: str = ""
    capabilities: dict[str, Any] = {}


class Fenced(Value, kw_only=True):
    """Base of every later request's params."""

    fence: str = ""


class PingResult(Value, kw_only=True):
    instance: str


# --- models ------------------------------------------------------------------------------------


#: An amount of tokens that something is made for: at least one.
Tokens = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
#: Stop strings are looked for at every token, each beginning of them too: so many of that length cost microseconds.
Stops = Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=64)]


#: Added to a token's logit: at either end it is the only one, or none.
Bias = Annotated[float, msgspec.Meta(ge=-100, le=100)]


class LoadConfig(Value, kw_only=True):
    """What may be asked of a resident model; None means `auto`. Tokens for contexts and batches.

    `num_ctx` is exact and never lowered silently; `min_ctx` is served by any larger context. `gpu_layers` -1 is all.
    """

    num_ctx: Tokens | None = None
    min_ctx: Tokens | None = None
    num_batch: Tokens | None = None
    gpu_layers: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    device: str | None = None
    flash_attention: bool | None = None
    kv_type: str | None = None
    tensor_split: list[float] | None = None
    adapters: list[str] = []


class Expect(Value, kw_only=True):
    """Compare-and-swap: the slot must be exactly here. `model` is the active model's name or ""."""

    generation: int | None = None
    model: str | None = None


class Accelerator(Value, kw_only=True):
    """A device with memory of its own, named alike by every process of this machine; bytes, 0 where it does not tell.

    `free_bytes` as it was when the device was asked.
    """

    name: str
    total_bytes: int = 0
    free_bytes: int = 0


class MemoryPlan(Value, kw_only=True):
    """The arithmetic of a load, in bytes. `fits`: largest context in tokens that fits, or None.

    `source`: `measured` at an earlier load, the `engine`'s own dry run, or a formula over the file's `header`.
    """

    device: str
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    required_bytes: int
    free_bytes: int
    reserve_bytes: int
    num_ctx: int
    fits: int | None = None
    estimate: bool = True
    adapters_bytes: int = 0
    source: Literal["measured", "engine", "header"] = "header"


class ModelInfo(Value, kw_only=True):
    """`model/describe`: advisory, never resident, never behind a turn."""

    name: str
    backend: str
    servable: bool
    reason: str = ""
    architecture: str = ""
    parameters: int = 0
    size_bytes: int = 0
    context_train: int = 0
    has_template: bool = False
    tools: bool = False
    thinking: bool = False
    vision: bool = False
    fim: bool = False
    embedding_only: bool = False
    warnings: list[str] = []
    plan: MemoryPlan | None = None


class DescribeParams(Fenced, kw_only=True):
    model: str
    config: LoadConfig = msgspec.field(default_factory=LoadConfig)


class ActiveModel(Value, kw_only=True):
    """The resolved identity of the resident model, and what it really took."""

    name: str
    backend: str
    digest: str
    path: str
    device: str
    num_ctx: int
    num_batch: int
    gpu_layers: int
    flash_attention: bool
    kv_type: str
    template_digest: str
    bos_policy: str
    reasoning_format: str
    runtime_digest: str
    tensor_split: list[float] = []
    adapters: list[str] = []
    projector: str = ""
    reserved_bytes: int | None = None
    capabilities: dict[str, Any] = {}


class LoadParams(Fenced, kw_only=True):
    """`model/load`. Waits at most `wait_s` when `on_busy` is wait."""

    model: str
    config: LoadConfig = msgspec.field(default_factory=LoadConfig)
    expect: Expect | None = None
    allow_switch: bool = False
    on_busy: OnBusy = "fail"
    wait_s: float | None = None


class LoadResult(Value, kw_only=True):
    active: ActiveModel
    generation: int
    loaded: bool
    load_seconds: float = 0.0
    #: What is odd about the model as it is loaded now.
    warnings: list[str] = []


class UnloadParams(Fenced, kw_only=True):
    expect: Expect | None = None
    on_busy: OnBusy = "fail"
    wait_s: float | None = None


class UnloadResult(Value, kw_only=True):
    """`freed` is the name of the unloaded model, or "" when the slot was empty already."""

    freed: str
    freed_bytes: int
    generation: int


class ConfigureParams(Fenced, kw_only=True):
    """`config` is put over what is kept for the model; the fields named in `reset` are given back first (`*`: all).

    With neither nothing changes, and the answer shows what is kept.
    """

    model: str
    config: LoadConfig
    reset: list[str] = []


class ConfigureResult(Value, kw_only=True):
    config: LoadConfig
    pending_reload: bool
    plan: MemoryPlan | None = None


# --- conversations -----------------------------------------------------------------------------


class Sampling(Value, kw_only=True):
    """Options of one turn, never of the identity. None means the model's or engine's default.

    Each is used or refused, on every engine alike: hence one range for all. `top_k` of 0 or less is all tokens.
    `seed` of any integer: as many bits as the engine takes are used.

    `tool_choice`: `auto` (the default), `none`, `required`, or the name of a tool: the answer is then a call from its
    first token, without thoughts before it. `loop_stop`: whether an answer that only repeats itself is ended.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=100)] | None = None
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stops = []
    max_tokens: Annotated[int, msgspec.Meta(le=2**31 - 1)] | None = None
    logit_bias: dict[str, Bias] = {}
    thinking: str | None = None
    tool_choice: str | None = None
    json_schema: dict[str, Any] | None = None
    loop_stop: bool | None = None


class TurnParams(Fenced, kw_only=True):
    """`session/turn`: one queue ticket for switch, load, prefill and decode.

    `messages` and `tools` have the chat-completion shape the templates are written for:
    `{role, content, reasoning_content?, tool_calls?, tool_call_id?, name?}` and
    `{type: "function", function: {name, description, parameters}}`. `conversation` is a hint. `prompt` is a text in
    the place of messages: it is continued as it stands, without a template.
    """

    model: str
    messages: list[dict[str, Any]]
    prompt: str | None = None
    config: LoadConfig = msgspec.field(default_factory=LoadConfig)
    tools: list[dict[str, Any]] = []
    params: Sampling = msgspec.field(default_factory=Sampling)
    conversation: str | None = None
    allow_load: bool = False
    allow_switch: bool = False
    consent: bool = False
    on_busy: OnBusy = "wait"
    wait_s: float | None = None


class Usage(Value, kw_only=True):
    """Tokens. `reused + prefilled` is the prompt; `generated` includes thoughts."""

    reused: int = 0
    prefilled: int = 0
    generated: int = 0


class Timings(Value, kw_only=True):
    """Seconds. `first_token_s` counts from the start of the engine's work on this turn.

    `threads`: how many computed at its end; 0 where the engine does not tell.
    """

    queued_s: float = 0.0
    load_s: float = 0.0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    decode_s: float = 0.0
    tokens_per_s: float = 0.0
    threads: int = 0


class ToolCall(Value, kw_only=True):
    """A finished call. `arguments` is a JSON object as text, complete and valid.

    `fault` says why the call cannot be run; its arguments are empty then.
    """

    id: str
    name: str
    arguments: str
    fault: str = ""


class TurnResult(Value, kw_only=True):
    """The final event of a turn. `ended_by` is `repetition` where the answer had become a loop (reason: `length`)."""

    finish_reason: FinishReason
    model: str
    usage: Usage
    timings: Timings
    generation: int
    num_ctx: int = 0
    tool_calls: list[ToolCall] = []
    session_valid: bool = True
    by: str = ""
    warnings: list[str] = []
    ended_by: EndedBy = ""


class Queued(Value, tag="queued", kw_only=True):
    """Place in the queue, from 1, and who is ahead."""

    position: int
    ahead: list[str] = []


class Loading(Value, tag="loading", kw_only=True):
    """0 to 1. `unloads` names the model that makes room, if any."""

    fraction: float
    model: str = ""
    unloads: str = ""


class Prefix(Value, tag="prefix", kw_only=True):
    reused: int
    total: int


class Prefill(Value, tag="prefill", kw_only=True):
    done: int
    total: int


class Thinking(Value, tag="thinking", kw_only=True):
    """The model began to reason."""


class Generating(Value, tag="generating", kw_only=True):
    """The model began to answer."""


class TextDelta(Value, tag="text", kw_only=True):
    text: str


class ReasoningDelta(Value, tag="reasoning", kw_only=True):
    text: str


class ToolCallDelta(Value, tag="tool_call", kw_only=True):
    """A call that is being written: `arguments` is the new part of its JSON text."""

    index: int
    id: str
    name: str
    arguments: str


class JobProgress(Value, tag="job", kw_only=True):
    """A library job: bytes done and in all (0 when unknown)."""

    done: int
    total: int
    label: str = ""


Event = (
    Queued
    | Loading
    | Prefix
    | Prefill
    | Thinking
    | Generating
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | JobProgress
)


class EventParams(Value, kw_only=True):
    """`session/event`, daemon to client. `request` is the JSON-RPC id of the running call."""

    request: int | str
    event: Event


class CountParams(Fenced, kw_only=True):
    """`model/count`: either `messages` (rendered with the model's template) or `text`."""

    model: str
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] = []
    text: list[str] | None = None


class CountResult(Value, kw_only=True):
    """Tokens: of each item alone, and of the whole as it would be sent."""

    each: list[int]
    total: int


class EmbedParams(Fenced, kw_only=True):
    model: str
    texts: list[str]
    config: LoadConfig = msgspec.field(default_factory=LoadConfig)
    allow_load: bool = False
    allow_switch: bool = False
    on_busy: OnBusy = "fail"
    wait_s: float | None = None


class EmbedResult(Value, kw_only=True):
    vectors: list[list[float]]
    tokens: int
    generation: int


class OpenParams(Fenced, kw_only=True):
    """`session/open`: for clients that hold a context themselves."""

    model: str
    config: LoadConfig = msgspec.field(default_factory=LoadConfig)
    allow_load: bool = False
    allow_switch: bool = False


class OpenResult(Value, kw_only=True):
    handle: str
    generation: int
    num_ctx: int


class HandleParams(Fenced, kw_only=True):
    handle: str


class BeginParams(Fenced, kw_only=True):
    """`turn/begin`: the slot for one turn on an open session, whose steps are then asked for one by one."""

    handle: str
    on_busy: OnBusy = "wait"
    wait_s: float | None = None


class BeginResult(Value, kw_only=True):
    """`turn` names the lease in every step. It ends by itself after `step_gap_s` seconds without a step."""

    turn: str
    generation: int
    num_ctx: int
    step_gap_s: float


class PrefixParams(Fenced, kw_only=True):
    """`session/ensure_prefix`, the first step: as in `session/turn`. `params` are those of the whole turn."""

    turn: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    params: Sampling = msgspec.field(default_factory=Sampling)
    conversation: str | None = None


class PrefixResult(Value, kw_only=True):
    """Tokens of the prompt, and how many of them were warm."""

    reused: int
    total: int


class StepParams(Fenced, kw_only=True):
    """`session/prefill_suffix`, `session/decode`, `turn/end`: the next step of that turn."""

    turn: str


class EndResult(Value, kw_only=True):
    """`turn/end`: the slot is given back. `session_valid` false: the session was closed with the slot."""

    generation: int
    session_valid: bool = True


class HoldParams(Fenced, kw_only=True):
    """`run/hold`: counts as a waiter for `model`; renew by calling again, end with `release`."""

    model: str
    run: str
    release: bool = False


class WarmParams(Fenced, kw_only=True):
    """`session/warm`: bring the prefix into memory; gives way to any turn."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []


class FillParams(Fenced, kw_only=True):
    """`completion/fill`: fill in the middle of `prefix` and `suffix`."""

    model: str
    prefix: str
    suffix: str
    params: Sampling = msgspec.field(default_factory=Sampling)


class FillResult(Value, kw_only=True):
    text: str
    usage: Usage


# --- status ------------------------------------------------------------------------------------


class BusyOperation(Value, kw_only=True):
    """What holds the slot, or a job beside it (a pull, a plan): operation, stage, client name, age in seconds."""

    operation: str
    stage: str
    holder: str
    age_s: float
    detail: dict[str, Any] = {}


class Waiting(Value, kw_only=True):
    client: str
    model: str
    waited_s: float


class MemoryStatus(Value, kw_only=True):
    """Bytes. `measured` is what the resident model took, once known.

    `devices`: the accelerators of the resident model, as they were before its load.
    """

    required_bytes: int | None = None
    free_bytes: int | None = None
    reserve_bytes: int | None = None
    measured_bytes: int | None = None
    pressure: bool = False
    devices: list[Accelerator] = []


class Rejected(Value, kw_only=True):
    """A model that this instance could not load and never will, reported by the digest of its content."""

    name: str
    digest: str
    reason: str


class Status(Value, omit_defaults=False, kw_only=True):
    """`status`: answered across all protocol versions, touching no engine."""

    instance: str
    role: Role
    pid: int
    backend: str
    state: SlotStateName
    generation: int
    active: ActiveModel | None = None
    version: str = ""
    endpoint: str = ""
    busy: BusyOperation | None = None
    queue: list[Waiting] = []
    jobs: list[BusyOperation] = []
    sessions: int = 0
    clients: int = 0
    effective_context: int | None = None
    memory: MemoryStatus = msgspec.field(default_factory=MemoryStatus)
    pending_reload: bool = False
    last_error: dict[str, Any] | None = None
    uptime_s: float = 0.0
    last_turn: TurnResult | None = None
    abandoned_turns: int = 0
    hint_model: str | None = None
    worker_pid: int | None = None
    ending: str = ""
    rejected: list[Rejected] = []


class WatchParams(Fenced, kw_only=True):
    """`status/watch`: the response is the current status, pushes follow as `status/changed`."""

    stop: bool = False


# --- library -----------------------------------------------------------------------------------

RowState = Literal[
    "loading", "unloading", "active", "queued", "loaded", "not loaded", "restarting", "not servable", "rejected"
]
RowAction = Literal["activate", "use", "wait", "cancel", "switch", "unload", "start_modeld", "install_engine"]


class LibraryRow(Value, kw_only=True):
    """One model on disk, with its live state joined when a daemon is known.

    `aliases`: other names that it answers to, such as those that it had before.
    """

    name: str
    title: str
    backend: str
    format: str
    path: str
    size_bytes: int
    state: RowState = "not loaded"
    architecture: str = ""
    parameters: int = 0
    quantization: str = ""
    context_train: int = 0
    digest: str = ""
    source: str = ""
    has_template: bool = False
    tools: bool = False
    thinking: bool = False
    vision: bool = False
    fim: bool = False
    embedding_only: bool = False
    parts: list[str] = []
    aliases: list[str] = []
    reason: str = ""
    actions: list[RowAction] = []


class LibraryParams(Fenced, kw_only=True):
    pass


class LibraryResult(Value, kw_only=True):
    """`complete` is false while the background scan still runs."""

    rows: list[LibraryRow]
    complete: bool = True
    problems: list[str] = []


class PullParams(Fenced, kw_only=True):
    """`library/pull`: `starter`, `hf:owner/repo[:pattern]`, an http(s) URL or a local path."""

    source: str
    digest: str | None = None
    name: str | None = None


class PullCancelParams(Fenced, kw_only=True):
    """`library/pull_cancel`: the downloads of this source, or all of them where none is named."""

    source: str = ""


class PullCancelResult(Value, kw_only=True):
    """The sources whose downloads end now; what they fetched is kept for the next pull."""

    cancelled: list[str] = []


class Partial(Value, kw_only=True):
    """A download that did not end. `name`: of its file; sizes in bytes, `total_bytes` 0 where it is not known."""

    name: str
    size_bytes: int = 0
    total_bytes: int = 0
    source: str = ""
    resumable: bool = False


class PartialResult(Value, kw_only=True):
    """Unfinished downloads that were removed, and those that are fetched right now and stay."""

    removed: list[Partial] = []
    busy: list[Partial] = []
    freed_bytes: int = 0


class PullResult(Value, kw_only=True):
    name: str
    path: str
    size_bytes: int
    digest: str


class RemoveParams(Fenced, kw_only=True):
    name: str


class RemoveResult(Value, kw_only=True):
    """`removed` paths; `parked`: conversations of the model that were kept on disk."""

    removed: list[str]
    freed_bytes: int
    parked: int = 0


# --- coordination and life ---------------------------------------------------------------------


class BackendParams(Fenced, kw_only=True):
    name: str
    config: dict[str, Any] = {}


class WorkspaceParams(Fenced, kw_only=True):
    workspace: str
    ttl_s: float
    release: bool = False


class WorkspaceResult(Value, kw_only=True):
    workspace: str
    holder: str
    expires_s: float


class ShutdownParams(Fenced, kw_only=True):
    """`daemon/shutdown`, `daemon/restart`, `daemon/handover`: drain up to `drain_s`."""

    drain_s: float | None = None
    reason: str = "stop"


#: method name -> (params type, result type): the one list of what modeld answers.
METHODS: dict[str, tuple[type[Value], type[Value]]] = {
    "hello": (HelloParams, HelloResult),
    "ping": (Fenced, PingResult),
    "status": (Fenced, Status),
    "status/watch": (WatchParams, Status),
    "model/list": (LibraryParams, LibraryResult),
    "library/list": (LibraryParams, LibraryResult),
    "library/refresh": (LibraryParams, LibraryResult),
    "library/pull": (PullParams, PullResult),
    "library/pull_cancel": (PullCancelParams, PullCancelResult),
    "library/remove": (RemoveParams, RemoveResult),
    "model/describe": (DescribeParams, ModelInfo),
    "model/load": (LoadParams, LoadResult),
    "model/unload": (UnloadParams, UnloadResult),
    "model/configure": (ConfigureParams, ConfigureResult),
    "model/embed": (EmbedParams, EmbedResult),
    "model/count": (CountParams, CountResult),
    "session/turn": (TurnParams, TurnResult),
    "session/open": (OpenParams, OpenResult),
    "session/close": (HandleParams, Value),
    "session/explain": (HandleParams, Status),
    "turn/begin": (BeginParams, BeginResult),
    "session/ensure_prefix": (PrefixParams, PrefixResult),
    "session/prefill_suffix": (StepParams, Usage),
    "session/decode": (StepParams, TurnResult),
    "turn/end": (StepParams, EndResult),
    "session/warm": (WarmParams, Usage),
    "completion/fill": (FillParams, FillResult),
    "run/hold": (HoldParams, Value),
    "backend/register": (BackendParams, Value),
    "workspace/lease": (WorkspaceParams, WorkspaceResult),
    "daemon/shutdown": (ShutdownParams, Value),
    "daemon/restart": (ShutdownParams, Value),
    "daemon/handover": (ShutdownParams, Value),
}
