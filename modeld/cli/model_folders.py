"""`modeld library add` and `remove`: which folders are searched besides the known ones, in the config file."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from shared import codes
from shared.diagnosis.remedy import called
from shared.system.foreign import ask
from shared.text.secret import shown_address
from shared.text.shown import one_line
from shared.text.words import counted, is_text


def add(typed: str | None) -> int:
    """Write the folder into the config file, whose other lines stay as they are, and say what is in it."""
    path, problem = _folder(typed, "add")
    if not problem:
        problem = _no_folder(path)
    if problem:
        return _refused(problem)
    from modeld.cli.configfile import add_folder

    file, added = add_folder(path)
    known = "now" if added else "already"
    print(one_line(f"{path} is {known} among the model folders ({file}): {_content(path)}"))
    if added:
        print(f"A running modeld sees it after `{called('modeld')} restart`.")
    return codes.OK


def remove(typed: str | None) -> int:
    """Take the folder out of the config file; what lies in it stays."""
    path, problem = _folder(typed, "remove")
    if problem:
        return _refused(problem)
    from modeld.cli.configfile import remove_folder

    file, names = remove_folder(path)
    if names is not None:
        listed = ", ".join(names) or "none"
        return _refused(f"{path} is not among the model folders of {file}: {listed}")
    print(one_line(f"{path} is no longer among the model folders ({file}); nothing in it was touched"))
    print(f"A running modeld searches it until `{called('modeld')} restart`.")
    return codes.OK


def _folder(typed: str | None, verb: str) -> tuple[Path, str]:
    """(the folder, what is wrong with how it is written or "")."""
    if typed is None:
        return Path(), f"library {verb}: name a folder"
    path = Path(typed).expanduser().absolute()
    if not is_text(str(path)):
        return path, f"{str(path)!a} is not valid UTF-8: give the folder another name"
    if "://" in typed:
        return path, f"{shown_address(typed)} is an address, not a folder; `{called('modeld')} pull` fetches a model"
    return path, ""


def _no_folder(path: Path) -> str:
    """Why it cannot be searched, "" where it can."""
    try:
        is_folder = stat.S_ISDIR(ask(path, path.stat).st_mode)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return "" if is_folder else f"{path} is not a folder"


def _content(path: Path) -> str:
    """What a search finds in it, in words."""
    from shared.catalog.scan import Scan
    from shared.catalog.sources import SearchFolder
    from shared.system.foreign import Foreign

    foreign = Foreign()
    try:
        found = foreign.walk(lambda: {one.path for one in Scan(foreign).place(SearchFolder("folder", str(path)))})
    finally:
        foreign.close()
    return (
        f"{counted(len(found), 'file')} in it may be models" if found else "it holds no GGUF file and no OpenVINO model"
    )


def _refused(problem: str) -> int:
    print(f"modeld: {one_line(problem)}", file=sys.stderr)
    return codes.USAGE
