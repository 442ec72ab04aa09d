"""Fetch answers, and requests that got none: from what a broker said to positions, leases and sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, assert_never

from connector.fetch.actions import (
    DEBUG_REPLICA_ID,
    Action,
    Decision,
    Delivery,
    FetchEvents,
    SendDescribeLogDirs,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.fetch.commit import on_outcome
from connector.fetch.decisions import decide, visible_end_offset
from connector.fetch.outcome import AskAgain, Asked, Deliver, Discard, Outcome, RefreshMetadata, ReturnToLeader, Wait
from connector.fetch.positions import on_view_changed
from connector.fetch.progress import PositionState, RangeProgress
from connector.fetch.session import (
    FINAL_EPOCH,
    FULL_EPOCH,
    SessionEvent,
    SessionVerdict,
    decide_session,
    session_after_failure,
)
from connector.fetch.state import EngineState, NodeState
from connector.fetch.tails import Tail
from connector.model import NO_NODE, FetchReply, PartitionReply, RecordsScan, ReplicaChange, TopicPartition
from connector.wire import error_codes

__all__ = ["on_fetch_reply", "on_no_answer", "on_node_answered"]

_EMPTY_SCAN: Final = RecordsScan(next_offset=-1, batch_count=0, record_count=0, complete_bytes=0)
_SESSION_ERRORS: Final = frozenset(
    {
        error_codes.FETCH_SESSION_ID_NOT_FOUND,
        error_codes.INVALID_FETCH_SESSION_EPOCH,
        error_codes.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


def on_fetch_reply(
    state: EngineState,
    sent: SendFetch,
    reply: FetchReply,
    scans: Mapping[TopicPartition, RecordsScan],
    now_ms: int,
) -> FetchEvents:
    """Take a Fetch answer, with what the headers of its records tell; the positions have moved on afterwards."""
    node = on_node_answered(state, sent.plan.node_id)
    if reply.throttle_ms > 0:
        node.retry_at_ms = now_ms + reply.throttle_ms
    verdict = _on_session(state, node, sent, reply, now_ms)
    by_partition: dict[TopicPartition, PartitionReply] = {}
    if verdict.rule.is_data_used:
        for each in reply.partitions:
            by_partition.setdefault(each.topic_partition, each)
    has_records = any(len(each.records) > 0 for each in by_partition.values())
    deliveries: list[Delivery] = []
    decisions: list[Decision] = []
    for topic_partition, asked_then in sent.asked.items():
        progress = state.ranges.get(topic_partition)
        if progress is None:
            continue
        progress.is_asked = False
        answer = by_partition.get(topic_partition) or _unanswered(topic_partition, progress)
        asked = replace(asked_then, waited_ms=progress.waited_ms(now_ms), is_budget_spent=has_records)
        scan = scans.get(topic_partition, _EMPTY_SCAN)
        outcome = (
            _decide(progress, asked, answer, scan)
            if verdict.rule.is_data_used
            else _decide_unused(verdict, node.session_reset_count, answer, reply, asked)
        )
        progress.visible_end_offset = max(-1, visible_end_offset(answer, asked.isolation_level))
        if isinstance(outcome, Deliver):
            deliveries.append(_on_records(state, progress, asked, answer, scan, outcome))
        change = on_outcome(state, sent.plan.node_id, asked, outcome, now_ms)
        decisions.append(Decision(topic_partition, sent.plan.node_id, outcome, change))
    decisions.extend(_on_leader_hints(state, by_partition.values(), reply, now_ms))
    return FetchEvents(tuple(deliveries), tuple(decisions), str(verdict.event) if verdict.rule.is_reset else None)


def on_no_answer(state: EngineState, sent: Action, problem: str, now_ms: int) -> tuple[Decision, ...]:
    """Take note that a node did not answer: everything asked of it is asked elsewhere, or again."""
    if isinstance(sent, SendMetadata):
        state.view.on_request_failed(problem, now_ms)
        return ()
    node_id = sent.plan.node_id if isinstance(sent, SendFetch) else sent.node_id
    node = state.on_node_met(node_id)
    node.under_way = None
    node.failure_count += 1
    node.retry_at_ms = now_ms + state.error_pause_ms(node.failure_count)
    state.view.on_refresh_wanted()
    for topic_partition in state.choices.leases_on(node_id):
        state.choices.on_left(topic_partition, now_ms)
    match sent:
        case SendFetch():
            if sent.plan.session_epoch != FINAL_EPOCH:
                node.session = session_after_failure(node.session)
            asked_of_it: Mapping[TopicPartition, Asked] = sent.asked
        case SendListOffsets():
            if sent.replica_id == DEBUG_REPLICA_ID:
                state.local_logs.on_offsets(sent, (), now_ms)
            asked_of_it = sent.asked
        case SendOffsetForLeaderEpoch():
            asked_of_it = sent.asked
        case SendDescribeLogDirs():
            state.local_logs.on_sizes(sent, (), now_ms)
            asked_of_it = {}
        case _:
            assert_never(sent)
    return tuple(
        _on_unanswered(state, node_id, asked, problem, now_ms)
        for topic_partition, asked in asked_of_it.items()
        if topic_partition in state.ranges
    )


def _on_unanswered(state: EngineState, node_id: int, asked: Asked, problem: str, now_ms: int) -> Decision:
    state.ranges[asked.topic_partition].is_asked = False
    outcome: Outcome = RefreshMetadata(problem)
    if not asked.from_leader:
        outcome = ReturnToLeader(ReplicaChange.BROKER_DOWN, problem, refresh_metadata=True)
    change = on_outcome(state, node_id, asked, outcome, now_ms)
    return Decision(asked.topic_partition, node_id, outcome, change)


def on_node_answered(state: EngineState, node_id: int) -> NodeState:
    """Take note that a node is well."""
    node = state.on_node_met(node_id)
    node.under_way = None
    node.failure_count = 0
    node.retry_at_ms = 0
    return node


def _on_session(state: EngineState, node: NodeState, sent: SendFetch, reply: FetchReply, now_ms: int) -> SessionVerdict:
    """Commit what the answer means for the node's session; a sessionless request leaves it as it is."""
    verdict = decide_session(sent.plan, sent.wanted, reply)
    if (sent.plan.session_id, sent.plan.session_epoch) != (0, FINAL_EPOCH):
        node.session = verdict.next_state
    if sent.plan.session_epoch == FULL_EPOCH and verdict.event is SessionEvent.REFUSED:
        node.session_refused_until_ms = now_ms + state.settings.session_refused_ms
    node.session_reset_count = node.session_reset_count + 1 if verdict.rule.is_reset else 0
    if verdict.rule.is_refresh_wanted:
        state.view.on_refresh_wanted()
    return verdict


def _on_leader_hints(
    state: EngineState, partitions: Iterable[PartitionReply], reply: FetchReply, now_ms: int
) -> tuple[Decision, ...]:
    """Take the current leaders that errors name, and ask them at once (KIP-951)."""
    changed = [
        each.topic_partition
        for each in partitions
        if each.current_leader_id != NO_NODE
        and state.view.on_leader_hint(
            each.topic_partition, each.current_leader_id, each.current_leader_epoch, reply.nodes
        )
    ]
    for topic_partition in changed:
        if topic_partition in state.ranges:
            state.ranges[topic_partition].retry_at_ms = now_ms
    return on_view_changed(state, changed, now_ms) if changed else ()


def _decide(progress: RangeProgress, asked: Asked, answer: PartitionReply, scan: RecordsScan) -> Outcome:
    """Return what the answer means, after what happened to the position since it was asked for."""
    if progress.state is not PositionState.FETCHING:
        return Discard(f"the leader of {asked.topic_partition} changed while broker {asked.node} was asked")
    return decide(answer, scan, asked)


def _decide_unused(
    verdict: SessionVerdict, reset_count: int, answer: PartitionReply, reply: FetchReply, asked: Asked
) -> Outcome:
    """Return what an answer means whose records do not count."""
    if verdict.event is SessionEvent.TOP_LEVEL_ERROR and reply.error_code not in _SESSION_ERRORS:
        # A request that failed as a whole says so once, at the top (from version 13 on).
        return decide(replace(answer, error_code=reply.error_code), _EMPTY_SCAN, asked)
    # The first reset is usual, for a broker that needs the slot; a broker that goes on refusing is given time.
    return AskAgain() if reset_count <= 1 else Wait(f"{verdict.event} from broker {asked.node}")


def _unanswered(topic_partition: TopicPartition, progress: RangeProgress) -> PartitionReply:
    """Return what it means that an incremental answer leaves a topic-partition out: nothing changed (KIP-227)."""
    seen = progress.visible_end_offset
    return PartitionReply(topic_partition, error_codes.NONE, seen, seen, -1, NO_NODE, memoryview(b""))


def _on_records(
    state: EngineState,
    progress: RangeProgress,
    asked: Asked,
    answer: PartitionReply,
    scan: RecordsScan,
    outcome: Deliver,
) -> Delivery:
    """Learn from records, and keep those beyond the end of the range for the next one."""
    topic_partition = asked.topic_partition
    state.bytes_per_offset[topic_partition] = scan.complete_bytes / (scan.next_offset - asked.fetch_offset)
    end_offset = min(outcome.next_offset, progress.end_offset)
    # Transactions that were aborted are known per answer: a part of it can't be understood alone.
    if outcome.next_offset > progress.end_offset and not answer.aborted_transactions:
        tail = Tail(
            start_offset=progress.end_offset,
            next_offset=outcome.next_offset,
            records=memoryview(bytes(answer.records[: scan.complete_bytes])),
            offset_epoch=outcome.leader_epoch,
            leader_epoch=asked.leader_epoch,
            topic_id=progress.topic_id,
        )
        state.tails.on_kept(topic_partition, tail)
    return Delivery(topic_partition, answer.records, asked.fetch_offset, end_offset, answer.aborted_transactions)
