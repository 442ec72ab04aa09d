"""Start a program so that it never outlives this process, whatever happens to this process.

Each program runs under its own small supervisor (`streaming_app.local.lifeline`), which holds a pipe from here and
leads a session of its own. When this process ends, however (return, exception, Ctrl-C, SIGKILL), the pipe closes and
the supervisor ends the program's process group. Works on Linux and macOS.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from streaming_app.local import lifeline
from streaming_app.local.errors import LocalClusterError

__all__ = ["SupervisedProcess", "run_supervised", "size_of", "tail_of", "telling_tail_of"]

ORPHAN_GRACE_S: Final = 2.0
"""How long an orphaned program may take to end before it is killed."""
KILL_WAIT_S: Final = 30.0
ERROR_LINE: Final = re.compile(r" (ERROR|FATAL) |^Exception in thread|^Error: ")


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 when it does not exist."""
    return path.stat().st_size if path.exists() else 0


def telling_tail_of(path: Path, line_count: int = 30, start_byte: int = 0) -> str:
    """Return the end of a log from its first ERROR on, or the last lines when the end has none.

    What stands before `start_byte` was written by an earlier run and tells nothing of this one.
    """
    lines = tail_of(path, 10 * line_count, start_byte).splitlines()
    first = next((number for number, line in enumerate(lines) if ERROR_LINE.search(line)), len(lines) - line_count)
    return "\n".join(lines[max(0, first) :][:line_count])


def tail_of(path: Path, line_count: int = 30, start_byte: int = 0) -> str:
    """Return the last lines of a text file; empty when the file does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start_byte, size - 400 * line_count))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-line_count:])


def run_supervised(
    argv: Sequence[str], *, name: str, log_path: Path, timeout_s: float, env: Mapping[str, str] | None = None
) -> int:
    """Run a program to its end and return its exit code; its output is in `log_path`, and it never outlives us.

    Raises
    ------
    LocalClusterError
        It can't be executed or took longer than `timeout_s`.
    """
    program = SupervisedProcess.start(argv, name=name, log_path=log_path, env=env)
    try:
        return program.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise LocalClusterError(
            f"{name} was given up after {timeout_s:g} s: free the machine of other load and try again.",
            program.log_tail(),
        ) from None
    finally:
        program.kill()


class SupervisedProcess:
    """A running program, its supervisor, and the lifeline between the two and us.

    Attributes
    ----------
    name : str
        What messages call it.
    pid : int
        Process id of the program itself (not of its supervisor); also the id of its process group.
    log_path : Path
        Where its standard output and standard error go.
    """

    def __init__(
        self, name: str, pid: int, log_path: Path, log_start: int, supervisor: subprocess.Popen[bytes]
    ) -> None:
        self.name = name
        self.pid = pid
        self.log_path = log_path
        self._log_start = log_start
        self._supervisor = supervisor

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        name: str,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        remove_when_orphaned: Path | None = None,
    ) -> Self:
        """Run `argv` under a supervisor; output is appended to `log_path`.

        Parameters
        ----------
        env
            The whole environment of the program; None means ours.
        remove_when_orphaned
            Folder that the supervisor deletes after it had to end the program because this process was gone.

        Raises
        ------
        LocalClusterError
            The program can't be executed.
        """
        log_start = size_of(log_path)
        report_read, report_write = os.pipe()
        job = {
            "argv": list(argv),
            "parent_id": os.getpid(),
            "report_fd": report_write,
            "grace_s": ORPHAN_GRACE_S,
            "remove_when_orphaned": str(remove_when_orphaned) if remove_when_orphaned else None,
        }
        with log_path.open("ab") as log, os.fdopen(report_read, encoding="utf-8") as report:
            try:
                supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", lifeline.__file__, json.dumps(job)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=dict(env) if env is not None else None,
                    cwd=cwd,
                    pass_fds=(report_write,),
                    start_new_session=True,
                )
            finally:
                os.close(report_write)
            state, _, detail = report.read().partition(" ")
        if state != "pid":
            supervisor.communicate()
            raise LocalClusterError(f"{name} can't be started: {detail or 'its supervisor ended'}", tail_of(log_path))
        return cls(name, int(detail), log_path, log_start, supervisor)

    def poll(self) -> int | None:
        """Return the exit code (128 + signal number when a signal ended it), or None while it runs."""
        code = self._supervisor.poll()
        if code is not None:
            self._close_lifeline()
        return code

    def wait(self, timeout_s: float | None = None) -> int:
        """Block until the program ended and return its exit code; `subprocess.TimeoutExpired` when it does not."""
        code = self._supervisor.wait(timeout_s)
        self._close_lifeline()
        return code

    def send_signal(self, signal_number: int) -> None:
        """Signal the program's whole process group; nothing happens when it has ended."""
        if self.poll() is None:
            lifeline.signal_group(self.pid, signal_number)

    def pause(self) -> None:
        """Freeze the program (SIGSTOP): its sockets stay open and silent."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen program go on (SIGCONT)."""
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the program and its process group at once (SIGKILL) and wait until they are gone."""
        self.send_signal(signal.SIGKILL)
        self.wait(KILL_WAIT_S)

    def stop(self, grace_s: float) -> None:
        """Ask the program to end (SIGTERM), kill it after `grace_s` seconds, and wait until it is gone."""
        self.send_signal(signal.SIGTERM)
        self.resume()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(grace_s)
        self.kill()

    def log_tail(self, line_count: int = 30) -> str:
        """Return the end of its output, from its first error on; nothing of earlier runs with the same log."""
        return telling_tail_of(self.log_path, line_count, self._log_start)

    def _close_lifeline(self) -> None:
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()
