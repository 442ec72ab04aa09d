"""How far a range has come, how long to pause, and how much to ask for.

A range's position is an offset with the leader epoch of the record before it. Reading goes on from it only while the
position is known to lie in the leader's log; `POSITION_TRANSITIONS` says what puts that in doubt and what settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from connector.model import NO_EPOCH, NO_TOPIC_ID

__all__ = [
    "POSITION_TRANSITIONS",
    "Backoff",
    "PositionEvent",
    "PositionState",
    "RangeProgress",
    "exponential_pause_ms",
    "plan_partition_bytes",
]

_SLACK_BYTES: Final = 16_384
"""A producer's default batch size: a limit that cuts the last wanted record batch costs another round trip."""
_JITTER: Final = 0.2
"""Pauses differ by so much, or clients that failed together would come back together (Java: ExponentialBackoff)."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: the first, doubled with each failure in a row, up to the longest."""

    first_ms: int
    longest_ms: int


def exponential_pause_ms(backoff: Backoff, failure_count: int, jitter: Callable[[], float] | None = None) -> int:
    """Return the pause after so many failures in a row (at least one).

    Parameters
    ----------
    jitter : callable, optional
        Numbers in [0, 1); they move the pause by a fifth up or down.
    """
    doublings = min(failure_count - 1, 30)
    pause_ms = min(backoff.longest_ms, backoff.first_ms << doublings)
    return pause_ms if jitter is None else max(1, round(pause_ms * (1 - _JITTER + 2 * _JITTER * jitter())))


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


class PositionState(StrEnum):
    """What must happen before the next record is fetched (Java: `SubscriptionState.FetchStates`)."""

    FETCHING = "fetching"
    AWAIT_VALIDATION = "await validation"
    """The leader is asked where the position's leader epoch ends (OffsetForLeaderEpoch, KIP-320)."""
    AWAIT_LOG_START = "await log start"
    """The leader is asked where its log begins (ListOffsets): the error that refuses an offset does not say."""
    AWAIT_LOG_END = "await log end"
    """The leader is asked where its log ends (ListOffsets)."""


class PositionEvent(StrEnum):
    """What changes the state of a position."""

    LEADER_CHANGED = "leader epoch changed, the position's is known"
    REFUSED_UNCHECKED = "leader refuses the offset, its epoch is known and unchecked"
    REFUSED = "leader refuses the offset"
    EPOCH_VALID = "the epoch reaches the position"
    LOG_START_KNOWN = "log start known"
    BOUNDS_KNOWN = "log end known"
    MOVED = "position moved"


_S, _E = PositionState, PositionEvent
POSITION_TRANSITIONS: Final[Mapping[tuple[PositionState, PositionEvent], PositionState]] = MappingProxyType(
    {
        (_S.FETCHING, _E.LEADER_CHANGED): _S.AWAIT_VALIDATION,
        (_S.FETCHING, _E.REFUSED_UNCHECKED): _S.AWAIT_VALIDATION,
        (_S.FETCHING, _E.REFUSED): _S.AWAIT_LOG_START,
        (_S.FETCHING, _E.MOVED): _S.FETCHING,
        (_S.AWAIT_VALIDATION, _E.LEADER_CHANGED): _S.AWAIT_VALIDATION,
        (_S.AWAIT_VALIDATION, _E.EPOCH_VALID): _S.FETCHING,
        (_S.AWAIT_VALIDATION, _E.MOVED): _S.FETCHING,
        (_S.AWAIT_LOG_START, _E.LEADER_CHANGED): _S.AWAIT_VALIDATION,
        (_S.AWAIT_LOG_START, _E.LOG_START_KNOWN): _S.AWAIT_LOG_END,
        (_S.AWAIT_LOG_END, _E.LEADER_CHANGED): _S.AWAIT_VALIDATION,
        (_S.AWAIT_LOG_END, _E.BOUNDS_KNOWN): _S.FETCHING,
    }
)
"""Every step a position can take; one that is not here is a bug."""


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
    offset_epoch : int
        Leader epoch of the record before `fetch_offset`, or `NO_EPOCH`.
    is_epoch_of_record : bool
        Whether `offset_epoch` was read with a record, not only planned with.
    checked_epoch : int
        The leader epoch under which the position is known to lie in the leader's log.
    is_validated : bool
        Whether the leader itself said so about this very position (OffsetForLeaderEpoch).
    topic_id : UUID
        The topic that the range was planned for, or `NO_TOPIC_ID`.
    state : PositionState
        What must happen before the next fetch.
    retry_at_ms : int
        Not asked for before this instant.
    failure_count : int
        Answers without progress in a row.
    not_yet_count : int
        How often in a row a follower said "not yet" to this position.
    is_asked : bool
        A request for this range is under way: no other node may be asked meanwhile, or rows would come twice.
    asked_follower_ms : int or None
        When a follower was first asked for `fetch_offset`.
    leader_until_ms : int
        A follower was too late for this range; until then it is read at the leader, without losing the lease.
    visible_end_offset : int
        The last high watermark (or last stable offset) that was told with this range's answers, or -1.
    log_start_offset : int
        The lower bound while `state` is `AWAIT_LOG_END`.
    last_problem : str
        The last thing that went wrong, for the error that ends a range without progress.
    """

    fetch_offset: int
    end_offset: int
    advanced_ms: int
    offset_epoch: int = NO_EPOCH
    is_epoch_of_record: bool = False
    checked_epoch: int = NO_EPOCH
    is_validated: bool = False
    topic_id: UUID = NO_TOPIC_ID
    state: PositionState = PositionState.FETCHING
    retry_at_ms: int = 0
    failure_count: int = 0
    not_yet_count: int = 0
    is_asked: bool = False
    asked_follower_ms: int | None = None
    leader_until_ms: int = 0
    visible_end_offset: int = -1
    log_start_offset: int = -1
    last_problem: str = ""

    def on_event(self, event: PositionEvent) -> None:
        """Take the step that the table gives."""
        self.state = POSITION_TRANSITIONS[self.state, event]

    def on_advanced(self, next_offset: int, now_ms: int) -> None:
        """Move on; what was counted for the old position no longer counts."""
        self.on_event(PositionEvent.MOVED)
        self.fetch_offset = next_offset
        self.advanced_ms = now_ms
        self.retry_at_ms = now_ms
        self.failure_count = 0
        self.not_yet_count = 0
        self.asked_follower_ms = None
        self.is_validated = False
        self.last_problem = ""

    def on_resumed(self, paused_ms: int) -> None:
        """Take note that nothing was tried for a while."""
        self.advanced_ms += paused_ms
        if self.asked_follower_ms is not None:
            self.asked_follower_ms += paused_ms

    def on_record_epoch(self, leader_epoch: int) -> None:
        """Take the leader epoch of the record before the position; what was known of an earlier one says nothing."""
        self.offset_epoch = leader_epoch
        self.is_epoch_of_record = leader_epoch != NO_EPOCH

    def on_validated(self, leader_epoch: int) -> None:
        """Take the leader's word that the position's epoch reaches it."""
        self.on_event(PositionEvent.EPOCH_VALID)
        self.on_checked(leader_epoch)
        self.is_validated = True

    def on_checked(self, leader_epoch: int) -> None:
        """Take note that the position lies in the log that this leader epoch has."""
        self.checked_epoch = max(self.checked_epoch, leader_epoch)

    def on_pause(self, pause_ms: int, problem: str, now_ms: int) -> None:
        """Stand back after an answer without progress."""
        self.last_problem = problem
        self.failure_count += 1
        self.retry_at_ms = now_ms + pause_ms

    def waited_ms(self, now_ms: int) -> int:
        """Return how long ago a follower was first asked for `fetch_offset`; 0 when none was."""
        return 0 if self.asked_follower_ms is None else now_ms - self.asked_follower_ms

    def is_epoch_unchecked(self, leader_epoch: int) -> bool:
        """Tell whether the leader changed since the position was last known to lie in its log, and can be asked."""
        return self.offset_epoch != NO_EPOCH and leader_epoch > self.checked_epoch
