"""What an editor gave one MCP server that nobody else may see: its environment, headers, and parts of its address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.text.secret import (
    Cleaner,
    Secret,
    SecretUnusable,
    address_secrets,
    argument_secrets,
    looks_secret,
    named_secrets,
    proxy_secrets,
    read_secret,
    split_address,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_bridge.mcp.servers import ServerSpec

#: A value that says nothing to anybody: a number, a switch, a place on this disk.
_PLAIN = re.compile(r"(?i)[\d.,:]*|true|false|yes|no|on|off|[~.]?/.*|[a-z]:\\.*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class ServerSecrets:
    """Two rules, because a server's problems are read by people and its answers by models.

    `problem` cleans the first: of every value that it was given. `answer` cleans the second: of those values that are
    secrets by their name or look, so that an ordinary word in the environment does not vanish from an ordinary text.
    """

    def __init__(self, spec: ServerSpec, environ: Mapping[str, str]) -> None:
        arguments = (*spec.command.split(), *spec.arguments)  # some write a whole line as the command
        secret = [
            *named_secrets(spec.environment),
            *named_secrets(spec.headers),
            *address_secrets(spec.url),
            *argument_secrets(arguments),
            *filter(looks_secret, arguments),
            *proxy_secrets(environ),
        ]
        given = [*spec.environment.values(), *spec.headers.values()]
        every = [value for value in given if not _PLAIN.fullmatch(value.strip()) and value not in environ.values()]
        self.answer = Cleaner(secret)
        self.problem = Cleaner([*secret, *every])


def request_of(spec: ServerSpec) -> tuple[str, dict[str, str]]:
    """The address and headers to send: a user name and password in the address become a header.

    Raises SecretUnusable for what no request can carry.
    """
    address, authorization = split_address(spec.url, "its address")
    headers = {name: value for name, given in spec.headers.items() if (value := _header(name, given)) is not None}
    if authorization is not None and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = authorization
    return address, {name: value.reveal() for name, value in headers.items()}


def _header(name: str, value: str) -> Secret | None:
    if not _HEADER_NAME.fullmatch(name):
        raise SecretUnusable("one of its headers has a name that cannot be sent")
    return read_secret(value, f"its header {name}", spaces=True)
