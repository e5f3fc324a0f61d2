"""What each platform's service manager is given. Pure.

Everywhere the same: started at login, in the foreground, by an absolute interpreter; started again after a crash, not
after a stop; ended by a signal that drains the running turn.
"""

from __future__ import annotations

import plistlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

#: A stop may drain a turn, close a worker and release: longer than that it is forced. Seconds.
STOP_SECONDS = 45
#: Between a crash and the next start. Seconds.
RESTART_SECONDS = 2


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager starts, by its names there. `notifies`: it says itself when it listens. `after`: another of them
    that is wanted first.
    """

    name: str
    label: str
    description: str
    notifies: bool = False
    after: str = ""

    @property
    def unit(self) -> str:
        """Its name for systemd."""
        return f"{self.name}.service"


DAEMON = Program(
    name="modeld",
    label="org.modeld.modeld",
    description="modeld: one local model server for all editors",
    notifies=True,
)
HTTP = Program(
    name="modeld-http",
    label="org.modeld.http",
    description="acp-bridge http: the local models for programs that speak the OpenAI protocol",
    after=DAEMON.unit,
)


def systemd_unit(command: Sequence[str], environ: Mapping[str, str], program: Program = DAEMON) -> str:
    """A user unit. `Type=notify`: systemd counts it as started when its socket listens."""
    first = [f"Wants={program.after}", f"After={program.after}"] if program.after else []
    kind = ["Type=notify", "NotifyAccess=main"] if program.notifies else ["Type=exec"]
    lines = [
        "[Unit]",
        f"Description={program.description}",
        "Documentation=man:modeld(1)",
        *first,
        "",
        "[Service]",
        *kind,
        f"ExecStart={' '.join(systemd_quoted(word) for word in command)}",
        *(f"Environment={systemd_quoted(f'{name}={value}')}" for name, value in environ.items()),
        "WorkingDirectory=/",
        "Restart=on-failure",
        f"RestartSec={RESTART_SECONDS}",
        f"TimeoutStopSec={STOP_SECONDS}",
        "KillMode=mixed",
        "UMask=0077",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def systemd_quoted(word: str) -> str:
    """Quote one word of a unit file: specifiers, variables and quotes mean themselves."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$").replace("\n", "\\n")
    return f'"{plain}"' if any(letter in plain for letter in " \t'\"\\;#") or not plain else plain


def launchd_plist(command: Sequence[str], environ: Mapping[str, str], logs: Path, program: Program = DAEMON) -> str:
    """A launchd agent."""
    log = str(logs / ("start.log" if program is DAEMON else f"{program.name}.log"))
    content = {
        "Label": program.label,
        "ProgramArguments": list(command),
        "EnvironmentVariables": dict(environ),
        "WorkingDirectory": "/",
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_SECONDS,
        "ExitTimeOut": STOP_SECONDS,
        "ProcessType": "Interactive",
        "Umask": 0o077,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(content, sort_keys=False).decode("utf-8")


def windows_task(command: Sequence[str], user: str, program: Program = DAEMON) -> str:
    """A scheduled task of this user, at logon, with no window. Tasks have no environment of their own."""
    executable, arguments = command[0], " ".join(windows_quoted(word) for word in command[1:])
    return f"""<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>{escape(program.description)}</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <Enabled>true</Enabled>
      <UserId>{escape(user)}</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>{escape(user)}</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Hidden>true</Hidden>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>3</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>{escape(executable)}</Command>
      <Arguments>{escape(arguments)}</Arguments>
    </Exec>
  </Actions>
</Task>
"""


def windows_quoted(word: str) -> str:
    """Quote one word of a Windows command line, as programs of the C library read it."""
    if word and not any(letter in word for letter in ' \t"'):
        return word
    result, slashes = '"', 0
    for letter in word:
        if letter == "\\":
            slashes += 1
            continue
        result += "\\" * (slashes * 2 + 1 if letter == '"' else slashes) + letter
        slashes = 0
    return result + "\\" * (slashes * 2) + '"'
