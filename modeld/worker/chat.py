"""The text side of the resident model: conversations to tokens, tokens to the bytes a reader sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from modeld.engine.contract import Engine, LoadedModel, SpecialTokens
from modeld.engine.images import PromptImage, refuse_images, take_images
from modeld.output.format import OutputFormat
from modeld.output.grammar.values import Lead
from modeld.output.parser import format_marks
from modeld.template.lead import call_lead
from modeld.template.render import Template
from modeld.template.shape import text_of
from modeld.worker.prompt_tokens import PromptTokenizer
from modeld.worker.template_limits import RenderGuard
from shared.catalog.identity import AUTO, RequestedIdentity, ResolvedIdentity
from shared.errors import ModelLoadFailed, TemplateFailed


class Prompt(msgspec.Struct, frozen=True):
    """What the engine gets, and how its answer will have to be read."""

    tokens: list[int]
    format: OutputFormat
    images: Sequence[PromptImage] = ()


class Chat:
    """One model's template, vocabulary and guard together. Safe to use from two threads."""

    def __init__(self, engine: Engine, template: Template, guard: RenderGuard) -> None:
        self._engine = engine
        self._guard = guard
        self.template = template
        self.special: SpecialTokens = engine.special
        self.tokenizer = PromptTokenizer(engine, self.special, template, guard)

    @classmethod
    def for_model(cls, engine: Engine, loaded: LoadedModel, name: str, guard: RenderGuard) -> tuple[Chat, list[str]]:
        """Compile and probe the model's template; notes for describe.

        Raises ModelLoadFailed at stage `template`.
        """
        template, notes = compiled(loaded.template, engine.special, name, guard)
        return cls(engine, template, guard), notes

    def identify(self, identity: ResolvedIdentity, wanted: RequestedIdentity) -> ResolvedIdentity:
        """The resolved identity with the fields that the template decides."""
        form = self.template.detected.output
        resolved = msgspec.structs.replace(
            identity,
            template_digest=self.template.digest,
            bos_policy="add" if self.special.add_bos else "none",
            reasoning_format=form.reasoning,
        )
        for field in ("template_digest", "bos_policy", "reasoning_format"):
            asked = getattr(wanted, field)
            if asked not in (AUTO, getattr(resolved, field)):
                raise ModelLoadFailed(
                    model=wanted.name, stage="template", reason=f"{field} {asked} was asked for and cannot be had"
                )
        return resolved

    def prompt(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], thinking: str | None
    ) -> Prompt:
        """Render and tokenise, with BOS exactly once where the vocabulary wants it. Contents are data: texts of special
        tokens in them are ordinary text.

        Raises UnsupportedFeature for a message that holds more than the model can take, ImageUnusable,
        TemplateFailed: nothing is left out silently.
        """
        encoder = self._engine.image_encoder
        images: Sequence[PromptImage] = ()
        if encoder is None:
            refuse_images(messages)
        else:
            messages, images = take_images(messages, encoder.mark)
        mark = encoder.mark if encoder is not None else ""
        rendered = self.tokenizer.contents.render(messages, tools, thinking, mark)
        with self._guard.limits():
            form = self.template.output_format(rendered.disguised)
        if images and rendered.disguised.count(mark) != len(images):
            raise TemplateFailed(message="it left an image out", index=images[0].index)
        tokens = self.tokenizer.tokens(rendered, encoder, images)
        if tokens and tokens[-1] < 0:
            at = images[-1].index
            raise TemplateFailed(message="it ends with an image, where an answer should begin", index=at)
        return Prompt(self.with_bos(tokens), form, images)

    def continued(self, text: str) -> Prompt:
        """A text to go on with as it stands: no template, and no text in it is a special token."""
        return Prompt(self.with_bos(self.ordinary(text)), OutputFormat())

    def call_lead(self, tools: Sequence[dict[str, Any]]) -> Lead | None:
        """How the template begins a call; None where it does not tell."""
        with self._guard.limits():
            return call_lead(self.template, tools)

    def with_bos(self, tokens: list[int]) -> list[int]:
        """The template may write the BOS token itself: it is never doubled."""
        bos = self.special.bos
        if self.special.add_bos and bos is not None and tokens[:1] != [bos]:
            return [bos, *tokens]
        return tokens

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text alone, no marks added."""
        return [len(self.ordinary(text)) for text in texts]

    def ordinary(self, text: str) -> list[int]:
        """Tokens of a content by itself, as a prompt has them: no text in it is a special token."""
        return self.tokenizer.ordinary(text)

    def count_each(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Tokens of each message's own words and images. Raises as `prompt`."""
        encoder = self._engine.image_encoder
        if encoder is None:
            refuse_images(messages)
            return self.count([words_of(message) for message in messages])
        without_images, images = take_images(messages, "")
        each = self.count([words_of(message) for message in without_images])
        for image in images:
            each[image.index] += len(encoder.ids(encoder.mark, [image]))
        return each

    def piece_reader(self, form: OutputFormat, stops: Sequence[str]) -> Callable[[int], bytes]:
        """Bytes of a token as the parser for `form` wants them: marks it reads in full, other marks silent."""
        engine = self._engine
        known: dict[int, bytes] = {}
        marks = format_marks(form)

        def read(token: int) -> bytes:
            data = known.get(token)
            if data is None:
                data = engine.piece(token, special=False)
                if not data:
                    mark = engine.piece(token, special=True)
                    text = mark.decode("utf-8", "replace")
                    data = mark if text in stops or any(text in one for one in marks) else b""
                known[token] = data
            return data

        return read


def compiled(source: str, special: SpecialTokens, name: str, guard: RenderGuard) -> tuple[Template, list[str]]:
    """A model's template, probed; notes for describe. Raises ModelLoadFailed at stage `template`."""
    from modeld.template.probe import probe

    try:
        with guard.limits():
            template = Template(source, special.bos_text, special.eos_text)
            return template, probe(template)
    except TemplateFailed as error:
        raise ModelLoadFailed(model=name, stage="template", reason=error.data["message"]) from error


def words_of(message: dict[str, Any]) -> str:
    """All words of a message that cost tokens: its content, thoughts and tool calls."""
    parts = [text_of(message.get("content")), message.get("reasoning_content")]
    parts += [call.get("function", {}).get("arguments") for call in message.get("tool_calls") or ()]
    return "\n".join(part if isinstance(part, str) else str(part) for part in parts if part)
