"""What happens in a conversation, as values that name no editor protocol. Pure.

A turn emits them to a face; most are also saved, in order, and both the replay for an editor and the
messages for the model are made from the saved ones alone.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

CardKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"]
CardStatus = Literal["pending", "in_progress", "completed", "failed"]
Stop = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "failed"]


class Happening(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the events of a conversation."""


# --- parts of a user's message -----------------------------------------------------------------


class PartOfMessage(Happening, frozen=True, kw_only=True):
    """`more` holds what else the editor said of it; it is given back as it came when the part is shown again."""

    more: dict[str, Any] = {}


class TextPart(PartOfMessage, frozen=True, kw_only=True, tag_field="part", tag="text"):
    """Words of the user."""

    text: str


class LinkPart(PartOfMessage, frozen=True, kw_only=True, tag_field="part", tag="link"):
    """A reference. `text` is what was read from it when the turn began, None when it was not read."""

    uri: str
    name: str
    text: str | None = None


class ResourcePart(PartOfMessage, frozen=True, kw_only=True, tag_field="part", tag="resource"):
    """A file that the editor put in whole."""

    uri: str
    text: str
    mime_type: str = ""


class ImagePart(PartOfMessage, frozen=True, kw_only=True, tag_field="part", tag="image"):
    """`data` is base64, as it came."""

    data: str
    mime_type: str


Part = TextPart | LinkPart | ResourcePart | ImagePart


# --- parts of a card ---------------------------------------------------------------------------


class TextItem(Happening, frozen=True, kw_only=True, tag_field="item", tag="text"):
    """Plain text in a card."""

    text: str


class Change(Happening, frozen=True, kw_only=True, tag_field="item", tag="change"):
    """The new text of a file beside the old; `old` None means that the file is new."""

    path: str
    new: str
    old: str | None = None


class LiveTerminal(Happening, frozen=True, kw_only=True, tag_field="item", tag="terminal"):
    """A terminal of the editor, by its id."""

    terminal: str


Item = TextItem | Change | LiveTerminal


class FileLocation(Happening, frozen=True, kw_only=True):
    """A file, and perhaps a line in it, that a card is about."""

    path: str
    line: int | None = None


# --- saved events ------------------------------------------------------------------------------


class UserSaid(Happening, frozen=True, kw_only=True, tag_field="event", tag="user"):
    """What the user sent. `message` names it, as in all events of messages."""

    message: str
    parts: list[Part]


class Said(Happening, frozen=True, kw_only=True, tag_field="event", tag="said"):
    """Text of the model. Emitted piece by piece, saved whole for each `message`."""

    message: str
    text: str


class Thought(Happening, frozen=True, kw_only=True, tag_field="event", tag="thought"):
    """Reasoning of the model: emitted and saved like `Said`."""

    message: str
    text: str


class Card(Happening, frozen=True, kw_only=True, tag_field="event", tag="card"):
    """A piece of work that the user can watch. Saved in its last state."""

    card: str
    title: str
    kind: CardKind = "other"
    status: CardStatus = "pending"
    items: list[Item] = []
    locations: list[FileLocation] = msgspec.field(
        name="places", default_factory=list
    )  # its name in stored conversations
    input: Any = None
    output: Any = None


class Instructed(Happening, frozen=True, kw_only=True, tag_field="event", tag="instructed"):
    """The user's own system message, from here on; "" for none."""

    system: str


class ToolsCalled(Happening, frozen=True, kw_only=True, tag_field="event", tag="tools_called"):
    """The model asked for tools. `calls` has the chat-completion shape."""

    message: str
    calls: list[dict[str, Any]]


class ToolAnswered(Happening, frozen=True, kw_only=True, tag_field="event", tag="tool_answered"):
    """What a tool answered to the model."""

    call: str
    name: str
    text: str


class PlanSet(Happening, frozen=True, kw_only=True, tag_field="event", tag="plan"):
    """`entries`: (content, priority, status) of each step."""

    entries: list[tuple[str, str, str]]


class Remark(Happening, frozen=True, kw_only=True, tag_field="event", tag="remark"):
    """The bridge's own words to the user (an answer to a command, what was left out). Never sent to the model."""

    message: str
    text: str


class Compacted(Happening, frozen=True, kw_only=True, tag_field="event", tag="compacted"):
    """Messages before this one are replaced by `summary` for the model. The user's view keeps them."""

    summary: str


class TurnEnded(Happening, frozen=True, kw_only=True, tag_field="event", tag="ended"):
    """`numbers` are the counts and timings of the turn, for people."""

    stop: Stop
    model: str = ""
    numbers: dict[str, Any] = {}


Saved = (
    UserSaid
    | Said
    | Thought
    | Card
    | Instructed
    | ToolsCalled
    | ToolAnswered
    | PlanSet
    | Remark
    | Compacted
    | TurnEnded
)


# --- events that are only shown ----------------------------------------------------------------


class Used(Happening, frozen=True, kw_only=True, tag_field="event", tag="used"):
    """Tokens in the context of this conversation, and the real size of the window."""

    used: int
    size: int


class Staged(Happening, frozen=True, kw_only=True, tag_field="event", tag="staged"):
    """How far a turn of `model` is: a stage of `shared.protocol.api.Event`, for a face that measures it itself.

    Every other face has the card of the stage.
    """

    model: str
    stage: Any


class Titled(Happening, frozen=True, kw_only=True, tag_field="event", tag="titled"):
    """The conversation got a title."""

    title: str


class OptionsChanged(Happening, frozen=True, kw_only=True, tag_field="event", tag="options"):
    """The picker, the mode or the thinking level changed: the face shows them again."""


Shown = Saved | Used | Staged | Titled | OptionsChanged
