"""DescribeLogDirs: how many bytes of a topic-partition a broker has on its own disks.

What a broker refuses to tell or does not have is left out of the values. An error means no more than a size that stays
unknown: a principal without rights on the cluster (CLUSTER_AUTHORIZATION_FAILED) may read its topics all the same.

Notes
-----
Spec: KIP-113; KIP-784 (one error code for the whole answer). Counterpart: ``DescribeLogDirsRequest``,
``DescribeLogDirsResponse``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from connector.model import LogDirSize, TopicPartition
from connector.wire.error_codes import NONE
from connector.wire.frames import encode_frame
from connector.wire.messages import decode_entity, request_schema
from connector.wire.versions import Api

__all__ = ["decode_reply", "encode_request"]

_FIRST_VERSION_WITH_ERROR_CODE: Final = 3


def encode_request(
    topic_partitions: Sequence[TopicPartition], *, version: int, correlation_id: int, client_id: str
) -> bytes:
    """Encode the request; without topic-partitions it asks about none."""
    schema = request_schema(Api.DESCRIBE_LOG_DIRS, version)
    by_topic: dict[str, list[int]] = {}
    for topic_partition in topic_partitions:
        by_topic.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    body = schema.DescribeLogDirsRequest(
        topics=tuple(
            schema.DescribableLogDirTopic(topic=topic, partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        )
    )
    return encode_frame(Api.DESCRIBE_LOG_DIRS, version, correlation_id, client_id, body)


def decode_reply(payload: memoryview, version: int) -> tuple[LogDirSize, ...]:
    """Decode the answer: one value for each topic-partition whose size the broker tells.

    Sizes are summed up over log dirs. The future replica of a topic-partition that moves to another log dir is a copy
    and not counted. Log dirs with an error are left out, and so is everything when the whole answer has one; below
    version 3 such an answer has no log dirs.
    """
    entity = decode_entity(Api.DESCRIBE_LOG_DIRS, version, payload)
    if version >= _FIRST_VERSION_WITH_ERROR_CODE and entity.error_code != NONE:
        return ()
    sizes: dict[TopicPartition, int] = {}
    for log_dir in entity.results:
        if log_dir.error_code != NONE:
            continue
        for topic in log_dir.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    topic_partition = TopicPartition(topic.name, partition.partition_index)
                    sizes[topic_partition] = sizes.get(topic_partition, 0) + partition.partition_size
    return tuple(LogDirSize(topic_partition, size_bytes) for topic_partition, size_bytes in sizes.items())
