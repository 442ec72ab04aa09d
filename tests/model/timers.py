"""Virtual time: things that happen at a millisecond, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Timer", "Timers"]


class Timer:
    """Something that happens once at `due_ms`; setting it again moves it."""

    __slots__ = ("action", "due_ms")

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.due_ms: int | None = None


class Timers:
    """The cluster's clock. What is due at the same millisecond happens in the order in which it was set."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._set_count = 0
        self._queue: list[tuple[int, int, Timer]] = []

    def set(self, timer: Timer, due_ms: int) -> None:
        """Let `timer` happen at `due_ms`, and no longer when it was set for before."""
        timer.due_ms = due_ms
        self._set_count += 1
        heapq.heappush(self._queue, (due_ms, self._set_count, timer))

    def hasten(self, timer: Timer, due_ms: int) -> None:
        """Let `timer` happen at `due_ms` at the latest."""
        if timer.due_ms is None or timer.due_ms > due_ms:
            self.set(timer, due_ms)

    def next_ms(self) -> int | None:
        """Return when something happens next."""
        queue = self._queue
        while queue and queue[0][2].due_ms != queue[0][0]:  # was moved, or has happened
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def advance(self, now_ms: int) -> None:
        """Let everything happen that is due until `now_ms`, and what that makes due until then."""
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            timer = heapq.heappop(self._queue)[2]
            timer.due_ms = None
            self.now_ms = max(self.now_ms, due_ms)
            timer.action()
        self.now_ms = max(self.now_ms, now_ms)
