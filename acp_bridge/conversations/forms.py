"""Questions that a tool asks the user by a form, where the face can show one. Pure."""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

import msgspec


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """`schema` is a JSON schema of a flat object; `message` says what is asked for, and by whom."""

    message: str
    schema: dict[str, Any]


class FormAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`content` holds what was filled in when it was accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = {}


@runtime_checkable
class AsksForms(Protocol):
    """A face that may show forms."""

    @property
    def shows_forms(self) -> bool:
        """Whether this editor does."""
        ...

    async def ask_form(self, conversation: str, form: Form) -> FormAnswer:
        """The user's answer; `cancel` where they gave none."""
        ...


def forms_of(face: object) -> AsksForms | None:
    """The face as one that shows forms, or None when it does not."""
    return face if isinstance(face, AsksForms) and face.shows_forms else None
