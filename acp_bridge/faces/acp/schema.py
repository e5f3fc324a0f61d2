"""ACP v1 as values: what editors send, as far as it is read, and what the bridge sends.

Made from the official schema (npm `@agentclientprotocol/sdk` 2.4.0, `schema/v1/schema.json`). Incoming
values ignore unknown fields; outgoing values are closed, since the protocol forbids unknown root keys.
Field names are camelCase on the wire.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

PROTOCOL_VERSION = 1

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]
ToolStatus = Literal["pending", "in_progress", "completed", "failed"]
PermissionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class Incoming(msgspec.Struct, rename="camel", kw_only=True):
    """Base of what editors send."""


class Outgoing(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Base of what the bridge sends. A field at its default is left out."""


# --- what editors send -------------------------------------------------------------------------


class FileSystemCapabilities(Incoming):
    read_text_file: bool = False
    write_text_file: bool = False


class ConfigOptionCapabilities(Incoming):
    boolean: dict[str, Any] | None = None


class ClientSessionCapabilities(Incoming):
    config_options: ConfigOptionCapabilities | None = None
    notices: dict[str, Any] | None = None


class ElicitationCapabilities(Incoming):
    form: dict[str, Any] | None = None


class ClientCapabilities(Incoming):
    """What the editor offers. Null and absent mean the same: not offered."""

    fs: FileSystemCapabilities | None = None
    terminal: bool | None = False
    session: ClientSessionCapabilities | None = None
    elicitation: ElicitationCapabilities | None = None


class Implementation(Incoming):
    name: str = ""
    title: str | None = None
    version: str = ""


class InitializeParams(Incoming):
    """`initialize`. A client of the v2 draft names the same things `capabilities` and `info`."""

    protocol_version: int | float
    client_capabilities: ClientCapabilities | None = None
    capabilities: ClientCapabilities | None = None
    client_info: Implementation | None = None
    info: Implementation | None = None


class AuthenticateParams(Incoming):
    method_id: str


class EnvVariable(Incoming):
    name: str
    value: str


class HttpHeader(Incoming):
    name: str
    value: str


class McpServer(Incoming):
    """A server of the session: stdio (no `type`), http or sse."""

    name: str
    type: str = "stdio"
    command: str = ""
    args: list[str] | None = None
    env: list[EnvVariable] | None = None
    url: str = ""
    headers: list[HttpHeader] | None = None


class NewSessionParams(Incoming):
    cwd: str
    mcp_servers: list[McpServer] = []
    additional_directories: list[str] | None = None


class OpenSessionParams(Incoming):
    """`session/load` and `session/resume`."""

    session_id: str
    cwd: str
    mcp_servers: list[McpServer] = []
    additional_directories: list[str] | None = None


class ListSessionsParams(Incoming):
    cwd: str | None = None
    cursor: str | None = None


class SessionParams(Incoming):
    """`session/close`, `session/delete` and `session/cancel`."""

    session_id: str


class SetModeParams(Incoming):
    session_id: str
    mode_id: str


class SetConfigOptionParams(Incoming):
    session_id: str
    config_id: str
    value: Any


class PromptParams(Incoming):
    session_id: str
    prompt: list[dict[str, Any]]


class PermissionOutcome(Incoming):
    """`outcome` is `cancelled`, or `selected` with an option."""

    outcome: str
    option_id: str | None = None


class RequestPermissionResult(Incoming):
    outcome: PermissionOutcome


class ElicitationResult(Incoming):
    """`action` is accept, decline, cancel, or a word that this version does not know."""

    action: str
    content: dict[str, Any] | None = None


class ReadTextFileResult(Incoming):
    content: str


class CreateTerminalResult(Incoming):
    terminal_id: str


class ExitStatus(Incoming):
    exit_code: int | None = None
    signal: str | None = None


class TerminalOutputResult(Incoming):
    output: str
    truncated: bool = False
    exit_status: ExitStatus | None = None


# --- what the bridge answers -------------------------------------------------------------------


class AgentInfo(Outgoing):
    name: str
    title: str
    version: str


class AuthMethod(Outgoing):
    id: str
    name: str
    description: str | UnsetType = UNSET


class InitializeResult(Outgoing):
    protocol_version: int
    agent_capabilities: dict[str, Any]
    auth_methods: list[AuthMethod]
    agent_info: AgentInfo


class SelectOption(Outgoing):
    value: str
    name: str
    description: str | UnsetType = UNSET


class SelectGroup(Outgoing):
    group: str
    name: str
    options: list[SelectOption]


class SelectConfig(Outgoing, tag_field="type", tag="select"):
    """A config option with a list of values, flat or grouped."""

    id: str
    name: str
    current_value: str
    options: list[SelectOption] | list[SelectGroup]
    description: str | UnsetType = UNSET
    category: str | UnsetType = UNSET


class BooleanConfig(Outgoing, tag_field="type", tag="boolean"):
    """Only for clients that said they take booleans."""

    id: str
    name: str
    current_value: bool
    description: str | UnsetType = UNSET
    category: str | UnsetType = UNSET


ConfigOption = SelectConfig | BooleanConfig


class Mode(Outgoing):
    id: str
    name: str
    description: str | UnsetType = UNSET


class ModeState(Outgoing):
    current_mode_id: str
    available_modes: list[Mode]


class NewSessionResult(Outgoing):
    session_id: str
    modes: ModeState
    config_options: list[ConfigOption]


class OpenSessionResult(Outgoing):
    modes: ModeState
    config_options: list[ConfigOption]
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class SetConfigOptionResult(Outgoing):
    config_options: list[ConfigOption]


class SessionInfo(Outgoing):
    session_id: str
    cwd: str
    additional_directories: list[str] = []
    title: str | UnsetType = UNSET
    updated_at: str | UnsetType = UNSET


class ListSessionsResult(Outgoing):
    sessions: list[SessionInfo]
    next_cursor: str | UnsetType = UNSET


class PromptResult(Outgoing):
    stop_reason: StopReason
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ExportResult(Outgoing):
    """Our own `_modeld/export`."""

    markdown: str


class Empty(Outgoing):
    """An answer without content."""


# --- content -----------------------------------------------------------------------------------


class TextBlock(Outgoing, tag_field="type", tag="text"):
    text: str


class ImageBlock(Outgoing, tag_field="type", tag="image"):
    data: str
    mime_type: str


class LinkBlock(Outgoing, tag_field="type", tag="resource_link"):
    name: str
    uri: str


class ResourceText(Outgoing):
    uri: str
    text: str
    mime_type: str | UnsetType = UNSET


class ResourceBlock(Outgoing, tag_field="type", tag="resource"):
    resource: ResourceText


Block = TextBlock | ImageBlock | LinkBlock | ResourceBlock


class ContentItem(Outgoing, tag_field="type", tag="content"):
    content: Block


class DiffItem(Outgoing, tag_field="type", tag="diff"):
    """`old_text` null means a new file."""

    path: str
    new_text: str
    old_text: str | UnsetType | None = UNSET


class TerminalItem(Outgoing, tag_field="type", tag="terminal"):
    terminal_id: str


CardItem = ContentItem | DiffItem | TerminalItem


class Location(Outgoing):
    path: str
    line: int | UnsetType = UNSET


# --- session/update ----------------------------------------------------------------------------


class Update(Outgoing, tag_field="sessionUpdate"):
    """Base of the updates."""


class AgentMessageChunk(Update, tag="agent_message_chunk"):
    content: Block
    message_id: str | UnsetType = UNSET


class AgentThoughtChunk(Update, tag="agent_thought_chunk"):
    content: Block
    message_id: str | UnsetType = UNSET


class UserMessageChunk(Update, tag="user_message_chunk"):
    """`content` is a block as the editor sent it."""

    content: dict[str, Any]
    message_id: str | UnsetType = UNSET


class ToolCallUpdate(Update, tag="tool_call"):
    """A new card."""

    tool_call_id: str
    title: str
    kind: ToolKind = "other"
    status: ToolStatus = "pending"
    content: list[CardItem] = []
    locations: list[Location] = []
    raw_input: Any = UNSET
    raw_output: Any = UNSET


class ToolCallChange(Update, tag="tool_call_update"):
    """Changed fields of a card; lists replace."""

    tool_call_id: str
    title: str | UnsetType = UNSET
    kind: ToolKind | UnsetType = UNSET
    status: ToolStatus | UnsetType = UNSET
    content: list[CardItem] | UnsetType = UNSET
    locations: list[Location] | UnsetType = UNSET
    raw_input: Any = UNSET
    raw_output: Any = UNSET


class PlanEntry(Outgoing):
    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed"]


class PlanUpdate(Update, tag="plan"):
    entries: list[PlanEntry]


class CommandInput(Outgoing):
    hint: str


class AvailableCommand(Outgoing):
    name: str
    description: str
    input: CommandInput | UnsetType = UNSET


class AvailableCommandsUpdate(Update, tag="available_commands_update"):
    available_commands: list[AvailableCommand]


class CurrentModeUpdate(Update, tag="current_mode_update"):
    current_mode_id: str


class ConfigOptionUpdate(Update, tag="config_option_update"):
    config_options: list[ConfigOption]


class SessionInfoUpdate(Update, tag="session_info_update"):
    title: str | UnsetType = UNSET
    updated_at: str | UnsetType = UNSET


class UsageUpdate(Update, tag="usage_update"):
    """Tokens in the context, and the size of the window."""

    used: int
    size: int


class NoticeUpdate(Update, tag="notice"):
    """Only for clients that said they take notices."""

    severity: str
    title: str
    description: str | UnsetType = UNSET


AnyUpdate = (
    AgentMessageChunk
    | AgentThoughtChunk
    | UserMessageChunk
    | ToolCallUpdate
    | ToolCallChange
    | PlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
    | NoticeUpdate
)


class SessionUpdateParams(Outgoing):
    session_id: str
    update: AnyUpdate


# --- requests to the editor --------------------------------------------------------------------


class PermissionCard(Outgoing):
    """The card a permission is asked for (a tool call update without its tag)."""

    tool_call_id: str
    title: str | UnsetType = UNSET
    kind: ToolKind | UnsetType = UNSET
    status: ToolStatus | UnsetType = UNSET
    content: list[CardItem] | UnsetType = UNSET
    locations: list[Location] | UnsetType = UNSET
    raw_input: Any = UNSET


class PermissionOption(Outgoing):
    option_id: str
    name: str
    kind: PermissionKind


class RequestPermissionParams(Outgoing):
    session_id: str
    tool_call: PermissionCard
    options: list[PermissionOption]


class ElicitationParams(Outgoing):
    """`elicitation/create` by a form."""

    session_id: str
    message: str
    requested_schema: dict[str, Any]
    mode: Literal["form"] = msgspec.field(default_factory=lambda: "form")


class ReadTextFileParams(Outgoing):
    session_id: str
    path: str
    line: int | UnsetType = UNSET
    limit: int | UnsetType = UNSET


class WriteTextFileParams(Outgoing):
    session_id: str
    path: str
    content: str


class NamedValue(Outgoing):
    """A variable of a terminal's environment."""

    name: str
    value: str


class CreateTerminalParams(Outgoing):
    session_id: str
    command: str
    args: list[str] = []
    env: list[NamedValue] | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    output_byte_limit: int | UnsetType = UNSET


class TerminalParams(Outgoing):
    """`terminal/output`, `wait_for_exit`, `kill` and `release`."""

    session_id: str
    terminal_id: str
