"""Wait for what a test needs, as long as that takes and no longer; a wait in vain says what was waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONG_ENOUGH_S = 60.0
"""More than anything takes that goes well, however busy the machine is."""
POLL_S = 0.02


def wait_for(
    look: Callable[[], T | None],
    what: str,
    timeout_s: float = LONG_ENOUGH_S,
    *,
    poll_s: float = POLL_S,
    explain: Callable[[], str] = str,
) -> T:
    """Return the first true value of `look`; fail when there is none in time.

    Parameters
    ----------
    what
        What is waited for, as the failure names it.
    poll_s
        The pause between two looks; longer than usual where a look is costly.
    explain
        Asked for more text when the time is over, such as the end of a log.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (seen := look()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {timeout_s:g} s in vain for {what}\n{explain()}".rstrip())
        time.sleep(poll_s)
    return seen
