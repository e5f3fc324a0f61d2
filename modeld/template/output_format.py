"""From the marks in a chat template's text to the output format its model is read by. Pure and cheap (no Jinja);
rendering a probe (`probe.py`) confirms what can be confirmed.
"""

from __future__ import annotations

import msgspec

from modeld.output.format import OutputFormat
from shared.catalog import template_detection


class DetectedFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Advisory flags. `thinking_switches`: the variables by which a turn may set the thinking level."""

    tools: bool
    thinking: bool
    output: OutputFormat
    thinking_switches: tuple[str, ...] = ()

    @property
    def reasoning_format(self) -> str:
        """As it stands in the identity: `none`, `channels`, or the opener of the tags."""
        return self.output.think_open[0] if self.output.reasoning == "tags" else self.output.reasoning


def detect(source: str) -> DetectedFormat:
    """Read the marks in a template's text. An empty text gives the generic answer."""
    found = template_detection.detect(source)
    output = OutputFormat(reasoning=found.reasoning, tools=found.style, noise=found.noise)
    if found.think is not None:
        begin, end = found.think
        output = msgspec.structs.replace(output, think_open=(begin,), think_close=(end,))
    return DetectedFormat(
        tools=found.tools, thinking=found.thinking, output=output, thinking_switches=found.thinking_switches
    )
