"""Which files of a workspace run code, as it stands on disk: by their names, by links to them, by what git says."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from acp_bridge.tools.consent.protected import GIT, HOOK, plain_name, runs_code
from acp_bridge.tools.paths import spelled

#: Folders whose entries are often links to files with harmless names, beside the workspace's own.
_LINKED_FROM = (
    ".git", ".git/hooks", ".husky", ".githooks", ".vscode", ".zed", ".idea", ".github", ".github/workflows", ".config"
)  # fmt: skip
#: A folder with more entries is not looked through: nobody keeps so many hooks or settings.
MOST_ENTRIES = 10_000
_READ_BYTES = 64 * 1024
_SETTING = re.compile(r"(?m)(?:^|\])[ \t]*(?P<key>[A-Za-z][A-Za-z0-9-]*)[ \t]*=[ \t]*(?P<value>\S.*)$")
_VALUE = re.compile(r"[^\"\n#;]*(?:\"[^\"\n]*\"[^\"\n#;]*)*")
_WORD = re.compile(r"[^\s\"'!;|&()]+")
#: Nobody spreads the settings of git over more files; files may include each other in circles.
_MOST_FILES = 32
_PROGRAMS = "a folder that programs are started from"


def reason_to_ask(asked: str, real: Path, roots: Sequence[str]) -> str:
    """Why the file `real` (its links resolved) runs code, "" when it does not. `asked` is its path as it was given."""
    named = Path(os.path.normpath(spelled(asked, roots)))
    for root in roots:
        for path, base in ((real, Path(os.path.realpath(root))), (named, Path(root))):
            if reason := _by_names(path, base):
                return reason
    if _on_path(real.parent):
        return _PROGRAMS
    if _in_repository(real, roots):
        return GIT
    return next((reason for root in roots for reason in _by_links(real, Path(root))), "")


def _by_names(path: Path, root: Path) -> str:
    """The folders above the workspace's own say nothing, but for its name and its parent's, and a git folder."""
    if not path.is_relative_to(root):
        return ""
    above = [*(part for part in root.parts if plain_name(part) == ".git"), *root.parts[-2:]]
    return runs_code([*above, *path.relative_to(root).parts])


def _on_path(folder: Path) -> bool:
    places = filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))
    return any(_same(Path(os.path.realpath(place)), folder) for place in places)


def _same(one: Path, other: Path) -> bool:
    """Whether two paths may mean one file: as text in any case, as many filesystems compare names, or on disk."""
    if str(one).casefold() == str(other).casefold():
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False  # one of them does not exist


def _within(real: Path, folder: Path) -> bool:
    return any(_same(each, folder) for each in (real, *real.parents))


def _by_links(real: Path, root: Path) -> Iterator[str]:
    """Reasons why `real` is what a file that runs code leads to."""
    numbers = _numbers(real)
    for entry in _entries(root):
        reason = runs_code(Path(entry.path).relative_to(root).parts)
        if not reason:
            continue
        target = Path(os.path.realpath(entry.path))
        linked = target != Path(os.path.realpath(os.path.dirname(entry.path))) / entry.name  # a junction is a link too
        if (linked and _within(real, target)) or (numbers is not None and _numbers(target) == numbers):
            yield reason
    yield from _by_git(real, root)


def _numbers(path: Path) -> tuple[int, int] | None:
    """What tells two names of one file; None for a file with one name."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_nlink > 1 and stat.S_ISREG(found.st_mode) else None


def _entries(root: Path) -> Iterator[os.DirEntry[str]]:
    for folder in (root, *(root / name for name in _LINKED_FROM)):
        try:
            with os.scandir(folder) as found:
                for _, entry in zip(range(MOST_ENTRIES), found, strict=False):
                    yield entry
        except OSError:
            continue  # there is no such folder


def _by_git(real: Path, root: Path) -> Iterator[str]:
    """The folder of git's own that a `.git` file names, the folder that the hooks are taken from, and each file that a
    setting of git names: one that is included, a filter, a watcher.

    The repository may begin above the workspace; its paths are relative to where it begins.
    """
    top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), None)
    if top is None:
        return
    folder = top / ".git"
    if pointer := _text(folder).partition("gitdir:")[2].strip():
        folder = Path(os.path.realpath(top / pointer))
        if _within(real, folder):
            yield GIT
    if common := _text(folder / "commondir").strip():
        folder = Path(os.path.realpath(folder / common))
    for file, key, value in _git_settings([folder / "config", folder / "config.worktree", *_own_settings()]):
        if key == "hookspath" and _same(real.parent, _named(value, top)):
            yield HOOK
        words = {value, *_WORD.findall(value)}
        if any(_same(real, _named(word, base)) for word in words for base in (top, file.parent)):
            yield GIT


def _in_repository(real: Path, roots: Sequence[str]) -> bool:
    """Whether a folder that it lies in is a repository to git, wherever that is named: its settings run programs."""
    below = [folder for folder in real.parents if any(folder.is_relative_to(os.path.realpath(root)) for root in roots)]
    return any(os.path.lexists(folder / "HEAD") and os.path.lexists(folder / "objects") for folder in below)


def _own_settings() -> list[Path]:
    """The person's own settings of git, which may name places in every repository."""
    settings = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [Path(os.path.expanduser("~/.gitconfig")), Path(settings, "git", "config")]


def _git_settings(files: list[Path]) -> Iterator[tuple[Path, str, str]]:
    """File, key and value of each setting, with those of the files that they include."""
    waiting, known = list(files), set(files)
    while waiting:
        file = waiting.pop()
        for found in _SETTING.finditer(_text(file).replace("\r", "").replace("\\\n", "")):
            key, value = found["key"].lower(), _VALUE.match(found["value"])
            plain = "" if value is None else value[0].replace('"', "").strip()
            if plain:
                yield file, key, plain
            included = _named(plain, file.parent) if plain and key == "path" else file
            if included not in known and len(known) < _MOST_FILES:
                known.add(included)
                waiting.append(included)


def _named(path: str, base: Path) -> Path:
    return Path(os.path.realpath(base / os.path.expanduser(path)))


def _text(path: Path) -> str:
    """The beginning of a regular file, "" for anything else: nothing here waits for a pipe."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
