"""Holds one turn's tool calls to their grammar, from the moment a call has begun."""

from __future__ import annotations

from collections.abc import Sequence

from modeld.engine.llama.sampling.grammar import arguments_gbnf, forced_gbnf, section_gbnf
from modeld.engine.llama.sampling.sampler import SamplerChain
from modeld.engine.llama.vocabulary import Vocabulary
from modeld.output.grammar.call_grammar import ANY_OBJECT, may_begin, may_follow
from modeld.output.grammar.values import Opened, Section, ToolGrammar
from shared.errors import UnsupportedFeature

#: An opener is found within this many tokens, or left alone.
OPENER_TOKENS = 40


class HeldTools:
    """A grammar begins with the tokens that opened the call, so that a token may hold more than the opener.

    What a model wrote behind the opener in the same token must fit, else the call stays free: llama.cpp
    ends the process when a token is accepted that its grammar does not allow.
    """

    def __init__(self, grammar: ToolGrammar) -> None:
        self._grammar = grammar
        self._in_section = False

    def begin(self, sampler: SamplerChain, vocabulary: Vocabulary) -> None:
        """Before the first token: the call that a turn must make. Raises UnsupportedFeature."""
        forced = self._grammar.forced
        if forced is None:
            return
        if not sampler.hold(vocabulary, forced_gbnf(self._grammar, forced)):
            raise UnsupportedFeature(feature="tool_choice with these tools")
        self._in_section = forced.section is not None or all(one.json for one in forced.begins)

    def open(self, sampler: SamplerChain, vocabulary: Vocabulary, opened: Opened, tokens: Sequence[int]) -> None:
        """`tokens`: the last ones sampled. Does nothing where the call cannot be held."""
        if self._in_section:
            return  # its grammar knows the arguments, and further calls
        if opened.tool is not None:
            if may_begin(self._grammar.schemas.get(opened.tool, ANY_OBJECT), opened.written):
                self._hold_arguments(sampler, vocabulary, opened, tokens)
            return
        section = next((one for one in self._grammar.sections if one.opener == opened.opener), None)
        if section is not None and may_follow(section, opened.written):
            self._hold_section(sampler, vocabulary, opened, section, tokens)

    def _hold_section(
        self, sampler: SamplerChain, vocabulary: Vocabulary, opened: Opened, section: Section, tokens: Sequence[int]
    ) -> None:
        found = _ending(vocabulary, tokens, section.opener + opened.written)
        if found is not None:
            written, before = found
            grammar = section_gbnf(section, self._grammar.schemas, before + section.opener)
            self._in_section = sampler.hold(vocabulary, grammar, written)

    def _hold_arguments(
        self, sampler: SamplerChain, vocabulary: Vocabulary, opened: Opened, tokens: Sequence[int]
    ) -> None:
        found = _ending(vocabulary, tokens, opened.written)
        if found is not None:
            written, before = found
            sampler.hold(vocabulary, arguments_gbnf(self._grammar, opened.tool or "", before), written)


def _ending(vocabulary: Vocabulary, tokens: Sequence[int], text: str) -> tuple[Sequence[int], str] | None:
    """The fewest last tokens that end with `text`, and what their first holds before it."""
    if not text:
        return (), ""
    wanted, data = text.encode(), b""
    for count in range(1, len(tokens) + 1):
        data = vocabulary.piece(tokens[-count], True) + data
        if data.endswith(wanted):
            try:
                return tokens[-count:], data[: len(data) - len(wanted)].decode()
            except UnicodeDecodeError:
                return None
    return None
