"""From our sampling options to the pipeline's generation config."""

from __future__ import annotations

from typing import Any

from modeld.engine.contract import DecodeOptions
from modeld.output.grammar.call_grammar import ANY_OBJECT, canonical
from modeld.output.grammar.schema_grammar import Endless, schema_grammar
from modeld.output.grammar.values import Forced, Section, ToolGrammar
from shared.errors import UnsupportedFeature

#: min_p of one or more is "only the best token" and refused by the pipeline.
_MOST_MIN_P = 0.999
#: top_p of 0 is "only the best token" too, and refused by the pipeline.
_LEAST_TOP_P = 1e-6


def generation_config(genai: Any, options: DecodeOptions | None, end: frozenset[int]) -> Any:
    """None: nothing will be decoded, so one token is sampled and thrown away. Raises UnsupportedFeature."""
    config = genai.GenerationConfig()
    config.max_new_tokens = 1 if options is None else options.max_tokens
    config.stop_token_ids = set(end)
    config.apply_chat_template = False
    if options is None:
        config.do_sample = False
        return config
    if options.logit_bias:
        raise UnsupportedFeature(feature="logit_bias (not offered by OpenVINO)")
    config.repetition_penalty = max(options.repeat_penalty, 0.01)
    config.presence_penalty = _within(options.presence_penalty)
    config.frequency_penalty = _within(options.frequency_penalty)
    config.do_sample = options.temperature > 0
    if config.do_sample:
        _sample(config, options)
    if options.json_schema is not None:
        config.structured_output_config = _whole(genai, options.json_schema)
    elif options.tools is not None and options.tools.forced is not None:
        config.structured_output_config = _forced(genai, options.tools, options.tools.forced)
    elif options.tools is not None and options.tools.sections:
        config.structured_output_config = _tools(genai, options.tools)
    return config


def _whole(genai: Any, schema: str) -> Any:
    """The engine's own reading of a schema lets white space go on for ever: ours has a bound, where it can say it."""
    try:
        return genai.StructuredOutputConfig(grammar=schema_grammar(schema))
    except Endless as error:
        raise UnsupportedFeature(feature=f"this json_schema ({error})") from error
    except ValueError:
        return genai.StructuredOutputConfig(json_schema=schema)


def _arguments(kinds: Any, schema: str) -> Any:
    try:
        return kinds.EBNF(schema_grammar(schema))
    except Endless:
        return kinds.EBNF(schema_grammar(ANY_OBJECT))
    except ValueError:
        return kinds.JSONSchema(schema)


def _tools(genai: Any, grammar: ToolGrammar) -> Any:
    """Free text until an opener is written; from there one of the calls, its arguments by their schema."""
    kinds = genai.StructuredOutputConfig
    tags = [tag for section in grammar.sections for tag in _tags(kinds, section, grammar.schemas)]
    held = kinds()
    held.compound_grammar = kinds.TriggeredTags(triggers=[one.opener for one in grammar.sections], tags=tags)
    return held


def _forced(genai: Any, grammar: ToolGrammar, forced: Forced) -> Any:
    """One call from the first token on; behind a call of a notation without closing marks the model goes on freely."""
    kinds = genai.StructuredOutputConfig
    if forced.section is not None:
        tags = _tags(kinds, forced.section, grammar.schemas)
        call = kinds.TagsWithSeparator(tags=tags, separator="\n", at_least_one=True, stop_after_first=True)
    else:
        begins = [
            kinds.Tag(one.text, _arguments(kinds, grammar.schemas[one.tool]), "")
            if one.json
            else kinds.ConstString(one.text)
            for one in forced.begins
        ]
        call = kinds.Concat(begins[0] if len(begins) == 1 else kinds.Union(begins), kinds.AnyText())
    held = kinds()
    held.compound_grammar = kinds.Concat(kinds.ConstString(forced.before), call) if forced.before else call
    return held


def _tags(kinds: Any, section: Section, schemas: dict[str, str]) -> list[Any]:
    if not section.listed:
        return [
            kinds.Tag(
                f"{section.opener}{section.gap}{canonical(call.begin)}",
                _arguments(kinds, schemas[call.tool]),
                f"{canonical(call.end)}{section.gap}{section.closer}",
            )
            for call in section.calls
        ]
    calls = [
        kinds.Tag(canonical(call.begin), _arguments(kinds, schemas[call.tool]), canonical(call.end))
        for call in section.calls
    ]
    content = kinds.TagsWithSeparator(tags=calls, separator=", ", at_least_one=True)
    return [kinds.Tag(f"{section.opener}[", content, f"]{section.closer}")]


def _sample(config: Any, options: DecodeOptions) -> None:
    config.temperature = options.temperature
    if options.top_k > 0:
        config.top_k = options.top_k
    config.top_p = max(options.top_p, _LEAST_TOP_P)
    config.min_p = min(max(options.min_p, 0.0), _MOST_MIN_P)
    config.rng_seed = options.seed & 0x7FFFFFFF if options.seed is not None else _draw()


def _within(penalty: float) -> float:
    """The pipeline takes -2 to 2, as the chat-completion interface states it."""
    return min(max(penalty, -2.0), 2.0)


def _draw() -> int:
    import secrets

    return secrets.randbits(31)
