"""The folder that the workers of one executor and their exporter share, and who owns what in it.

::

    <root>/kafka-follower-<pid namespace>-<executor pid>-<executor start>/   locked by the running exporter
        counter_<slot>.db           counters of a slot; locked by the worker that holds the slot
        gauge_mostrecent_<slot>.db  gauges of that slot
        port                        host:port that the exporter serves
        exporter                    the exporter's process id and start
        exporter.log                what the exporter said before it served

Locks are BSD locks: the kernel drops them with their process, however it ends. The name holds the executor's start,
so that an executor with a reused id gets a folder of its own, and the pid namespace, so that containers that share a
root can't take each other's executors for dead. A lock on the folder itself also keeps systemd-tmpfiles out of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Final, NamedTuple, Self

from connector.metrics.process_tree import ProcessIdentity, is_running, read_entry

__all__ = [
    "FolderName",
    "LOG_FILE",
    "PORT_FILE",
    "counter_path",
    "gauge_path",
    "is_served",
    "lock_folder",
    "make_folder",
    "named_folders",
    "read_address",
    "remove_stale_folders",
    "value_paths",
    "write_exporter",
]

PORT_FILE: Final = "port"
LOG_FILE: Final = "exporter.log"
_EXPORTER_FILE: Final = "exporter"
_NAME_PATTERN: Final = re.compile(r"kafka-follower-(\d+)-(\d+)-(\w+)", re.ASCII)


class FolderName(NamedTuple):
    """What the name of an executor's folder says."""

    pid_namespace: str
    executor: ProcessIdentity

    @classmethod
    def of(cls, executor: ProcessIdentity) -> Self:
        """Return the name for an executor in our own pid namespace."""
        return cls(_own_pid_namespace(), executor)

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the parts of a folder's name, None when it is no executor's."""
        match = _NAME_PATTERN.fullmatch(name)
        if match is None:
            return None
        pid_namespace, pid, start = match.groups()
        return cls(pid_namespace, ProcessIdentity(int(pid), start))

    def __str__(self) -> str:
        return f"kafka-follower-{self.pid_namespace}-{self.executor.pid}-{self.executor.start}"


def counter_path(folder: Path, slot: int) -> Path:
    """Return the file of a slot's counters; the name is prometheus-client's for such a file."""
    return folder / f"counter_{slot}.db"


def gauge_path(folder: Path, slot: int) -> Path:
    """Return the file of a slot's gauges; the name is prometheus-client's for gauges of which the latest counts."""
    return folder / f"gauge_mostrecent_{slot}.db"


def value_paths(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of all slots: counters, gauges."""
    return sorted(folder.glob("counter_*.db")), sorted(folder.glob("gauge_mostrecent_*.db"))


def make_folder(root: Path, executor: ProcessIdentity) -> Path:
    """Return the executor's folder, made if need be, and ours alone.

    Raises
    ------
    OSError
        It can't be made, or the name is taken by something that another user can write to.
    """
    folder = root / str(FolderName.of(executor))
    root.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
        if not is_ours:
            raise PermissionError(f"{folder} is not a folder of this user alone; remove it") from None
    return folder


def lock_folder(folder: Path) -> int | None:
    """Take the exporter's lock.

    Returns
    -------
    int or None
        A descriptor that holds the lock until the last copy of it is closed; None when an exporter holds it.

    Raises
    ------
    OSError
        The folder is gone or not ours.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def write_exporter(folder: Path) -> None:
    """Say that this process is the folder's exporter."""
    entry = read_entry(os.getpid())
    if entry is not None:
        (folder / _EXPORTER_FILE).write_text(f"{os.getpid()} {entry.identity.start}\n", encoding="ascii")


def is_served(name: FolderName, folder: Path) -> bool:
    """Tell whether the folder's exporter runs.

    Within our pid namespace this takes no lock: a worker that looks at the same moment would take ours for an
    exporter's, and start none.

    Raises
    ------
    OSError
        The folder is gone or not ours.
    """
    if name.pid_namespace == _own_pid_namespace():
        try:
            pid, _, start = (folder / _EXPORTER_FILE).read_text(encoding="ascii").strip().partition(" ")
        except FileNotFoundError:
            return False
        return pid.isdecimal() and is_running(ProcessIdentity(int(pid), start))
    descriptor = lock_folder(folder)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def named_folders(root: Path) -> list[tuple[FolderName, Path]]:
    """Return the executors' folders under a root that may not exist, those of other users too."""
    if not root.is_dir():
        return []
    named = ((FolderName.parse(path.name), path) for path in sorted(root.iterdir()))
    return [(name, path) for name, path in named if name is not None and path.is_dir()]


def read_address(folder: Path) -> tuple[str, int] | None:
    """Return the host and port that the folder's exporter serves or served, None when there was none yet.

    Raises
    ------
    OSError
        The folder is another user's.
    """
    try:
        text = (folder / PORT_FILE).read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    host, _, port = text.strip().rpartition(":")
    return host, int(port)


def remove_stale_folders(root: Path) -> None:
    """Remove what executors of our user and pid namespace left behind when they and their exporter were killed."""
    pid_namespace = _own_pid_namespace()
    for name, folder in named_folders(root):
        if name.pid_namespace != pid_namespace or is_running(name.executor):
            continue
        try:
            descriptor = lock_folder(folder)
        except (PermissionError, FileNotFoundError):
            continue  # another user's, or another exporter was faster
        if descriptor is not None:
            shutil.rmtree(folder, ignore_errors=True)  # what can't be removed stays for the next exporter
            os.close(descriptor)


def _own_pid_namespace() -> str:
    try:
        return re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
    except FileNotFoundError:
        return "0"
