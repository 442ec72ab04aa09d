"""Asks the model in as few words as a test needs: no lag of news, one topic ``t``, answers as values."""

from __future__ import annotations

import random
from struct import unpack_from
from typing import Any

from connector.model import (
    NO_EPOCH,
    READ_UNCOMMITTED,
    EpochAnswer,
    EpochQuery,
    FetchPlan,
    FetchReply,
    ForgottenPartition,
    OffsetAnswer,
    OffsetQuery,
    PartitionFetch,
    PartitionReply,
    TopicPartition,
)
from connector.records.layout import walk_record_batches
from tests.model.cluster import ModelCluster
from tests.model.settings import ModelSettings

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))
HUGE = 1 << 30


class Driver:
    """A cluster of three brokers, in az-a, az-b and az-c, with topic ``t`` led by broker 1."""

    def __init__(self, *, partition_count: int = 1, topic: dict[str, Any] | None = None, **settings: Any) -> None:
        given = {"metadata_lag_ms": (0, 0), "replica_round_ms": (1, 1)} | settings
        self.cluster = ModelCluster(ModelSettings(**given), random.Random(7))
        self.cluster.advance(1_000)
        self.topic_id = self.cluster.create_topic("t", partition_count, [(1, 2, 3)], **(topic or {}))
        self.pass_ms(2_000)

    def pass_ms(self, duration_ms: int) -> None:
        self.cluster.advance(self.cluster.now_ms + duration_ms)

    def produce(self, *record_counts: int, tp: TopicPartition = T0, settle: bool = True, **given: Any) -> None:
        """Write one batch per count; `settle` lets every replica and high watermark follow."""
        for each in record_counts:
            self.cluster.produce(tp, each, **given)
        if settle:
            self.pass_ms(1_200)

    def ask(self, *fetch_offsets: int, epoch: int = NO_EPOCH, max_bytes: int = HUGE) -> tuple[PartitionFetch, ...]:
        """Ask for partition i at the i-th offset."""
        return tuple(
            PartitionFetch(TopicPartition("t", index), each, max_bytes, epoch, self.topic_id)
            for index, each in enumerate(fetch_offsets)
        )

    def send(
        self,
        broker_id: int,
        partitions: tuple[PartitionFetch, ...],
        *,
        version: int = 16,
        rack: str = "",
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = HUGE,
        isolation: int = READ_UNCOMMITTED,
        session: tuple[int, int] = (0, -1),
        forgotten: tuple[ForgottenPartition, ...] = (),
        replaced: tuple[ForgottenPartition, ...] = (),
    ) -> list[FetchReply]:
        """Send a Fetch; the list fills when it is answered."""
        answers: list[FetchReply] = []
        plan = FetchPlan(
            broker_id, partitions, rack, wait_ms, min_bytes, max_bytes, isolation, *session, forgotten, replaced
        )
        self.cluster.fetch(broker_id, plan, version, self.cluster.now_ms, answers.append)
        return answers

    def fetch(self, broker_id: int, partitions: tuple[PartitionFetch, ...] = (), **given: Any) -> FetchReply:
        """Send a Fetch that is answered at once."""
        (reply,) = self.send(broker_id, partitions, **given)
        return reply

    def read(self, broker_id: int, fetch_offset: int, *, epoch: int = NO_EPOCH, **given: Any) -> PartitionReply:
        """Fetch one topic-partition, answered at once."""
        (partition,) = self.fetch(broker_id, self.ask(fetch_offset, epoch=epoch), **given).partitions
        return partition

    def answered_after_ms(self, answers: list[FetchReply], limit_ms: int = 60_000) -> int:
        """Let time pass until a Fetch is answered; return how long that took."""
        start_ms = self.cluster.now_ms
        while not answers:
            next_ms = self.cluster.next_event_ms(self.cluster.now_ms)
            assert next_ms is not None
            assert next_ms <= start_ms + limit_ms
            self.cluster.advance(next_ms)
        return self.cluster.now_ms - start_ms

    def offset(
        self,
        broker_id: int,
        timestamp: int,
        *,
        isolation: int = 0,
        replica_id: int = -1,
        version: int = 10,
        epoch: int = -1,
    ) -> OffsetAnswer:
        query = OffsetQuery(T0, timestamp, epoch)
        (answer,) = self.cluster.list_offsets(broker_id, [query], isolation, replica_id, version, self.cluster.now_ms)
        return answer

    def epoch_end(self, broker_id: int, leader_epoch: int, current_leader_epoch: int = -1) -> EpochAnswer:
        query = EpochQuery(T0, leader_epoch, current_leader_epoch)
        (answer,) = self.cluster.offset_for_leader_epoch(broker_id, [query], self.cluster.now_ms)
        return answer


def spans(records: memoryview) -> list[tuple[int, int]]:
    """Return first and last offset of each complete batch, by the connector's own walk."""
    firsts = [(unpack_from(">q", records, start)[0], start) for start, *_ in walk_record_batches(records, None)]
    return [(first, first + unpack_from(">i", records, start + 23)[0]) for first, start in firsts]


def offsets(partition: PartitionReply) -> tuple[int, int, int]:
    return partition.high_watermark, partition.last_stable_offset, partition.log_start_offset


def lagging(**settings: Any) -> Driver:
    """Leader 1: log 0..50, committed up to 40. Follower 2: log 10..40, 30 committed there. Follower 3 is stuck."""
    driver = Driver(replica_lag_time_max_ms=1_000_000, **settings)
    driver.produce(10, 10, 10)
    driver.cluster.expire_local(T0, 2, 10)
    driver.pass_ms(2_000)
    driver.produce(10, settle=False)
    driver.pass_ms(2)
    driver.cluster.pause_replication(T0, 2)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(10, settle=False)
    assert [driver.cluster.high_watermark(T0, each) for each in (1, 2)] == [40, 30]
    assert [driver.cluster.log(T0, each).log_end_offset for each in (1, 2)] == [50, 40]
    return driver


def ends(driver: Driver, *broker_ids: int) -> list[int]:
    return [driver.cluster.log(T0, each).log_end_offset for each in broker_ids]


def high_watermarks(driver: Driver, *broker_ids: int) -> list[int]:
    return [driver.cluster.high_watermark(T0, each) for each in broker_ids]
