"""The messages of a turn: recorded by the bridge, or given whole by the editor with each request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from acp_bridge.conversations.events import ImagePart, Part
from acp_bridge.conversations.recorder import Recorder
from acp_bridge.conversations.state import messages_of
from acp_bridge.turn import context

Messages = list[dict[str, Any]]


class History(Protocol):
    """What the model is sent. `new_images` counts the images that came since its last answer; `begins`: none came yet.

    `trims`: what no longer fits is left out at the head; else it is the caller's ContextOverflow. `remedy` is the
    face's own advice behind the sentence that says so.
    """

    new_images: int
    trims: bool
    remedy: str

    @property
    def has_images(self) -> bool:
        """Whether there is an image in what is sent."""
        ...

    @property
    def begins(self) -> bool:
        """Whether no model has answered yet."""
        ...

    def messages(self, *, supports_images: bool) -> Messages:
        """In the chat-completion shape, the system's first, for a model with vision or without."""
        ...

    def leave_out(self, count: int) -> int:
        """Leave out `count` more messages behind the system's; gives how many are left out in all."""
        ...


class RecordedHistory:
    """A conversation that the bridge keeps. `system` is set once the model is known.

    `aside` is a last message that the bridge itself adds: it is sent, without tools, and not recorded.
    """

    trims = True
    remedy = "`/compact` summarises what is left out instead."

    def __init__(self, recorder: Recorder, parts: Sequence[Part] = (), aside: str = "") -> None:
        self.system = ""
        self.new_images = sum(isinstance(part, ImagePart) for part in parts)
        self._recorder = recorder
        self.aside = aside

    @property
    def has_images(self) -> bool:
        """See History."""
        return self._recorder.conversation.has_images

    @property
    def begins(self) -> bool:
        """See History."""
        return not answered(self.messages(supports_images=False))

    def messages(self, *, supports_images: bool) -> Messages:
        """See History."""
        conversation = self._recorder.conversation
        self._recorder.settle()
        kept = messages_of(conversation.events, supports_images=supports_images)[conversation.dropped :]
        if self.aside:
            kept.append({"role": "user", "content": self.aside})
        return [{"role": "system", "content": self.system}, *kept] if self.system else kept

    def leave_out(self, count: int) -> int:
        """See History. Kept with the conversation, so that the next turns begin at the same place."""
        conversation = self._recorder.conversation
        conversation.dropped += count
        return conversation.dropped


class GivenHistory:
    """A history that came with the request; `render(supports_images)` puts it into words, once for each answer."""

    remedy = ""

    def __init__(
        self, render: Callable[[bool], Messages], *, new_images: int = 0, has_images: bool = False, trims: bool = False
    ) -> None:
        self.new_images = new_images
        self.has_images = has_images
        self.trims = trims
        self.left_out = 0
        self._render = render
        self._rendered: dict[bool, Messages] = {}

    @property
    def begins(self) -> bool:
        """See History."""
        return not answered(self.messages(supports_images=False))

    def messages(self, *, supports_images: bool) -> Messages:
        """See History."""
        if supports_images not in self._rendered:
            self._rendered[supports_images] = self._render(supports_images)
        whole = self._rendered[supports_images]
        head = context.head_length(whole)
        return [*whole[:head], *whole[head + self.left_out :]]

    def leave_out(self, count: int) -> int:
        """See History."""
        self.left_out += count
        return self.left_out


def answered(messages: Messages) -> bool:
    """Whether a model has said something in them."""
    return any(message["role"] == "assistant" for message in messages)
