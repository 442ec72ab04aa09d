"""What a person sees while a long run works: one line that is rewritten on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Final, TextIO

__all__ = ["Display"]

_QUIET_INTERVAL_S: Final = 10.0
_CLEAR_LINE: Final = "\r\x1b[K"


class Display:
    """Steps, each on a line of its own, and the state of the present one.

    Parameters
    ----------
    stream
        Where it is written; a terminal has its last line rewritten.
    now_s
        The clock, for tests.
    """

    def __init__(self, stream: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._now_s = now_s
        self._start_s = now_s()
        self._is_terminal = stream.isatty()
        self._is_line_open = False
        self._next_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was made."""
        return self._now_s() - self._start_s

    def step(self, text: str) -> None:
        """Say what begins; it stays on the screen."""
        self.end_line()
        self._write(f"{self._time()} {text}\n")
        self._next_s = self._now_s() + _QUIET_INTERVAL_S

    def update(self, text: str) -> None:
        """Say how far it is: at once on a terminal, every few seconds elsewhere."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._write(_CLEAR_LINE + f"{self._time()} {text}"[:width])
            self._is_line_open = True
        elif self._now_s() >= self._next_s:
            self._write(f"{self._time()} {text}\n")
            self._next_s = self._now_s() + _QUIET_INTERVAL_S

    def end_line(self) -> None:
        """Leave the rewritten line, so that others can write."""
        if self._is_line_open:
            self._write("\n")
            self._is_line_open = False

    def _time(self) -> str:
        return f"[{self.elapsed_s:4.0f} s]"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
