"""What an outcome changes: the one place where decisions about a topic-partition become state."""

from __future__ import annotations

from typing import Final, assert_never

from connector.config.settings import ReplicaSelection
from connector.fetch.outcome import (
    AskAgain,
    Asked,
    Deliver,
    Discard,
    Fail,
    LookUpOffsets,
    Outcome,
    ReadFromReplica,
    RefreshMetadata,
    ReturnToLeader,
    Skip,
    ValidateEpoch,
    Wait,
)
from connector.fetch.progress import Backoff, PositionEvent, RangeProgress, exponential_pause_ms
from connector.fetch.replica import is_readable_replica
from connector.fetch.state import EngineState
from connector.model import NO_EPOCH, NO_NODE, ReplicaChange, TopicPartition

__all__ = ["on_outcome"]

_WAIT_BACKOFF: Final = Backoff(first_ms=20, longest_ms=200)
"""Pause after an answer without progress: a broker answers at once when the wanted offset is above what it shows."""


def on_outcome(state: EngineState, node_id: int, asked: Asked, outcome: Outcome, now_ms: int) -> ReplicaChange | None:
    """Commit what an answer of a node means; return why another node will be read from here on, if one will.

    Raises
    ------
    ConnectorError
        When no retry can help.
    """
    progress = state.ranges[asked.topic_partition]
    match outcome:
        case Deliver():
            _on_delivered(state, asked, progress, outcome, now_ms)
            if _is_worth_following(state, node_id, outcome.preferred_read_replica):
                return _on_redirect(state, node_id, asked, progress, outcome.preferred_read_replica, now_ms)
        case ReadFromReplica():
            return _on_redirect(state, node_id, asked, progress, outcome.node_id, now_ms)
        case ReturnToLeader():
            return _on_return_to_leader(state, asked.topic_partition, progress, outcome, now_ms)
        case ValidateEpoch() | LookUpOffsets():
            _on_refused(progress, outcome)
        case Wait() | RefreshMetadata():
            _on_pause(state, progress, outcome, now_ms)
        case AskAgain() | Discard():
            pass  # it keeps its place in the order, while those that were served go to the end
        case Skip():
            _on_skip(state, asked.topic_partition, progress, outcome, now_ms)
        case Fail():
            raise outcome.error
        case _:
            assert_never(outcome)
    return None


def _on_refused(progress: RangeProgress, outcome: ValidateEpoch | LookUpOffsets) -> None:
    is_unchecked = isinstance(outcome, ValidateEpoch)
    progress.on_event(PositionEvent.REFUSED_UNCHECKED if is_unchecked else PositionEvent.REFUSED)
    progress.last_problem = outcome.problem


def _on_pause(state: EngineState, progress: RangeProgress, outcome: Wait | RefreshMetadata, now_ms: int) -> None:
    backoff = state.settings.error_backoff
    if isinstance(outcome, Wait):
        backoff = _WAIT_BACKOFF
        progress.not_yet_count += outcome.is_not_yet
    else:
        state.view.on_refresh_wanted()
    progress.on_pause(exponential_pause_ms(backoff, progress.failure_count + 1, state.jitter), outcome.problem, now_ms)


def _on_delivered(state: EngineState, asked: Asked, progress: RangeProgress, outcome: Deliver, now_ms: int) -> None:
    progress.on_advanced(outcome.next_offset, now_ms)
    progress.on_record_epoch(outcome.leader_epoch)
    progress.on_checked(asked.leader_epoch)
    is_finished = progress.fetch_offset >= progress.end_offset
    state.choices.on_delivered(asked.topic_partition, is_finished_by_follower=is_finished and not asked.from_leader)
    del state.ranges[asked.topic_partition]
    if not is_finished:
        if progress.is_epoch_unchecked(state.view.current.partitions[asked.topic_partition].leader_epoch):
            # The leader changed while the old one was asked, and the position's epoch is known only now.
            progress.on_event(PositionEvent.LEADER_CHANGED)
        # To the end of the order: brokers fill an answer in request order, so none starves (KIP-74).
        state.ranges[asked.topic_partition] = progress


def _is_worth_following(state: EngineState, from_node_id: int, node_id: int) -> bool:
    """Tell whether a replica that was named along with records is another one, and for the broker to name."""
    is_brokers_choice = state.settings.replica_selection is ReplicaSelection.BROKER
    return is_brokers_choice and node_id not in (NO_NODE, from_node_id)


def _on_redirect(
    state: EngineState, from_node_id: int, asked: Asked, progress: RangeProgress, node_id: int, now_ms: int
) -> ReplicaChange | None:
    topic_partition = asked.topic_partition
    problem = _why_unreadable(state, topic_partition, from_node_id, node_id, now_ms)
    if problem:
        state.view.on_refresh_wanted()
        is_leader_only = state.choices.on_redirected_in_vain(topic_partition, now_ms)
        # The view may be the one that is wrong: the pause gives metadata time to arrive.
        pause_ms = 0 if is_leader_only else state.error_pause_ms(progress.failure_count + 1)
        progress.on_pause(pause_ms, problem, now_ms)
        return ReplicaChange.REPLICA_GONE
    is_new = state.choices.on_redirect(topic_partition, node_id, now_ms)
    return ReplicaChange.REDIRECT if is_new else None


def _why_unreadable(
    state: EngineState, topic_partition: TopicPartition, from_node_id: int, node_id: int, now_ms: int
) -> str:
    """Return why a redirect leads nowhere, or nothing if it can be followed."""
    view = state.view.current
    info = view.partitions[topic_partition]
    named = f"broker {from_node_id} names broker {node_id} to read from, "
    if state.settings.replica_selection is not ReplicaSelection.BROKER:
        return named + "which nobody asked it for"
    if node_id == from_node_id:
        return named + "itself, and sends no records"
    if not is_readable_replica(info, node_id, view.nodes):
        return named + "which metadata does not list as a replica that is online"
    if node_id not in info.isr_ids:
        return named + "which metadata does not list as in sync"
    node = state.nodes.get(node_id)
    if node is not None and node.is_failing(now_ms):
        return named + "which did not answer a moment ago"
    return ""


def _on_return_to_leader(
    state: EngineState,
    topic_partition: TopicPartition,
    progress: RangeProgress,
    outcome: ReturnToLeader,
    now_ms: int,
) -> ReplicaChange:
    progress.last_problem = outcome.problem
    progress.asked_follower_ms = None
    progress.not_yet_count = 0
    is_behind = outcome.reason is ReplicaChange.FOLLOWER_BEHIND
    if is_behind or outcome.is_lease_kept:
        # The leader would name the same replica again, which can't serve this position yet.
        progress.leader_until_ms = now_ms + state.settings.leader_only_ms
    is_left = is_behind and outcome.is_lease_kept and state.choices.on_behind(topic_partition, now_ms)
    if not outcome.is_lease_kept:
        if state.settings.replica_selection is ReplicaSelection.CLIENT:
            state.choices.on_avoided(topic_partition, now_ms)
        else:
            state.choices.on_left(topic_partition, now_ms)
    if outcome.refresh_metadata or is_left:
        state.view.on_refresh_wanted()
    return outcome.reason


def _on_skip(
    state: EngineState, topic_partition: TopicPartition, progress: RangeProgress, outcome: Skip, now_ms: int
) -> None:
    if outcome.next_offset >= progress.end_offset:
        del state.ranges[topic_partition]
        return
    progress.on_advanced(outcome.next_offset, now_ms)
    # What came before belongs to a history that the leader does not have.
    progress.offset_epoch = progress.checked_epoch = NO_EPOCH
    progress.is_epoch_of_record = False
