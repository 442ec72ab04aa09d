"""Fetch requests: one `FetchPlan` as bytes.

Notes
-----
Spec: KIP-227 (sessions), KIP-320 (current leader epoch), KIP-392 (rack), KIP-516 (topic ids).
Counterpart: ``FetchRequest.Builder``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import groupby
from types import ModuleType
from typing import Any, Final
from uuid import UUID

from connector.errors import LocalViolation
from connector.model import NO_TOPIC_ID, FetchPlan, ForgottenPartition, PartitionFetch, TopicPartition
from connector.wire.frames import encode_frame
from connector.wire.messages import request_schema
from connector.wire.versions import Api

__all__ = ["encode_request"]

_FIRST_VERSION_WITH_SESSIONS: Final = 7
_FIRST_VERSION_WITH_EPOCHS: Final = 9
_FIRST_VERSION_WITH_RACK: Final = 11
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13


def encode_request(plan: FetchPlan, *, version: int, correlation_id: int, client_id: str) -> bytes:
    """Encode a plan, its partitions in their order: a broker fills the early ones first.

    What `version` has no field for is left out: the rack below 11, the current leader epoch below 9, and below 7 the
    session of a full request; session id 0 in the answer then says that there is none. The last fetched epoch (12)
    is never told: a follower that only lags would report its own end as a truncation (KIP-320). Nor are the cluster
    id (12) and the replica state (15), which are for brokers.

    Raises
    ------
    LocalViolation
        The plan continues a session, which versions below 7 don't have; or a topic id is not known, by which
        versions from 13 on name topics; or a value does not fit into its field.
    """
    schema = request_schema(Api.FETCH, version)
    values: dict[str, Any] = {}
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        values["session_id"] = plan.session_id
        values["session_epoch"] = plan.session_epoch
        values["forgotten_topics_data"] = _forgotten_topics(schema, plan, version)
    elif plan.session_epoch > 0 or plan.forgotten:
        raise LocalViolation(f"FETCH v{version} has no sessions, but the plan continues session {plan.session_id}")
    if version >= _FIRST_VERSION_WITH_RACK:
        values["rack_id"] = plan.rack
    body = schema.FetchRequest(
        max_wait=timedelta(milliseconds=plan.max_wait_ms),
        min_bytes=plan.min_bytes,
        max_bytes=plan.max_bytes,
        isolation_level=plan.isolation_level,
        topics=_topics(schema, plan.partitions, version),
        **values,
    )
    return encode_frame(Api.FETCH, version, correlation_id, client_id, body)


def _topics(schema: ModuleType, partitions: Iterable[PartitionFetch], version: int) -> tuple[Any, ...]:
    """Group neighbours of one topic; a topic may appear again later, so that the order of partitions stays."""
    has_epoch = version >= _FIRST_VERSION_WITH_EPOCHS
    return tuple(
        schema.FetchTopic(
            **{field: topic},
            partitions=tuple(
                schema.FetchPartition(
                    partition=wanted.topic_partition.partition,
                    fetch_offset=wanted.fetch_offset,
                    partition_max_bytes=wanted.partition_max_bytes,
                    **({"current_leader_epoch": wanted.current_leader_epoch} if has_epoch else {}),
                )
                for wanted in neighbours
            ),
        )
        for (field, topic), neighbours in groupby(
            partitions, key=lambda wanted: _topic_field(wanted.topic_partition, wanted.topic_id, version)
        )
    )


def _forgotten_topics(schema: ModuleType, plan: FetchPlan, version: int) -> tuple[Any, ...]:
    """Group what leaves the session, in its order; `FetchPlan` says why old ids are told from version 13 on only."""
    gone: tuple[ForgottenPartition, ...] = plan.forgotten
    if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        gone += plan.replaced
    return tuple(
        schema.ForgottenTopic(**{field: topic}, partitions=tuple(each.topic_partition.partition for each in neighbours))
        for (field, topic), neighbours in groupby(
            gone, key=lambda each: _topic_field(each.topic_partition, each.topic_id, version)
        )
    )


def _topic_field(topic_partition: TopicPartition, topic_id: UUID, version: int) -> tuple[str, str | UUID]:
    """Return the field that names a topic in `version`, and its value."""
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return "topic", topic_partition.topic
    if topic_id == NO_TOPIC_ID:
        raise LocalViolation(f"FETCH v{version} names topics by id, but the topic id of {topic_partition} is not known")
    return "topic_id", topic_id
