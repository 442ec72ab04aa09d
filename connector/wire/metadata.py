"""Metadata: brokers with their racks, topics with their ids, leaders and replicas of every partition.

Notes
-----
Spec: KIP-36 (racks), KIP-320 (leader epochs), KIP-516 (topic ids). Counterpart: ``MetadataResponse``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from connector.errors import RemoteViolation
from connector.model import NO_EPOCH, ClusterView, Node, PartitionInfo, TopicPartition
from connector.wire.error_codes import NONE
from connector.wire.frames import encode_frame
from connector.wire.messages import decode_entity, request_schema
from connector.wire.versions import Api

__all__ = ["decode_reply", "encode_request"]

_FIRST_VERSION_WITH_OFFLINE_REPLICAS: Final = 5
_FIRST_VERSION_WITH_AUTHORIZED_OPERATIONS: Final = 8
_LAST_VERSION_WITH_CLUSTER_OPERATIONS: Final = 10
_FIRST_VERSION_WITH_RELIABLE_EPOCHS: Final = 9
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 10


def encode_request(topics: Sequence[str] | None, *, version: int, correlation_id: int, client_id: str) -> bytes:
    """Encode the request. No topic is ever created by it.

    Parameters
    ----------
    topics : Sequence[str] or None
        The topics to describe; None is all of them, an empty sequence none (brokers alone).
    """
    schema = request_schema(Api.METADATA, version)
    values: dict[str, Any] = {"allow_auto_topic_creation": False}
    if version >= _FIRST_VERSION_WITH_AUTHORIZED_OPERATIONS:
        values["include_topic_authorized_operations"] = False
        if version <= _LAST_VERSION_WITH_CLUSTER_OPERATIONS:
            values["include_cluster_authorized_operations"] = False
    no_id = {"topic_id": None} if version >= _FIRST_VERSION_WITH_TOPIC_IDS else {}
    names = None if topics is None else tuple(schema.MetadataRequestTopic(name=name, **no_id) for name in topics)
    body = schema.MetadataRequest(topics=names, **values)
    return encode_frame(Api.METADATA, version, correlation_id, client_id, body)


def decode_reply(payload: memoryview, version: int) -> ClusterView:
    """Decode the answer.

    Leader epochs come only from version 9 on: below it a broker could tell an old one during a reassignment, so they
    become `NO_EPOCH` (``MetadataResponse.hasReliableLeaderEpochs``). An error code that nobody knows yet reads as
    UNKNOWN_SERVER_ERROR.
    """
    entity = decode_entity(Api.METADATA, version, payload)
    view = ClusterView(
        nodes={
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in entity.brokers
        },
        internal_topics=frozenset(topic.name for topic in entity.topics if topic.is_internal),
        cluster_id=entity.cluster_id,
    )
    for topic in entity.topics:
        if topic.name is None:
            raise RemoteViolation(f"METADATA v{version} answer with a topic without a name; topics are asked by name")
        if topic.error_code != NONE:
            view.topic_errors[topic.name] = int(topic.error_code)
            continue
        if version >= _FIRST_VERSION_WITH_TOPIC_IDS and topic.topic_id is not None:
            view.topic_ids[topic.name] = topic.topic_id
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            view.partitions[topic_partition] = _partition_info(topic_partition, partition, version)
    return view


def _partition_info(topic_partition: TopicPartition, partition: Any, version: int) -> PartitionInfo:  # noqa: ANN401
    has_epoch = version >= _FIRST_VERSION_WITH_RELIABLE_EPOCHS
    return PartitionInfo(
        topic_partition=topic_partition,
        error_code=int(partition.error_code),
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch if has_epoch else NO_EPOCH,
        replica_ids=partition.replica_nodes,
        isr_ids=partition.isr_nodes,
        offline_ids=partition.offline_replicas if version >= _FIRST_VERSION_WITH_OFFLINE_REPLICAS else (),
    )
