"""Spark's JSON for a position in the stream: written to the checkpoint, compared as text.

Three forms::

    {"$kafka_follower": 1}                                        not resolved yet: where a new query starts
    {"$kafka_follower": 1, "offsets": {"orders": {"0": 7}}, "start": {"orders": {"0": 0}}}
    {"$kafka_follower": 1, "offsets": {"orders": {"0": 9}}}
    {"orders": {"0": 9}}                                          as Spark's own kafka source writes it; read only

Each number is the next offset to read. ``start`` stands in the first end offset of a query: Spark asks for the initial
offset again after a restart while batch 0 is uncommitted, so what "latest" meant then must be written down, and a
Python source has no other place for it. ``$`` can't begin a topic's name, so the forms can't be mistaken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from connector.errors import SourceOffsetError
from connector.model import TopicPartition

__all__ = ["UNRESOLVED", "SourceOffset", "decode_source_offset", "encode_offsets", "encode_source_offset"]

LogOffsets: TypeAlias = dict[TopicPartition, int]

_FORMAT_KEY: Final = "$kafka_follower"
_FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """A position: the next offset of every topic-partition, and where the query started if this is its first end."""

    offsets: LogOffsets
    start: LogOffsets | None = None


UNRESOLVED: Final[dict[str, Any]] = {_FORMAT_KEY: _FORMAT_VERSION}
"""The initial offset of every query, the same each time Spark asks."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return ``{"topic": {"0": n}}``, sorted, so that equal offsets are equal text."""
    by_topic: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        by_topic.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return by_topic


def encode_source_offset(source_offset: SourceOffset) -> dict[str, Any]:
    """Return what Spark writes as JSON."""
    encoded: dict[str, Any] = {_FORMAT_KEY: _FORMAT_VERSION, "offsets": encode_offsets(source_offset.offsets)}
    if source_offset.start is not None:
        encoded["start"] = encode_offsets(source_offset.start)
    return encoded


def decode_source_offset(encoded: Mapping[str, Any]) -> SourceOffset | None:
    """Read any of the forms; None is the position that is not resolved yet.

    Raises
    ------
    SourceOffsetError
        When it was written by a later version, or by something else.
    """
    if _FORMAT_KEY not in encoded:
        return SourceOffset(_decode_offsets(encoded))
    version = encoded[_FORMAT_KEY]
    if version != _FORMAT_VERSION:
        reason = f"the checkpoint holds offsets of format {version!r}, this version reads format {_FORMAT_VERSION}"
        raise SourceOffsetError(f"{reason}; run the version that wrote it, or a later one")
    if "offsets" not in encoded:
        return None
    start = encoded.get("start")
    return SourceOffset(_decode_offsets(encoded["offsets"]), None if start is None else _decode_offsets(start))


def _decode_offsets(by_topic: object) -> LogOffsets:
    offsets: LogOffsets = {}
    if not isinstance(by_topic, Mapping):
        raise _unreadable(by_topic)
    for topic, by_index in by_topic.items():
        if not isinstance(by_index, Mapping):
            raise _unreadable(by_topic)
        for index_text, log_offset in by_index.items():
            if not str(index_text).isdecimal() or not isinstance(log_offset, int) or log_offset < 0:
                raise _unreadable(by_topic)
            offsets[TopicPartition(topic, int(index_text))] = log_offset
    return offsets


def _unreadable(given: object) -> SourceOffsetError:
    return SourceOffsetError(
        f'{given!r} is not a position of this source, expected {{"topic":{{"0":23}}}}: '
        "is this the checkpoint of another source?"
    )
