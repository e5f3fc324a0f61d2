"""`session/list`: saved conversations, newest first, by pages."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import UNSET

from acp_bridge.conversations.database import PAGE, Listed
from acp_bridge.faces.acp.errors import invalid
from acp_bridge.faces.acp.schema import ListSessionsParams, ListSessionsResult, SessionInfo
from shared.text.shown import TITLE_MOST, one_line

if TYPE_CHECKING:
    from acp_bridge.faces.acp.server import AcpServer
    from shared.protocol.requests import Call


async def handle(server: AcpServer, call: Call) -> ListSessionsResult:
    """Raises InvalidParams for a cursor that is not one of ours."""
    params = call.params(ListSessionsParams)
    after = None if params.cursor is None else _read_cursor(params.cursor)
    core = server.core
    rows = await core.store.list(params.cwd, after, core.conversations.ids())
    more = len(rows) == PAGE
    return ListSessionsResult(sessions=[_info(row) for row in rows], next_cursor=_cursor(rows[-1]) if more else UNSET)


def _info(row: Listed) -> SessionInfo:
    return SessionInfo(
        session_id=row.id,
        cwd=row.cwd,
        additional_directories=row.roots,
        title=one_line(row.title, TITLE_MOST) or UNSET,
        updated_at=datetime.fromtimestamp(row.updated, UTC).isoformat().replace("+00:00", "Z"),
    )


def _cursor(row: Listed) -> str:
    return base64.urlsafe_b64encode(f"{row.updated!r} {row.id}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[float, str]:
    try:
        updated, _, last = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        return float(updated), last
    except (ValueError, binascii.Error) as error:
        raise invalid("cursor", "not a cursor of this list") from error
