"""Each editor's settings are looked for where that editor keeps them, on every platform."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acp_bridge.install import neovim
from acp_bridge.install.editor_paths import (
    Surroundings,
    code_settings,
    code_variants,
    command_of,
    jetbrains_settings,
    neovim_folder,
    zed_settings,
)
from acp_bridge.install.editors import EDITORS, CannotInstall, Wanted, configured

pytestmark = pytest.mark.unit

HOME = Path("/home/ada")


def around(platform: str = "linux", *there: str, commands: tuple[str, ...] = (), **environ: str) -> Surroundings:
    known = {Path(name) for name in there}
    return Surroundings(
        platform=platform,
        environ=environ,
        home=HOME,
        interpreter="/home/ada/.local/share/uv/tools/modeld/bin/python",
        exists=lambda path: path in known,
        which=lambda name: f"/usr/bin/{name}" if name in commands else None,
    )


def test_zed() -> None:
    assert zed_settings(around()) == HOME / ".config/zed/settings.json"
    assert zed_settings(around("darwin")) == HOME / ".config/zed/settings.json"
    assert zed_settings(around(XDG_CONFIG_HOME="/cfg")) == Path("/cfg/zed/settings.json")
    assert zed_settings(around(XDG_CONFIG_HOME="relative")) == HOME / ".config/zed/settings.json"
    assert zed_settings(around("win32", APPDATA="/roaming")) == Path("/roaming/Zed/settings.json")
    packed = "/home/ada/.var/app/dev.zed.Zed/config/zed"
    assert zed_settings(around("linux", packed)) == Path(packed, "settings.json")
    assert zed_settings(around("linux", packed, "/home/ada/.config/zed")) == HOME / ".config/zed/settings.json"


def test_jetbrains_and_neovim() -> None:
    for platform in ("linux", "darwin", "win32"):
        assert jetbrains_settings(around(platform)) == HOME / ".jetbrains/acp.json"
    assert neovim_folder(around()) == HOME / ".config/nvim"
    assert neovim_folder(around(NVIM_APPNAME="lazy")) == HOME / ".config/lazy"
    assert neovim_folder(around("win32", LOCALAPPDATA="/local")) == Path("/local/nvim")


def test_builds_of_vscode() -> None:
    assert code_variants(around()) == []
    ((variant, path),) = code_variants(around(commands=("codium",)))
    assert (variant.folder, path) == ("VSCodium", "/usr/bin/codium")
    assert code_settings(around(), variant) == HOME / ".config/VSCodium/User/settings.json"
    ((served, _),) = code_variants(around(commands=("code-server",)))
    assert code_settings(around(), served) == HOME / ".local/share/code-server/Machine/settings.json"
    bundled = "/Applications/Visual Studio Code.app/Contents/Resources/app/bin/code"
    ((variant, path),) = code_variants(around("darwin", bundled))
    assert path == bundled
    assert code_settings(around("darwin"), variant) == HOME / "Library/Application Support/Code/User/settings.json"


def test_the_command_is_absolute_and_carries_where_modeld_is() -> None:
    command = command_of(around(MODELD_DATA_ROOT="/data", PATH="/usr/bin", MODELD_CONFIG=""), "acp")
    assert command.command == "/home/ada/.local/share/uv/tools/modeld/bin/python"
    assert command.args == ("-P", "-m", "acp_bridge", "acp"), "-P: the open project must not shadow our modules"
    assert command.env == {"MODELD_DATA_ROOT": "/data"}


def test_vscode_is_refused_where_it_is_not() -> None:
    with pytest.raises(CannotInstall, match="no VS Code was found"):
        EDITORS["vscode"](around(), Wanted())


def test_vscode_says_when_the_extension_is_missing(tmp_path: Path) -> None:
    plan = EDITORS["vscode"](around(commands=("code",)), Wanted(settings=tmp_path / "settings.json"))
    assert any("--vsix" in warning for warning in plan.warnings)
    assert plan.commands == []
    plan = EDITORS["vscode"](
        around(commands=("code",)), Wanted(settings=tmp_path / "settings.json", vsix=Path("/x/modeld.vsix"))
    )
    assert plan.commands == [["/usr/bin/code", "--install-extension", "/x/modeld.vsix", "--force"]]
    assert json.loads(plan.changes[0].after or "") == {"modeld.python": around().interpreter}


def test_neovim_files_are_ours_or_left_alone(tmp_path: Path) -> None:
    plan = EDITORS["neovim"](around(), Wanted(settings=tmp_path))
    for change in plan.changes:
        assert change.before is None
        assert (change.after or "").startswith(neovim.MARK)
        assert '"/home/ada/.local/share/uv/tools/modeld/bin/python"' in (change.after or "")
    mine = tmp_path / "lua" / "modeld_acp.lua"
    mine.parent.mkdir()
    mine.write_text("return {}\n")
    with pytest.raises(CannotInstall, match="was not written by acp-bridge"):
        EDITORS["neovim"](around(), Wanted(settings=tmp_path))


def test_what_is_configured_is_found_again(tmp_path: Path) -> None:
    here = around(XDG_CONFIG_HOME=str(tmp_path))
    assert "zed" not in configured(here)
    file = tmp_path / "zed" / "settings.json"
    file.parent.mkdir()
    file.write_text('{ "theme": "x" }')
    assert configured(here)["zed"] == (file, None)
    file.write_text(EDITORS["zed"](here, Wanted()).changes[0].after or "")
    assert configured(here)["zed"] == (file, [here.interpreter, "-P", "-m", "acp_bridge", "acp"])
    file.write_text("{ broken")
    with pytest.raises(CannotInstall):
        configured(here)
