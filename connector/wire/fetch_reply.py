"""Fetch replies, read by hand: records stay where they are, error codes stay numbers, no count is believed.

A reply is one frame, of which records are nearly all; they are handed on as slices. A session may have thousands of
partitions, so each one is read in two or three fixed layouts.

Notes
-----
Spec: FetchResponse.json; KIP-227 (sessions), KIP-320 (diverging epoch), KIP-392 (preferred read replica), KIP-516
(topic ids), KIP-951 (current leader and its address). Counterpart: ``FetchResponse``.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from connector.model import NO_EPOCH, NO_NODE, NO_TOPIC_ID, FetchReply, Node, PartitionReply, TopicPartition
from connector.wire.cursor import Cursor
from connector.wire.versions import Api, require_supported

__all__ = ["decode_reply"]

_FIRST_VERSION_WITH_LOG_START: Final = 5
_FIRST_VERSION_WITH_SESSIONS: Final = 7
_FIRST_VERSION_WITH_PREFERRED_REPLICA: Final = 11
_FIRST_FLEXIBLE_VERSION: Final = 12
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_FIRST_VERSION_WITH_NODE_ENDPOINTS: Final = 16

_THROTTLE: Final = Struct(">i")
_SESSION_HEAD: Final = Struct(">ihi")
_PARTITION_V4: Final = Struct(">ihqq")
_PARTITION_V5: Final = Struct(">ihqqq")
_PREFERRED_REPLICA: Final = Struct(">i")
_ABORTED_TRANSACTION: Final = Struct(">qq")
_DIVERGING_EPOCH: Final = Struct(">iq")
_CURRENT_LEADER: Final = Struct(">ii")
_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1
_TOPIC_ID: Final = Struct(">16s")
_NODE_ID: Final = Struct(">i")
_PORT: Final = Struct(">i")
_NODE_ENDPOINTS_TAG: Final = 0

_MIN_TOPIC_BYTES: Final = 3
_MIN_PARTITION_BYTES: Final = _PARTITION_V4.size
_MIN_NODE_BYTES: Final = _NODE_ID.size + _PORT.size + 3
_NO_NAMES: Final[Mapping[UUID, str]] = MappingProxyType({})


class _PartitionTags(NamedTuple):
    """What the tagged fields of a partition tell (from version 12 on)."""

    current_leader_id: int = NO_NODE
    current_leader_epoch: int = NO_EPOCH
    diverging_epoch: int = NO_EPOCH
    diverging_end_offset: int = -1


_NO_TAGS: Final = _PartitionTags()


def decode_reply(payload: memoryview, version: int, topic_names: Mapping[UUID, str] = _NO_NAMES) -> FetchReply:
    """Decode the answer to a Fetch request of `version` (4 to 16).

    Parameters
    ----------
    payload : memoryview
        The frame from right after the correlation id. Borrowed: every `PartitionReply.records` is a slice of it
        (null records are an empty slice), and keeps all of it alive.
    topic_names : Mapping[UUID, str]
        Names of all topics that the answer may be about, by id; used from version 13 on. Topic-partitions of other
        ids are read and left out, and those ids become `FetchReply.unknown_topic_ids`, each once.

    Returns
    -------
    FetchReply
        Partitions in the broker's order. Below version 7 `error_code` and `session_id` are 0, below 5
        `log_start_offset` is -1, below 11 `preferred_read_replica` is -1, below 13 `topic_id` is `NO_TOPIC_ID`,
        below 16 there are no `nodes`. Null and empty lists of aborted transactions are equal.

    Raises
    ------
    RemoteViolation
        The bytes are not such a reply.
    LocalViolation
        The version is not in `SUPPORTED`.
    """
    require_supported(Api.FETCH, version)
    cursor = Cursor(payload, Api.FETCH, version)
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    if flexible:
        cursor.skip_tagged_fields()
    error_code = session_id = 0
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        throttle_ms, error_code, session_id = cursor.read(_SESSION_HEAD)
    else:
        (throttle_ms,) = cursor.read(_THROTTLE)
    partitions: list[PartitionReply] = []
    unknown_topic_ids: dict[UUID, None] = {}
    for _ in range(cursor.read_count("topics", item_bytes=_MIN_TOPIC_BYTES, compact=flexible)):
        topic, topic_id = _read_topic_name(cursor, version, topic_names)
        of_topic = _read_partitions(cursor, version, topic or "", topic_id)
        if topic is None:
            unknown_topic_ids[topic_id] = None
        else:
            partitions += of_topic
    nodes: tuple[Node, ...] = ()
    if version >= _FIRST_VERSION_WITH_NODE_ENDPOINTS:
        nodes = _read_node_endpoints(cursor)
    elif flexible:
        cursor.skip_tagged_fields()
    return FetchReply(throttle_ms, error_code, session_id, tuple(partitions), nodes, tuple(unknown_topic_ids))


def _read_topic_name(cursor: Cursor, version: int, topic_names: Mapping[UUID, str]) -> tuple[str | None, UUID]:
    """Read a topic's name or id, and return both; the name of an unknown id is None."""
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return cursor.read_text("topic", compact=version >= _FIRST_FLEXIBLE_VERSION), NO_TOPIC_ID
    topic_id = UUID(bytes=cursor.read(_TOPIC_ID)[0])
    return topic_names.get(topic_id), topic_id


def _read_partitions(cursor: Cursor, version: int, topic: str, topic_id: UUID) -> list[PartitionReply]:
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    count = cursor.read_count("partitions", item_bytes=_MIN_PARTITION_BYTES, compact=flexible)
    partitions = [_read_partition(cursor, version, topic, topic_id) for _ in range(count)]
    if flexible:
        cursor.skip_tagged_fields()
    return partitions


def _read_partition(cursor: Cursor, version: int, topic: str, topic_id: UUID) -> PartitionReply:
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    log_start_offset = -1
    if version >= _FIRST_VERSION_WITH_LOG_START:
        index, error_code, high_watermark, last_stable_offset, log_start_offset = cursor.read(_PARTITION_V5)
    else:
        index, error_code, high_watermark, last_stable_offset = cursor.read(_PARTITION_V4)
    aborted_transactions = _read_aborted_transactions(cursor, flexible=flexible)
    preferred_read_replica = NO_NODE
    if version >= _FIRST_VERSION_WITH_PREFERRED_REPLICA:
        (preferred_read_replica,) = cursor.read(_PREFERRED_REPLICA)
    records = cursor.read_bytes("records", compact=flexible, nullable=True)
    tags = _read_partition_tags(cursor) if flexible else _NO_TAGS
    return PartitionReply(
        topic_partition=TopicPartition(topic, index),
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        preferred_read_replica=preferred_read_replica,
        records=records,
        current_leader_id=tags.current_leader_id,
        current_leader_epoch=tags.current_leader_epoch,
        diverging_epoch=tags.diverging_epoch,
        diverging_end_offset=tags.diverging_end_offset,
        aborted_transactions=aborted_transactions,
        topic_id=topic_id,
    )


def _read_aborted_transactions(cursor: Cursor, *, flexible: bool) -> tuple[tuple[int, int], ...]:
    """Read pairs of producer id and first offset; each may carry tagged fields in a flexible version."""
    count = cursor.read_count(
        "aborted transactions", item_bytes=_ABORTED_TRANSACTION.size, compact=flexible, nullable=True
    )
    if count <= 0:
        return ()
    transactions = []
    for _ in range(count):
        producer_id, first_offset = cursor.read(_ABORTED_TRANSACTION)
        transactions.append((producer_id, first_offset))
        if flexible:
            cursor.skip_tagged_fields()
    return tuple(transactions)


def _read_partition_tags(cursor: Cursor) -> _PartitionTags:
    """Read diverging epoch and current leader; the snapshot id (2) and unknown fields are stepped over."""
    count = cursor.read_unsigned_varint()
    if not count:
        return _NO_TAGS
    tags = _NO_TAGS
    for _ in range(count):
        tag, field_end = cursor.read_tagged_field_start()
        if tag == _DIVERGING_EPOCH_TAG:
            diverging_epoch, diverging_end_offset = _read_tagged(cursor, _DIVERGING_EPOCH, field_end)
            tags = tags._replace(diverging_epoch=diverging_epoch, diverging_end_offset=diverging_end_offset)
        elif tag == _CURRENT_LEADER_TAG:
            leader_id, leader_epoch = _read_tagged(cursor, _CURRENT_LEADER, field_end)
            tags = tags._replace(current_leader_id=leader_id, current_leader_epoch=leader_epoch)
        cursor.position = field_end
    return tags


def _read_tagged(cursor: Cursor, layout: Struct, field_end: int) -> tuple[int, int]:
    if cursor.position + layout.size > field_end:
        raise cursor.violation(
            f"a tagged field of {field_end - cursor.position} bytes should have {layout.size} or more"
        )
    first, second = cursor.read(layout)
    return first, second


def _read_node_endpoints(cursor: Cursor) -> tuple[Node, ...]:
    """Read the tagged fields at the reply's end: where the current leaders are; unknown fields are stepped over."""
    nodes: list[Node] = []
    for _ in range(cursor.read_unsigned_varint()):
        tag, field_end = cursor.read_tagged_field_start()
        if tag == _NODE_ENDPOINTS_TAG:
            count = cursor.read_count("node endpoints", item_bytes=_MIN_NODE_BYTES, compact=True)
            nodes = [_read_node(cursor) for _ in range(count)]
            cursor.check_tagged_field_end(tag, field_end)
        cursor.position = field_end
    return tuple(nodes)


def _read_node(cursor: Cursor) -> Node:
    (node_id,) = cursor.read(_NODE_ID)
    host = cursor.read_text("host", compact=True)
    (port,) = cursor.read(_PORT)
    rack = cursor.read_compact_nullable_text("rack")
    cursor.skip_tagged_fields()
    return Node(node_id, host, port, rack)
