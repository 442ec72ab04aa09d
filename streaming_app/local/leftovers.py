"""Find processes that a local cluster left behind: there should be none, ever.

Every process of a cluster carries the cluster's folder in its environment, and so do its children (Spark executors,
their Python daemons and workers), however far they moved from the process that started them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["CLUSTER_MARKER", "Leftover", "leftover_processes", "wait_nothing_left"]

CLUSTER_MARKER: Final = "KAFKA_FOLLOWER_CLUSTER"
"""Environment variable that names the folder of the cluster a process belongs to."""
POLL_S: Final = 0.05
COMMAND_LENGTH: Final = 160


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that is still there."""

    pid: int
    command: str


def leftover_processes(marker: str | Path) -> list[Leftover]:
    """Return the processes whose environment or command line contains `marker`, but not this one.

    Parameters
    ----------
    marker
        Usually the folder of a cluster (`LocalKafka.folder`, `LocalSpark.folder`).
    """
    text = str(marker)
    seen = linux_processes() if sys.platform == "linux" else ps_processes()
    return [
        Leftover(pid, command[:COMMAND_LENGTH])
        for pid, command, environment in seen
        if pid != os.getpid() and (text in command or text in environment)
    ]


def wait_nothing_left(marker: str | Path, timeout_s: float) -> list[Leftover]:
    """Block until no process with `marker` is left, or the time is over; return what is left."""
    deadline = time.monotonic() + timeout_s
    while (left := leftover_processes(marker)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


def linux_processes() -> Iterator[tuple[int, str, str]]:
    """Yield process id, command line and environment of each process that we may look at; zombies have neither."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (folder / "environ").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        yield int(folder.name), command, environment


def ps_processes() -> Iterator[tuple[int, str, str]]:
    """Yield the same from ``ps``, which shows the environment behind the command (macOS: of one's own processes)."""
    listing = subprocess.run(["ps", "-axwwE", "-o", "pid=,command="], capture_output=True, text=True, check=True)
    for line in listing.stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command, command
