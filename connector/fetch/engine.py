"""The ranges being read: takes events, returns actions; does no I/O and reads no clock.

`plan` says what should be sent at this moment and changes nothing; the caller sends it and reports with `on_sent`.
Each answer or failure comes back as an event. One request is under way per node, and one per topic-partition.

A range ends by position: an answer moves it to the offset after its last complete record batch, whether or not that
batch held a record for us (control batches, compaction holes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from connector.fetch.actions import (
    DEBUG_REPLICA_ID,
    Action,
    Decision,
    Delivery,
    EngineSettings,
    FetchEvents,
    SendDescribeLogDirs,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.fetch.answers import on_fetch_reply, on_no_answer, on_node_answered
from connector.fetch.commit import on_outcome
from connector.fetch.decisions import decide_loss
from connector.fetch.outcome import Asked
from connector.fetch.positions import on_epoch_end_offsets, on_log_bounds, on_view_changed
from connector.fetch.progress import RangeProgress
from connector.fetch.requests import is_view_lacking, leader_info, plan_actions, plan_wake_at_ms
from connector.fetch.session import SessionState, plan_close
from connector.fetch.state import EngineState
from connector.fetch.topics import check_authorization, on_topics_seen
from connector.model import (
    NO_NODE,
    ClusterView,
    EpochAnswer,
    FetchPlan,
    FetchReply,
    LogDirSize,
    OffsetAnswer,
    OffsetRange,
    RecordsScan,
    TopicPartition,
)

__all__ = ["FetchEngine"]


class FetchEngine:
    """Reads ranges, one `read` at a time; what it learned of replicas, leaders and sessions stays for the next one.

    Parameters
    ----------
    settings : EngineSettings
        Fixed for the engine's life.
    jitter : callable
        Numbers in [0, 1) that spread pauses, so that clients which failed together do not come back together.
    unix_ms_at_zero : int
        Milliseconds since 1970 when the caller's clock shows 0.
    """

    def __init__(self, settings: EngineSettings, jitter: Callable[[], float], unix_ms_at_zero: int = 0) -> None:
        self._state = EngineState(settings, jitter, unix_ms_at_zero)

    def on_read_started(
        self, ranges: Iterable[OffsetRange], shipped_view: ClusterView | None, now_ms: int
    ) -> FetchEvents:
        """Take the ranges of one read; empty ones are done already.

        Parameters
        ----------
        ranges : iterable of OffsetRange
            Each topic-partition at most once.
        shipped_view : ClusterView or None
            The planner's view of the cluster, used where the engine has none of its own.

        Returns
        -------
        FetchEvents
            Records that an earlier answer brought already.
        """
        self.on_read_ended()
        state = self._state
        state.ranges = {
            each.topic_partition: RangeProgress(
                each.start_offset,
                each.end_offset,
                now_ms,
                offset_epoch=each.start_epoch,
                checked_epoch=each.start_epoch,
                topic_id=each.topic_id,
            )
            for each in ranges
            if each.start_offset < each.end_offset
        }
        changed = () if shipped_view is None else state.view.on_shipped(shipped_view, state.ranges, now_ms)
        decisions = on_view_changed(state, changed, now_ms)
        deliveries = [self._deliver_tail(each, now_ms) for each in tuple(state.ranges)]
        return FetchEvents(tuple(each for each in deliveries if each is not None), decisions)

    def _deliver_tail(self, topic_partition: TopicPartition, now_ms: int) -> Delivery | None:
        """Use what an earlier answer brought of a range, if it is still what the leader has."""
        state = self._state
        progress = state.ranges[topic_partition]
        tail = state.tails.take(topic_partition)
        info = leader_info(state, topic_partition)
        if (
            tail is None
            or info is None
            or (tail.start_offset, tail.leader_epoch, tail.topic_id)
            != (progress.fetch_offset, info.leader_epoch, progress.topic_id)
        ):
            return None
        end_offset = min(tail.next_offset, progress.end_offset)
        if tail.next_offset >= progress.end_offset:
            del state.ranges[topic_partition]
            if tail.next_offset > progress.end_offset:
                state.tails.on_kept(topic_partition, tail.starting_at(progress.end_offset))
        else:
            progress.on_advanced(tail.next_offset, now_ms)
            progress.on_record_epoch(tail.offset_epoch)
            progress.on_checked(tail.leader_epoch)
        return Delivery(topic_partition, tail.records, tail.start_offset, end_offset)

    def on_resumed(self, paused_ms: int) -> None:
        """Take note that nothing was tried for a while, because the rows so far were not taken."""
        for progress in self._state.ranges.values():
            progress.on_resumed(paused_ms)

    def on_read_ended(self) -> None:
        """Forget the ranges, finished or not. What is under way is answered to nobody: it counts as lost.

        Metadata alone is still awaited, also between reads: short reads would never see a younger view.
        """
        state = self._state
        state.ranges.clear()
        state.topic_trouble_since_ms.clear()
        for node in state.nodes.values():
            node.on_abandoned()

    @property
    def is_finished(self) -> bool:
        """Whether every range has been read to its end."""
        return not self._state.ranges

    @property
    def view(self) -> ClusterView:
        """The cluster as last seen."""
        return self._state.view.current

    def preferred_replica(self, topic_partition: TopicPartition, now_ms: int) -> int:
        """Return the replica under lease, or -1: the leader is read (Java's metric ``preferred-read-replica``)."""
        return self._state.choices.preferred(topic_partition, now_ms)

    def session(self, node_id: int) -> SessionState:
        """Return what the next Fetch in a node's session carries."""
        node = self._state.nodes.get(node_id)
        return SessionState() if node is None else node.session

    def plan(self, now_ms: int) -> tuple[Action, ...]:
        """Return what should be sent at this moment; changes nothing.

        Raises
        ------
        RangeTimedOut
            When a range made no progress for too long.
        """
        return plan_actions(self._state, now_ms)

    def plan_close(self) -> tuple[SendFetch, ...]:
        """Return the requests that close all sessions, so that brokers need not keep them until they grow old."""
        closing: list[SendFetch] = []
        for node_id, node in self._state.nodes.items():
            request = plan_close(node.session)
            if request is not None and node_id in self.view.nodes:
                plan = FetchPlan(node_id=node_id, rack="", max_wait_ms=0, min_bytes=0, max_bytes=0, **request._asdict())
                closing.append(SendFetch(plan, None, {}))
        return tuple(closing)

    def wake_at_ms(self, now_ms: int) -> int:
        """Return the next instant at which `plan` may have something new without any event."""
        return plan_wake_at_ms(self._state, now_ms)

    def on_sent(self, action: Action, now_ms: int) -> None:
        """Commit that an action of `plan` is on its way."""
        state = self._state
        match action:
            case SendMetadata():
                state.view.on_request_sent(now_ms)
                return
            case SendFetch():
                node = state.on_node_met(action.plan.node_id)
                node.read_fetch_count += 1
                asked_of_it: Mapping[TopicPartition, Asked] = action.asked
            case SendListOffsets() | SendOffsetForLeaderEpoch():
                node = state.on_node_met(action.node_id)
                asked_of_it = action.asked
            case SendDescribeLogDirs():
                node = state.on_node_met(action.node_id)
                asked_of_it = {}
            case _:
                assert_never(action)
        node.under_way = action
        for topic_partition, asked in asked_of_it.items():
            progress = state.ranges[topic_partition]
            progress.is_asked = True
            if not asked.from_leader and progress.asked_follower_ms is None:
                progress.asked_follower_ms = now_ms

    def on_metadata(self, view: ClusterView, now_ms: int) -> FetchEvents:
        """Take a Metadata answer.

        Raises
        ------
        BrokerError
            When a topic may not be described.
        TopicRecreated, TopicDeleted
            When a topic is not the one that was planned for, and data loss is fatal.
        """
        check_authorization(view)
        state = self._state
        decisions = list(on_view_changed(state, state.view.on_reply(view, now_ms), now_ms))
        for topic_partition, error in on_topics_seen(state, view, now_ms):
            progress = state.ranges[topic_partition]
            asked = Asked(
                topic_partition=topic_partition,
                fetch_offset=progress.fetch_offset,
                end_offset=progress.end_offset,
                node="(any)",
                from_leader=True,
                is_loss_fatal=state.settings.is_data_loss_fatal,
            )
            outcome = decide_loss(error, asked, progress.end_offset, progress.end_offset - progress.fetch_offset)
            on_outcome(state, NO_NODE, asked, outcome, now_ms)
            decisions.append(Decision(topic_partition, NO_NODE, outcome))
        if not is_view_lacking(state):
            state.view.on_satisfied()
        return FetchEvents(decisions=tuple(decisions))

    def on_fetch_reply(
        self, sent: SendFetch, reply: FetchReply, scans: Mapping[TopicPartition, RecordsScan], now_ms: int
    ) -> FetchEvents:
        """Take a Fetch answer, with what the headers of its records tell.

        Returns
        -------
        FetchEvents
            Records to decode, and what was decided. The positions have moved on already.

        Raises
        ------
        ConnectorError
            When no retry can help.
        """
        return on_fetch_reply(self._state, sent, reply, scans, now_ms)

    def on_offsets(self, sent: SendListOffsets, answers: Iterable[OffsetAnswer], now_ms: int) -> FetchEvents:
        """Take a ListOffsets answer: the bounds of logs whose offsets were refused, or a replica's own.

        Raises
        ------
        OffsetsAgedOut, LogTruncated
            When the wanted offset is outside of the leader's log, and data loss is fatal.
        """
        on_node_answered(self._state, sent.node_id)
        if sent.replica_id == DEBUG_REPLICA_ID:
            self._state.local_logs.on_offsets(sent, answers, now_ms)
            return FetchEvents()
        return FetchEvents(decisions=on_log_bounds(self._state, sent, answers, now_ms))

    def on_epoch_end_offsets(
        self, sent: SendOffsetForLeaderEpoch, answers: Iterable[EpochAnswer], now_ms: int
    ) -> FetchEvents:
        """Take the leader's word on where leader epochs end.

        Raises
        ------
        LogTruncated
            When a position is not in the leader's log, and data loss is fatal.
        """
        on_node_answered(self._state, sent.node_id)
        return FetchEvents(decisions=on_epoch_end_offsets(self._state, sent, answers, now_ms))

    def on_log_dirs(self, sent: SendDescribeLogDirs, answers: Iterable[LogDirSize], now_ms: int) -> FetchEvents:
        """Take what a broker has on its disks."""
        on_node_answered(self._state, sent.node_id)
        self._state.local_logs.on_sizes(sent, answers, now_ms)
        return FetchEvents()

    def on_node_failed(self, sent: Action, problem: str, now_ms: int) -> FetchEvents:
        """Take note that a request got no answer: everything asked with it is asked elsewhere, or again."""
        return FetchEvents(decisions=on_no_answer(self._state, sent, problem, now_ms))
