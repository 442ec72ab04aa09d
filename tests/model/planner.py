"""Plays what plans reads: writes records, asks leaders where their logs end, and keeps a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from connector.model import (
    LATEST_TIMESTAMP,
    NO_EPOCH,
    NO_NODE,
    NO_TOPIC_ID,
    ClusterView,
    OffsetAnswer,
    OffsetQuery,
    OffsetRange,
    TopicPartition,
)
from connector.wire import error_codes
from tests.model.cluster import ModelCluster
from tests.model.faults import Faults
from tests.model.histories import PlannerView, ReadPlan, Writes

__all__ = ["LIST_OFFSETS_VERSION", "Planner"]

LIST_OFFSETS_VERSION: Final = 9


class _Checkpoint(NamedTuple):
    """Up to where a topic-partition was read, and the leader epoch of the record before that."""

    topic_id: UUID
    end_offset: int
    leader_epoch: int


class Planner:
    """Plans one read after the other, each where the one before it ended.

    It goes by what some broker knows of the cluster, which may be late; its word on where a log ends is the leader's.
    """

    def __init__(self, cluster: ModelCluster, faults: Faults, isolation_level: int) -> None:
        self._cluster, self._faults, self._isolation_level = cluster, faults, isolation_level
        self._node_ids = range(1, len(cluster.settings.racks) + 1)
        self._first_view: ClusterView | None = None
        self._checkpoints: dict[TopicPartition, _Checkpoint] = {}
        self._planned: dict[TopicPartition, _Checkpoint] = {}

    def on_started(self, now_ms: int) -> None:
        """Remember how everything began."""
        self._first_view = self._cluster.metadata(1, (), now_ms)

    def write(self, writes: Iterable[Writes]) -> None:
        """Produce; where nobody leads, nothing comes of it."""
        for each in writes:
            for _ in range(each.batch_count if self._faults.exists(each.topic_partition) else 0):
                self._cluster.produce(each.topic_partition, each.record_count, size_bytes=each.size_bytes)

    def plan(self, read: ReadPlan, now_ms: int) -> tuple[list[OffsetRange], ClusterView | None]:
        """Return ranges and the view to ship. What nobody leads at this moment is left to the next read."""
        running = [each for each in self._node_ids if self._cluster.is_running(each)]
        if not running:
            return [], None
        view = self._cluster.metadata(running[-1], (), now_ms)
        ranges = []
        for each in read.topic_partitions:
            leader_id = view.partitions[each].leader_id if each in view.partitions else NO_NODE
            if leader_id != NO_NODE and self._cluster.is_running(leader_id) and self._faults.exists(each):
                query, level = OffsetQuery(each, LATEST_TIMESTAMP), self._isolation_level
                (answer,) = self._cluster.list_offsets(leader_id, (query,), level, -1, LIST_OFFSETS_VERSION, now_ms)
                # A leader that has not heard of its successor tells of a history that is over.
                is_past = answer.leader_epoch != self._cluster.leader_epoch(each)
                if answer.error_code == error_codes.NONE and not is_past:
                    ranges.append(self._range_up_to(answer, read, view.topic_ids[each.topic]))
        shipped = {
            PlannerView.NONE: None,
            PlannerView.FIRST: self._first_view,
            PlannerView.WITHOUT_IDS: replace(view, topic_ids={}),
            PlannerView.FRESH: view,
        }
        return [each for each in ranges if each.start_offset < each.end_offset], shipped[read.view]

    def _range_up_to(self, answer: OffsetAnswer, read: ReadPlan, topic_id: UUID) -> OffsetRange:
        """Return what follows the checkpoint; a log that is shorter than that, or another topic, is begun anew."""
        topic_partition, log_offset = answer.topic_partition, answer.log_offset
        known = self._checkpoints.get(topic_partition)
        if known is None or known.topic_id != topic_id:
            known = _Checkpoint(topic_id, 0, NO_EPOCH)
        elif known.end_offset > log_offset:
            known = _Checkpoint(topic_id, log_offset, NO_EPOCH)
        self._checkpoints[topic_partition] = known
        end_offset = min(log_offset, known.end_offset + read.offset_limit)
        leader_epoch = self._cluster.log(topic_partition).epoch_at(end_offset - 1)
        self._planned[topic_partition] = _Checkpoint(topic_id, end_offset, leader_epoch)
        return OffsetRange(
            topic_partition,
            known.end_offset,
            end_offset,
            known.leader_epoch if read.knows_epoch else NO_EPOCH,
            topic_id if read.knows_topic_id else NO_TOPIC_ID,
        )

    def on_read_ended(self, ranges: Iterable[OffsetRange], *, is_failed: bool) -> None:
        """Move the checkpoint. After a failure somebody looked, and lets the query begin anew at the end."""
        for each in ranges:
            planned = self._planned[each.topic_partition]
            self._checkpoints[each.topic_partition] = planned._replace(leader_epoch=NO_EPOCH) if is_failed else planned
