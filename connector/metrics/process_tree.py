"""Which process is the executor, and when it ends.

A process is named by its id and its start, since ids are used again. Linux tells both through ``/proc``; elsewhere
``ps`` does, which costs a process per question and is asked once per worker.
"""

from __future__ import annotations

import os
import re
import select
import time
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ProcessEntry", "ProcessIdentity", "ProcessWatch", "find_executor", "is_running", "read_entry"]

_JVM_COMMAND: Final = "java"
_POLL_INTERVAL_S: Final = 0.5
_PROC_PARENT_FIELD: Final = 1
_PROC_START_FIELD: Final = 19


class ProcessIdentity(NamedTuple):
    """A process, told apart from a later one with the same id."""

    pid: int
    start: str
    """When it started, in letters, digits and underscores: clock ticks since boot on Linux, else a date."""


class ProcessEntry(NamedTuple):
    """What the process table says of one process."""

    identity: ProcessIdentity
    parent_pid: int
    command: str
    is_ended: bool
    """It has ended and only waits to be reaped by its parent."""


def read_entry(pid: int) -> ProcessEntry | None:
    """Return the entry of a process, None when there is none.

    Raises
    ------
    OSError
        The process table can't be read.
    """
    return _read_proc(pid) if _has_proc() else _read_ps(pid)


def find_executor() -> ProcessIdentity:
    """Return the process whose life bounds this executor's metrics.

    That is the nearest ancestor that is a JVM: a Python worker's parent (or its daemon's) is the executor's, in local
    mode the driver's. Outside Spark there is none, and the process is its own executor.

    Raises
    ------
    OSError
        The process table can't be read.
    """
    own_pid = os.getpid()
    own = entry = read_entry(own_pid)
    if own is None:
        raise ProcessLookupError(f"process {own_pid} is not in its own process table")
    while entry is not None and entry.parent_pid > 0:
        entry = read_entry(entry.parent_pid)
        if entry is not None and entry.command == _JVM_COMMAND:
            return entry.identity
    return own.identity


def is_running(identity: ProcessIdentity) -> bool:
    """Return whether the process still runs; one that only waits to be reaped does not.

    Raises
    ------
    OSError
        The process table can't be read.
    """
    entry = read_entry(identity.pid)
    return entry is not None and entry.identity == identity and not entry.is_ended


class ProcessWatch:
    """Waits for the end of a process that is not our child.

    On Linux a pidfd wakes it at once; where there is none (other systems, kernels before 5.3, sandboxes that forbid
    it) the process table is read twice a second.
    """

    def __init__(self, identity: ProcessIdentity) -> None:
        self._identity = identity
        self._poller: select.poll | None = None
        try:
            pidfd = os.pidfd_open(identity.pid)
        except (AttributeError, OSError):
            return  # the process table answers then, also whether the process is there at all
        self._poller = select.poll()
        self._poller.register(pidfd, select.POLLIN)

    def wait_end(self, timeout_s: float) -> bool:
        """Block until the process has ended or the time is over; return whether it has ended."""
        deadline_s = time.monotonic() + timeout_s
        while is_running(self._identity):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            if self._poller is None:
                time.sleep(min(left_s, _POLL_INTERVAL_S))
            else:
                # Only a wake-up: the id may have been used again before the pidfd was opened, and is_running tells.
                self._poller.poll(left_s * 1000)
        return True


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def _read_proc(pid: int) -> ProcessEntry | None:
    """Read ``/proc/<pid>/stat``: ``pid (command) state ppid ...``, where the command may hold blanks and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    head, _, tail = text.rpartition(") ")
    fields = tail.split()
    return ProcessEntry(
        identity=ProcessIdentity(pid, fields[_PROC_START_FIELD]),
        parent_pid=int(fields[_PROC_PARENT_FIELD]),
        command=head.partition("(")[2],
        is_ended=fields[0] in "ZX",
    )


def _read_ps(pid: int) -> ProcessEntry | None:
    """Ask POSIX ``ps``; its ``lstart`` is five words, and ``comm`` may be a path with blanks."""
    # Only systems without /proc pay for this import.
    import subprocess

    answer = subprocess.run(  # noqa: S603 - fixed arguments but for a number
        ["ps", "-o", "ppid=,stat=,lstart=,comm=", "-p", str(pid)],  # noqa: S607 - ps has no fixed place
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if answer.returncode != 0 or not answer.stdout.strip():
        return None
    parent_pid, state, *start, command = answer.stdout.strip().split(maxsplit=7)
    return ProcessEntry(
        identity=ProcessIdentity(pid, re.sub(r"\W+", "_", " ".join(start))),
        parent_pid=int(parent_pid),
        command=os.path.basename(command.strip()),
        is_ended=state.startswith("Z"),
    )
