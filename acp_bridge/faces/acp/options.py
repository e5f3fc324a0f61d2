"""The config options of a session: always the complete list, the current value always among the options. Pure."""

from __future__ import annotations

from acp_bridge.conversations.state import MODES, ModeName
from acp_bridge.faces.acp.schema import (
    BooleanConfig,
    ConfigOption,
    Mode,
    ModeState,
    SelectConfig,
    SelectGroup,
    SelectOption,
)
from acp_bridge.models.picker import Picker
from acp_bridge.models.thinking import NAMES, THINKING
from shared.text.shown import NAME_MOST, TITLE_MOST, one_line

MODEL = "model"
MODE = "mode"
TOOLS = "tools"
TOOLS_TEXT = "Let the model read, search and edit files and run commands"

MODE_TEXTS: dict[ModeName, tuple[str, str]] = {
    "ask": ("Ask", "Reads and answers; changes nothing"),
    "code": ("Code", "Edits files and runs commands, each with your permission"),
    "auto": (
        "Auto",
        "Edits files without asking, except those that make tools run code; commands that were not allowed yet ask",
    ),
}


def config_options(
    picker: Picker, mode: ModeName, thinking: str, levels: list[str], tools: bool | None
) -> list[ConfigOption]:
    """Model, mode, the thinking level where the model has one (`levels` not empty), and whether it gets tools (None
    for an editor that takes no booleans).
    """
    options: list[ConfigOption] = [_model(picker), _mode(mode)]
    if levels:
        options.append(_thinking(thinking if thinking in levels else levels[0], levels))
    if tools is not None:
        options.append(BooleanConfig(id=TOOLS, name="Tools", current_value=tools, description=TOOLS_TEXT))
    return options


def mode_state(mode: ModeName) -> ModeState:
    """The same modes in the older form."""
    modes = [Mode(id=name, name=MODE_TEXTS[name][0], description=MODE_TEXTS[name][1]) for name in MODES]
    return ModeState(current_mode_id=mode, available_modes=modes)


def _model(picker: Picker) -> SelectConfig:
    groups = [
        SelectGroup(
            group=group.id,
            name=one_line(group.name, NAME_MOST),
            options=[
                SelectOption(
                    value=choice.value,
                    name=one_line(choice.name, NAME_MOST),
                    description=one_line(choice.description, TITLE_MOST),
                )
                for choice in group.choices
            ],
        )
        for group in picker.groups
    ]
    return SelectConfig(id=MODEL, name="Model", category="model", current_value=picker.current, options=groups)


def _mode(mode: ModeName) -> SelectConfig:
    options = [SelectOption(value=name, name=MODE_TEXTS[name][0], description=MODE_TEXTS[name][1]) for name in MODES]
    return SelectConfig(id=MODE, name="Mode", category="mode", current_value=mode, options=options)


def _thinking(current: str, levels: list[str]) -> SelectConfig:
    options = [SelectOption(value=level, name=NAMES[level]) for level in levels]
    return SelectConfig(id=THINKING, name="Thinking", category="thought_level", current_value=current, options=options)
