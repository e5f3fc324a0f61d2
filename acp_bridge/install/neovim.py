"""The two files that Neovim gets: what its ACP plugins want to know, and the configuration of the language server."""

from __future__ import annotations

import json
from collections.abc import Sequence

from acp_bridge.install.editor_paths import AGENT, Command

MARK = "-- written by `acp-bridge install neovim`; `--remove` takes it away again"
#: What to put into init.lua, for each plugin that speaks ACP.
CODECOMPANION = (
    f'require("codecompanion").setup({{ adapters = {{ acp = {{ {AGENT} = require("modeld_acp").codecompanion }} }} }})'
)
AVANTE = (
    f'require("avante").setup({{ provider = "{AGENT}", '
    f'acp_providers = {{ {AGENT} = require("modeld_acp").provider }} }})'
)
LSP = f'vim.lsp.enable("{AGENT}")'


def quoted(text: str) -> str:
    """A Lua string. JSON's escapes are Lua's, but for the solidus, which json does not escape, and unicode."""
    return json.dumps(text, ensure_ascii=False)


def _list(words: Sequence[str]) -> str:
    return "{ " + ", ".join(quoted(word) for word in words) + " }"


def _table(pairs: dict[str, str]) -> str:
    fields = [f"[{quoted(key)}] = {quoted(value)}" for key, value in pairs.items()]
    return "{ " + ", ".join(fields) + " }" if fields else "{}"


def acp_module(command: Command) -> str:
    """`lua/modeld_acp.lua`: the agent for CodeCompanion (a function), and for avante and agentic (a table)."""
    return f"""{MARK}
local M = {{}}

-- avante.nvim and agentic.nvim: acp_providers = {{ {AGENT} = require("modeld_acp").provider }}
M.provider = {{
  name = "{AGENT}",
  command = {quoted(command.command)},
  args = {_list(command.args)},
  env = {_table(command.env)},
}}

-- codecompanion.nvim: adapters = {{ acp = {{ {AGENT} = require("modeld_acp").codecompanion }} }}
function M.codecompanion()
  local helpers = require("codecompanion.adapters.acp.helpers")
  return {{
    name = "{AGENT}",
    formatted_name = "{AGENT}",
    type = "acp",
    roles = {{ llm = "assistant", user = "user" }},
    commands = {{ default = {_list((command.command, *command.args))} }},
    defaults = {{ mcpServers = {{}}, timeout = 20000 }},
    env = {_table(command.env)},
    parameters = {{
      protocolVersion = 1,
      clientCapabilities = {{ fs = {{ readTextFile = true, writeTextFile = true }} }},
      clientInfo = {{ name = "CodeCompanion.nvim", version = "1.0.0" }},
    }},
    handlers = {{
      setup = function() return true end,
      auth = function() return true end,
      form_messages = function(self, messages, capabilities)
        return helpers.form_messages(self, messages, capabilities)
      end,
      on_exit = function() end,
    }},
  }}
end

return M
"""


def lsp_module(command: Command) -> str:
    """`lsp/modeld.lua`, which Neovim 0.11 and later read by themselves."""
    return f"""{MARK}
return {{
  cmd = {_list((command.command, *command.args))},
  cmd_env = {_table(command.env)},
  root_markers = {{ ".git" }},
}}
"""
