"""Every error that crosses a process border, in one table.

Both sides raise and catch these classes; `to_wire` and `from_wire` carry them over JSON-RPC
without loss, so that what an engine raises is what the editor shows.

    ModeldError                      code    kind
    ├── SlotError
    │   ├── ModelBusy               -32010   model_busy
    │   ├── ModelNotActive          -32011   model_not_active
    │   ├── ModelSwitchRequired     -32012   model_switch_required
    │   ├── ModelLoadFailed         -32013   model_load_failed
    │   ├── InsufficientMemory      -32014   insufficient_memory
    │   ├── ModelInUse              -32034   model_in_use
    │   └── DeviceBusy              -32035   device_busy
    ├── StaleError                           (look the owner up again, then call again)
    │   ├── SlotGenerationStale     -32015   slot_generation_stale
    │   ├── StaleFence              -32016   stale_fence
    │   ├── NotOwner                -32017   not_owner
    │   └── SessionClosed           -32020   session_closed
    ├── BackendError
    │   ├── BackendMismatch         -32018   backend_mismatch
    │   └── BackendUnavailable      -32019   backend_unavailable
    ├── TurnError
    │   ├── ContextOverflow         -32021   context_overflow
    │   ├── EngineFailed            -32027   engine_failed
    │   ├── QueueFull               -32028   queue_full
    │   ├── WaitTimeout             -32029   wait_timeout
    │   ├── UnsupportedFeature      -32032   unsupported_feature
    │   ├── TemplateFailed          -32033   template_error
    │   ├── ImageUnusable           -32049   image_unusable
    │   ├── TextFailed              -32051   text_failed
    │   ├── ClientStalled           -32045   client_stalled
    │   ├── ConsentDeclined         -32046   consent_declined
    │   ├── RemoteNotPicked         -32050   remote_not_picked
    │   └── ConversationBusy        -32047   conversation_busy
    ├── LookupFailed
    │   ├── ModelNotFound           -32022   model_not_found
    │   └── ResolutionMiss                   (the only two that trigger the heal)
    │       ├── NoAvailableModel    -32023   no_available_model
    │       └── NoSatisfactoryModel -32024   no_satisfactory_model
    ├── DownloadError
    │   ├── DigestMismatch          -32025   digest_mismatch
    │   └── DownloadFailed          -32026   download_failed
    ├── ConnectionRefused
    │   ├── Unauthenticated         -32030   unauthenticated
    │   ├── ProtocolUnsupported     -32031   protocol_unsupported
    │   └── MessageTooLarge         -32039   message_too_large
    ├── RootError
    │   ├── DiskFull                -32036   disk_full
    │   ├── RootUnusable            -32037   root_unusable
    │   └── NetworkFilesystem       -32038   network_filesystem
    ├── DaemonError                          (typed detection of the daemon, each with its next step)
    │   ├── DaemonNotInstalled      -32040   daemon_not_installed
    │   ├── DaemonNotRunning        -32041   daemon_not_running
    │   ├── DaemonStale             -32042   daemon_stale
    │   ├── DaemonUnreachable       -32043   daemon_unreachable
    │   └── DaemonRestarting        -32044   daemon_restarting
    ├── ResourcesExhausted      -32052   resources_exhausted
    ├── Upgraded                -32048   upgraded
    ├── ConversationNotFound    -32002   conversation_not_found
    ├── SettingInvalid          -32602   setting_invalid
    ├── ArgumentInvalid         -32602   argument_invalid
    └── UnknownError                  any    (a kind this version does not know; kept as it came)

Codes and kinds are stable: they may gain fields, never change meaning.
"""

from __future__ import annotations

from typing import Any, ClassVar

from shared.text.shown import one_line
from shared.text.words import START_MODELD, size_text, switch_sentence, use_sentence


class ModeldError(Exception):
    """Base of the table. Fields are keyword arguments and become attributes.

    A class names its `fields`; a field that was not given is None. The message defaults to
    `summary`, formatted with the fields, and says in one line what to do next: whatever a field holds, the message
    stays one line in which nothing acts.
    """

    kind: ClassVar[str] = "internal_error"
    code: ClassVar[int] = -32603
    fields: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "something went wrong inside modeld; see `modeld logs`"

    def __init__(self, message: str | None = None, /, **data: Any) -> None:
        self.data: dict[str, Any] = {name: data.pop(name, None) for name in self.fields}
        self.data.update(data)  # fields of a newer version are kept, not dropped
        self.message = one_line(message if message is not None else self._default_message())
        super().__init__(self.message)

    def _default_message(self) -> str:
        return self.summary.format_map({name: _words(name, value) for name, value in self.data.items()})

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("data")
        if data is not None and name in data:
            return data[name]
        raise AttributeError(name)

    def to_wire(self) -> dict[str, Any]:
        """The JSON-RPC error object: `{code, message, data: {kind, ...fields}}`."""
        return {"code": self.code, "message": self.message, "data": {"kind": self.kind, **self.data}}


def _words(name: str, value: Any) -> Any:
    """A field as people read it: amounts in the unit that fits them, lists without brackets."""
    if name.endswith("_bytes") and isinstance(value, int):
        return size_text(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else value


class SlotError(ModeldError):
    """The slot is in a state that does not allow the call."""


class ModelBusy(SlotError):
    """The slot runs a protected operation. `since` is seconds of age, `queued` the queue length."""

    kind = "model_busy"
    code = -32010
    fields = ("operation", "holder", "since", "queued")
    summary = "the model is busy with {operation} for {holder}; wait, or cancel it"


class ModelNotActive(SlotError):
    kind = "model_not_active"
    code = -32011
    fields = ("requested",)
    summary = "{requested} is not loaded; load it first, or allow the call to load it"


class ModelSwitchRequired(SlotError):
    """Another model is active. `in_use_by` lists the names of clients that used it lately."""

    kind = "model_switch_required"
    code = -32012
    fields = ("active", "requested", "in_use_by")
    summary = f"{switch_sentence('{active}', '{requested}')}; allow it to go on"

    def _default_message(self) -> str:
        """In the words of the question that a person is asked."""
        said = [switch_sentence(str(self.active), str(self.requested))]
        if self.in_use_by:
            said.append(use_sentence(str(self.active), self.in_use_by))
        return "; ".join([*said, "allow it to go on"])


class ModelLoadFailed(SlotError):
    """`stage` is one of header, memory, worker, import, weights, context, template, probe."""

    kind = "model_load_failed"
    code = -32013
    fields = ("model", "stage", "reason")
    summary = "{model} could not be loaded ({stage}): {reason}"


class InsufficientMemory(SlotError):
    """All amounts in bytes; `fits` is the largest context in tokens that would fit, or None."""

    kind = "insufficient_memory"
    code = -32014
    fields = ("device", "required_bytes", "free_bytes", "reserve_bytes", "fits")
    summary = (
        "not enough memory on {device}: {required_bytes} needed, {free_bytes} free, "
        "{reserve_bytes} reserved for other programs; close other programs, or take a smaller model"
    )

    def _default_message(self) -> str:
        message = super()._default_message()
        if not self.fits:
            return message
        return f"{message}, or a context of {self.fits} tokens (`--ctx {self.fits}`)"


class ModelInUse(SlotError):
    kind = "model_in_use"
    code = -32034
    fields = ("state", "holder")
    summary = "the model is {state} (held by {holder}); unload it first"


class DeviceBusy(SlotError):
    kind = "device_busy"
    code = -32035
    fields = ("holder",)
    summary = "the accelerator is held by {holder}; stop that modeld or use another device"


class StaleError(ModeldError):
    """The caller acts on an older owner or slot: look it up again."""


class SlotGenerationStale(StaleError):
    kind = "slot_generation_stale"
    code = -32015
    fields = ("expected", "actual")
    summary = "the slot has changed since (generation {actual}, not {expected}); ask for its status again"


class StaleFence(StaleError):
    kind = "stale_fence"
    code = -32016
    fields = ("expected", "actual")
    summary = "this call was meant for another modeld instance; find the owner again"


class NotOwner(StaleError):
    """`owner` is `{instance, endpoint}` of the winner, or None while it is unknown."""

    kind = "not_owner"
    code = -32017
    fields = ("owner",)
    summary = "this modeld does not own the hardware; call the owner"


class SessionClosed(StaleError):
    kind = "session_closed"
    code = -32020
    fields = ("handle",)
    summary = "session {handle} is closed; open a new one"


class BackendError(ModeldError):
    """The serving backend cannot run this model."""


class BackendMismatch(BackendError):
    kind = "backend_mismatch"
    code = -32018
    fields = ("requested", "serving")
    summary = "this model needs the {requested} backend; modeld serves {serving} (restart it with --backend)"


class BackendUnavailable(BackendError):
    kind = "backend_unavailable"
    code = -32019
    fields = ("backend", "reason", "hint")
    summary = "the {backend} engine is not available: {reason}; {hint}"


class TurnError(ModeldError):
    """One turn failed; the slot itself is accounted for."""


class ContextOverflow(TurnError):
    """Tokens: the window, what it already holds, and what was to be added."""

    kind = "context_overflow"
    code = -32021
    fields = ("context", "resident", "additional")
    summary = "the prompt does not fit: {additional} tokens besides the {resident} held, in a window of {context}"


class EngineFailed(TurnError):
    kind = "engine_failed"
    code = -32027
    fields = ("reason", "generation")
    summary = "the engine failed ({reason}); the model is unloaded, send the prompt again to reload it"


class QueueFull(TurnError):
    kind = "queue_full"
    code = -32028
    fields = ("position", "waited_s")
    summary = "the turn queue is full; try again when other editors have finished"


class WaitTimeout(TurnError):
    kind = "wait_timeout"
    code = -32029
    fields = ("position", "waited_s")
    summary = "gave up after waiting {waited_s} s at place {position}; try again"


class UnsupportedFeature(TurnError):
    kind = "unsupported_feature"
    code = -32032
    fields = ("feature",)
    summary = "not supported by this model or engine: {feature}"


class TemplateFailed(TurnError):
    """`message` in the data is what the template said; `index` the conversation message it failed on."""

    kind = "template_error"
    code = -32033
    fields = ("message", "index")
    summary = "the model's chat template refused message {index} of the conversation: {message}"

    def _default_message(self) -> str:
        """Without a number where none is known."""
        if self.index is not None:
            return super()._default_message()
        return f"the model's chat template refused the conversation: {self.data['message']}"


class ImageUnusable(TurnError):
    """`index`: the conversation message that holds the image."""

    kind = "image_unusable"
    code = -32049
    fields = ("reason", "index")
    summary = "an image in message {index} of the conversation cannot be used: {reason}"


class TextFailed(TurnError):
    """A defect of ours in reading or writing text: it costs the turn. What was streamed before it stands."""

    kind = "text_failed"
    code = -32051
    fields = ("reason",)
    summary = "a defect of modeld ended this turn ({reason}): what came before it stands, and the model stays loaded"


class ClientStalled(TurnError):
    kind = "client_stalled"
    code = -32045
    fields = ()
    summary = "the turn was ended because its client stopped reading"


class ConsentDeclined(TurnError):
    kind = "consent_declined"
    code = -32046
    fields = ("model", "in_use_by")
    summary = "the switch to {model} was declined, since {in_use_by} uses the active model"


class RemoteNotPicked(TurnError):
    """A request named a model of another machine that nobody picked here. `provider` is the name in the config."""

    kind = "remote_not_picked"
    code = -32050
    fields = ("model", "provider")
    summary = "{model} runs on another machine ({provider}) and was not picked here; pick it in the model picker first"


class ConversationBusy(TurnError):
    kind = "conversation_busy"
    code = -32047
    fields = ("opened_in",)
    summary = "this conversation is open in {opened_in}; take it over there or read it here"


class LookupFailed(ModeldError):
    """No such model, or none that would do."""


class ModelNotFound(LookupFailed):
    """`near` lists the closest names."""

    kind = "model_not_found"
    code = -32022
    fields = ("requested", "near")
    summary = "no model named {requested}; closest: {near}"

    def _default_message(self) -> str:
        if self.near:
            return super()._default_message()
        return f"no model named {self.requested}; `modeld library` lists them"


class ResolutionMiss(LookupFailed):
    """What the bridge's catalog cannot resolve at this moment: heals by one reconcile."""


class NoAvailableModel(ResolutionMiss):
    kind = "no_available_model"
    code = -32023
    fields = ("reason", "wanted")
    summary = "no model is available: {reason}"


class NoSatisfactoryModel(ResolutionMiss):
    kind = "no_satisfactory_model"
    code = -32024
    fields = ("reason", "wanted")
    summary = "{wanted} is not available: {reason}"


class DownloadError(ModeldError):
    """A model could not be fetched whole."""


class DigestMismatch(DownloadError):
    kind = "digest_mismatch"
    code = -32025
    fields = ("expected", "actual")
    summary = "checksum mismatch (SHA-256 {actual}, expected {expected}); pull it again"


class DownloadFailed(DownloadError):
    kind = "download_failed"
    code = -32026
    fields = ("source", "reason", "resumable")
    summary = "could not fetch from {source}: {reason}"


class ConnectionRefused(ModeldError):
    """The peer will not speak with us on this connection."""


class Unauthenticated(ConnectionRefused):
    kind = "unauthenticated"
    code = -32030
    fields = ()
    summary = "the handshake was refused; the token does not match this modeld instance"


class ProtocolUnsupported(ConnectionRefused):
    kind = "protocol_unsupported"
    code = -32031
    fields = ("min", "max")
    summary = "no common protocol version (this side speaks {min} to {max}); upgrade the older side"


class MessageTooLarge(ConnectionRefused):
    """Bytes."""

    kind = "message_too_large"
    code = -32039
    fields = ("limit", "size")
    summary = "a message of {size} bytes is over the limit of {limit}"


class RootError(ModeldError):
    """The data root cannot be used."""


class DiskFull(RootError):
    kind = "disk_full"
    code = -32036
    fields = ("path", "needed_bytes", "uid", "mode", "hint")
    summary = "no space left at {path}; free at least {needed_bytes}"


class RootUnusable(RootError):
    kind = "root_unusable"
    code = -32037
    fields = ("path", "needed_bytes", "uid", "mode", "hint")
    summary = "{path} cannot be used (owner {uid}, mode {mode}): {hint}"


class NetworkFilesystem(RootError):
    kind = "network_filesystem"
    code = -32038
    fields = ("path", "needed_bytes", "uid", "mode", "hint")
    summary = "{path} is on a network filesystem; set MODELD_DATA_ROOT to a local folder ({hint})"


class DaemonError(ModeldError):
    """modeld cannot be reached; each kind has its own next step. `last_seen` in seconds ago."""

    fields = ("hint", "last_seen", "retryable")


class DaemonNotInstalled(DaemonError):
    kind = "daemon_not_installed"
    code = -32040
    summary = "modeld is not installed; {hint}"


class DaemonNotRunning(DaemonError):
    kind = "daemon_not_running"
    code = -32041
    summary = f"modeld is not running; {START_MODELD}"


class DaemonStale(DaemonError):
    kind = "daemon_stale"
    code = -32042
    summary = f"the last modeld ended without releasing its lease; {START_MODELD}"


class DaemonUnreachable(DaemonError):
    kind = "daemon_unreachable"
    code = -32043
    summary = "modeld is there but cannot be reached: {hint}"


class DaemonRestarting(DaemonError):
    kind = "daemon_restarting"
    code = -32044
    summary = "modeld is restarting; send the prompt again in a moment"


class ResourcesExhausted(ModeldError):
    """The process cannot have more of what the system, or its own bound, gives it.

    `resource`: connections, file descriptors, threads, processes or memory; `limit`: how many, where that is known.
    """

    kind = "resources_exhausted"
    code = -32052
    fields = ("resource", "limit")
    summary = "modeld has no {resource} left (limit: {limit}); close clients or raise the limit, then try again"


class Upgraded(ModeldError):
    """This process is of another version than the files it would need now. `running`, `installed`: versions."""

    kind = "upgraded"
    code = -32048
    fields = ("running", "installed")
    summary = (
        "modeld {running} was replaced by {installed} while this ran; "
        "restart the agent (in the editor: reload the window, or start a new thread)"
    )


class SettingInvalid(ModeldError):
    """A configured value cannot be used; says where it came from."""

    kind = "setting_invalid"
    code = -32602
    fields = ("name", "source", "reason")
    summary = "setting {name} from {source}: {reason}"


class ConversationNotFound(ModeldError):
    """No saved conversation is meant by `name`, or several are."""

    kind = "conversation_not_found"
    code = -32002
    fields = ("name", "reason")
    summary = "{reason}"


class ArgumentInvalid(ModeldError):
    """What was typed on a command line cannot be used: `name` is the word, a file or an option."""

    kind = "argument_invalid"
    code = -32602
    fields = ("name", "reason")
    summary = "{name}: {reason}"


class UnknownError(ModeldError):
    """A kind this version does not know, kept with its own code, message and data."""

    def __init__(self, message: str, /, *, code: int, kind: str, **data: Any) -> None:
        super().__init__(message, **data)
        self.__dict__["code"] = code
        self.__dict__["kind"] = kind


def _concrete(base: type[ModeldError]) -> list[type[ModeldError]]:
    found: list[type[ModeldError]] = []
    for cls in base.__subclasses__():
        if "kind" in cls.__dict__:
            found.append(cls)
        found.extend(_concrete(cls))
    return found


BY_KIND: dict[str, type[ModeldError]] = {cls.kind: cls for cls in _concrete(ModeldError)}

#: Kinds as earlier releases of protocol 1 named them; they go with protocol 2.
FORMER_KINDS = {"picture_unusable": "image_unusable"}


def from_wire(error: dict[str, Any]) -> ModeldError:
    """Rebuild the typed error from a JSON-RPC error object; never raises on odd input."""
    raw = error.get("data")
    data: dict[str, Any] = {str(key): value for key, value in raw.items()} if isinstance(raw, dict) else {}
    kind = str(data.pop("kind", ""))
    message = str(error.get("message", ""))
    cls = BY_KIND.get(FORMER_KINDS.get(kind, kind))
    if cls is not None:
        return cls(message, **data)
    code = error.get("code")
    data.pop("code", None)
    return UnknownError(message, code=code if isinstance(code, int) else -32603, kind=kind, **data)
