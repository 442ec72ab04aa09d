"""What should be sent at this moment: functions of the engine's state that change nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from connector.errors import RangeTimedOut
from connector.fetch.actions import Action, SendFetch, SendListOffsets, SendMetadata
from connector.fetch.outcome import Asked
from connector.fetch.progress import plan_partition_bytes
from connector.fetch.replica import is_readable_replica
from connector.fetch.state import EngineState
from connector.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_NODE,
    FetchPlan,
    OffsetQuery,
    PartitionFetch,
    TopicPartition,
)

__all__ = ["plan_actions", "plan_asked", "plan_wake_at_ms"]


def plan_actions(state: EngineState, now_ms: int) -> tuple[Action, ...]:
    """Return what should be sent at this moment; changes nothing.

    Raises
    ------
    RangeTimedOut
        When a range made no progress for too long.
    """
    _check_progress(state, now_ms)
    actions: list[Action] = []
    topics = {each.topic for each in state.ranges}
    if topics and state.view.is_request_due(topics, now_ms, is_needed=_is_leader_missing(state)):
        actions.append(SendMetadata(tuple(sorted(topics))))
    for node_id, wanted in _by_node(state, now_ms).items():
        if node_id not in state.busy_nodes and now_ms >= state.node_retry_at_ms.get(node_id, now_ms):
            actions.append(_plan_node(state, node_id, wanted, now_ms))
    return tuple(actions)


def plan_wake_at_ms(state: EngineState, now_ms: int) -> int:
    """Return the next instant at which `plan` may have something new without any event."""
    instants = [state.view.wake_at_ms(is_needed=_is_leader_missing(state))]
    for progress in state.ranges.values():
        instants.append(progress.advanced_ms + state.settings.progress_timeout_ms)
        instants.append(progress.retry_at_ms)
    instants.extend(state.node_retry_at_ms.values())
    return min((each for each in instants if each > now_ms), default=now_ms + state.settings.fetch_max_wait_ms)


def _check_progress(state: EngineState, now_ms: int) -> None:
    for topic_partition, progress in state.ranges.items():
        waited_ms = now_ms - progress.advanced_ms
        if waited_ms >= state.settings.progress_timeout_ms:
            raise RangeTimedOut(
                str(topic_partition),
                progress.fetch_offset,
                progress.end_offset,
                waited_ms,
                progress.last_problem or state.view.last_problem or "no broker answered",
            )


def _by_node(state: EngineState, now_ms: int) -> dict[int, list[TopicPartition]]:
    """Group the topic-partitions that may be asked for at this moment by the node to ask."""
    by_node: dict[int, list[TopicPartition]] = {}
    for topic_partition, progress in state.ranges.items():
        if progress.is_asked or now_ms < progress.retry_at_ms:
            continue
        node_id = _node_for(state, topic_partition, now_ms)
        if node_id != NO_NODE:
            by_node.setdefault(node_id, []).append(topic_partition)
    return by_node


def _is_leader_missing(state: EngineState) -> bool:
    return any(_leader_of(state, each) == NO_NODE for each in state.ranges)


def _leader_of(state: EngineState, topic_partition: TopicPartition) -> int:
    """Return the leader, or `NO_NODE` when there is none that could be asked."""
    info = state.view.current.partitions.get(topic_partition)
    return info.leader_id if info is not None and info.leader_id in state.view.current.nodes else NO_NODE


def _node_for(state: EngineState, topic_partition: TopicPartition, now_ms: int) -> int:
    leader_id = _leader_of(state, topic_partition)
    preferred = state.choices.preferred(topic_partition, now_ms)
    if NO_NODE in (leader_id, preferred) or _is_leader_only(state, topic_partition, now_ms):
        return leader_id
    view = state.view.current
    return preferred if is_readable_replica(view.partitions[topic_partition], preferred, view.nodes) else leader_id


def _is_leader_only(state: EngineState, topic_partition: TopicPartition, now_ms: int) -> bool:
    progress = state.ranges[topic_partition]
    return (
        state.settings.is_leader_only
        or progress.is_finishing_at_leader
        or progress.is_bounds_wanted
        or state.choices.is_leader_only(topic_partition, now_ms)
    )


def _plan_node(state: EngineState, node_id: int, wanted: Sequence[TopicPartition], now_ms: int) -> Action:
    lookups = [each for each in wanted if state.ranges[each].is_bounds_wanted]
    if lookups:
        return SendListOffsets(node_id, _bounds_queries(state, lookups))
    # One request is either redirectable or not; the topic-partition that waited longest says which goes first.
    is_redirectable = not _is_leader_only(state, wanted[0], now_ms)
    together = [each for each in wanted if _is_leader_only(state, each, now_ms) is not is_redirectable]
    asked = {each: plan_asked(state, each, node_id, now_ms) for each in together}
    partitions = tuple(_partition_fetch(state, each) for each in together)
    plan = FetchPlan(
        node_id=node_id,
        partitions=partitions,
        rack=state.settings.rack if is_redirectable else "",
        max_wait_ms=_max_wait_ms(state, asked.values()),
        min_bytes=state.settings.fetch_min_bytes,
        max_bytes=state.settings.fetch_max_bytes,
    )
    return SendFetch(plan, is_redirectable, asked)


def _bounds_queries(state: EngineState, topic_partitions: Iterable[TopicPartition]) -> tuple[OffsetQuery, ...]:
    """Ask for one bound at a time: a request may name a topic-partition only once."""
    return tuple(
        OffsetQuery(
            each,
            EARLIEST_TIMESTAMP if state.ranges[each].log_start_offset is None else LATEST_TIMESTAMP,
            state.view.current.partitions[each].leader_epoch,
        )
        for each in topic_partitions
    )


def plan_asked(state: EngineState, topic_partition: TopicPartition, node_id: int, now_ms: int) -> Asked:
    """Return what a request to that node would ask for this topic-partition."""
    progress = state.ranges[topic_partition]
    info = state.view.current.partitions[topic_partition]
    return Asked(
        topic_partition=topic_partition,
        fetch_offset=progress.fetch_offset,
        node=str(state.view.current.nodes[node_id]),
        from_leader=info.leader_id == node_id,
        waited_ms=progress.waited_ms(now_ms),
        follower_wait_ms=state.settings.follower_wait_ms,
    )


def _partition_fetch(state: EngineState, topic_partition: TopicPartition) -> PartitionFetch:
    progress = state.ranges[topic_partition]
    return PartitionFetch(
        topic_partition,
        progress.fetch_offset,
        plan_partition_bytes(
            progress.end_offset - progress.fetch_offset,
            state.bytes_per_offset.get(topic_partition),
            state.settings.partition_max_bytes,
        ),
        state.view.current.partitions[topic_partition].leader_epoch,
    )


def _max_wait_ms(state: EngineState, asked: Iterable[Asked]) -> int:
    """Let no broker hold a request longer than the wait for a follower that is left."""
    left_ms = [max(0, each.follower_wait_ms - each.waited_ms) for each in asked if not each.from_leader]
    return min([state.settings.fetch_max_wait_ms, *left_ms])
