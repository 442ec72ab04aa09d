"""How far a range has come, how long to pause, and how much to ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Backoff", "RangeProgress", "exponential_pause_ms", "plan_partition_bytes"]

_SLACK_BYTES: Final = 16_384
"""A producer's default batch size: a limit that cuts the last wanted record batch costs another round trip."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: the first, doubled with each failure in a row, up to the longest."""

    first_ms: int
    longest_ms: int


def exponential_pause_ms(backoff: Backoff, failure_count: int) -> int:
    """Return the pause after so many failures in a row (at least one)."""
    doublings = min(failure_count - 1, 30)
    return min(backoff.longest_ms, backoff.first_ms << doublings)


def plan_partition_bytes(offset_count: int, bytes_per_offset: float | None, limit_bytes: int) -> int:
    """Return how much of a topic-partition to ask for, so that little beyond a range's end is fetched.

    Parameters
    ----------
    offset_count : int
        Offsets left in the range.
    bytes_per_offset : float or None
        As seen in the last answer; None when nothing was seen yet.
    limit_bytes : int
        Never ask for more.
    """
    if bytes_per_offset is None:
        return limit_bytes
    return min(limit_bytes, int(offset_count * bytes_per_offset) + _SLACK_BYTES)


@dataclass(slots=True)
class RangeProgress:
    """Where the reading of one range stands. Changed by the engine alone.

    Attributes
    ----------
    fetch_offset : int
        The next offset to fetch.
    end_offset : int
        The first offset that is not wanted.
    advanced_ms : int
        When `fetch_offset` last moved, or reading began.
    retry_at_ms : int
        Not asked for before this instant.
    failure_count : int
        Answers without progress in a row.
    is_asked : bool
        A request for this range is under way: no other node may be asked meanwhile, or rows would come twice.
    asked_follower_ms : int or None
        When a follower was first asked for `fetch_offset`.
    is_finishing_at_leader : bool
        A follower was too late for this range; the rest of it is read at the leader.
    is_bounds_wanted : bool
        The leader refused `fetch_offset`; its log's bounds are being looked up.
    log_start_offset : int or None
        The lower bound, once it is known.
    last_problem : str
        The last thing that went wrong, for the error that ends a range without progress.
    """

    fetch_offset: int
    end_offset: int
    advanced_ms: int
    retry_at_ms: int = 0
    failure_count: int = 0
    is_asked: bool = False
    asked_follower_ms: int | None = None
    is_finishing_at_leader: bool = False
    is_bounds_wanted: bool = False
    log_start_offset: int | None = None
    last_problem: str = ""

    def on_advanced(self, next_offset: int, now_ms: int) -> None:
        """Move on; what was counted for the old position no longer counts."""
        self.fetch_offset = next_offset
        self.advanced_ms = now_ms
        self.retry_at_ms = now_ms
        self.failure_count = 0
        self.asked_follower_ms = None
        self.last_problem = ""

    def on_pause(self, backoff: Backoff, problem: str, now_ms: int) -> None:
        """Stand back after an answer without progress, longer each time."""
        self.last_problem = problem
        self.failure_count += 1
        self.retry_at_ms = now_ms + exponential_pause_ms(backoff, self.failure_count)

    def waited_ms(self, now_ms: int) -> int:
        """Return how long ago a follower was first asked for `fetch_offset`; 0 when none was."""
        return 0 if self.asked_follower_ms is None else now_ms - self.asked_follower_ms

    def forget_bounds(self) -> None:
        """Drop the bound that was looked up: it is valid for one decision only."""
        self.log_start_offset = None
