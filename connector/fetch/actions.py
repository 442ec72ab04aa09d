"""What the engine is told, what it wants sent, and what comes of an answer: values between `engine` and `net`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from connector.config.settings import ReplicaSelection, SessionUse
from connector.fetch.outcome import Asked, Outcome
from connector.fetch.progress import Backoff
from connector.model import (
    NO_NODE,
    READ_UNCOMMITTED,
    EpochQuery,
    FetchPlan,
    OffsetQuery,
    PartitionFetch,
    ReplicaChange,
    TopicPartition,
)

__all__ = [
    "DEBUG_REPLICA_ID",
    "LEADER_ONLY_VERSION",
    "LAST_VERSION_WITH_NAMES",
    "Action",
    "Decision",
    "Delivery",
    "EngineSettings",
    "FetchEvents",
    "SendDescribeLogDirs",
    "SendFetch",
    "SendListOffsets",
    "SendMetadata",
    "SendOffsetForLeaderEpoch",
]

LEADER_ONLY_VERSION: Final = 10
"""The last Fetch version without a rack: leaders serve it themselves, followers refuse it (KIP-392)."""
LAST_VERSION_WITH_NAMES: Final = 12
"""Fetch names topics by id above this version, so it is the limit where an id is not known (KIP-516)."""
DEBUG_REPLICA_ID: Final = -2
"""ListOffsets with this replica id is answered by any replica, from its own log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine needs of the configuration, and our rack as brokers are told it ("" for none).

    Attributes
    ----------
    follower_wait_ms : int
        How long a range waits for a follower that does not show the next offset; 0 asks the leader at once.
    leader_only_ms : int
        How long the leader is read without being asked for a replica, after its redirects led nowhere.
    useless_redirect_limit : int
        So many redirects in a row without progress are followed; the next one begins such a time.
    follower_retry_limit : int
        So often a follower that says "not yet" (OFFSET_NOT_AVAILABLE, UNKNOWN_LEADER_EPOCH) is asked again.
    behind_limit : int
        So many ranges in a row that a follower could not finish in time make us leave it.
    topic_patience_ms : int
        How long brokers may disagree about a topic's id or existence: news of a topic needs time to spread.
    session_refused_ms : int
        How long no session is asked for at a node that refused one.
    local_log_ms, local_log_bytes : int
        A replica whose local log is shorter in both ranks last (client selection); 0 is off.
    is_data_loss_fatal : bool
        Whether lost offsets are an error or a counted skip (Spark: ``failOnDataLoss``).
    tail_bytes : int
        How many record bytes that were fetched beyond the ends of ranges may be kept for the next ones.
    """

    rack: str
    replica_selection: ReplicaSelection = ReplicaSelection.BROKER
    session_use: SessionUse = SessionUse.AUTO
    isolation_level: int = READ_UNCOMMITTED
    is_data_loss_fatal: bool = True
    follower_wait_ms: int
    progress_timeout_ms: int
    metadata_max_age_ms: int
    leader_only_ms: int = 10_000
    useless_redirect_limit: int = 2
    follower_retry_limit: int = 5
    behind_limit: int = 3
    topic_patience_ms: int = 5_000
    session_refused_ms: int = 60_000
    local_log_ms: int = 0
    local_log_bytes: int = 0
    tail_bytes: int = 16 * 1024 * 1024
    error_backoff: Backoff
    fetch_max_bytes: int
    partition_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Send this Fetch, in `max_version` at most where one is given.

    `wanted` is all that the broker is to read, whether the request tells it or the session remembers it.
    """

    plan: FetchPlan
    max_version: int | None
    asked: Mapping[TopicPartition, Asked]
    wanted: tuple[PartitionFetch, ...] = ()


@dataclass(frozen=True, slots=True)
class SendListOffsets:
    """Ask a node for offsets: the leader's word, or with `DEBUG_REPLICA_ID` what that replica itself holds.

    The latest offset is the high watermark, in either isolation: the question is what exists.
    """

    node_id: int
    queries: tuple[OffsetQuery, ...]
    asked: Mapping[TopicPartition, Asked] = field(default_factory=dict)
    replica_id: int = NO_NODE


@dataclass(frozen=True, slots=True)
class SendOffsetForLeaderEpoch:
    """Ask a leader where epochs end (KIP-320)."""

    node_id: int
    queries: tuple[EpochQuery, ...]
    asked: Mapping[TopicPartition, Asked]


@dataclass(frozen=True, slots=True)
class SendDescribeLogDirs:
    """Ask a node how much of these topic-partitions it has on its own disks."""

    node_id: int
    topic_partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SendMetadata:
    """Ask any broker for these topics."""

    topics: tuple[str, ...]


Action: TypeAlias = SendFetch | SendListOffsets | SendOffsetForLeaderEpoch | SendDescribeLogDirs | SendMetadata


@dataclass(frozen=True, slots=True)
class Delivery:
    """Records to decode: those with ``start_offset <= offset < end_offset``. `records` is borrowed from the reply.

    `aborted_transactions` are the pairs of producer id and first offset of the same answer (read_committed).
    """

    topic_partition: TopicPartition
    records: memoryview
    start_offset: int
    end_offset: int
    aborted_transactions: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one topic-partition, for logs and metrics."""

    topic_partition: TopicPartition
    node_id: int
    outcome: Outcome
    change: ReplicaChange | None = None


@dataclass(frozen=True, slots=True)
class FetchEvents:
    """What one answer, failure or start led to."""

    deliveries: tuple[Delivery, ...] = ()
    decisions: tuple[Decision, ...] = ()
    session_reset: str | None = None
    """Why the node's fetch session ended, if it did."""
