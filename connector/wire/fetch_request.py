"""Fetch requests: one `FetchPlan` as bytes.

Notes
-----
Spec: KIP-227 (sessions), KIP-320 (current leader epoch), KIP-392 (rack). Counterpart: ``FetchRequest.Builder``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import groupby
from types import ModuleType
from typing import Any, Final

from connector.errors import LocalViolation
from connector.model import NO_EPOCH, FetchPlan, PartitionFetch, TopicPartition
from connector.wire.frames import encode_frame
from connector.wire.messages import request_schema
from connector.wire.versions import Api

__all__ = ["encode_request"]

_FIRST_VERSION_WITH_SESSIONS: Final = 7
_FIRST_VERSION_WITH_EPOCHS: Final = 9
_FIRST_VERSION_WITH_RACK: Final = 11


def encode_request(plan: FetchPlan, *, version: int, correlation_id: int, client_id: str) -> bytes:
    """Encode a plan, its partitions in their order: a broker fills the early ones first.

    What `version` has no field for is left out: the rack below 11, the current leader epoch below 9. The last
    fetched epoch (12) is never told: a follower that only lags would report its own end as a truncation (KIP-320).

    Raises
    ------
    LocalViolation
        The plan needs a session, which versions below 7 don't have; or a value does not fit into its field.
    """
    schema = request_schema(Api.FETCH, version)
    values: dict[str, Any] = {}
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        values["session_id"] = plan.session_id
        values["session_epoch"] = plan.session_epoch
        values["forgotten_topics_data"] = _forgotten_topics(schema, plan.forgotten)
    elif plan.session_id or plan.session_epoch != NO_EPOCH or plan.forgotten:
        raise LocalViolation(f"FETCH v{version} has no sessions, but the plan continues session {plan.session_id}")
    if version >= _FIRST_VERSION_WITH_RACK:
        values["rack_id"] = plan.rack
    body = schema.FetchRequest(
        max_wait=timedelta(milliseconds=plan.max_wait_ms),
        min_bytes=plan.min_bytes,
        max_bytes=plan.max_bytes,
        isolation_level=plan.isolation_level,
        topics=_topics(schema, plan.partitions, has_epoch=version >= _FIRST_VERSION_WITH_EPOCHS),
        **values,
    )
    return encode_frame(Api.FETCH, version, correlation_id, client_id, body)


def _topics(schema: ModuleType, partitions: Iterable[PartitionFetch], *, has_epoch: bool) -> tuple[Any, ...]:
    """Group neighbours of one topic; a topic may appear again later, so that the order of partitions stays."""
    return tuple(
        schema.FetchTopic(
            topic=topic,
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
        for topic, neighbours in groupby(partitions, key=lambda wanted: wanted.topic_partition.topic)
    )


def _forgotten_topics(schema: ModuleType, forgotten: Iterable[TopicPartition]) -> tuple[Any, ...]:
    return tuple(
        schema.ForgottenTopic(topic=topic, partitions=tuple(gone.partition for gone in neighbours))
        for topic, neighbours in groupby(forgotten, key=lambda gone: gone.topic)
    )
