"""The one line of the config file that a command writes: `model_folders`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from shared.paths import config_file
from shared.settings import load_settings
from shared.system.content import replace_content

_LINE = re.compile(r"(?ms)^model_folders\s*=\s*\[.*?\]\s*?$")


def add_folder(folder: Path) -> tuple[Path, bool]:
    """Add `folder`; the file, and whether it changed. Raises SettingInvalid (a broken file is not touched), OSError."""
    file = config_file()
    known = load_settings(environ={}, file=file).model_folders
    if str(folder) in known:
        return file, False
    _write(file, [*known, str(folder)])
    return file, True


def remove_folder(folder: Path) -> tuple[Path, tuple[str, ...] | None]:
    """Take `folder` out; the file, and None, or the folders that are there where it is none of them.

    Raises SettingInvalid (a broken file is not touched), OSError.
    """
    file = config_file()
    known = load_settings(environ={}, file=file).model_folders
    kept = [name for name in known if os.path.abspath(os.path.expanduser(name)) != str(folder)]
    if len(kept) == len(known):
        return file, known
    _write(file, kept)
    return file, None


def _write(file: Path, folders: Sequence[str]) -> None:
    # JSON's strings are TOML's basic strings
    line = "model_folders = [" + ", ".join(json.dumps(name) for name in folders) + "]"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    # A key after a table's header would belong to the table: new lines go to the top.
    text = _LINE.sub(lambda _: line, text, count=1) if _LINE.search(text) else f"{line}\n{text}"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        load_settings(environ={}, file=part)  # what cannot be read back is not kept
        replace_content(file, part.read_bytes())
    finally:
        part.unlink(missing_ok=True)
