"""Which editors can be installed into, and where each keeps its settings. Pure over an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

#: Name of the agent in an editor's settings, and of the entry in its menus.
AGENT = "modeld"
#: Variables that say where modeld is; an editor started from the desktop does not have the shell's.
CARRIED = ("MODELD_DATA_ROOT", "MODELD_CONFIG")


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides where settings are and what is written. `exists` and `which` look at the machine."""

    platform: str
    environ: Mapping[str, str]
    home: Path
    interpreter: str
    exists: Callable[[Path], bool]
    which: Callable[[str], str | None]

    @property
    def config(self) -> Path:
        """The folder of configuration files of this platform's programs."""
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.xdg_config

    @property
    def xdg_config(self) -> Path:
        """`XDG_CONFIG_HOME`, else `~/.config`: also used on macOS by programs that come from Unix."""
        given = self.environ.get("XDG_CONFIG_HOME", "")
        return Path(given) if Path(given).is_absolute() else self.home / ".config"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What an editor spawns: an absolute interpreter, since editors started from the desktop have a short PATH."""

    command: str
    args: tuple[str, ...]
    env: dict[str, str]


def command_of(surroundings: Surroundings, face: str) -> Command:
    """The bridge with `face` (`acp`, `lsp`). `-P`: the project that is open must not shadow our modules."""
    env = {name: surroundings.environ[name] for name in CARRIED if surroundings.environ.get(name)}
    return Command(command=surroundings.interpreter, args=("-P", "-m", "acp_bridge", face), env=env)


def zed_settings(surroundings: Surroundings) -> Path:
    """Zed's own file; that of its Flatpak where only that one is there."""
    if surroundings.platform == "win32":
        return surroundings.config / "Zed" / "settings.json"
    own = surroundings.xdg_config / "zed"
    packed = surroundings.home / ".var" / "app" / "dev.zed.Zed" / "config" / "zed"
    chosen = packed if not surroundings.exists(own) and surroundings.exists(packed) else own
    return chosen / "settings.json"


def jetbrains_settings(surroundings: Surroundings) -> Path:
    """The settings file that all IDEs of JetBrains share, on every platform."""
    return surroundings.home / ".jetbrains" / "acp.json"


class CodeVariant(msgspec.Struct, frozen=True, kw_only=True):
    """One build of VS Code: its command, and its folder of settings under the platform's."""

    command: str
    folder: str


#: In the order in which they are looked for.
CODE_VARIANTS = (
    CodeVariant(command="code", folder="Code"),
    CodeVariant(command="code-insiders", folder="Code - Insiders"),
    CodeVariant(command="codium", folder="VSCodium"),
    CodeVariant(command="code-server", folder="code-server"),
)
#: Where macOS keeps the command when it was never put on PATH.
_MAC_CODE = Path("/Applications/Visual Studio Code.app/Contents/Resources/app/bin/code")


def code_variants(surroundings: Surroundings) -> list[tuple[CodeVariant, str]]:
    """The builds of VS Code that are here, each with its command's absolute path ("" where only settings are)."""
    found: list[tuple[CodeVariant, str]] = []
    for variant in CODE_VARIANTS:
        path = surroundings.which(variant.command) or ""
        if not path and variant.command == "code" and surroundings.platform == "darwin":
            path = str(_MAC_CODE) if surroundings.exists(_MAC_CODE) else ""
        if path or surroundings.exists(code_settings(surroundings, variant).parent):
            found.append((variant, path))
    return found


def code_settings(surroundings: Surroundings, variant: CodeVariant) -> Path:
    """The user's settings; those of the machine where the editor is served."""
    if variant.command == "code-server":
        data = surroundings.environ.get("XDG_DATA_HOME", "")
        base = Path(data) if Path(data).is_absolute() else surroundings.home / ".local" / "share"
        return base / variant.folder / "Machine" / "settings.json"
    return surroundings.config / variant.folder / "User" / "settings.json"


def neovim_folder(surroundings: Surroundings) -> Path:
    """Neovim's configuration: `stdpath("config")`."""
    name = surroundings.environ.get("NVIM_APPNAME") or "nvim"
    if surroundings.platform == "win32":
        return Path(surroundings.environ.get("LOCALAPPDATA") or surroundings.home / "AppData" / "Local") / name
    return surroundings.xdg_config / name
