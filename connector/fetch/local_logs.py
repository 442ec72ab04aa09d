"""How much of each replica's log is on its broker's own disks: facts for choosing a replica ourselves.

A replica that was built from remote storage holds only the newest part of a log; reading it for older offsets makes
its broker fetch them from there. Facts come from DescribeLogDirs (bytes) and from ListOffsets with the debug replica
id, which any replica answers from its own log (time). They are refreshed as often as metadata; a question that is not
answered leaves its fact unknown, which counts as long enough.

Spec: eligibility by `leader.election.eligible.local.log.ms` and `.bytes`: either is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from connector.fetch.actions import (
    DEBUG_REPLICA_ID,
    Action,
    EngineSettings,
    SendDescribeLogDirs,
    SendListOffsets,
)
from connector.model import EARLIEST_LOCAL_TIMESTAMP, LogDirSize, OffsetAnswer, OffsetQuery, TopicPartition
from connector.wire import error_codes

__all__ = ["LocalLogs"]


@dataclass(slots=True)
class _Facts:
    """What is known of one replica; None is unknown."""

    sizes_until_ms: int = 0
    starts_until_ms: int = 0
    times_until_ms: int = 0
    size_bytes: int | None = None
    start_offset: int | None = None
    time_offset: int | None = None
    """First offset that is younger than the limit, or -1 when all records are older."""


class LocalLogs:
    """Facts about replicas, and the questions that are due.

    Parameters
    ----------
    settings : EngineSettings
        The limits, and how old a fact may be.
    unix_ms_at_zero : int
        Milliseconds since 1970 when the engine's clock shows 0: brokers compare records' timestamps.
    """

    def __init__(self, settings: EngineSettings, unix_ms_at_zero: int) -> None:
        self._limit_ms = settings.local_log_ms
        self._limit_bytes = settings.local_log_bytes
        self._max_age_ms = settings.metadata_max_age_ms
        self._unix_ms_at_zero = unix_ms_at_zero
        self._facts: dict[tuple[TopicPartition, int], _Facts] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether any limit is set."""
        return self._limit_ms > 0 or self._limit_bytes > 0

    def is_eligible(self, topic_partition: TopicPartition, node_id: int) -> bool:
        """Tell whether a replica's local log is long enough, as far as that is known."""
        facts = self._facts.get((topic_partition, node_id))
        if facts is None:
            return True
        verdicts: list[bool] = []
        if self._limit_bytes > 0:
            verdicts.append(facts.size_bytes is None or facts.size_bytes >= self._limit_bytes)
        if self._limit_ms > 0:
            verdicts.append(
                facts.start_offset is None
                or facts.time_offset is None
                or not 0 <= facts.time_offset <= facts.start_offset
            )
        return not verdicts or any(verdicts)

    def plan(self, node_id: int, topic_partitions: Sequence[TopicPartition], now_ms: int) -> Action | None:
        """Return the next question to a node about these replicas of its, or None when all facts are fresh."""
        facts = {each: self._facts.get((each, node_id), _Facts()) for each in topic_partitions}
        if self._limit_bytes > 0:
            due = tuple(each for each, known in facts.items() if now_ms >= known.sizes_until_ms)
            if due:
                return SendDescribeLogDirs(node_id, due)
        if self._limit_ms > 0:
            due = tuple(each for each, known in facts.items() if now_ms >= known.starts_until_ms)
            if due:
                return _ask(node_id, due, EARLIEST_LOCAL_TIMESTAMP)
            due = tuple(each for each, known in facts.items() if now_ms >= known.times_until_ms)
            if due:
                # The first record that is younger than the limit: one that is exactly as old is old enough.
                return _ask(node_id, due, self._unix_ms_at_zero + now_ms - self._limit_ms + 1)
        return None

    def on_sizes(self, sent: SendDescribeLogDirs, answers: Iterable[LogDirSize], now_ms: int) -> None:
        """Take a DescribeLogDirs answer; what it leaves out is unknown."""
        sizes = {each.topic_partition: each.size_bytes for each in answers}
        for topic_partition in sent.topic_partitions:
            facts = self._facts.setdefault((topic_partition, sent.node_id), _Facts())
            facts.sizes_until_ms = now_ms + self._max_age_ms
            facts.size_bytes = sizes.get(topic_partition)

    def on_offsets(self, sent: SendListOffsets, answers: Iterable[OffsetAnswer], now_ms: int) -> None:
        """Take a replica's own offsets; what it refuses is unknown."""
        found = {each.topic_partition: each.log_offset for each in answers if each.error_code == error_codes.NONE}
        for query in sent.queries:
            facts = self._facts.setdefault((query.topic_partition, sent.node_id), _Facts())
            log_offset = found.get(query.topic_partition)
            if query.timestamp == EARLIEST_LOCAL_TIMESTAMP:
                facts.starts_until_ms, facts.start_offset = now_ms + self._max_age_ms, log_offset
            else:
                facts.times_until_ms, facts.time_offset = now_ms + self._max_age_ms, log_offset


def _ask(node_id: int, topic_partitions: Iterable[TopicPartition], timestamp: int) -> SendListOffsets:
    queries = tuple(OffsetQuery(each, timestamp) for each in topic_partitions)
    return SendListOffsets(node_id, queries, replica_id=DEBUG_REPLICA_ID)
