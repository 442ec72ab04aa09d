"""The supervisor program: runs one command and ends it when whoever asked for it is gone.

Started by `streaming_app.local.supervise` as a script, with the standard library only, so that it costs a few
milliseconds. It leads a session of its own, which keeps a terminal's Ctrl-C away from the command: the starting
process decides what an interrupt means.

Two signs say that the starting process is gone: its end of the lifeline (this program's standard input) is closed,
which the kernel does at any kind of death; or this program's parent is another process, which also holds when a fork
of the starting process still keeps the lifeline open.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PARENT_CHECK_S = 1.0
PR_SET_PDEATHSIG = 1


def die_with_supervisor() -> None:
    """Ask Linux to kill the command should this supervisor itself be killed; other systems have no such thing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def signal_group(group_id: int, signal_number: int) -> None:
    """Signal a process group; one that is gone (or, on macOS, has only zombies left) is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group_id, signal_number)


def wait_until_over(command: subprocess.Popen[bytes], parent_id: int) -> bool:
    """Block until the command ended (False) or the starting process is gone or told us to end (True)."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    asked_to_end: list[int] = []
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _: asked_to_end.append(received))
    while command.poll() is None:
        if asked_to_end or os.getppid() != parent_id:
            return True
        readable, _, _ = select.select([0, wake_read], [], [], PARENT_CHECK_S)
        if wake_read in readable:
            os.read(wake_read, 512)
        if 0 in readable and not os.read(0, 512):
            return True
    return False


def end_command(command: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ask the command's process group to end, and kill it when the grace time is over."""
    signal_group(command.pid, signal.SIGTERM)
    signal_group(command.pid, signal.SIGCONT)  # a paused process takes no other signal but SIGKILL
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.wait(grace_s)


def remove_folder(folder: Path) -> None:
    """Delete a folder, and the one around it when that is empty then; files may vanish meanwhile."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.1)  # a process of the group that was killed a moment ago may still have written a file
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def main() -> int:
    """Run the command of the JSON job in ``argv[1]``, report its process id, and return its exit code."""
    job = json.loads(sys.argv[1])
    with os.fdopen(job["report_fd"], "w", encoding="utf-8") as report:
        try:
            command = subprocess.Popen(
                job["argv"],
                stdin=subprocess.DEVNULL,
                process_group=0,
                preexec_fn=die_with_supervisor,  # safe: this program has one thread
            )
        except OSError as error:
            report.write(f"error {error}")
            return 127
        report.write(f"pid {command.pid}")
    is_orphan = wait_until_over(command, job["parent_id"])
    if is_orphan:
        end_command(command, job["grace_s"])
    signal_group(command.pid, signal.SIGKILL)
    code = command.wait()
    if is_orphan and job["remove_when_orphaned"]:
        remove_folder(Path(job["remove_when_orphaned"]))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
