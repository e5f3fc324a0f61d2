"""A chat template, ready to render conversations: the face of this folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from modeld.output.format import OutputFormat
from modeld.template.default import CHATML, END_TEXTS, MISSING
from modeld.template.output_format import DetectedFormat, detect
from modeld.template.sandbox import OUTPUT_LIMIT, Given, Sandbox, TemplateRefused, given, tojson
from modeld.template.shape import Adapted, Escape, Shape, adapt, unescaped
from modeld.template.shape_probe import find_shape
from modeld.template.tool_schemas import expressed, name_of
from shared.errors import TemplateFailed

_LEVELS = frozenset({"minimal", "low", "medium", "high", "max"})
_OFF = frozenset({"off", "none", "false", "no"})


class Template:
    """One model's template. An empty `source` means ChatML, and says so in `warnings`.

    Raises TemplateFailed (index None) where the source is no template at all. What the template
    can express is tried out once, at the first render or by `modeld.template.probe.probe`.
    """

    def __init__(
        self,
        source: str,
        bos: str = "",
        eos: str = "",
        now: Callable[[], datetime] = datetime.now,
        limit: int = OUTPUT_LIMIT,
    ) -> None:
        self.warnings: list[str] = [] if source.strip() else [MISSING]
        self.source = source if source.strip() else CHATML
        #: Texts that end an answer, beside the end tokens of the vocabulary.
        self.end_texts: tuple[str, ...] = () if source.strip() else END_TEXTS
        self.digest = hashlib.sha256(self.source.encode("utf-8", "surrogatepass")).hexdigest()
        self.detected: DetectedFormat = detect(self.source)
        self.bos = bos
        self.eos = eos
        self._limit = limit
        self._now = now
        self._wants_list = False
        self._shape: Shape | None = None
        #: Of the tools rendered last: their JSON, those that the template shows, and those that it cannot.
        self._expressed: tuple[str, list[dict[str, Any]], list[dict[str, Any]]] | None = None
        try:
            self._compiled = Sandbox(now, limit).from_string(self.source)
        except Exception as error:
            raise TemplateFailed(message=f"not a usable template: {_said(error)}", index=None) from error

    @property
    def shape(self) -> Shape:
        """What the template can express, tried out at first use."""
        if self._shape is None:
            found = find_shape(self._try)
            if not found.renders:  # some templates loop over tools without asking whether there are any
                self._wants_list = True
                found = find_shape(self._try)
            self._shape = found
        return self._shape

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        thinking: str | None = None,
        add_generation_prompt: bool = True,
        escape: Escape = unescaped,
    ) -> str:
        """The prompt's text, BOS token included where the template writes it.

        `thinking`: None for the template's own default, `off`, `on`, or a level. `escape` gets all contents before
        the template does. Raises TemplateFailed with what the template said and the index of the message it was at.
        """
        switches = _switches(thinking)
        shown, described = self._express(tools)
        adapted = adapt(messages, shown, self.shape, escape, described, whole=add_generation_prompt)
        watched = _Watched(map(given, adapted.messages))
        try:
            return self._raw(watched, adapted.tools, switches, add_generation_prompt)
        except MemoryError:
            raise  # the process is at its limit: no answer about the template
        except Exception as error:
            at = watched.at if adapted.whole(watched.at) else None
            strict = adapt(messages, tools, self.shape.strictest, escape, whole=add_generation_prompt)
            text = self._strictly(adapted, strict, switches, add_generation_prompt)
            if text is not None:
                return text
            raise TemplateFailed(message=_said(error), index=at) from error

    def _strictly(
        self, refused: Adapted, strict: Adapted, switches: dict[str, Any], add_generation_prompt: bool
    ) -> str | None:
        """The conversation in the plainest form there is, where the other was refused; None where that is too."""
        if strict.messages == refused.messages and strict.tools == refused.tools:
            return None
        try:
            return self._raw(given(strict.messages), strict.tools, switches, add_generation_prompt)
        except MemoryError:
            raise
        except Exception:  # what was refused first is told
            return None

    def _express(self, tools: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The tools as this template can show them, and those that it cannot. A bad tool costs itself alone."""
        if not tools or not self.shape.tools:
            return list(tools), []
        key = json.dumps(tools, sort_keys=True, default=str)
        if self._expressed is None or self._expressed[0] != key:
            kept, left, _ = expressed(tools, self._shows)
            self._expressed = (key, kept, left)
        return self._expressed[1], self._expressed[2]

    def _shows(self, tools: Sequence[dict[str, Any]]) -> bool:
        asked = adapt([{"role": "user", "content": "hello"}], tools, self.shape)
        text = self._try(asked.messages, asked.tools)
        return text is not None and all(json.dumps(name)[1:-1] in text or name in text for name in map(name_of, tools))

    def output_format(self, prompt: str) -> OutputFormat:
        """How the answer to `prompt` is to be read: notes where the prompt itself opens the reasoning."""
        form = self.detected.output
        tail = prompt.rstrip()
        return msgspec.structs.replace(
            form,
            opened=form.reasoning == "tags" and any(tail.endswith(one) for one in form.think_open),
            begun=form.tools == "functionary_recipient" and tail.endswith(">>>"),
            described=not self.shape.tools,
        )

    def _try(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str | None:
        try:
            return self._raw(messages, tools, {}, True)
        except MemoryError:
            raise  # the process is at its limit: no answer about the template
        except Exception:  # any other failure means that the template cannot express this
            return None

    def _raw(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], switches: dict[str, Any], prompt: bool
    ) -> str:
        variables: dict[str, Any] = {
            "messages": messages if isinstance(messages, Given) else given(messages),
            "bos_token": self.bos,
            "eos_token": self.eos,
            "add_generation_prompt": prompt,
            **switches,
        }
        if tools or self._wants_list:
            variables["tools"] = given(tools)
        if "functions" in self.source:  # Firefunction's own name for them, as JSON text
            variables["functions"] = tojson(tools, indent=4)
            variables["datetime"] = self._now().strftime("%B %d %Y %H:%M:%S GMT")
        parts: list[str] = []
        size = 0
        for part in self._compiled.generate(variables):
            size += len(part)
            if size > self._limit:
                raise TemplateRefused(f"the template wrote more than {self._limit} characters")
            parts.append(part)
        return "".join(parts)


class _Watched(Given):
    """The messages, remembering which one the template was given last."""

    at: int | None = None

    def __iter__(self) -> Any:
        for index, message in enumerate(super().__iter__()):
            self.at = index
            yield message


def _switches(thinking: str | None) -> dict[str, Any]:
    """The variables by which template families set the level of reasoning."""
    if thinking is None:
        return {}
    level = thinking.strip().lower()
    if level in _OFF:
        return {"enable_thinking": False, "thinking": False}
    switches: dict[str, Any] = {"enable_thinking": True, "thinking": True}
    if level in _LEVELS:
        switches["reasoning_effort"] = level
    return switches


def _said(error: BaseException) -> str:
    return f"{error}" if isinstance(error, TemplateRefused) else f"{type(error).__name__}: {error}"
