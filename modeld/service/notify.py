"""Tells systemd, where it asks for it, that the socket listens or that the end has begun."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import MutableMapping


def notify(state: str, environ: MutableMapping[str, str] = os.environ) -> bool:
    """Send `state` (`READY=1`, `STOPPING=1`); whether anybody was informed. A failure is no failure of ours."""
    address = environ.get("NOTIFY_SOCKET", "")
    if sys.platform == "win32" or address[:1] not in ("/", "@"):
        return False
    name = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(1.0)
            sender.sendto(state.encode("ascii"), name)
    except OSError:
        return False
    return True
