"""`modeld/doctor`: what works, and what has to be done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from acp_bridge.lsp import wire
from shared.version import __version__

if TYPE_CHECKING:
    from acp_bridge.lsp.window import Window


async def handle(window: Window, params: wire.Nothing) -> wire.Report:
    """Looks around anew."""
    from acp_bridge.doctor import findings, provider_findings

    core = await window.core()
    await core.daemon.reconnect()
    found = [*findings(core.daemon, core.models, core.store), *provider_findings(core.providers.problems)]
    return wire.Report(
        findings=[wire.Finding(about=one.about, text=one.text, good=one.good) for one in found],
        good=all(one.good for one in found),
        root=str(window.root.path),
        logs=str(window.root.logs),
        python=sys.executable,
        version=__version__,
    )
