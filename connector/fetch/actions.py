"""What the engine is told, what it wants sent, and what comes of an answer: values between `engine` and `net`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from connector.fetch.outcome import Asked, Outcome
from connector.fetch.progress import Backoff
from connector.model import FetchPlan, OffsetQuery, ReplicaChange, TopicPartition

__all__ = [
    "Action",
    "Decision",
    "Delivery",
    "EngineSettings",
    "FetchEvents",
    "SendFetch",
    "SendListOffsets",
    "SendMetadata",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine needs of the configuration, and our rack as brokers are told it ("" for none)."""

    rack: str
    is_leader_only: bool
    follower_wait_ms: int
    progress_timeout_ms: int
    metadata_max_age_ms: int
    leader_only_ms: int
    error_backoff: Backoff
    fetch_max_bytes: int
    partition_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Send this Fetch; `is_redirectable` False means in the form that a leader never redirects (v10)."""

    plan: FetchPlan
    is_redirectable: bool
    asked: Mapping[TopicPartition, Asked]


@dataclass(frozen=True, slots=True)
class SendListOffsets:
    """Ask a leader for the bounds of these logs."""

    node_id: int
    queries: tuple[OffsetQuery, ...]


@dataclass(frozen=True, slots=True)
class SendMetadata:
    """Ask any broker for these topics."""

    topics: tuple[str, ...]


Action: TypeAlias = SendFetch | SendListOffsets | SendMetadata


@dataclass(frozen=True, slots=True)
class Delivery:
    """Records to decode: those with ``start_offset <= offset < end_offset``. `records` is borrowed from the reply."""

    topic_partition: TopicPartition
    records: memoryview
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one topic-partition, for logs and metrics."""

    topic_partition: TopicPartition
    node_id: int
    outcome: Outcome
    change: ReplicaChange | None = None


@dataclass(frozen=True, slots=True)
class FetchEvents:
    """What one answer led to."""

    deliveries: tuple[Delivery, ...]
    decisions: tuple[Decision, ...]
