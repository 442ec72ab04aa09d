"""OffsetForLeaderEpoch: where a leader epoch ends in the leader's log, which shows whether the log was truncated.

Notes
-----
Spec: KIP-320, "OffsetForLeaderEpoch". Counterpart: ``OffsetsForLeaderEpochRequest.Builder.forConsumer``,
``OffsetsForLeaderEpochResponse``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connector.model import NO_NODE, EpochAnswer, EpochQuery, TopicPartition
from connector.wire.frames import encode_frame
from connector.wire.messages import decode_entity, request_schema
from connector.wire.versions import Api

__all__ = ["decode_reply", "encode_request"]


def encode_request(queries: Sequence[EpochQuery], *, version: int, correlation_id: int, client_id: str) -> bytes:
    """Encode the request, as a consumer; a topic-partition may be asked about once."""
    schema = request_schema(Api.OFFSET_FOR_LEADER_EPOCH, version)
    by_topic: dict[str, list[Any]] = {}
    for query in queries:
        by_topic.setdefault(query.topic_partition.topic, []).append(
            schema.OffsetForLeaderPartition(
                partition=query.topic_partition.partition,
                current_leader_epoch=query.current_leader_epoch,
                leader_epoch=query.leader_epoch,
            )
        )
    body = schema.OffsetForLeaderEpochRequest(
        # The schema's default, -2, would be a debugging client.
        replica_id=NO_NODE,
        topics=tuple(
            schema.OffsetForLeaderTopic(topic=topic, partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        ),
    )
    return encode_frame(Api.OFFSET_FOR_LEADER_EPOCH, version, correlation_id, client_id, body)


def decode_reply(payload: memoryview, version: int) -> tuple[EpochAnswer, ...]:
    """Decode the answer, one value for each topic-partition in the broker's order.

    An error code that nobody knows yet reads as UNKNOWN_SERVER_ERROR.
    """
    entity = decode_entity(Api.OFFSET_FOR_LEADER_EPOCH, version, payload)
    return tuple(
        EpochAnswer(
            topic_partition=TopicPartition(topic.topic, partition.partition),
            error_code=int(partition.error_code),
            leader_epoch=partition.leader_epoch,
            end_offset=partition.end_offset,
        )
        for topic in entity.topics
        for partition in topic.partitions
    )
