"""Records that were fetched beyond the end of a range, kept for the next one.

A broker sends whole record batches and an answer holds more than was wanted; consecutive small ranges of a
topic-partition would fetch the same bytes again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from connector.model import TopicPartition

__all__ = ["Tail", "Tails"]


@dataclass(frozen=True, slots=True)
class Tail:
    """What follows a range that was read: records from `start_offset` on, up to `next_offset`.

    Attributes
    ----------
    records : memoryview
        The answer's records of the topic-partition; owned, so that nothing else of the answer stays in memory.
    offset_epoch : int
        Leader epoch of the last of them.
    leader_epoch : int
        The leader epoch under which they were fetched; under another one they may be history.
    """

    start_offset: int
    next_offset: int
    records: memoryview
    offset_epoch: int
    leader_epoch: int
    topic_id: UUID

    def starting_at(self, start_offset: int) -> Tail:
        """Return what is left when records before `start_offset` have been read."""
        return replace(self, start_offset=start_offset)


class Tails:
    """Tails by topic-partition, the oldest given up first.

    Parameters
    ----------
    limit_bytes : int
        How many record bytes are kept in all.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._kept_bytes = 0
        self._tails: dict[TopicPartition, Tail] = {}

    def on_kept(self, topic_partition: TopicPartition, tail: Tail) -> None:
        """Keep a tail, if there is room for it."""
        self.take(topic_partition)
        if len(tail.records) > self._limit_bytes:
            return
        while self._kept_bytes + len(tail.records) > self._limit_bytes:
            self.take(next(iter(self._tails)))
        self._tails[topic_partition] = tail
        self._kept_bytes += len(tail.records)

    def take(self, topic_partition: TopicPartition) -> Tail | None:
        """Return the tail and keep it no longer."""
        tail = self._tails.pop(topic_partition, None)
        if tail is not None:
            self._kept_bytes -= len(tail.records)
        return tail
