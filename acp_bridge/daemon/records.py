"""The records under the data root and the sockets they name: the machine side of finding modeld."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from acp_bridge.daemon.client import Dialler
from acp_bridge.daemon.departures import FILE_NAME, Departures
from shared.client.link import dial, read_token
from shared.client.locate import Detection, detect
from shared.lease import reader
from shared.lease.process import identity
from shared.lease.pulse import Pulses

if TYPE_CHECKING:
    from shared.paths import DataRoot
    from shared.settings import Settings


class Records:
    """Looks at one data root. Remembers when an instance was first seen dead, by any bridge: a death leaves no time
    in the records.
    """

    def __init__(self, root: DataRoot, settings: Settings) -> None:
        self._root = root
        self._settings = settings
        self._me = identity.current()
        self._seen_dead: dict[str, float] = {}
        self._departures = Departures(root.path / FILE_NAME)
        self._pulses = Pulses(root)
        self._installed: bool | None = None

    def survey(self) -> reader.Survey:
        """Read the records of living instances once; blocking and short."""
        now = time.monotonic()
        survey = self._pulses.judge(reader.survey(self._root, wall=time.time(), me=self._me), now)
        dead = [view.instance for view in survey.instances if view.dead]
        if survey.last is not None and survey.last.dead:
            dead.append(survey.last.instance)
        if any(instance not in self._seen_dead for instance in dead):
            for instance, age in self._departures.noted(dead, time.time()).items():
                self._seen_dead.setdefault(instance, now - age)
        return survey

    def noticed(self) -> dict[str, float]:
        """For each instance seen dead, how many awake seconds ago that was first seen."""
        now = time.monotonic()
        return {instance: now - at for instance, at in self._seen_dead.items()}

    def detect(self) -> Detection:
        """Where modeld is, or why not."""
        survey = self.survey()
        return detect(survey, grace=self._settings.grace_window, noticed=self.noticed(), installed=self._is_installed())

    def change_key(self) -> str:
        """Cheap; changes whenever a record does."""
        return reader.change_key(self._root)

    def _is_installed(self) -> bool:
        if self._installed is None:
            import importlib.util
            import shutil

            self._installed = importlib.util.find_spec("modeld") is not None or shutil.which("modeld") is not None
        return self._installed


def records_dialler(records: Records) -> Dialler:
    """Dials what the records name."""
    return Dialler(detect=records.detect, change_key=records.change_key, connect=dial, read_token=read_token)
