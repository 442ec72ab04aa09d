"""Positions against the leader's log: what puts them in doubt, and the leader's word that settles it (KIP-320)."""

from __future__ import annotations

from collections.abc import Iterable

from connector.fetch.actions import Decision, SendListOffsets, SendOffsetForLeaderEpoch
from connector.fetch.commit import on_outcome
from connector.fetch.decisions import decide_bounds, decide_epoch_end, decide_question_error
from connector.fetch.outcome import AskAgain, Asked, Outcome, ReturnToLeader
from connector.fetch.progress import PositionEvent, PositionState, RangeProgress
from connector.fetch.replica import is_readable_replica
from connector.fetch.requests import leader_info
from connector.fetch.state import EngineState
from connector.model import (
    EARLIEST_TIMESTAMP,
    NO_NODE,
    NO_TOPIC_ID,
    EpochAnswer,
    OffsetAnswer,
    PartitionInfo,
    ReplicaChange,
    TopicPartition,
)
from connector.wire import error_codes

__all__ = ["on_epoch_end_offsets", "on_log_bounds", "on_view_changed"]


def on_view_changed(state: EngineState, changed: Iterable[TopicPartition], now_ms: int) -> tuple[Decision, ...]:
    """Forget what was decided under another leader or epoch, and doubt positions that were not checked since."""
    for topic_partition in changed:
        state.choices.on_leader_changed(topic_partition)
    decisions: list[Decision] = []
    for topic_partition, progress in state.ranges.items():
        if progress.topic_id == NO_TOPIC_ID:
            progress.topic_id = state.view.current.topic_ids.get(topic_partition.topic, NO_TOPIC_ID)
        info = leader_info(state, topic_partition)
        if info is None:
            continue
        if progress.is_epoch_unchecked(info.leader_epoch):
            progress.on_event(PositionEvent.LEADER_CHANGED)
        preferred = state.choices.preferred(topic_partition, now_ms)
        reason = _why_left(state, info, preferred)
        if reason is not None:
            state.choices.on_left(topic_partition, now_ms)
            left = ReturnToLeader(reason, f"broker {preferred} is no in-sync replica that is online any more")
            decisions.append(Decision(topic_partition, preferred, left, reason))
    return tuple(decisions)


def _why_left(state: EngineState, info: PartitionInfo, node_id: int) -> ReplicaChange | None:
    """Return why metadata ends a lease, if it does."""
    if node_id == NO_NODE:
        return None
    if not is_readable_replica(info, node_id, state.view.current.nodes):
        return ReplicaChange.REPLICA_GONE
    return None if node_id in info.isr_ids else ReplicaChange.LEFT_ISR


def on_epoch_end_offsets(
    state: EngineState, sent: SendOffsetForLeaderEpoch, answers: Iterable[EpochAnswer], now_ms: int
) -> tuple[Decision, ...]:
    """Take the leader's word on where the positions' leader epochs end."""
    by_partition = {each.topic_partition: each for each in answers}
    decisions: list[Decision] = []
    for topic_partition, asked in sent.asked.items():
        progress = _answered(state, asked)
        if progress is None or progress.state is not PositionState.AWAIT_VALIDATION:
            continue
        answer = by_partition.get(topic_partition)
        if answer is None:
            outcome: Outcome = decide_question_error("OffsetForLeaderEpoch", error_codes.UNKNOWN_SERVER_ERROR, asked)
        else:
            outcome = decide_epoch_end(answer, asked)
        if isinstance(outcome, AskAgain):
            progress.on_validated(asked.leader_epoch)
        change = on_outcome(state, sent.node_id, asked, outcome, now_ms)
        decisions.append(Decision(topic_partition, sent.node_id, outcome, change))
    return tuple(decisions)


def on_log_bounds(
    state: EngineState, sent: SendListOffsets, answers: Iterable[OffsetAnswer], now_ms: int
) -> tuple[Decision, ...]:
    """Take the leader's bounds of logs whose offsets it refused."""
    by_partition = {each.topic_partition: each for each in answers}
    decisions: list[Decision] = []
    for query in sent.queries:
        asked = sent.asked[query.topic_partition]
        is_start = query.timestamp == EARLIEST_TIMESTAMP
        progress = _answered(state, asked)
        expected = PositionState.AWAIT_LOG_START if is_start else PositionState.AWAIT_LOG_END
        if progress is None or progress.state is not expected:
            continue
        answer = by_partition.get(query.topic_partition)
        code = error_codes.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
        if answer is None or code != error_codes.NONE:
            outcome = decide_question_error("ListOffsets", code, asked)
        elif is_start:
            progress.log_start_offset = answer.log_offset
            progress.on_event(PositionEvent.LOG_START_KNOWN)
            outcome = AskAgain()
        else:
            outcome = decide_bounds(asked, progress.log_start_offset, answer.log_offset)
            progress.on_event(PositionEvent.BOUNDS_KNOWN)
        change = on_outcome(state, sent.node_id, asked, outcome, now_ms)
        decisions.append(Decision(query.topic_partition, sent.node_id, outcome, change))
    return tuple(decisions)


def _answered(state: EngineState, asked: Asked) -> RangeProgress | None:
    """Take note that the question is answered; None when the answer is of no use any more."""
    progress = state.ranges.get(asked.topic_partition)
    if progress is None:
        return None
    progress.is_asked = False
    info = leader_info(state, asked.topic_partition)
    return progress if info is not None and info.leader_epoch == asked.leader_epoch else None
