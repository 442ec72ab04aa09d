"""Read Spark's progress reports (`StreamingQueryProgress`, as JSON): batch durations, rows, and lag by topic. Pure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["BatchFacts", "parse_progress", "query_label", "topic_lag"]

_OWN_OFFSETS_MARK: Final = "$kafka_follower"
_WHOLE_BATCH_PHASE: Final = "triggerExecution"
_EXECUTION_PHASE: Final = "addBatch"


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What one progress report says.

    Attributes
    ----------
    query : str
        The query's name, its id when it has none.
    is_executed : bool
        A micro-batch ran; otherwise the report only says that the query lives.
    row_count : int
    finished_at_s : float
        Seconds since 1970: the trigger's start and its duration.
    phase_durations_ms : dict
        By the names of Spark's `durationMs`.
    lag_by_topic : dict
        See `topic_lag`.
    """

    query: str
    is_executed: bool
    row_count: int
    finished_at_s: float
    phase_durations_ms: dict[str, int]
    lag_by_topic: dict[str, int]


def query_label(name: str | None, query_id: object) -> str:
    """Return what a query is called in metrics."""
    return name or str(query_id)


def parse_progress(progress_json: str) -> BatchFacts:
    """Return the facts of a report, given as `StreamingQueryProgress.json`."""
    progress: dict[str, Any] = json.loads(progress_json)
    durations_ms: dict[str, int] = progress["durationMs"]
    started_at_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return BatchFacts(
        query=query_label(progress["name"], progress["id"]),
        is_executed=_EXECUTION_PHASE in durations_ms,
        row_count=progress["numInputRows"],
        finished_at_s=started_at_s + durations_ms.get(_WHOLE_BATCH_PHASE, 0) / 1000,
        phase_durations_ms=durations_ms,
        lag_by_topic=topic_lag(progress["sources"]),
    )


def topic_lag(sources: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return by topic how many offsets the query is behind, summed over partitions and sources.

    Only partitions that the source has begun to read count. A negative difference is 0: the end that a source reports
    may be older than what it reads. Sources that are not Kafka's, or report no end, have no lag.

    Parameters
    ----------
    sources : iterable of mapping
        The report's `sources`. `endOffset` is ``{"topic": {"0": N}}`` for Spark's own `kafka` source, and the same
        under ``offsets`` for ours; `latestOffset` is the former for both.
    """
    lag: Counter[str] = Counter()
    for source in sources:
        ends = _partition_offsets(source.get("endOffset"))
        latest = _partition_offsets(source.get("latestOffset"))
        for (topic, partition), end in ends.items():
            if (topic, partition) in latest:
                lag[topic] += max(0, latest[topic, partition] - end)
    return dict(lag)


def _partition_offsets(source_offset: object) -> dict[tuple[str, str], int]:
    """Return the offsets by topic and partition; empty for anything that is not a Kafka source's."""
    if not isinstance(source_offset, dict):
        return {}
    topics = source_offset.get("offsets") if _OWN_OFFSETS_MARK in source_offset else source_offset
    if not isinstance(topics, dict):
        return {}
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            return {}
        for partition, offset in partitions.items():
            if not (partition.isdecimal() and isinstance(offset, int)):
                return {}
            found[topic, partition] = offset
    return found
