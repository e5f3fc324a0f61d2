"""`acp-bridge install EDITOR`: shows what will change, makes it, says what comes next."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from acp_bridge.install import change
from acp_bridge.install.change import FileChange
from acp_bridge.install.editor_paths import CARRIED, Surroundings
from acp_bridge.install.editors import EDITORS, CannotInstall, Plan, Wanted
from acp_bridge.install.http_provider import PROVIDERS, Provider
from shared.diagnosis.remedy import fleeting
from shared.paths import home
from shared.text.shown import one_line

#: An editor's command that installs an extension and does not end is given up. Seconds.
COMMAND_SECONDS = 120.0


def main(options: argparse.Namespace, provider: Provider | None = None) -> int:
    """Exit code 0 when it is done (or was already), 1 when something is in the way. With a `provider` (`--http`) the
    editor is told of that in the place of the agent, and the person is asked first.
    """
    try:
        around = surroundings()
        wanted = Wanted(remove=options.remove, settings=_absolute(options.settings), vsix=_vsix(options.vsix))
        plan = _plan(options.editor, around, wanted, provider)
        if options.print_only:
            print(plan.snippet)
            for one in plan.changes:
                print(f"Add this to {one.path}", file=sys.stderr)
            return 0
        asks = provider is not None and not options.yes
        return _carry_out(plan, dry=options.dry_run, removes=options.remove, asks=asks)
    except (CannotInstall, change.Moved) as error:
        print(f"acp-bridge: {one_line(str(error))}", file=sys.stderr)
    except OSError as error:
        print(f"acp-bridge: {error.filename or 'the system'}: {error.strerror or error}", file=sys.stderr)
    return 1


def _plan(editor: str, around: Surroundings, wanted: Wanted, provider: Provider | None) -> Plan:
    """Raises CannotInstall."""
    if provider is None:
        if editor not in EDITORS:
            raise CannotInstall(f"{editor} speaks neither ACP nor LSP: add --http")
        return EDITORS[editor](around, wanted)
    if editor not in PROVIDERS:
        raise CannotInstall(f"--http is for {', '.join(PROVIDERS)}; {editor} needs none")
    return PROVIDERS[editor](around, wanted, provider)


def _whole_paths() -> dict[str, str]:
    """What says where modeld is, as it is meant here: an editor is in another folder."""
    given = {name: os.environ[name] for name in CARRIED if os.environ.get(name)}
    return {name: os.path.abspath(os.path.expanduser(value)) for name, value in given.items()}


def surroundings() -> Surroundings:
    """This machine and this user. Raises CannotInstall where there is no home folder or no interpreter."""
    folder = home()
    if folder is None:
        raise CannotInstall("no home folder is known: set HOME to it, then run this again")
    interpreter = sys.executable
    if not interpreter:
        raise CannotInstall("the interpreter does not know its own path: run this by an absolute path")
    return Surroundings(
        platform=sys.platform,
        environ={**os.environ, **_whole_paths()},
        home=folder,
        interpreter=os.path.abspath(interpreter),
        exists=os.path.exists,
        which=shutil.which,
    )


def _absolute(given: str | None) -> Path | None:
    return Path(given).expanduser().absolute() if given else None


def _vsix(given: str | None) -> Path | None:
    """The extension's package: named, shipped with this installation, or built in a checkout."""
    if given:
        path = Path(given).expanduser().absolute()
        if not path.is_file():
            raise CannotInstall(f"{path} is not there")
        return path
    here = Path(__file__).resolve()
    for folder in (here.parent, here.parents[2] / "editors" / "vscode"):
        found = sorted(folder.glob("*.vsix"))
        if found:
            return found[-1]
    return None


def _carry_out(plan: Plan, *, dry: bool, removes: bool, asks: bool) -> int:
    for warning in plan.warnings:
        print(f"acp-bridge: {warning}", file=sys.stderr)
    todo = [one for one in plan.changes if one.changes]
    for one in todo:
        print(one.diff(), end="")
    for command in plan.commands:
        print(f"$ {' '.join(command)}")
    if dry:
        print("nothing was changed" if todo or plan.commands else "nothing to change")
        return 0
    if asks and todo and not _agreed():
        return 1
    for one in todo:
        _make(one)
    if not todo and not plan.commands:
        print("nothing to change")
    failed = [command for command in plan.commands if not _ran(command)]
    if fleeting(sys.executable):
        lasting = "install modeld to stay, as with `uv tool install modeld`"
        print(f"acp-bridge: {sys.executable} is in a cache: {lasting}", file=sys.stderr)
    for hint in plan.hints:
        print(hint)
    return 1 if failed and not removes else 0  # an editor calls it a failure to remove what is not there


def _agreed() -> bool:
    """The person says yes; where nobody can be asked, `--yes` has to."""
    if not sys.stdin.isatty():
        print("acp-bridge: nothing was changed: add --yes where nobody can be asked", file=sys.stderr)
        return False
    print("Make this change? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed")
    return False


def _make(one: FileChange) -> None:
    backup = change.apply(one)
    kept = f"; previous version saved as {backup.name}" if backup is not None else ""
    print(f"{'removed' if one.after is None else 'wrote'} {one.path}{kept}")


def _ran(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"acp-bridge: {command[0]}: {error}", file=sys.stderr)
        return False
    if done.returncode != 0:
        print(f"acp-bridge: {command[0]} ended with {done.returncode}", file=sys.stderr)
    return done.returncode == 0
