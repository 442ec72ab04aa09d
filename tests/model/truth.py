"""Values that say what is true of a model cluster's logs: which batches there are, and what is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from connector.model import TopicPartition

__all__ = ["Losses", "Mark", "marks_of"]


class Mark(NamedTuple):
    """What tells one record batch from every other, at whatever offset: the model gives each a number of its own."""

    base_offset: int
    last_offset: int
    uid: int
    leader_epoch: int


@dataclass(slots=True)
class Losses:
    """What a history has truly lost, by topic-partition.

    Attributes
    ----------
    log_start_offsets : dict
        The highest log start that any replica has had.
    truncated : set
        Batches that consumers could read are gone, or others stand in their place.
    replaced_topics : set
        Topics that were deleted, whether or not they came back.
    unreachable : set
        Nobody leads it, and nobody ever will.
    """

    log_start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    truncated: set[TopicPartition] = field(default_factory=set)
    replaced_topics: set[str] = field(default_factory=set)
    unreachable: set[TopicPartition] = field(default_factory=set)

    def is_lossy(self, topic_partition: TopicPartition) -> bool:
        """Tell whether what is read may be another log than was planned."""
        return topic_partition in self.truncated or topic_partition.topic in self.replaced_topics


_HEADER: Final = Struct(">qii7xiq")
"""Base offset, length, leader epoch; then last offset delta and base timestamp (the model's number) of magic 2."""
_LENGTH_END: Final = 12


def marks_of(records: memoryview) -> list[Mark]:
    """Return the complete record batches of an answer."""
    marks: list[Mark] = []
    start, size = 0, len(records)
    while size - start >= _HEADER.size:
        base_offset, length, leader_epoch, last_offset_delta, uid = _HEADER.unpack_from(records, start)
        start += _LENGTH_END + length
        if start > size:
            break
        marks.append(Mark(base_offset, base_offset + last_offset_delta, uid, leader_epoch))
    return marks
