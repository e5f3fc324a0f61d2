"""Looks for a secret in everything that was shown or written, in each encoding that a server or library may give it."""

from __future__ import annotations

import base64
import html
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from urllib.parse import quote, quote_plus


def encodings(secret: str) -> dict[str, str]:
    """By name. Base64 is that of `user:secret`, less what depends on the characters beside it."""
    raw = secret.encode()
    return {
        "raw": secret,
        "percent": quote(secret, safe=""),
        "percent, lower": re.sub("%..", lambda code: code[0].lower(), quote(secret, safe="")),
        "form": quote_plus(secret),
        "base64": base64.b64encode(raw).decode().rstrip("=")[: len(raw) * 8 // 6],
        "base64 of user:secret": base64.b64encode(b"me:" + raw).decode()[4 : (3 + len(raw)) * 8 // 6],
        "base64 at 1": base64.b64encode(b"x" + raw).decode()[2 : (1 + len(raw)) * 8 // 6],
        "base64 at 2": base64.b64encode(b"xx" + raw).decode()[3 : (2 + len(raw)) * 8 // 6],
        "JSON": json.dumps(secret)[1:-1],
        "JSON, slashes": json.dumps(secret)[1:-1].replace("/", "\\/"),
        "repr": repr(secret)[1:-1],
        "repr of bytes": repr(raw)[2:-1],
        "JSON in JSON": json.dumps(json.dumps(secret))[3:-3],
        "repr of JSON": repr(json.dumps(secret).encode())[3:-2],
        "HTML": html.escape(secret),
        "hex": raw.hex(),
    }


def echoes(secret: str) -> str:
    """All of them in one text, as a hostile server says them."""
    raw = secret.encode()
    whole = [base64.b64encode(before + raw).decode() for before in (b"", b"me:", b"x", b"xx")]
    named = {name: text for name, text in encodings(secret).items() if "base64" not in name}
    return " | ".join([*named.values(), *whole, f"Bearer {secret}", f"https://me:{secret}@example.org/?token={secret}"])


def found(secret: str, texts: Mapping[str, bytes]) -> list[str]:
    """`place: encoding` of each time it is there."""
    seen = []
    for place, data in texts.items():
        for name, text in encodings(secret).items():
            if text.encode() in data:
                at = data.index(text.encode())
                seen.append(f"{place}: {name}: {data[max(0, at - 80) : at + 80]!r}")
    return seen


def written(*folders: Path) -> dict[str, bytes]:
    """Every byte of every file below, zips unpacked too, and the names."""
    return dict(_written(folders))


def _written(folders: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            yield f"the name of {path}", str(path).encode()
            if not path.is_file():
                continue
            data = path.read_bytes()
            yield str(path), data
            if data[:4] == b"PK\x03\x04":
                with zipfile.ZipFile(BytesIO(data)) as archive:
                    yield from ((f"{path}/{name}", archive.read(name)) for name in archive.namelist())
