"""Values that several rooms share: frozen, hashable where it makes sense, and without behaviour of their own.

A room that needs a value only for itself defines it there. Nothing here imports anything of the connector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

__all__ = [
    "EARLIEST_LOCAL_TIMESTAMP",
    "EARLIEST_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "NO_EPOCH",
    "NO_NODE",
    "NO_TOPIC_ID",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "ClusterView",
    "EpochAnswer",
    "EpochQuery",
    "FetchPlan",
    "FetchReply",
    "ForgottenPartition",
    "LogDirSize",
    "Node",
    "OffsetAnswer",
    "OffsetQuery",
    "OffsetRange",
    "PartitionFetch",
    "PartitionInfo",
    "PartitionReply",
    "RecordsScan",
    "ReplicaChange",
    "TopicPartition",
]

NO_NODE: Final = -1
"""Kafka's "no such node": no leader, or no preferred read replica."""
NO_EPOCH: Final = -1
"""Kafka's "leader epoch not known"; a broker then checks none (KIP-320)."""
LATEST_TIMESTAMP: Final = -1
"""ListOffsets: the high watermark, or the last stable offset under read_committed."""
EARLIEST_TIMESTAMP: Final = -2
"""ListOffsets: the log start offset."""
EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""ListOffsets (version 8): where the log on the broker's own disks begins; above the log start when it is tiered."""
NO_TOPIC_ID: Final = UUID(int=0)
"""Kafka's "topic id not known" (KIP-516)."""
READ_UNCOMMITTED: Final = 0
"""Isolation level: everything below the high watermark."""
READ_COMMITTED: Final = 1
"""Isolation level: below the last stable offset, without the records of aborted transactions (KIP-98)."""


class ReplicaChange(StrEnum):
    """Why a topic-partition is read from another broker than before."""

    REDIRECT = "redirect"
    """The leader named a preferred read replica (KIP-392)."""
    FOLLOWER_BEHIND = "follower_behind"
    """The follower did not show the end of a range in time; the leader finishes it."""
    FOLLOWER_ERROR = "follower_error"
    """The follower answered an error, or records that lead nowhere."""
    OUT_OF_RANGE = "out_of_range"
    """The follower refused the offset, and the leader is asked whether it exists."""
    LEFT_ISR = "left_isr"
    """The replica fell out of the in-sync replicas."""
    REPLICA_GONE = "replica_gone"
    """The leader named a broker that metadata does not list as a replica that is online."""
    BROKER_DOWN = "broker_down"
    """No connection to the follower, or no answer from it."""


class TopicPartition(NamedTuple):
    """A partition of a topic, by name. Sorts by topic, then partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return Kafka's usual ``topic-partition`` form."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as Metadata names it, on the listener that we use."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        """Return id, address and rack, for messages."""
        rack = f", rack {self.rack}" if self.rack else ""
        return f"{self.node_id} ({self.host}:{self.port}{rack})"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Leader and replicas of one topic-partition, as Metadata tells them."""

    topic_partition: TopicPartition
    error_code: int
    leader_id: int
    leader_epoch: int
    replica_ids: tuple[int, ...]
    isr_ids: tuple[int, ...]
    offline_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One Metadata answer: nodes, topics and partitions at one moment.

    `topic_errors` holds the error code of each asked topic that has one; such a topic has no partitions here.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    topic_errors: dict[str, int] = field(default_factory=dict)
    internal_topics: frozenset[str] = frozenset()
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start_offset, end_offset)`` of one topic-partition: the unit of planned work.

    Attributes
    ----------
    start_epoch : int
        Leader epoch of the record before `start_offset`, or of the leader whose log reached that far when it was
        planned, or `NO_EPOCH`: with it a log that was truncated and written anew is found out (KIP-320).
    topic_id : UUID
        The topic that was planned for, or `NO_TOPIC_ID`: with it a topic of the same name that was created anew is
        found out (KIP-516).
    """

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    start_epoch: int = NO_EPOCH
    topic_id: UUID = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """What one Fetch request asks of one topic-partition (FetchRequest, FetchPartition)."""

    topic_partition: TopicPartition
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    topic_id: UUID = NO_TOPIC_ID


class ForgottenPartition(NamedTuple):
    """A topic-partition that leaves a fetch session, with the id under which it entered."""

    topic_partition: TopicPartition
    topic_id: UUID = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """One Fetch request, before it is encoded. Session fields as KIP-227: (0, -1) is sessionless.

    Attributes
    ----------
    forgotten : tuple of ForgottenPartition
        No longer wanted; told by topic id from version 13 on, by name below.
    replaced : tuple of ForgottenPartition
        Wanted under another topic id than before. Their old ids are told from version 13 on; below it nothing is
        told, because forgetting the name would also remove what replaces it.
    """

    node_id: int
    partitions: tuple[PartitionFetch, ...]
    rack: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: tuple[ForgottenPartition, ...] = ()
    replaced: tuple[ForgottenPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionReply:
    """What a broker answered for one topic-partition (FetchResponse, PartitionData).

    `records` is borrowed from the reply's frame: whoever keeps it keeps the whole frame alive.
    Offsets that the broker did not fill in are -1.
    """

    topic_partition: TopicPartition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    preferred_read_replica: int
    records: memoryview
    current_leader_id: int = NO_NODE
    current_leader_epoch: int = NO_EPOCH
    diverging_epoch: int = NO_EPOCH
    diverging_end_offset: int = -1
    aborted_transactions: tuple[tuple[int, int], ...] = ()
    topic_id: UUID = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class FetchReply:
    """One Fetch answer: the whole request's fields, and each topic-partition's.

    Attributes
    ----------
    nodes : tuple of Node
        Addresses of the current leaders that the topic-partitions name (KIP-951, version 16).
    unknown_topic_ids : tuple of UUID
        Topics in the answer that nobody asked for, so that their names are not known (version 13).
    """

    throttle_ms: int
    error_code: int
    session_id: int
    partitions: tuple[PartitionReply, ...]
    nodes: tuple[Node, ...] = ()
    unknown_topic_ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordsScan:
    """What the headers of fetched record batches tell, without decoding a record.

    Attributes
    ----------
    next_offset : int
        Where the next fetch continues: last complete batch's base offset + last offset delta + 1;
        -1 when there was no complete batch.
    batch_count, record_count : int
        Complete batches and the records their headers announce.
    complete_bytes : int
        Bytes of the complete batches; what follows is a cut tail (KIP-74).
    last_leader_epoch : int
        Partition leader epoch of the last complete batch, or `NO_EPOCH`.
    """

    next_offset: int
    batch_count: int
    record_count: int
    complete_bytes: int
    last_leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """What one ListOffsets request asks of one topic-partition."""

    topic_partition: TopicPartition
    timestamp: int
    current_leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """What a broker answered to an `OffsetQuery`; `log_offset` is -1 when there is none."""

    topic_partition: TopicPartition
    error_code: int
    log_offset: int
    timestamp: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class EpochQuery:
    """What one OffsetForLeaderEpoch request asks of one topic-partition: where does `leader_epoch` end (KIP-320)."""

    topic_partition: TopicPartition
    leader_epoch: int
    current_leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class EpochAnswer:
    """What a leader answered to an `EpochQuery`.

    `leader_epoch` is the largest that the log has and that is not above the one asked for, `end_offset` the offset
    after its last record; both are -1 when the log has none.
    """

    topic_partition: TopicPartition
    error_code: int
    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogDirSize:
    """How many bytes of a topic-partition a broker has on its own disks (DescribeLogDirs)."""

    topic_partition: TopicPartition
    size_bytes: int
