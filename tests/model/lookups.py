"""ListOffsets, OffsetForLeaderEpoch and DescribeLogDirs, as one broker answers them.

Spec: KIP-79, KIP-207 (a new leader's latest offset), KIP-320, KIP-405 (local log start), KIP-113.
Counterpart: ``ReplicaManager.fetchOffset``, ``Partition.fetchOffsetForTimestamp``, ``lastOffsetForLeaderEpoch``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from connector.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    EpochAnswer,
    EpochQuery,
    LogDirSize,
    OffsetAnswer,
    OffsetQuery,
    TopicPartition,
)
from connector.wire import error_codes as codes
from tests.model.broker import Broker
from tests.model.reading import Isolation, end_of
from tests.model.replication import Replica

__all__ = ["describe_log_dir", "end_offset_for_epoch", "list_offset"]

DEBUG_REPLICA_ID: Final = -2
"""Any replica answers it, from its own log, without regard to what is committed."""
_FIRST_VERSIONS: Final = {LATEST_TIMESTAMP: 1, EARLIEST_TIMESTAMP: 1, EARLIEST_LOCAL_TIMESTAMP: 8}
_FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5


def list_offset(
    broker: Broker, query: OffsetQuery, isolation_level: int, replica_id: int, version: int
) -> OffsetAnswer:
    """Answer for one topic-partition. Leaders only, but for the debug replica id (section 6 of the reference)."""
    topic_partition, timestamp = query.topic_partition, query.timestamp
    if timestamp >= 0:
        raise ValueError("Records are not looked up by time here.")
    if version < _FIRST_VERSIONS.get(timestamp, version + 1):
        return OffsetAnswer(topic_partition, codes.UNSUPPORTED_VERSION, -1)
    replica = broker.lookup(topic_partition)
    if isinstance(replica, int):
        return OffsetAnswer(topic_partition, replica, -1)
    is_debug = replica_id == DEBUG_REPLICA_ID
    error_code = replica.check(query.current_leader_epoch, needs_leader=not is_debug)
    if error_code != codes.NONE:
        return OffsetAnswer(topic_partition, error_code, -1)
    isolation = Isolation.LAST_STABLE_OFFSET if isolation_level == READ_COMMITTED else Isolation.HIGH_WATERMARK
    return _offset_at(replica, query, Isolation.LOG_END if is_debug else isolation, version)


def _offset_at(replica: Replica, query: OffsetQuery, isolation: Isolation, version: int) -> OffsetAnswer:
    """Find the offset. What a new leader can't vouch for yet is not told: its high watermark may still be old."""
    log, timestamp, topic_partition = replica.log, query.timestamp, query.topic_partition
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        is_local = timestamp == EARLIEST_LOCAL_TIMESTAMP
        log_offset = log.local_log_start_offset if is_local else log.log_start_offset
        return OffsetAnswer(topic_partition, codes.NONE, log_offset, -1, log.epoch_at(log_offset))
    if replica.epoch_start_offset > log.high_watermark:
        is_told = version >= _FIRST_VERSION_WITH_NOT_AVAILABLE
        return OffsetAnswer(topic_partition, codes.OFFSET_NOT_AVAILABLE if is_told else codes.LEADER_NOT_AVAILABLE, -1)
    return OffsetAnswer(topic_partition, codes.NONE, end_of(log, isolation), -1, replica.image.leader_epoch)


def end_offset_for_epoch(broker: Broker, query: EpochQuery) -> EpochAnswer:
    """Tell where an epoch ends (section 5.1 of the reference). Leaders only; not limited by the high watermark."""
    replica = broker.lookup(query.topic_partition)
    if isinstance(replica, int):
        return EpochAnswer(query.topic_partition, replica, -1, -1)
    error_code = replica.check(query.current_leader_epoch, needs_leader=True)
    if error_code != codes.NONE:
        return EpochAnswer(query.topic_partition, error_code, -1, -1)
    return EpochAnswer(query.topic_partition, codes.NONE, *replica.log.end_of_epoch(query.leader_epoch))


def describe_log_dir(broker: Broker, topic_partitions: Iterable[TopicPartition]) -> tuple[LogDirSize, ...]:
    """Tell how many bytes the broker has on its own disks; what it has no replica of is left out."""
    return tuple(
        LogDirSize(each, broker.replicas[each].log.local_bytes) for each in topic_partitions if each in broker.replicas
    )
