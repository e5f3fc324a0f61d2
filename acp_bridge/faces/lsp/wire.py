"""What the LSP face says beside standard LSP: each `modeld/*` request, result, notification and event. Pure.

`editors/vscode/src/wire.ts` is generated from this module (`scripts/typescript.py`); a test keeps it in step. Names are
camelCase on the wire. Amounts are bytes, tokens or seconds as the name says. Unknown fields are ignored by both sides.

Streams: a request that carries a `partialResultToken` gets `$/progress` notifications with that token while it runs;
each `value` is one `TurnEvent`. A request that carries a `workDoneToken` gets standard work-done progress too.
Cancels: `$/cancelRequest` ends the request at once with -32800; `modeld/cancel` with the token lets it end in order,
with its counts. Both reach the daemon at once.
Errors: JSON-RPC errors whose `data.kind` is one of the error table (`ErrorKind`); the other fields of `data` are the
table's, in snake_case. `message` is a sentence for people and says what to do next.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from shared.protocol.api import EndedBy, FinishReason, RowState, SlotStateName

Made = TypeVar("Made", bound=msgspec.Struct)
#: Rises when a neighbouring version of the extension could no longer work with this face.
WIRE = 1

Token = int | str
Group = Literal["active", "installed", "remote", "unavailable"]
ModelState = Literal[RowState, "remote", "not available"]
Action = Literal["activate", "use", "wait", "cancel", "switch", "unload", "start_modeld", "install_engine"]
ServiceState = Literal["running", "restarting", "not_running", "stale", "unreachable", "not_installed", "looking"]
FitVerdict = Literal["fits", "fits_smaller", "too_big", "unknown"]
Consent = Literal["ask", "always", "never"]
Overflow = Literal["refuse", "trim"]
Role = Literal["system", "user", "assistant", "tool"]
AnswerKind = Literal["allow_once", "allow_always", "reject_once"]
NoticeKind = Literal["switched_away", "memory_pressure", "other_version", "settings"]
ActionCommand = Literal["modeld.explain", "modeld.fix", "modeld.document", "modeld.tests"]
Operation = Literal["load", "unload", "switch", "pull"]


class Incoming(msgspec.Struct, rename="camel", kw_only=True):
    """Base of what the editor sends. A field with a default may be left out."""


class Outgoing(msgspec.Struct, rename="camel", kw_only=True):
    """Base of what the bridge sends. Every field is always there."""


def mirrored(kind: type[Made], source: msgspec.Struct, /, **said: Any) -> Made:
    """A `kind` with the fields of `source` that have the same names, and with what is `said` beside or instead."""
    shared = set(kind.__struct_fields__).intersection(source.__struct_fields__).difference(said)
    return kind(**{name: getattr(source, name) for name in shared}, **said)


class Nothing(Incoming, kw_only=True):
    """No parameters."""


# --- opening -----------------------------------------------------------------------------------


class Options(Incoming, kw_only=True):
    """`initializationOptions`. `workspace` names what picks are remembered for when the window has no folder; the two
    switches decide whether the standard methods are advertised.
    """

    wire: int = WIRE
    workspace: str = ""
    inline_completion: bool = True
    code_actions: bool = True


class Offer(Outgoing, kw_only=True):
    """`capabilities.experimental.modeld` in the answer to `initialize`."""

    wire: int
    version: str
    methods: list[str]


# --- models ------------------------------------------------------------------------------------


class Fit(Outgoing, kw_only=True):
    """A memory forecast. `context` in tokens is what would fit (0: none); bytes. `text` is a line for people, `source`
    says what its numbers are.
    """

    verdict: FitVerdict
    text: str
    context: int = 0
    weights_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    required_bytes: int = 0
    free_bytes: int = 0
    reserve_bytes: int = 0
    source: str = ""


class Model(Outgoing, kw_only=True):
    """One row of the picker. `id` never changes with state, backend or restart.

    `selectable` models may be picked, also while modeld is away; the others say why not in `reason`. `detail` is a
    short state text for people. Contexts in tokens, 0 when not known: `context` is the running one (loaded models
    only), `context_own` the model's own, `window` what a turn may count on: the running one, else what fits, else its
    own. `thinking_levels` is empty when the model does not think, else its default comes first.
    """

    id: str
    name: str
    group: Group
    state: ModelState
    detail: str
    selectable: bool
    reason: str = ""
    actions: list[Action] = []
    provider: str = ""
    backend: str = ""
    format: str = ""
    architecture: str = ""
    quantization: str = ""
    parameters: int = 0
    size_bytes: int = 0
    path: str = ""
    context: int = 0
    context_own: int = 0
    window: int = 0
    tools: bool = False
    thinking: bool = False
    thinking_levels: list[str] = []
    vision: bool = False
    fim: bool = False
    embedding_only: bool = False
    has_template: bool = False
    fit: Fit | None = None
    tokens_per_s: float = 0.0


class ModelsParams(Incoming, kw_only=True):
    """`modeld/models`. `workspace` defaults to the window's folder. `wait` waits for the first look at the library."""

    workspace: str = ""
    wait: bool = True


class Models(Outgoing, kw_only=True):
    """The picker: `models` in order, never empty of selectable ones while modeld merely restarts.

    `picked` is this workspace's remembered pick ("" when none), `default` the local model that answers without one (""
    when there is none; never a remote one). When neither answers, `reason` says why and what to do.
    """

    models: list[Model]
    picked: str = ""
    default: str = ""
    reason: str = ""
    complete: bool = True


class PickParams(Incoming, kw_only=True):
    """`modeld/pick`: remember the user's intent for a workspace. Nothing is loaded."""

    model: str
    workspace: str = ""


class Picked(Outgoing, kw_only=True):
    """What is remembered now."""

    model: str
    workspace: str


class DescribeParams(Incoming, kw_only=True):
    """`modeld/describe`: a forecast for one model, with a wanted context in tokens if given. Loads nothing."""

    model: str
    context: int | None = None


class Description(Outgoing, kw_only=True):
    """What a load would mean. `switch` is the sentence of its consequence, "" when no model has to go; `in_use` the one
    that says who uses that model, "" when nobody else does.
    """

    model: Model
    fit: Fit | None = None
    switch: str = ""
    in_use: str = ""
    warnings: list[str] = []


class LibraryParams(Incoming, kw_only=True):
    """`modeld/library`: everything on disk, servable or not. `refresh` scans again first."""

    refresh: bool = False


class Library(Outgoing, kw_only=True):
    """`complete` is false while the scan still runs; `problems` are folders and files that could not be read."""

    models: list[Model]
    complete: bool = True
    problems: list[str] = []
    folder: str = ""


# --- status ------------------------------------------------------------------------------------


class Busy(Outgoing, kw_only=True):
    """What holds the slot. `mine`: it is this window. `fraction` is 0 to 1, or null when it cannot be determined."""

    operation: str
    stage: str
    holder: str
    mine: bool
    model: str = ""
    age_s: float = 0.0
    fraction: float | None = None


class Waiting(Outgoing, kw_only=True):
    """One place in the queue."""

    client: str
    mine: bool
    model: str
    waited_s: float


class Memory(Outgoing, kw_only=True):
    """Bytes on the device, null when not known."""

    required_bytes: int | None = None
    free_bytes: int | None = None
    reserve_bytes: int | None = None
    measured_bytes: int | None = None
    pressure: bool = False


class Status(Outgoing, kw_only=True):
    """Where the service stands. `text` is a sentence for people, which says what to do next when it is away.

    `startable`: `modeld/start` is the way out. `model` is the id of the resident model, "" when there is none;
    `context` its running window in tokens; `tokens_per_s` of the last turn.
    """

    service: ServiceState
    text: str
    startable: bool = False
    backend: str = ""
    version: str = ""
    slot: SlotStateName | None = None
    model: str = ""
    device: str = ""
    context: int = 0
    generation: int = 0
    tokens_per_s: float = 0.0
    busy: Busy | None = None
    queue: list[Waiting] = []
    memory: Memory = msgspec.field(default_factory=Memory)
    clients: int = 0
    pending_reload: bool = False
    last_error: str = ""


# --- messages ----------------------------------------------------------------------------------


class Text(Incoming, kw_only=True, tag_field="type", tag="text"):
    """Words."""

    text: str


class Reasoning(Incoming, kw_only=True, tag_field="type", tag="reasoning"):
    """What the assistant thought; passed on where the model's template takes it."""

    text: str


class Image(Incoming, kw_only=True, tag_field="type", tag="image"):
    """`data` is base64."""

    mime_type: str
    data: str


class CallPart(Incoming, kw_only=True, tag_field="type", tag="tool_call"):
    """A call that the assistant made earlier. `input` is its JSON object."""

    id: str
    name: str
    input: dict[str, Any]


class ResultPart(Incoming, kw_only=True, tag_field="type", tag="tool_result"):
    """What a tool answered to the call `id`."""

    id: str
    text: str


MessagePart = Text | Reasoning | Image | CallPart | ResultPart


class Message(Incoming, kw_only=True):
    """One message of the history. Tool results may stand in a `user` or a `tool` message."""

    role: Role
    content: list[MessagePart] | str


class Tool(Incoming, kw_only=True):
    """A tool that the model may call. `input_schema` is JSON schema."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class Sampling(Incoming, kw_only=True):
    """Options of one turn; null means the model's default. `thinking` is one of the model's `thinking_levels`."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: list[str] = []
    thinking: str | None = None


# --- turns -------------------------------------------------------------------------------------


class TurnParams(Incoming, kw_only=True):
    """`modeld/turn`: the whole history in, the next assistant message out. No conversation id is needed.

    `model` "" means the workspace's pick, else the local default. A remote model answers only as the workspace's pick:
    another one fails with `remote_not_picked`, whoever named it. `consent` says what happens when another client uses
    the active model: `ask` sends `modeld/ask`, `always` switches, `never` fails with `model_switch_required`.
    `overflow` says what happens to a history that does not fit: `refuse` fails with `context_overflow` and its numbers,
    `trim` leaves out whole exchanges at the head and says so. Without a `partialResultToken` the text is in the result.
    """

    messages: list[Message]
    model: str = ""
    workspace: str = ""
    tools: list[Tool] = []
    tool_choice: Literal["auto", "required", "none"] = "auto"
    options: Sampling = msgspec.field(default_factory=Sampling)
    allow_load: bool = True
    allow_switch: bool = True
    consent: Consent = "ask"
    overflow: Overflow = "refuse"
    conversation: str | None = None
    partial_result_token: Token | None = None
    work_done_token: Token | None = None


class WaitingEvent(Outgoing, kw_only=True, tag_field="type", tag="waiting"):
    """The turn waits for modeld or for another editor; `text` is a sentence."""

    text: str


class QueuedEvent(Outgoing, kw_only=True, tag_field="type", tag="queued"):
    """Place in the queue, from 1, and who is ahead."""

    position: int
    ahead: list[str]


class LoadingEvent(Outgoing, kw_only=True, tag_field="type", tag="loading"):
    """`fraction` is 0 to 1; `unloads` names the model that makes room, "" when none."""

    model: str
    fraction: float
    unloads: str


class PrefixEvent(Outgoing, kw_only=True, tag_field="type", tag="prefix"):
    """Tokens of the prompt that are warm already, and all of them."""

    reused: int
    total: int


class PrefillEvent(Outgoing, kw_only=True, tag_field="type", tag="prefill"):
    """Tokens read so far, and all that have to be."""

    done: int
    total: int


class ThinkingEvent(Outgoing, kw_only=True, tag_field="type", tag="thinking"):
    """The model began to reason."""


class GeneratingEvent(Outgoing, kw_only=True, tag_field="type", tag="generating"):
    """The model began to answer."""


class TextEvent(Outgoing, kw_only=True, tag_field="type", tag="text"):
    """More of the answer."""

    text: str


class ReasoningEvent(Outgoing, kw_only=True, tag_field="type", tag="reasoning"):
    """More of the thoughts."""

    text: str


class ToolCallEvent(Outgoing, kw_only=True, tag_field="type", tag="tool_call"):
    """A call that is being written; `arguments` is the new part of its JSON text. The result has the calls whole."""

    index: int
    id: str
    name: str
    arguments: str


class NoticeEvent(Outgoing, kw_only=True, tag_field="type", tag="notice"):
    """Words of the bridge to the user about this turn (what was left out, who ended it); never the model's."""

    text: str


TurnEvent = (
    WaitingEvent
    | QueuedEvent
    | LoadingEvent
    | PrefixEvent
    | PrefillEvent
    | ThinkingEvent
    | GeneratingEvent
    | TextEvent
    | ReasoningEvent
    | ToolCallEvent
    | NoticeEvent
)


class ToolCall(Outgoing, kw_only=True):
    """A finished call. `arguments` is a JSON object as text, complete and valid."""

    id: str
    name: str
    arguments: str


class Usage(Outgoing, kw_only=True):
    """Tokens. `reused + prefilled` is the prompt; `generated` includes thoughts."""

    reused: int = 0
    prefilled: int = 0
    generated: int = 0


class Timings(Outgoing, kw_only=True):
    """Seconds, and tokens a second. `threads`: how many computed at the end; 0 where nobody tells."""

    queued_s: float = 0.0
    load_s: float = 0.0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    decode_s: float = 0.0
    tokens_per_s: float = 0.0
    threads: int = 0


class TurnResult(Outgoing, kw_only=True):
    """The end of a turn. `text` and `reasoning` are empty when they were streamed. `context`: the running window.

    `by` names who ended it when `finish_reason` is `cancelled_by_other`. `left_out` counts the messages left out at the
    head (`overflow: trim`). `ended_by` is `repetition` where the answer had become a loop,
    `nothing` or `thoughts` where no word of an answer came; a notice tells it too.
    """

    finish_reason: FinishReason
    model: str
    usage: Usage
    timings: Timings
    context: int = 0
    tool_calls: list[ToolCall] = []
    text: str = ""
    reasoning: str = ""
    by: str = ""
    warnings: list[str] = []
    left_out: int = 0
    ended_by: EndedBy = ""


class CancelParams(Incoming, kw_only=True):
    """`modeld/cancel`: end the request with this `partialResultToken` or `workDoneToken`; or, with a `model`, all that
    this window runs or has queued on it. With neither: all turns and loads of this window.
    """

    token: Token | None = None
    model: str = ""


class Cancelled(Outgoing, kw_only=True):
    """How many running requests were asked to end. 0 is no error: they had ended already."""

    count: int


class CountParams(Incoming, kw_only=True):
    """`modeld/count`: tokens of `text`, or of `messages` as they would be sent with `tools`. Loads nothing."""

    model: str
    text: list[str] | None = None
    messages: list[Message] | None = None
    tools: list[Tool] = []


class Counted(Outgoing, kw_only=True):
    """Tokens of each item alone, and of the whole. `exact` is false when no tokenizer was at hand (modeld is away; a
    remote model is not the pick, or its server counts for nobody): then they are an estimate.
    """

    each: list[int]
    total: int
    exact: bool = True


# --- loading -----------------------------------------------------------------------------------


class LoadParams(Incoming, kw_only=True):
    """`modeld/load`: into an empty slot; `modeld/switch`: also in place of another model.

    `context` is an exact window in tokens and never lowered silently. `remember` records the pick for the workspace.
    `consent` as in a turn.
    """

    model: str
    workspace: str = ""
    context: int | None = None
    remember: bool = True
    consent: Consent = "ask"
    partial_result_token: Token | None = None
    work_done_token: Token | None = None


class Loaded(Outgoing, kw_only=True):
    """`fresh` is false when it was loaded already."""

    model: str
    context: int
    device: str
    fresh: bool
    seconds: float
    reserved_bytes: int | None = None


class UnloadParams(Incoming, kw_only=True):
    """`modeld/unload`. With a `model`, only if it is the active one. `cancel` ends a turn that runs on it."""

    model: str = ""
    cancel: bool = False


class Unloaded(Outgoing, kw_only=True):
    """`model` is "" when the slot was empty already."""

    model: str
    freed_bytes: int


# --- service -----------------------------------------------------------------------------------


class Said(Outgoing, kw_only=True):
    """`modeld/start` and `modeld/stop`: what the command said, and the status after it."""

    text: str
    status: Status


class PullParams(Incoming, kw_only=True):
    """`modeld/pull`: `starter`, `hf:owner/repo[:pattern]`, an http(s) URL or a local path. Works without a daemon."""

    source: str
    name: str | None = None
    digest: str | None = None
    work_done_token: Token | None = None


class Pulled(Outgoing, kw_only=True):
    """The model that is in the library now."""

    model: str
    path: str
    size_bytes: int


class Finding(Outgoing, kw_only=True):
    """One line of the doctor. `good` false means that something has to be done, and `text` says what."""

    about: str
    text: str
    good: bool


class Report(Outgoing, kw_only=True):
    """`modeld/doctor`. `logs` is the folder of modeld's logs, `root` the data root, `python` this interpreter."""

    findings: list[Finding]
    good: bool
    root: str
    logs: str
    python: str
    version: str


# --- the bridge asks and tells -----------------------------------------------------------------


class Answer(Outgoing, kw_only=True):
    """One way to answer."""

    id: str
    name: str
    kind: AnswerKind


class Question(Outgoing, kw_only=True):
    """`modeld/ask`, bridge to editor: may the active model be unloaded? `title` holds the switch sentence and whose it
    is. `token` is the one of the turn or load that asks, null when it has none. The question is withdrawn by
    `$/cancelRequest`.
    """

    title: str
    active: str
    wanted: str
    in_use_by: list[str]
    answers: list[Answer]
    token: Token | None = None


class Reply(Incoming, kw_only=True):
    """The id of the chosen answer, null when the user dismissed the question: the turn ends with `consent_declined`."""

    answer: str | None = None


class Progress(Outgoing, kw_only=True):
    """`modeld/progress`: long work on the slot or the library, whoever started it. `fraction` is 0 to 1, null when it
    cannot be determined; `done`: it has ended.
    """

    operation: Operation
    model: str
    text: str
    mine: bool
    fraction: float | None = None
    done: bool = False


class Notice(Outgoing, kw_only=True):
    """`modeld/notice`: a sentence the user should see once."""

    kind: NoticeKind
    text: str
    model: str = ""


# --- code actions ------------------------------------------------------------------------------


class ActionTarget(Outgoing, kw_only=True):
    """The one argument of a code action's command. Lines and characters as LSP counts them, from 0.

    The editor's side runs the command (an `ActionCommand`): it shows what would change before it changes text.
    `problems` are the diagnostics that the action is about, each with its line as people count it.
    """

    uri: str
    start_line: int
    start_character: int
    end_line: int
    end_character: int
    problems: list[str]


# --- the one list ------------------------------------------------------------------------------


class Method(msgspec.Struct, frozen=True):
    """One method. `result` None: a notification. `sender`: who sends it."""

    name: str
    sender: Literal["editor", "bridge"]
    params: type
    result: type | None
    summary: str


METHODS: tuple[Method, ...] = (
    Method("modeld/models", "editor", ModelsParams, Models, "the picker's rows for a workspace"),
    Method("modeld/status", "editor", Nothing, Status, "where the service and the slot stand"),
    Method("modeld/turn", "editor", TurnParams, TurnResult, "one assistant message, streamed"),
    Method("modeld/cancel", "editor", CancelParams, Cancelled, "end turns, loads and pulls of this window"),
    Method("modeld/count", "editor", CountParams, Counted, "tokens by the model's own tokenizer"),
    Method("modeld/pick", "editor", PickParams, Picked, "remember a pick; loads nothing"),
    Method("modeld/describe", "editor", DescribeParams, Description, "forecast of a load"),
    Method("modeld/load", "editor", LoadParams, Loaded, "load into an empty slot"),
    Method("modeld/switch", "editor", LoadParams, Loaded, "load in place of another model"),
    Method("modeld/unload", "editor", UnloadParams, Unloaded, "free the slot"),
    Method("modeld/library", "editor", LibraryParams, Library, "every model on disk"),
    Method("modeld/pull", "editor", PullParams, Pulled, "fetch a model"),
    Method("modeld/start", "editor", Nothing, Said, "start modeld, at the user's word"),
    Method("modeld/stop", "editor", Nothing, Said, "stop modeld, at the user's word"),
    Method("modeld/doctor", "editor", Nothing, Report, "what works and what has to be done"),
    Method("modeld/ask", "bridge", Question, Reply, "a switch needs the user's consent"),
    Method("modeld/modelsChanged", "bridge", Models, None, "something shown of the models changed"),
    Method("modeld/statusChanged", "bridge", Status, None, "the status changed (10 a second at most)"),
    Method("modeld/progress", "bridge", Progress, None, "how far a load or pull is"),
    Method("modeld/notice", "bridge", Notice, None, "a sentence the user should see once"),
)
