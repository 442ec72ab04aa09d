"""What should be sent at one moment: a function of the engine's state, which it never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from connector.config.settings import ReplicaSelection, SessionUse
from connector.errors import RangeTimedOut
from connector.fetch.actions import (
    LAST_VERSION_WITH_NAMES,
    LEADER_ONLY_VERSION,
    Action,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.fetch.outcome import Asked
from connector.fetch.progress import PositionState, RangeProgress, plan_partition_bytes
from connector.fetch.selection import candidates_in_rack, choose_replica
from connector.fetch.session import SESSIONLESS, SessionState, plan_session
from connector.fetch.state import EngineState, NodeState
from connector.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    NO_NODE,
    NO_TOPIC_ID,
    EpochQuery,
    FetchPlan,
    OffsetQuery,
    PartitionFetch,
    PartitionInfo,
    TopicPartition,
)

__all__ = ["is_topic_contradicted", "is_view_lacking", "leader_info", "plan_actions", "plan_wake_at_ms"]


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
    if topics and state.view.is_request_due(topics, now_ms, is_needed=is_view_lacking(state)):
        actions.append(SendMetadata(tuple(sorted(topics))))
    for node_id, wanted in _by_node(state, now_ms).items():
        node = state.nodes.get(node_id)
        if node is None or (node.under_way is None and now_ms >= node.retry_at_ms):
            actions.append(_plan_node(state, node_id, wanted, now_ms))
    return tuple(actions)


def plan_wake_at_ms(state: EngineState, now_ms: int) -> int:
    """Return the next instant at which `plan` may have something new without any event."""
    instants = [state.view.wake_at_ms(is_needed=is_view_lacking(state))]
    for progress in state.ranges.values():
        instants.append(progress.advanced_ms + state.settings.progress_timeout_ms)
        instants.append(progress.retry_at_ms)
    instants.extend(node.retry_at_ms for node in state.nodes.values())
    return min((each for each in instants if each > now_ms), default=now_ms + state.settings.fetch_max_wait_ms)


def leader_info(state: EngineState, topic_partition: TopicPartition) -> PartitionInfo | None:
    """Return what metadata says of a range's topic-partition, or None when its leader can't be asked.

    A view that is older than the position, or that shows another topic of the same name, is not believed.
    """
    info = state.view.current.partitions.get(topic_partition)
    if info is None or info.leader_id not in state.view.current.nodes or is_topic_contradicted(state, topic_partition):
        return None
    is_older = NO_EPOCH < info.leader_epoch < state.ranges[topic_partition].offset_epoch
    return None if is_older else info


def is_topic_contradicted(state: EngineState, topic_partition: TopicPartition) -> bool:
    """Tell whether metadata shows a topic of the range's name with another id (KIP-516)."""
    planned_id = state.ranges[topic_partition].topic_id
    found_id = state.view.current.topic_ids.get(topic_partition.topic, NO_TOPIC_ID)
    return NO_TOPIC_ID not in (planned_id, found_id) and planned_id != found_id


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


def is_view_lacking(state: EngineState) -> bool:
    """Tell whether some range can't be read with this view."""
    return bool(state.topic_trouble_since_ms) or any(leader_info(state, each) is None for each in state.ranges)


def _by_node(state: EngineState, now_ms: int) -> dict[int, list[TopicPartition]]:
    """Group the topic-partitions that may be asked for at this moment by the node to ask."""
    by_node: dict[int, list[TopicPartition]] = {}
    for topic_partition, progress in state.ranges.items():
        if progress.is_asked or now_ms < progress.retry_at_ms:
            continue
        info = leader_info(state, topic_partition)
        if info is not None:
            by_node.setdefault(_node_for(state, info, progress, now_ms), []).append(topic_partition)
    return by_node


def _node_for(state: EngineState, info: PartitionInfo, progress: RangeProgress, now_ms: int) -> int:
    view = state.view.current
    if progress.state is not PositionState.FETCHING or _is_leader_only(state, info.topic_partition, now_ms):
        return info.leader_id
    if state.settings.replica_selection is ReplicaSelection.CLIENT:
        chosen = choose_replica(info.topic_partition, view, state.settings.rack, _eligibility(state, info))
        node = state.nodes.get(chosen)
        return info.leader_id if chosen == NO_NODE or (node and node.is_failing(now_ms)) else chosen
    preferred = state.choices.preferred(info.topic_partition, now_ms)
    return info.leader_id if preferred == NO_NODE else preferred


def _eligibility(state: EngineState, info: PartitionInfo) -> Callable[[int], bool]:
    return lambda node_id: state.local_logs.is_eligible(info.topic_partition, node_id)


def _is_leader_only(state: EngineState, topic_partition: TopicPartition, now_ms: int) -> bool:
    return (
        state.settings.replica_selection is ReplicaSelection.LEADER
        or now_ms < state.ranges[topic_partition].leader_until_ms
        or state.choices.is_leader_only(topic_partition, now_ms)
    )


def _plan_node(state: EngineState, node_id: int, wanted: Sequence[TopicPartition], now_ms: int) -> Action:
    """Return the one request to a node: questions about positions go before fetches."""
    unvalidated = [each for each in wanted if state.ranges[each].state is PositionState.AWAIT_VALIDATION]
    if unvalidated:
        queries = tuple(_epoch_query(state, each) for each in unvalidated)
        return SendOffsetForLeaderEpoch(node_id, queries, _asked(state, node_id, unvalidated, now_ms))
    unbounded = [each for each in wanted if state.ranges[each].state is not PositionState.FETCHING]
    if unbounded:
        bounds = tuple(_bound_query(state, each) for each in unbounded)
        return SendListOffsets(node_id, bounds, _asked(state, node_id, unbounded, now_ms))
    return _plan_local_logs(state, node_id, now_ms) or _plan_fetch(state, node_id, wanted, now_ms)


def _asked(
    state: EngineState, node_id: int, topic_partitions: Iterable[TopicPartition], now_ms: int
) -> dict[TopicPartition, Asked]:
    """Return what is asked of a node, as its answer will have to be understood."""
    return {each: _asked_one(state, node_id, each, now_ms) for each in topic_partitions}


def _asked_one(state: EngineState, node_id: int, topic_partition: TopicPartition, now_ms: int) -> Asked:
    progress = state.ranges[topic_partition]
    info = state.view.current.partitions[topic_partition]
    settings = state.settings
    return Asked(
        topic_partition=topic_partition,
        fetch_offset=progress.fetch_offset,
        end_offset=progress.end_offset,
        node=str(state.view.current.nodes[node_id]),
        from_leader=info.leader_id == node_id,
        leader_epoch=info.leader_epoch,
        offset_epoch=progress.offset_epoch,
        is_epoch_of_record=progress.is_epoch_of_record,
        is_validated=progress.is_validated,
        waited_ms=progress.waited_ms(now_ms),
        follower_wait_ms=settings.follower_wait_ms,
        not_yet_count=progress.not_yet_count,
        not_yet_limit=settings.follower_retry_limit,
        isolation_level=settings.isolation_level,
        is_loss_fatal=settings.is_data_loss_fatal,
    )


def _epoch_query(state: EngineState, topic_partition: TopicPartition) -> EpochQuery:
    leader_epoch = state.view.current.partitions[topic_partition].leader_epoch
    return EpochQuery(topic_partition, state.ranges[topic_partition].offset_epoch, leader_epoch)


def _bound_query(state: EngineState, topic_partition: TopicPartition) -> OffsetQuery:
    """Ask for one bound at a time: a request may name a topic-partition only once."""
    is_start = state.ranges[topic_partition].state is PositionState.AWAIT_LOG_START
    leader_epoch = state.view.current.partitions[topic_partition].leader_epoch
    return OffsetQuery(topic_partition, EARLIEST_TIMESTAMP if is_start else LATEST_TIMESTAMP, leader_epoch)


def _plan_local_logs(state: EngineState, node_id: int, now_ms: int) -> Action | None:
    """Return a question about a node's local logs, where the answer can change which replica we choose."""
    settings = state.settings
    if settings.replica_selection is not ReplicaSelection.CLIENT or not state.local_logs.is_wanted:
        return None
    view = state.view.current
    contested = []
    for each in state.ranges:
        info = view.partitions.get(each)
        candidates = candidates_in_rack(info, view, settings.rack) if info else ()
        if len(candidates) > 1 and node_id in candidates:
            contested.append(each)
    return state.local_logs.plan(node_id, contested, now_ms)


def _plan_fetch(state: EngineState, node_id: int, ready: Sequence[TopicPartition], now_ms: int) -> SendFetch:
    # One request is either redirectable or not; the topic-partition that waited longest says which goes first.
    is_leader_only = _is_leader_only(state, ready[0], now_ms)
    together = [each for each in ready if _is_leader_only(state, each, now_ms) is is_leader_only]
    asked = _asked(state, node_id, together, now_ms)
    wanted = tuple(_partition_fetch(state, each) for each in together)
    node = state.nodes.get(node_id) or _UNKNOWN_NODE
    session = _session_for(state, node, is_leader_only=is_leader_only, wanted_count=len(wanted), now_ms=now_ms)
    request = plan_session(session, wanted)
    plan = FetchPlan(
        node_id=node_id,
        rack=""
        if is_leader_only or state.settings.replica_selection is not ReplicaSelection.BROKER
        else state.settings.rack,
        max_wait_ms=_max_wait_ms(state, asked),
        min_bytes=state.settings.fetch_min_bytes,
        max_bytes=state.settings.fetch_max_bytes,
        isolation_level=state.settings.isolation_level,
        **request._asdict(),
    )
    return SendFetch(plan, _max_version(plan, wanted, is_leader_only=is_leader_only), asked, wanted)


_UNKNOWN_NODE: Final = NodeState()


def _session_for(
    state: EngineState, node: NodeState, *, is_leader_only: bool, wanted_count: int, now_ms: int
) -> SessionState:
    """Return the session that a Fetch uses.

    Requests that are leader-only for a while leave the session alone: they speak another version, and soon the
    topic-partition is read in the session again.
    """
    use = state.settings.session_use
    is_passing = is_leader_only and state.settings.replica_selection is not ReplicaSelection.LEADER
    if use is SessionUse.NEVER or is_passing or now_ms < node.session_refused_until_ms:
        return SESSIONLESS
    is_worth_it = node.session.session_id != 0 or (node.read_fetch_count > 0 and wanted_count > 1)
    return node.session if use is SessionUse.ALWAYS or is_worth_it else SESSIONLESS


def _max_version(plan: FetchPlan, wanted: Iterable[PartitionFetch], *, is_leader_only: bool) -> int | None:
    if is_leader_only:
        return LEADER_ONLY_VERSION
    ids = [each.topic_id for each in wanted] + [each.topic_id for each in plan.forgotten]
    return LAST_VERSION_WITH_NAMES if NO_TOPIC_ID in ids else None


def _partition_fetch(state: EngineState, topic_partition: TopicPartition) -> PartitionFetch:
    progress = state.ranges[topic_partition]
    view = state.view.current
    return PartitionFetch(
        topic_partition,
        progress.fetch_offset,
        plan_partition_bytes(
            progress.end_offset - progress.fetch_offset,
            state.bytes_per_offset.get(topic_partition),
            state.settings.partition_max_bytes,
        ),
        view.partitions[topic_partition].leader_epoch,
        view.topic_ids.get(topic_partition.topic, NO_TOPIC_ID),
    )


def _max_wait_ms(state: EngineState, asked: Mapping[TopicPartition, Asked]) -> int:
    """Let no broker hold a request longer than the wait for a follower that is left."""
    left_ms = [max(0, each.follower_wait_ms - each.waited_ms) for each in asked.values() if not each.from_leader]
    return min([state.settings.fetch_max_wait_ms, *left_ms])
