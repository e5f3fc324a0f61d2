"""`modeld parked`: conversations kept on disk (setting `parked_disk_bytes`), and how to delete them."""

from __future__ import annotations

import argparse

import msgspec

from modeld.cli.context import Context, print_json
from shared import codes
from shared.text.words import counted, size_text


class ParkedReport(msgspec.Struct, frozen=True, kw_only=True):
    """`files` and `bytes` that are there now; `deleted` files and `freed_bytes` by this command."""

    files: int
    bytes: int
    limit_bytes: int
    deleted: int = 0
    freed_bytes: int = 0


def main(options: argparse.Namespace) -> int:
    """With or without a daemon: one that runs finds a deleted file gone and prefills instead."""
    from modeld.engine.kv_disk_cache import files_under, trim

    context = Context()
    folder = context.root.parked
    deleted, freed = trim(folder, -1) if options.clear else (0, 0)
    sizes = [size for _, size, _ in files_under(folder)]
    limit = context.settings.parked_disk_bytes
    report = ParkedReport(files=len(sizes), bytes=sum(sizes), limit_bytes=limit, deleted=deleted, freed_bytes=freed)
    if options.json:
        print_json(report)
        return codes.OK
    if options.clear:
        print(f"deleted {counted(deleted, 'parked conversation')} ({size_text(freed)})")
    else:
        state = f"at most {size_text(limit)}" if limit else "off: the setting parked_disk_bytes is 0"
        print(f"{counted(report.files, 'parked conversation')} on disk, {size_text(report.bytes)} ({state})")
    return codes.OK
