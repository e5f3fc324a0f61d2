"""Writes docs/errors.md and docs/settings.md from the tables in shared/ (`make docs`).

A test compares the files with what this would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shared import errors, settings

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "Written by `make docs` from `{source}`; a test keeps both in step.\n"


def errors_page() -> str:
    """The error table: kind, code, fields, and what the message says to do."""
    lines = [
        "# Errors",
        "",
        NOTE.format(source="shared/errors.py"),
        "Every error is a JSON-RPC error object: `code`, a one-line `message` that says what to do next, and `data`",
        "with the stable `kind` and the fields below. Codes and kinds never change meaning; they may gain fields.",
        "What the engine raises is what the editor shows.",
        "",
        "| kind | code | fields | message |",
        "| --- | --- | --- | --- |",
    ]
    for error in sorted(errors.BY_KIND.values(), key=lambda each: (-each.code, each.kind)):
        fields = ", ".join(f"`{name}`" for name in error.fields) or "-"
        lines.append(f"| `{error.kind}` | {error.code} | {fields} | {_cell(error.summary)} |")
    lines += ["", "## What the fields hold", ""]
    lines += [
        f"- `{each.kind}`: {_sentence(each.__doc__)}"
        for each in errors.BY_KIND.values()
        if "__doc__" in vars(each) and each.__doc__
    ]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """The numbers: name, default, environment variable, reason."""
    defaults = settings.Settings()
    lines = [
        "# Settings",
        "",
        NOTE.format(source="shared/settings.py"),
        "A command line flag goes before an environment variable, that before the config file (`config.toml` in the",
        "platform's config folder, or what `MODELD_CONFIG` names), that before the default. A value that cannot be",
        "used is an error that names where it came from. Seconds and bytes unless the name says otherwise.",
        "",
        "| name | default | environment variable | what it is |",
        "| --- | --- | --- | --- |",
    ]
    for name in settings.Settings.__struct_fields__:
        value = _value(getattr(defaults, name))
        lines.append(f"| `{name}` | {value} | `MODELD_{name.upper()}` | {_cell(settings.REASONS[name])} |")
    lines += ["", "`MODELD_DATA_ROOT` names the data root itself; it must be on a local disk.", ""]
    return "\n".join(lines)


PAGES = {"errors.md": errors_page, "settings.md": settings_page}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value >> 20} MiB"
    return f"`{value}`" if isinstance(value, str) else str(value) if value != () else "none"


def main() -> int:
    """Write the pages."""
    DOCS.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
