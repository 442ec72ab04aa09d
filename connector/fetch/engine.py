"""The state of the ranges being read: takes events, returns actions; does no I/O and reads no clock.

`plan` says what should be sent at this moment and changes nothing; the caller sends it and reports with `on_sent`.
Each answer or failure comes back as an event. One Fetch is under way per node, and one request per topic-partition.

A range ends by position: an answer moves it to the offset after its last complete record batch, whether or not that
batch held a record for us (control batches, compaction holes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, assert_never

from connector.fetch.actions import (
    Action,
    Decision,
    Delivery,
    EngineSettings,
    FetchEvents,
    SendFetch,
    SendListOffsets,
    SendMetadata,
)
from connector.fetch.outcome import (
    AskAgain,
    Deliver,
    Fail,
    LookUpOffsets,
    Outcome,
    ReadFromReplica,
    RefreshMetadata,
    ReturnToLeader,
    Wait,
    decide,
    decide_out_of_range,
)
from connector.fetch.progress import Backoff, RangeProgress, exponential_pause_ms
from connector.fetch.replica import is_readable_replica
from connector.fetch.requests import plan_actions, plan_asked, plan_wake_at_ms
from connector.fetch.state import EngineState
from connector.model import (
    NO_NODE,
    ClusterView,
    FetchReply,
    OffsetAnswer,
    OffsetRange,
    PartitionReply,
    RecordsScan,
    ReplicaChange,
    TopicPartition,
)
from connector.wire import error_codes

__all__ = ["FetchEngine"]

_EMPTY_SCAN: Final = RecordsScan(next_offset=-1, batch_count=0, record_count=0, complete_bytes=0)
_WAIT_BACKOFF: Final = Backoff(first_ms=20, longest_ms=200)
"""Pause after an answer without progress: a broker answers at once when the wanted offset is above what it shows."""


class FetchEngine:
    """Reads ranges, one `read` at a time; what it learned of replicas and leaders stays for the next one.

    Parameters
    ----------
    settings : EngineSettings
        Fixed for the engine's life.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._state = EngineState(settings)
        self._node_failures: dict[int, int] = {}

    def on_read_started(self, ranges: Iterable[OffsetRange], shipped_view: ClusterView | None, now_ms: int) -> None:
        """Take the ranges of one read; empty ones are done already.

        `shipped_view` is the planner's view of the cluster, used where the engine has none of its own.
        """
        self.on_read_ended()
        self._state.ranges = {
            each.topic_partition: RangeProgress(each.start_offset, each.end_offset, now_ms)
            for each in ranges
            if each.start_offset < each.end_offset
        }
        if shipped_view is not None:
            self._on_view(self._state.view.on_shipped(shipped_view, self._state.ranges, now_ms))

    def on_resumed(self, paused_ms: int) -> None:
        """Take note that nothing was tried for a while, because the rows so far were not taken."""
        for progress in self._state.ranges.values():
            progress.advanced_ms += paused_ms

    def on_read_ended(self) -> None:
        """Forget the ranges, finished or not, and what is under way for them."""
        self._state.ranges.clear()
        self._state.busy_nodes.clear()
        self._state.view.on_request_abandoned()

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

    def plan(self, now_ms: int) -> tuple[Action, ...]:
        """Return what should be sent at this moment; changes nothing.

        Raises
        ------
        RangeTimedOut
            When a range made no progress for too long.
        """
        return plan_actions(self._state, now_ms)

    def wake_at_ms(self, now_ms: int) -> int:
        """Return the next instant at which `plan` may have something new without any event."""
        return plan_wake_at_ms(self._state, now_ms)

    def on_sent(self, action: Action, now_ms: int) -> None:
        """Commit that an action of `plan` is on its way."""
        match action:
            case SendMetadata():
                self._state.view.on_request_sent(now_ms)
            case SendListOffsets():
                self._state.busy_nodes[action.node_id] = action
                for query in action.queries:
                    self._state.ranges[query.topic_partition].is_asked = True
            case SendFetch():
                self._state.busy_nodes[action.plan.node_id] = action
                for topic_partition, asked in action.asked.items():
                    progress = self._state.ranges[topic_partition]
                    progress.is_asked = True
                    if not asked.from_leader and progress.asked_follower_ms is None:
                        progress.asked_follower_ms = now_ms
            case _:
                assert_never(action)

    def on_metadata(self, view: ClusterView, now_ms: int) -> None:
        """Take a Metadata answer.

        Raises
        ------
        BrokerError
            When a topic may not be described.
        """
        for topic, code in view.topic_errors.items():
            if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
                raise error_codes.not_authorized(topic)
        self._on_view(self._state.view.on_reply(view, now_ms))

    def on_metadata_failed(self, problem: str, now_ms: int) -> None:
        """Take note that no Metadata answer came; it is asked for again after a pause."""
        self._state.view.on_request_failed(problem, now_ms)

    def _on_view(self, changed: Iterable[TopicPartition]) -> None:
        """Forget what was decided under another leader or epoch."""
        for topic_partition in changed:
            self._state.choices.on_leader_changed(topic_partition)

    def on_bounds(self, sent: SendListOffsets, answers: Iterable[OffsetAnswer], now_ms: int) -> None:
        """Take the leader's bounds of logs whose offsets it refused.

        Raises
        ------
        OffsetOutOfRange
            When the wanted offset is outside of them.
        """
        self._on_node_answered(sent.node_id)
        by_partition = {each.topic_partition: each for each in answers}
        for query in sent.queries:
            progress = self._state.ranges[query.topic_partition]
            progress.is_asked = False
            answer = by_partition.get(query.topic_partition)
            if answer is None or answer.error_code != error_codes.NONE:
                said = "nothing" if answer is None else error_codes.error_name(answer.error_code)
                progress.on_pause(self._state.settings.error_backoff, f"ListOffsets answered {said}", now_ms)
                progress.forget_bounds()
                self._state.view.on_refresh_wanted()
            elif progress.log_start_offset is None:
                progress.log_start_offset = answer.log_offset
            else:
                self._on_bounds_known(query.topic_partition, progress, sent.node_id, answer.log_offset, now_ms)

    def _on_bounds_known(
        self, topic_partition: TopicPartition, progress: RangeProgress, node_id: int, log_end_offset: int, now_ms: int
    ) -> None:
        asked = plan_asked(self._state, topic_partition, node_id, now_ms)
        outcome = decide_out_of_range(asked, progress.log_start_offset or 0, log_end_offset)
        progress.is_bounds_wanted = False
        progress.forget_bounds()
        self._on_outcome(topic_partition, progress, outcome, now_ms)

    def on_node_failed(self, node_id: int, problem: str, now_ms: int) -> tuple[Decision, ...]:
        """Take note that a node did not answer what was under way: everything asked of it is asked elsewhere."""
        self._node_failures[node_id] = self._node_failures.get(node_id, 0) + 1
        pause_ms = exponential_pause_ms(self._state.settings.error_backoff, self._node_failures[node_id])
        self._state.node_retry_at_ms[node_id] = now_ms + pause_ms
        self._state.view.on_refresh_wanted()
        sent = self._state.busy_nodes.pop(node_id, None)
        if isinstance(sent, SendListOffsets):
            for query in sent.queries:
                self._state.ranges[query.topic_partition].is_asked = False
        if not isinstance(sent, SendFetch):
            return ()
        decisions: list[Decision] = []
        for topic_partition, asked in sent.asked.items():
            progress = self._state.ranges[topic_partition]
            progress.is_asked = False
            outcome: Outcome = RefreshMetadata(problem)
            if not asked.from_leader:
                outcome = ReturnToLeader(ReplicaChange.BROKER_DOWN, problem, refresh_metadata=True)
            change = self._on_outcome(topic_partition, progress, outcome, now_ms)
            decisions.append(Decision(topic_partition, node_id, outcome, change))
        return tuple(decisions)

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
        node_id = sent.plan.node_id
        self._on_node_answered(node_id)
        if reply.throttle_ms > 0:
            self._state.node_retry_at_ms[node_id] = now_ms + reply.throttle_ms
        by_partition = {each.topic_partition: each for each in reply.partitions}
        has_records = any(len(each.records) > 0 for each in reply.partitions)
        deliveries: list[Delivery] = []
        decisions: list[Decision] = []
        for topic_partition, asked_then in sent.asked.items():
            progress = self._state.ranges[topic_partition]
            progress.is_asked = False
            answer = by_partition.get(topic_partition) or _unanswered(topic_partition, reply.error_code)
            scan = scans.get(topic_partition, _EMPTY_SCAN)
            asked = replace(asked_then, waited_ms=progress.waited_ms(now_ms), is_budget_spent=has_records)
            outcome = decide(answer, scan, asked)
            if isinstance(outcome, Deliver):
                self._learn_size(topic_partition, scan, asked.fetch_offset)
                end_offset = min(outcome.next_offset, progress.end_offset)
                deliveries.append(Delivery(topic_partition, answer.records, asked.fetch_offset, end_offset))
            change = self._on_outcome(topic_partition, progress, outcome, now_ms)
            decisions.append(Decision(topic_partition, node_id, outcome, change))
        return FetchEvents(tuple(deliveries), tuple(decisions))

    def _on_node_answered(self, node_id: int) -> None:
        self._state.busy_nodes.pop(node_id, None)
        self._node_failures.pop(node_id, None)
        self._state.node_retry_at_ms.pop(node_id, None)

    def _learn_size(self, topic_partition: TopicPartition, scan: RecordsScan, fetch_offset: int) -> None:
        self._state.bytes_per_offset[topic_partition] = scan.complete_bytes / (scan.next_offset - fetch_offset)

    def _on_outcome(
        self, topic_partition: TopicPartition, progress: RangeProgress, outcome: Outcome, now_ms: int
    ) -> ReplicaChange | None:
        """Commit an outcome; return why another node will be read from here on, if one will."""
        match outcome:
            case Deliver():
                self._on_delivered(topic_partition, progress, outcome, now_ms)
                return self._on_redirect(topic_partition, progress, outcome.preferred_read_replica, now_ms)
            case ReadFromReplica():
                return self._on_redirect(topic_partition, progress, outcome.node_id, now_ms)
            case ReturnToLeader():
                return self._on_return_to_leader(topic_partition, progress, outcome, now_ms)
            case LookUpOffsets():
                progress.is_bounds_wanted = True
                progress.last_problem = "OFFSET_OUT_OF_RANGE from the leader"
            case Wait():
                progress.on_pause(_WAIT_BACKOFF, outcome.problem, now_ms)
            case AskAgain():
                pass  # it keeps its place in the order, while those that were served go to the end
            case RefreshMetadata():
                progress.on_pause(self._state.settings.error_backoff, outcome.problem, now_ms)
                self._state.view.on_refresh_wanted()
            case Fail():
                raise outcome.error
            case _:
                assert_never(outcome)
        return None

    def _on_delivered(
        self, topic_partition: TopicPartition, progress: RangeProgress, outcome: Deliver, now_ms: int
    ) -> None:
        progress.on_advanced(outcome.next_offset, now_ms)
        del self._state.ranges[topic_partition]
        if progress.fetch_offset < progress.end_offset:
            # To the end of the order: brokers fill an answer in request order, so none starves (KIP-74).
            self._state.ranges[topic_partition] = progress

    def _on_redirect(
        self, topic_partition: TopicPartition, progress: RangeProgress, node_id: int, now_ms: int
    ) -> ReplicaChange | None:
        if node_id == NO_NODE:
            return None
        info = self._state.view.current.partitions[topic_partition]
        if not is_readable_replica(info, node_id, self._state.view.current.nodes):
            problem = f"the leader names broker {node_id}, which metadata does not list as a replica that is online"
            gone = ReturnToLeader(ReplicaChange.REPLICA_GONE, problem, refresh_metadata=True)
            return self._on_return_to_leader(topic_partition, progress, gone, now_ms)
        is_new = self._state.choices.on_redirect(topic_partition, node_id, now_ms)
        return ReplicaChange.REDIRECT if is_new else None

    def _on_return_to_leader(
        self, topic_partition: TopicPartition, progress: RangeProgress, outcome: ReturnToLeader, now_ms: int
    ) -> ReplicaChange:
        progress.last_problem = outcome.problem
        progress.asked_follower_ms = None
        if outcome.reason is ReplicaChange.FOLLOWER_BEHIND:
            # The replica is sound, only late: the next range may read it again.
            progress.is_finishing_at_leader = True
        else:
            self._state.choices.on_returned_to_leader(topic_partition, now_ms + self._state.settings.leader_only_ms)
        if outcome.refresh_metadata:
            self._state.view.on_refresh_wanted()
        return outcome.reason


def _unanswered(topic_partition: TopicPartition, error_code: int) -> PartitionReply:
    """Stand in for a topic-partition that the answer leaves out: the whole request's error is its error."""
    return PartitionReply(
        topic_partition,
        error_code if error_code != error_codes.NONE else error_codes.UNKNOWN_SERVER_ERROR,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        preferred_read_replica=NO_NODE,
        records=memoryview(b""),
    )
