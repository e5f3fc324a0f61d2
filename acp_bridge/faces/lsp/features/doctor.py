"""`modeld/doctor`: what works, and what has to be done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from acp_bridge.faces.lsp import wire
from shared.version import __version__

if TYPE_CHECKING:
    from acp_bridge.faces.lsp.window import Window
    from shared.diagnosis.finding import Finding


async def handle(window: Window, params: wire.Nothing) -> wire.Report:
    """Looks around again."""
    from acp_bridge.doctor import findings, provider_findings

    core = await window.core()
    await core.daemon.reconnect()
    found = [*findings(core.daemon, core.models, core.store), *provider_findings(await core.providers.look())]
    return wire.Report(
        findings=[_wire_finding(one) for one in found],
        good=all(one.verdict == "ok" for one in found),
        root=str(window.root.path),
        logs=str(window.root.logs),
        python=sys.executable,
        version=__version__,
    )


def _wire_finding(one: Finding) -> wire.Finding:
    text = f"{one.text} ({one.fix})" if one.fix else one.text
    return wire.Finding(about=one.what, text=text, good=one.verdict == "ok")
