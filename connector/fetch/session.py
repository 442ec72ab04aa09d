"""Fetch sessions (KIP-227): a broker remembers what we want, and requests and answers tell only what changed.

One state per node, of which one request at a time is under way. `plan_session` compares what is wanted with what the
broker remembers; `decide_session` says what an answer means for the session, from one table (`SESSION_RULES`); only
then does the state change. So a request that was planned and never sent leaves no trace.

Spec: KIP-227; KIP-516 for topic ids. Counterpart: `FetchSessionHandler`, `FetchMetadata`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from connector.model import NO_TOPIC_ID, FetchPlan, FetchReply, ForgottenPartition, PartitionFetch, TopicPartition
from connector.wire import error_codes

__all__ = [
    "FINAL_EPOCH",
    "FULL_EPOCH",
    "SESSIONLESS",
    "SESSION_RULES",
    "NextRequest",
    "SessionEvent",
    "SessionRequest",
    "SessionRule",
    "SessionState",
    "SessionVerdict",
    "decide_session",
    "plan_close",
    "plan_session",
    "session_after_failure",
]

FULL_EPOCH: Final = 0
"""Session epoch of a full request that asks for a session."""
FINAL_EPOCH: Final = -1
"""Session epoch of a request that wants no session: alone it closes the one it names."""
_LAST_EPOCH: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class SessionState:
    """What the next request to a node carries, and what the broker remembers if that is incremental."""

    session_id: int = 0
    session_epoch: int = FULL_EPOCH
    partitions: Mapping[TopicPartition, PartitionFetch] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        """Whether the next request is incremental."""
        return self.session_epoch > FULL_EPOCH


SESSIONLESS: Final = SessionState(0, FINAL_EPOCH)
"""Of requests that leave no session behind."""


class SessionRequest(NamedTuple):
    """The part of a Fetch that the session decides; a prefix of `FetchPlan`'s fields of the same names."""

    session_id: int
    session_epoch: int
    partitions: tuple[PartitionFetch, ...]
    forgotten: tuple[ForgottenPartition, ...] = ()
    replaced: tuple[ForgottenPartition, ...] = ()


class SessionEvent(StrEnum):
    """What an answer, or its absence, means for the session."""

    GRANTED = "full answer, session id given"
    REFUSED = "full answer, session id 0"
    CONTINUED = "incremental answer, same session id"
    CLOSED = "incremental answer, session id 0"
    ID_NOT_FOUND = "FETCH_SESSION_ID_NOT_FOUND"
    TOPIC_ID_ERROR = "FETCH_SESSION_TOPIC_ID_ERROR"
    TOP_LEVEL_ERROR = "any other top-level error"
    THROTTLED_EMPTY = "full answer without partitions, throttled"
    MALFORMED_FULL = "full answer with partitions missing, unasked for or of unknown topic id"
    MALFORMED_INCREMENTAL = "incremental answer of another session, or with partitions unasked for"
    NO_ANSWER = "disconnected or timed out"


class NextRequest(StrEnum):
    """What the next request to the node looks like."""

    FULL = "full, no session to drop"
    FULL_DROPPING = "full, drops the session"
    INCREMENTAL = "incremental"


@dataclass(frozen=True, slots=True)
class SessionRule:
    """What follows from an event: the next request, whether the data counts, and what else to do."""

    next_request: NextRequest
    is_data_used: bool
    is_reset: bool = True
    is_refresh_wanted: bool = False


_FULL, _DROPPING, _INCREMENTAL = NextRequest.FULL, NextRequest.FULL_DROPPING, NextRequest.INCREMENTAL
SESSION_RULES: Final[Mapping[SessionEvent, SessionRule]] = MappingProxyType(
    {
        SessionEvent.GRANTED: SessionRule(_INCREMENTAL, is_data_used=True, is_reset=False),
        SessionEvent.REFUSED: SessionRule(_FULL, is_data_used=True, is_reset=False),
        SessionEvent.CONTINUED: SessionRule(_INCREMENTAL, is_data_used=True, is_reset=False),
        SessionEvent.CLOSED: SessionRule(_FULL, is_data_used=True),
        SessionEvent.ID_NOT_FOUND: SessionRule(_FULL, is_data_used=False),
        SessionEvent.TOPIC_ID_ERROR: SessionRule(_DROPPING, is_data_used=False, is_refresh_wanted=True),
        SessionEvent.TOP_LEVEL_ERROR: SessionRule(_DROPPING, is_data_used=False),
        SessionEvent.THROTTLED_EMPTY: SessionRule(_FULL, is_data_used=False, is_reset=False),
        # Java forgets a session that a malformed full answer names; naming it in the next request frees its slot.
        SessionEvent.MALFORMED_FULL: SessionRule(_DROPPING, is_data_used=False),
        SessionEvent.MALFORMED_INCREMENTAL: SessionRule(_DROPPING, is_data_used=False),
        SessionEvent.NO_ANSWER: SessionRule(_DROPPING, is_data_used=False),
    }
)
"""Every way in which a request can end. An epoch counts even when its answer was lost: only a full request is safe."""


@dataclass(frozen=True, slots=True)
class SessionVerdict:
    """What an answer means for the session, and what the next request to the node carries."""

    event: SessionEvent
    rule: SessionRule
    next_state: SessionState


def plan_session(state: SessionState, wanted: Sequence[PartitionFetch]) -> SessionRequest:
    """Return what to send so that the broker reads all that is wanted, in this order if the request is full."""
    if not state.is_live:
        return SessionRequest(state.session_id, state.session_epoch, tuple(wanted))
    known = state.partitions
    changed: list[PartitionFetch] = []
    replaced: list[ForgottenPartition] = []
    for each in wanted:
        before = known.get(each.topic_partition)
        if before == each:
            continue
        changed.append(each)
        if (
            before is not None
            and before.topic_id != each.topic_id
            and NO_TOPIC_ID not in (before.topic_id, each.topic_id)
        ):
            replaced.append(ForgottenPartition(each.topic_partition, before.topic_id))
    wanted_names = {each.topic_partition for each in wanted}
    forgotten = tuple(
        ForgottenPartition(name, each.topic_id) for name, each in known.items() if name not in wanted_names
    )
    return SessionRequest(state.session_id, state.session_epoch, tuple(changed), forgotten, tuple(replaced))


def plan_close(state: SessionState) -> SessionRequest | None:
    """Return the request that closes a session, or None when there is none to close."""
    return SessionRequest(state.session_id, FINAL_EPOCH, ()) if state.session_id else None


def decide_session(plan: FetchPlan, wanted: Sequence[PartitionFetch], reply: FetchReply) -> SessionVerdict:
    """Return what an answer means for the session.

    Parameters
    ----------
    plan : FetchPlan
        The request as it was sent.
    wanted : sequence of PartitionFetch
        All that the broker was to read, told by this request or remembered.
    """
    event = _event_of(plan, wanted, reply)
    rule = SESSION_RULES[event]
    # A malformed full answer may name a session that the request did not.
    session_id = reply.session_id if event is SessionEvent.MALFORMED_FULL else plan.session_id
    state = SessionState()
    if rule.next_request is NextRequest.INCREMENTAL:
        epoch = 1 if plan.session_epoch == _LAST_EPOCH else plan.session_epoch + 1
        state = SessionState(reply.session_id, epoch, {each.topic_partition: each for each in wanted})
    elif rule.next_request is NextRequest.FULL_DROPPING:
        state = SessionState(session_id)
    return SessionVerdict(event, rule, state)


def session_after_failure(state: SessionState) -> SessionState:
    """Return the state after a request that got no answer."""
    return SessionState(state.session_id)


def _event_of(plan: FetchPlan, wanted: Sequence[PartitionFetch], reply: FetchReply) -> SessionEvent:
    match reply.error_code:
        case error_codes.NONE:
            pass
        case error_codes.FETCH_SESSION_ID_NOT_FOUND:
            return SessionEvent.ID_NOT_FOUND
        case error_codes.FETCH_SESSION_TOPIC_ID_ERROR:
            return SessionEvent.TOPIC_ID_ERROR
        case _:
            return SessionEvent.TOP_LEVEL_ERROR
    asked = {each.topic_partition for each in wanted}
    answered = {each.topic_partition for each in reply.partitions}
    is_unasked_for = bool(reply.unknown_topic_ids) or not answered <= asked
    if plan.session_epoch > FULL_EPOCH:
        if is_unasked_for or reply.session_id not in (0, plan.session_id):
            return SessionEvent.MALFORMED_INCREMENTAL
        return SessionEvent.CONTINUED if reply.session_id else SessionEvent.CLOSED
    if not reply.partitions and reply.throttle_ms > 0 and asked:
        return SessionEvent.THROTTLED_EMPTY
    if is_unasked_for or answered != asked:
        return SessionEvent.MALFORMED_FULL
    return SessionEvent.GRANTED if reply.session_id else SessionEvent.REFUSED
