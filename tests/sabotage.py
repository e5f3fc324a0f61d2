"""What people and programs do to the records of a running owner, and what has to come of it.

One row of SABOTAGE is one deed, done to a real `modeld serve` that holds a model, with a standby beside it or a
newcomer behind it. The workers of all daemons of the root are sampled from /proc all the while: never two of
different daemons. Afterwards one owner works again, without a human.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import anyio
import msgspec

from modeld_process import Modeld, write_script
from shared.endpoint.faults import EndpointError
from shared.errors import ModeldError
from shared.lease.reader import survey
from shared.paths import DataRoot
from shared.protocol import api
from shared.protocol.faults import PeerGone
from tiny_gguf import write_tiny_gguf
from waiting import LONG

#: Seconds. Short, and long enough for a machine that does other things too.
TTL = 2.0
#: Until somebody owns and works again: the loss, the wait for what cannot be seen, and a load. Seconds.
PATIENCE = 60.0
#: What stands in a folder's place is taken away again by then, where nothing could work beside it. Seconds.
AWAY = 1.5
SAMPLE = 0.004

Deed = Callable[["Scene"], None]


class Scene:
    """One data root and what belongs to it. `own` is the owner's lease file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = DataRoot(folder / "data")
        self.other = folder / "other"
        self.disk = Path("/dev/shm") / folder.name if os.path.isdir("/dev/shm") else folder / "disk"
        self.environ = {
            "MODELD_DATA_ROOT": str(self.root.path),
            "MODELD_MODEL_FOLDERS": str(folder / "models"),
            "MODELD_LEASE_TTL": str(TTL),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "HOME": str(folder / "home"),
        }
        for name in ("data", "run", "home", "models", "script", "other"):
            (folder / name).mkdir(mode=0o700)
        write_tiny_gguf(folder / "models" / "a.gguf", name="a", seed=1)
        self.environ |= write_script(folder / "script", [{"pieces": ["one ", "two "]}] * 50)

    @property
    def own(self) -> Path:
        last = survey(self.root).last
        assert last is not None
        return self.root.owner / f"{last.epoch}.lease"

    def modeld(self, name: str) -> Modeld:
        made = Modeld(self.root, "scripted", **self.environ)
        made.said = self.folder / f"{name}.log"  # what it says outlives the root
        return made

    def close(self) -> None:
        shutil.rmtree(self.disk, ignore_errors=True)


# --- the deeds -----------------------------------------------------------------------------------


def gone(path: Path) -> None:
    """Whatever stands there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(path, ignore_errors=True)  # a daemon may have written meanwhile
    else:
        path.unlink(missing_ok=True)


def a_file(path: Path) -> None:
    path.write_bytes(b"x")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    """One that never ends; where none may be made, what never begins."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        a_pipe(path)


def a_folder(path: Path) -> None:
    path.mkdir(mode=0o700)


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_huge_one(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 * 1024**3)


def instead(place: Callable[[Scene], Path], thing: Callable[[Path], object]) -> Deed:
    """Put `thing` where something stood."""

    def deed(scene: Scene) -> None:
        path = place(scene)
        gone(path)
        thing(path)

    return deed


def for_a_while(place: Callable[[Scene], Path], thing: Callable[[Path], object]) -> Deed:
    """As `instead`, and it is taken away again: while it stands, nothing can work."""

    def deed(scene: Scene) -> None:
        path = place(scene)
        path.rename(scene.folder / "before")
        thing(path)
        time.sleep(AWAY)
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)

    return deed


def removed(*names: str) -> Deed:
    """Remove what matches under the root."""

    def deed(scene: Scene) -> None:
        for name in names:
            for path in [scene.root.path] if name == "." else sorted(scene.root.path.glob(name)):
                gone(path)

    return deed


def added(name: str, thing: Callable[[Path], object]) -> Deed:
    """Put one more entry under the root."""

    def deed(scene: Scene) -> None:
        thing(scene.root.path / name)

    return deed


def root(scene: Scene) -> Path:
    return scene.root.path


def owner_folder(scene: Scene) -> Path:
    return scene.root.owner


def instances(scene: Scene) -> Path:
    return scene.root.instances


def own(scene: Scene) -> Path:
    return scene.own


def moved_away(scene: Scene) -> None:
    scene.root.path.rename(scene.folder / "moved")


def exchanged(scene: Scene) -> None:
    moved_away(scene)
    scene.root.path.mkdir(mode=0o700)


def to_another_disk(scene: Scene) -> None:
    shutil.copytree(scene.root.path, scene.disk, symlinks=True, ignore=_sockets)
    gone(scene.root.path)
    scene.root.path.symlink_to(scene.disk)


def link_to_an_empty_folder(scene: Scene) -> None:
    moved_away(scene)
    scene.root.path.symlink_to(scene.other)


def restored(scene: Scene) -> None:
    """The whole root from a backup that was made while it ran."""
    shutil.copytree(scene.root.path, scene.folder / "backup", symlinks=True, ignore=_sockets)
    gone(scene.root.path)
    (scene.folder / "backup").rename(scene.root.path)


def older_records(scene: Scene) -> None:
    """`owner/` as it was a moment ago, in the same folder."""
    shutil.copytree(scene.root.owner, scene.folder / "backup")
    time.sleep(TTL / 2)
    for path in scene.root.owner.iterdir():
        path.unlink(missing_ok=True)
    for path in (scene.folder / "backup").iterdir():
        shutil.copy2(path, scene.root.owner / path.name)


def a_released_past(scene: Scene) -> None:
    """Records of the same root from before this ownership: the last one there had let go."""
    text = msgspec.json.decode(scene.own.read_bytes())
    past = {**text, "epoch": 1, "instance": "past", "released": {"reason": "stop", "at": 1.0}, "worker": None}
    for path in scene.root.owner.iterdir():
        path.unlink(missing_ok=True)
    (scene.root.owner / "1.lease").write_bytes(msgspec.json.encode(past))


def by_another_instance(scene: Scene) -> None:
    path = scene.own
    text = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**text, "instance": "another", "sequence": 9}))


def an_older_self(scene: Scene) -> None:
    path = scene.own
    before = path.read_bytes()
    time.sleep(TTL / 2)
    path.write_bytes(before)


def own_folder_behind_a_link(scene: Scene) -> None:
    scene.root.owner.rename(scene.root.path / "moved")
    scene.root.owner.symlink_to("moved")


def wrong_numbers(scene: Scene) -> None:
    for name in ("007", "-1", str(2**63), str(2**63 - 1), str(10**40), "0"):
        (scene.root.owner / f"{name}.lease").write_bytes(b"{}")


def next_numbers_odd(scene: Scene) -> None:
    epoch = int(scene.own.stem)
    for number, thing in enumerate((a_pipe, a_folder, a_loop, a_dangling_link, a_link_to_zero), start=epoch + 1):
        thing(scene.root.owner / f"{number}.lease")
    gone(scene.own)


def sockets_gone(scene: Scene) -> None:
    gone(scene.folder / "run" / "modeld")


def all_gone(scene: Scene) -> None:
    """Root and socket folder but for the owner's trace: the one thing that a careless cleaning leaves."""
    for path in (scene.folder / "run" / "modeld").glob("*.sock"):
        path.unlink(missing_ok=True)
    gone(scene.root.path)


def presence_odd(scene: Scene) -> None:
    a_pipe(scene.root.instances / "x.json")
    a_loop(scene.root.instances / "y.json")
    a_huge_one(scene.root.instances / "z.json")


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


#: Each deed by its name in the page.
SABOTAGE: dict[str, Deed] = {
    "the data root is deleted": removed("."),
    "the data root is moved away": moved_away,
    "the data root is moved away and recreated": exchanged,
    "the data root is emptied": removed("*"),
    "the data root and its sockets are deleted": all_gone,
    "the data root is moved to another disk, a link is left": to_another_disk,
    "the data root becomes a link to an empty folder": link_to_an_empty_folder,
    "the data root is restored from a backup": restored,
    "a file stands in the place of the data root for a while": for_a_while(root, a_file),
    "a FIFO stands in the place of the data root for a while": for_a_while(root, a_pipe),
    "a dangling link stands in the place of the data root for a while": for_a_while(root, a_dangling_link),
    "a link loop stands in the place of the data root for a while": for_a_while(root, a_loop),
    "owner/ is deleted": removed("owner"),
    "owner/ is emptied": removed("owner/*"),
    "owner/ and owner.lease are deleted": removed("owner", "owner.lease"),
    "owner/, owner.lease and local.db are deleted": removed("owner", "owner.lease", "local.db*"),
    "owner/ is recreated": instead(owner_folder, a_folder),
    "owner/ is a link to where it was moved": own_folder_behind_a_link,
    "owner/ holds records of a moment ago": older_records,
    "owner/ holds records of an ownership that let go": a_released_past,
    "a file stands in the place of owner/ for a while": for_a_while(owner_folder, a_file),
    "a FIFO stands in the place of owner/ for a while": for_a_while(owner_folder, a_pipe),
    "a link loop stands in the place of owner/ for a while": for_a_while(owner_folder, a_loop),
    "the lease is deleted": instead(own, lambda path: None),
    "the lease is empty": instead(own, lambda path: path.write_bytes(b"")),
    "the lease is garbage": instead(own, lambda path: path.write_bytes(b"{" * 3000)),
    "the lease is a folder": instead(own, a_folder),
    "the lease is a FIFO": instead(own, a_pipe),
    "the lease is a character device": instead(own, a_device),
    "the lease is a dangling link": instead(own, a_dangling_link),
    "the lease is a link loop": instead(own, a_loop),
    "the lease is a link to /dev/zero": instead(own, a_link_to_zero),
    "the lease is sparse and huge": instead(own, a_huge_one),
    "the lease is another instance's": by_another_instance,
    "the lease is its own of a moment ago": an_older_self,
    "a higher epoch is garbage": added("owner/900.lease", a_file),
    "a higher epoch is sparse and huge": added("owner/900.lease", a_huge_one),
    "wrong numbers: 007, -1, 2^63 and others": wrong_numbers,
    "the next numbers are odd, and the lease is deleted": next_numbers_odd,
    "owner.lease is a FIFO": instead(lambda scene: scene.root.owner_copy, a_pipe),
    "owner.lease is a folder": instead(lambda scene: scene.root.owner_copy, a_folder),
    "local.db is deleted": removed("local.db*"),
    "local.db is a FIFO": instead(lambda scene: scene.root.database, a_pipe),
    "local.db is a folder": instead(lambda scene: scene.root.database, a_folder),
    "local.db is garbage": instead(lambda scene: scene.root.database, lambda path: path.write_bytes(b"x" * 9000)),
    "instances/ is deleted": removed("instances"),
    "instances/ is emptied": removed("instances/*"),
    "instances/ holds FIFOs, loops and huge files": presence_odd,
    "a file stands in the place of instances/ for a while": for_a_while(instances, a_file),
    "library.cache is a FIFO": instead(lambda scene: scene.root.library_cache, a_pipe),
    "the socket folder is deleted": sockets_gone,
}


# --- what is seen --------------------------------------------------------------------------------


class Sampler:
    """Which daemons have a worker, over and over, in a thread."""

    def __init__(self) -> None:
        self.daemons: list[int] = []
        self.samples = self.singles = 0
        self.doubles: list[dict[int, list[int]]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *rest: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(SAMPLE):
            found = {pid: workers for pid in list(self.daemons) if (workers := _workers(pid))}
            self.samples += 1
            self.singles += len(found) == 1
            if len(found) > 1:
                self.doubles.append(found)


def _workers(daemon: int) -> list[int]:
    try:
        children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [int(pid) for pid in children if _is_worker(pid)]


def _is_worker(pid: str) -> bool:
    """A living engine process; one that is a zombie, or not yet another program than its parent, is none."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"modeld.worker.process" in words
    except OSError:
        return False


class Outcome(msgspec.Struct):
    """One run of one deed. `seconds` from the deed to the next good turn."""

    seconds: float
    samples: int
    problems: list[str]


async def commit(deed: Deed, folder: Path, *, standby: bool) -> Outcome:
    """Do it to an owner that holds a model; `standby`: beside another daemon, else before one comes."""
    scene = Scene(folder)
    problems: list[str] = []
    daemons: list[Modeld] = []
    try:
        with Sampler() as sampler:
            daemons.append(await _started(scene, "first", sampler))
            if standby:
                daemons.append(await _started(scene, "second", sampler))
            await _turn(scene, daemons[0])
            began = time.monotonic()
            await anyio.to_thread.run_sync(deed, scene)
            if not standby:
                daemons.append(await _started(scene, "second", sampler))
            await _works_again(scene, daemons)
            seconds = time.monotonic() - began
            roles = await _roles(daemons)
            if sorted(roles).count("owner") != 1:
                problems.append(f"owners afterwards: {roles}")
        if sampler.doubles:
            problems.append(f"two workers in {len(sampler.doubles)} of {sampler.samples} samples")
        ended = [daemon for daemon in daemons if daemon.process is None or daemon.process.poll() is not None]
        problems += [f"a daemon ended: {daemon.said.read_text()[-2000:]}" for daemon in ended]
        if not sampler.singles:
            problems.append("no sample saw a worker: the samples prove nothing")
        return Outcome(seconds, sampler.samples, problems)
    except (AssertionError, TimeoutError, ExceptionGroup) as error:
        said = "\n".join(f"{daemon.said.read_text()[-1000:]}\n{daemon.log()[-3000:]}" for daemon in daemons)
        return Outcome(PATIENCE, 0, [*problems, f"{error}\n{said}"])
    finally:
        with anyio.CancelScope(shield=True):
            for daemon in daemons:
                if daemon.process is not None and daemon.process.poll() is None:
                    daemon.process.kill()
                    await anyio.to_thread.run_sync(daemon.process.wait)
        scene.close()


async def _started(scene: Scene, name: str, sampler: Sampler) -> Modeld:
    daemon = scene.modeld(name)
    await daemon.start()
    sampler.daemons.append(daemon.pid)
    return daemon


async def _works_again(scene: Scene, daemons: list[Modeld]) -> None:
    """Ask as clients do, one daemon after the other, until a turn ends well."""
    reported: Any = None
    with anyio.move_on_after(PATIENCE):
        while True:
            for daemon in daemons[::-1]:
                try:
                    await _turn(scene, daemon)
                    return
                except (ModeldError, PeerGone, EndpointError, OSError, AssertionError, ExceptionGroup) as error:
                    reported = error
            await anyio.sleep(0.05)
    raise AssertionError(f"nobody worked again within {PATIENCE:.0f} s: {reported!r}")


async def _turn(scene: Scene, daemon: Modeld) -> None:
    async with _client(daemon) as client:
        params = api.Sampling(max_tokens=4)
        with anyio.fail_after(LONG):
            await (client.turn("a", params=params)).end()


def _client(daemon: Modeld) -> Any:
    assert daemon.view() is not None, "it cannot be found"
    return daemon.client()


async def _roles(daemons: list[Modeld]) -> list[str]:
    """What each says of itself, once all can be found and called again: a lost socket is back at the next renewal."""
    return [await _role(daemon) for daemon in daemons]


async def _role(daemon: Modeld) -> str:
    with anyio.fail_after(LONG):
        while True:
            try:
                async with _client(daemon) as client:
                    return str((await client.status()).role)
            except (ModeldError, PeerGone, EndpointError, OSError, AssertionError, ExceptionGroup):
                await anyio.sleep(0.05)
