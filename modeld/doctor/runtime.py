"""What runs, or ran: records, lease, instances and their versions, the database, the log, the bridge's own look."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec

from modeld.client import reach
from modeld.memory.told import device_text
from shared.diagnosis.finding import Finding
from shared.errors import ConnectionRefused, DaemonError, DaemonNotRunning, DaemonStale, ModeldError
from shared.lease import files
from shared.lease.reader import LeaseView, PresenceView, survey
from shared.protocol import api
from shared.text.nesting import decode_json
from shared.text.shown import one_line
from shared.text.words import age, few
from shared.version import __version__

if TYPE_CHECKING:
    from shared.paths import DataRoot
    from shared.settings import Settings

#: The bridge's look at the library and at the editors. Seconds.
BRIDGE_SECONDS = 30.0
#: Lines of the log's end in which failures are looked for.
LOG_LINES = 400
_FAILURES = ("defect", "failed", "could not", "was not kept", "killed", "is lost")


def records(root: DataRoot) -> list[Finding]:
    """The lease and the instances, as the files tell it."""
    found = survey(root)
    if found.problem:
        fix = f"see that {root.path} and everything in it is yours: `ls -l {root.owner}`"
        return [Finding(what="records", verdict="problem", text=f"cannot be read: {found.problem}", fix=fix)]
    return [*_lease(found.last), *_odd(root), *(finding for view in found.living for finding in _instance(view))]


def _odd(root: DataRoot) -> list[Finding]:
    """What stands among the lease files and is none: it is ignored, and somebody put it there."""
    try:
        names = files.odd_entries(root)
    except OSError:
        return []  # the records themselves could not be read either: reported above
    if not names:
        return []
    reported = ", ".join(few([one_line(name) for name in names], f"`ls {root.owner}`"))
    text = f"{root.owner} holds what no modeld wrote, and what is ignored: {reported}"
    return [Finding(what="lease", verdict="note", text=text, fix="see what it is, then remove it")]


def _lease(last: LeaseView | None) -> list[Finding]:
    if last is None:
        return [Finding(what="lease", text="none yet; it is taken when a model is first used")]
    ago = f"{age(max(last.age_s, 0.0))} ago"
    if last.standing == "released":
        return [Finding(what="lease", text=f"released {ago} ({last.released_reason})")]
    if last.standing == "unreadable":
        text = f"epoch {last.epoch} cannot be read; it counts as held until it is {last.ttl or 10:.0f} s old"
        return [Finding(what="lease", verdict="note", text=text, fix="wait a moment, then `modeld start`")]
    if last.dead or not last.same_boot:
        text = f"stale: its owner (pid {last.pid}) ended {ago} without releasing it"
        fix = "`modeld start`; the next use takes it over at once"
        return [Finding(what="lease", verdict="note", text=text, fix=fix)]
    return [Finding(what="lease", text=f"epoch {last.epoch}, held by pid {last.pid}, renewed {ago}")]


def _instance(view: PresenceView) -> list[Finding]:
    name = f"pid {view.pid}"
    if view.protocol_max < api.PROTOCOL_MIN or view.protocol_min > api.PROTOCOL_MAX:
        text = f"speaks protocol {view.protocol_min} to {view.protocol_max}, this command {api.PROTOCOL}"
        fix = "`modeld stop`, then `modeld start`; editors follow when they are restarted"
        return [Finding(what=name, verdict="problem", text=text, fix=fix)]
    if view.version and view.version != __version__:
        text = f"runs version {view.version}, {__version__} is installed"
        return [Finding(what=name, verdict="note", text=text, fix="`modeld restart`")]
    return []


async def daemon(root: DataRoot, settings: Settings) -> tuple[list[Finding], api.Status | None]:
    """Whether one answers, and what it says."""
    try:
        async with await reach(root, settings) as connection:
            status = await connection.call("status", api.Fenced(), api.Status)
    except (DaemonNotRunning, DaemonStale):
        return [Finding(what="modeld", verdict="note", text="stopped", fix="`modeld start`")], None
    except (DaemonError, ConnectionRefused) as error:
        fix = "`modeld stop` ends it, by force where it must; then `modeld start`"
        return [Finding(what="modeld", verdict="problem", text=error.message, fix=fix)], None
    except ModeldError as error:
        return [Finding(what="modeld", verdict="problem", text=error.message)], None
    rows = [Finding(what="modeld", text=f"{status.role}, pid {status.pid}, {status.backend}, slot {status.state}")]
    if status.backend == "none":
        fix = "install an engine, then `modeld restart`"
        rows.append(Finding(what="modeld", verdict="problem", text="runs without an engine", fix=fix))
    rows += [Finding(what="device", text=device_text(one)) for one in status.memory.devices]
    if status.memory.pressure:
        rows.append(Finding(what="memory", verdict="note", text="under pressure", fix="`modeld unload`"))
    if status.last_error:
        rows.append(Finding(what="last error", verdict="note", text=str(status.last_error.get("message", ""))))
    return rows, status


def database(root: DataRoot) -> list[Finding]:
    """`local.db`: whether it is sound. Nothing is written."""
    if not root.database.exists():
        return [Finding(what="database", text="none yet")]
    from modeld.store.database import open_reader

    fix = "modeld renames it and creates a new one at the next use"
    try:
        connection = open_reader(root.database)
        if connection is None:
            return [Finding(what="database", text="none yet")]
        try:
            (answer,) = connection.execute("PRAGMA quick_check").fetchone()
        finally:
            connection.close()
    except ModeldError as error:
        return [Finding(what="database", verdict="note", text=error.message, fix=fix)]
    except Exception as error:  # sqlite3 is imported only where it is used
        return [Finding(what="database", verdict="note", text=str(error), fix=fix)]
    if answer != "ok":
        return [Finding(what="database", verdict="note", text=f"damaged: {answer}", fix=fix)]
    return [Finding(what="database", text="sound")]


def log(root: DataRoot) -> list[Finding]:
    """The last failures that the log tells of."""
    from modeld.log.logfile import last_lines

    lines = last_lines(root.logs / "modeld.log", LOG_LINES)
    found = [line for line in lines if any(word in line for word in _FAILURES)]
    return [Finding(what="log", verdict="note", text=line) for line in found[-3:]]


def bridge() -> list[Finding]:
    """What `acp-bridge doctor` finds: editors, conversations, providers. A process of its own, bounded."""
    command = [sys.executable, "-P", "-m", "acp_bridge", "doctor", "--json"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BRIDGE_SECONDS, check=False
        )
        reported = decode_json(done.stdout, list[Finding])
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        text = f"did not answer ({type(error).__name__})"
        return [Finding(what="acp-bridge", verdict="problem", text=text, fix="`acp-bridge doctor` says more")]
    # looked at already
    return [one for one in reported if one.what not in ("modeld", "memory", "last error", "models")]


async def all_of(root: DataRoot, settings: Settings) -> tuple[list[Finding], api.Status | None]:
    """Everything here, the bridge's part in a thread meanwhile."""
    asked, status = await daemon(root, settings)
    reported = await anyio.to_thread.run_sync(bridge)
    return [*records(root), *asked, *database(root), *log(root), *reported], status
