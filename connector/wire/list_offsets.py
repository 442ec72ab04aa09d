"""ListOffsets: where a log begins and ends, and which offset a timestamp has.

Notes
-----
Spec: KIP-79, KIP-98 (isolation), KIP-207 (OFFSET_NOT_AVAILABLE), KIP-320 (epochs). Counterpart: ``ListOffsetsRequest``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from connector.model import NO_EPOCH, NO_NODE, OffsetAnswer, OffsetQuery, TopicPartition
from connector.wire.frames import encode_frame
from connector.wire.messages import decode_entity, request_schema
from connector.wire.versions import Api

__all__ = ["decode_reply", "encode_request"]

_FIRST_VERSION_WITH_EPOCHS: Final = 4
_FIRST_VERSION_WITH_TIMEOUT: Final = 10


def encode_request(
    queries: Sequence[OffsetQuery],
    *,
    isolation_level: int,
    replica_id: int = NO_NODE,
    timeout_ms: int = 30_000,
    version: int,
    correlation_id: int,
    client_id: str,
) -> bytes:
    """Encode the request; a topic-partition may be asked about once.

    Timestamps are told as they are. One with a meaning that came later than `version` (-4, the earliest local
    offset, needs 8) is for the broker to refuse: it answers UNSUPPORTED_VERSION for that topic-partition alone.

    Parameters
    ----------
    isolation_level : int
        0 read_uncommitted: the latest offset is the high watermark. 1 read_committed: the last stable offset.
    replica_id : int
        -1 for a consumer, which only the leader answers. -2 makes any replica answer from its own log: then the
        earliest offset is that replica's log start, and the latest its log end, committed or not.
    timeout_ms : int
        How long the broker may look into remote storage (version 10).
    """
    schema = request_schema(Api.LIST_OFFSETS, version)
    by_topic: dict[str, list[Any]] = {}
    for query in queries:
        epoch = {"current_leader_epoch": query.current_leader_epoch} if version >= _FIRST_VERSION_WITH_EPOCHS else {}
        by_topic.setdefault(query.topic_partition.topic, []).append(
            schema.ListOffsetsPartition(
                partition_index=query.topic_partition.partition, timestamp=query.timestamp, **epoch
            )
        )
    timeout = {"timeout": timedelta(milliseconds=timeout_ms)} if version >= _FIRST_VERSION_WITH_TIMEOUT else {}
    body = schema.ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=tuple(
            schema.ListOffsetsTopic(name=topic, partitions=tuple(partitions)) for topic, partitions in by_topic.items()
        ),
        **timeout,
    )
    return encode_frame(Api.LIST_OFFSETS, version, correlation_id, client_id, body)


def decode_reply(payload: memoryview, version: int) -> tuple[OffsetAnswer, ...]:
    """Decode the answer, one value for each topic-partition in the broker's order.

    An error code that nobody knows yet reads as UNKNOWN_SERVER_ERROR.
    """
    entity = decode_entity(Api.LIST_OFFSETS, version, payload)
    has_epoch = version >= _FIRST_VERSION_WITH_EPOCHS
    return tuple(
        OffsetAnswer(
            topic_partition=TopicPartition(topic.name, partition.partition_index),
            error_code=int(partition.error_code),
            log_offset=partition.offset,
            timestamp=partition.timestamp,
            leader_epoch=partition.leader_epoch if has_epoch else NO_EPOCH,
        )
        for topic in entity.topics
        for partition in topic.partitions
    )
