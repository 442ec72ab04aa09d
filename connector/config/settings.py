"""The frozen configuration that every room below the options works with.

It pickles (it travels to executors), compares by value (it keys the pool of fetchers), and holds no text that
still has to be parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from connector.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

__all__ = [
    "Assign",
    "ClientConfig",
    "ConnectorConfig",
    "OffsetBound",
    "PartitionOffsets",
    "ReplicaSelection",
    "SessionUse",
    "Subscribe",
    "Subscription",
    "WholeLog",
]


class ReplicaSelection(Enum):
    """Who decides which replica is read."""

    BROKER = "broker"
    """The leader names it (KIP-392)."""
    CLIENT = "client"
    """We take an in-sync replica in our rack from metadata; needs no selector on the brokers."""
    LEADER = "leader"
    """Nobody: the leader is read."""


class SessionUse(Enum):
    """When fetch sessions (KIP-227) are used."""

    AUTO = "auto"
    """From the second request of a read to a node on, when it is about several topic-partitions."""
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Read all partitions of these topics, new ones included."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Read exactly these topic-partitions, as far as they exist."""

    topic_partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to ask Metadata for."""
        return tuple(sorted({each.topic for each in self.topic_partitions}))


Subscription: TypeAlias = Subscribe | Assign


class WholeLog(Enum):
    """One bound for all topic-partitions; the values are ListOffsets timestamps."""

    EARLIEST = EARLIEST_TIMESTAMP
    LATEST = LATEST_TIMESTAMP


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """A bound per topic-partition: an offset, or -1 (latest), or -2 (earliest)."""

    offsets: tuple[tuple[TopicPartition, int], ...]


OffsetBound: TypeAlias = WholeLog | PartitionOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What a connection to the cluster needs; equal configurations share connections."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str
    rack: str | None
    client_rack: str | None
    replica_selection: ReplicaSelection
    local_log_ms: int
    local_log_bytes: int
    session_use: SessionUse
    isolation_level: int
    is_data_loss_fatal: bool
    follower_wait_ms: int
    progress_timeout_ms: int
    fetch_max_bytes: int
    partition_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    request_timeout_ms: int
    connect_timeout_ms: int
    receive_buffer_bytes: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """Everything the options say. `starting_offsets` and `ending_offsets` are None when not given."""

    client: ClientConfig
    subscription: Subscription
    starting_offsets: OffsetBound | None
    ending_offsets: OffsetBound | None
    max_offsets_per_trigger: int | None
    include_headers: bool
    warnings: tuple[str, ...]
