"""The one clock: milliseconds that never go back."""

from __future__ import annotations

import time

__all__ = ["monotonic_ms"]


def monotonic_ms() -> int:
    """Return milliseconds since some instant, unmoved by changes of the wall clock."""
    return time.monotonic_ns() // 1_000_000
