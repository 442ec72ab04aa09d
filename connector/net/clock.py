"""The clocks: milliseconds that never go back, and the time of day."""

from __future__ import annotations

import time

__all__ = ["monotonic_ms", "unix_ms"]


def monotonic_ms() -> int:
    """Return milliseconds since some instant, unmoved by changes of the wall clock."""
    return time.monotonic_ns() // 1_000_000


def unix_ms() -> int:
    """Return milliseconds since 1970, as records' timestamps count them."""
    return time.time_ns() // 1_000_000
