"""What the bridge says to the user about a turn. Pure."""

from __future__ import annotations

from shared.text.words import counted

#: Reported when modeld ended an answer that had become a loop.
REPEATED = "The answer began to repeat itself and was ended. Send a message to go on."

#: Reported when the model ended without a word that anybody can read.
NO_WORD = "The model ended without an answer. Ask in other words, or pick another model."
#: Reported when it wrote its reasoning alone.
ONLY_THOUGHTS = "The model thought and ended without an answer. Ask in other words, or have it think less."

#: Reported at the first answer of a model that was trained to go on with a text, not to answer.
BASE_MODEL = "{model} is a base model without a chat template: it continues text, and may not answer."


def images_left_out_text(count: int, model: str) -> str:
    """Reported when images of the user are not sent."""
    images = "The image is" if count == 1 else f"The {count} images are"
    return f"{images} left out: {model} does not see images."


def left_out_text(count: int, window: int, remedy: str = "") -> str:
    """Reported when messages at the head no longer fit. `count` is all that is left out by now, `window` 0 where nobody
    said how large it is; `remedy` may follow.
    """
    first, fit, are = ("message", "fits", "is") if count == 1 else (f"{count:,} messages", "fit", "are")
    size = f" of {counted(window, 'token')}" if window else ""
    text = f"The first {first} no longer {fit} the window{size} and {are} left out."
    return f"{text} {remedy}" if remedy else text


def rounds_text(count: int) -> str:
    """Reported when a turn has used up its rounds of tools."""
    return f"Stopped after {count} rounds of tools. Send a message to go on."
