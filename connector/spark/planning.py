"""What to read next, as functions of what is known: no broker is asked here.

Counterpart: `KafkaMicroBatchStream.rateLimit` and `KafkaOffsetReader` of Spark's own source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, floor

from pyspark.sql.datasource import InputPartition

from connector.config import Assign, OffsetBound, PartitionOffsets, Subscription
from connector.errors import ConfigError, ConfigProblem, SourceOffsetError
from connector.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_TOPIC_ID, ClusterView, OffsetRange, TopicPartition

__all__ = [
    "KafkaInputPartition",
    "plan_input_partitions",
    "plan_limited_end",
    "plan_timestamps",
    "select_topic_partitions",
]


class KafkaInputPartition(InputPartition):
    """What one Spark task reads: ranges, and the planner's view of the cluster they live in."""

    def __init__(self, ranges: tuple[OffsetRange, ...], view: ClusterView) -> None:
        super().__init__(None)
        self.ranges = ranges
        self.view = view


def select_topic_partitions(subscription: Subscription, view: ClusterView) -> tuple[TopicPartition, ...]:
    """Return what a subscription means in this cluster: internal topics and partitions that don't exist left out."""
    existing = (each for each in view.partitions if each.topic not in view.internal_topics)
    if isinstance(subscription, Assign):
        wanted = set(subscription.topic_partitions)
        return tuple(sorted(each for each in existing if each in wanted))
    return tuple(sorted(existing))


def plan_timestamps(
    option: str, bound: OffsetBound, topic_partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Split a bound into offsets that are given, and bounds that only the leaders know.

    Parameters
    ----------
    option : str
        The option's name, for messages.
    bound : OffsetBound
        What it says.
    topic_partitions : iterable of TopicPartition
        What is read; explicit offsets must name exactly these.

    Returns
    -------
    (offsets, timestamps) : given offsets, and `LATEST_TIMESTAMP` or `EARLIEST_TIMESTAMP` for the others.

    Raises
    ------
    ConfigError
        When explicit offsets leave out a topic-partition or name one that is not read.
    """
    wanted = set(topic_partitions)
    if not isinstance(bound, PartitionOffsets):
        return {}, dict.fromkeys(wanted, bound.value)
    given = dict(bound.offsets)
    if given.keys() != wanted:
        missing = ", ".join(map(str, sorted(wanted - given.keys()))) or "none"
        unknown = ", ".join(map(str, sorted(given.keys() - wanted))) or "none"
        reason = (
            "must name exactly the topic-partitions that are read; "
            f"missing: {missing}; not read: {unknown}. Use -1 for latest, -2 for earliest."
        )
        raise ConfigError((ConfigProblem(option, None, reason),))
    sentinels = (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    offsets = {each: value for each, value in given.items() if value not in sentinels}
    return offsets, {each: value for each, value in given.items() if value in sentinels}


def plan_limited_end(
    limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Share a limit out over topic-partitions by their backlog; a small one always gets something.

    Parameters
    ----------
    limit : int
        Offsets in all; rounding may exceed it by less than one per topic-partition.
    start : mapping
        Where each begins; one that is not named begins at 0.
    latest : mapping
        Where each ends.
    """
    backlog = {each: end - start.get(each, 0) for each, end in latest.items() if end > start.get(each, 0)}
    total = sum(backlog.values())
    if total <= limit:
        return dict(latest)
    end_offsets = dict(latest)
    for topic_partition, size in backlog.items():
        share = limit * (size / total)
        rounded = ceil(share) if share < 1 else floor(share)
        end_offsets[topic_partition] = min(latest[topic_partition], start.get(topic_partition, 0) + rounded)
    return end_offsets


def plan_input_partitions(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    view: ClusterView,
    *,
    is_loss_fatal: bool = True,
) -> list[KafkaInputPartition]:
    """Plan the tasks that read from `start` to `end`.

    A topic-partition that `start` does not name is new and is read from offset 0: were its first records gone
    already, that would be a loss, and reading says so.

    Raises
    ------
    SourceOffsetError
        When a range would end before it begins, and data loss is fatal; else such a range is left out.
    """
    ranges: list[OffsetRange] = []
    for topic_partition in sorted(end):
        begin = start.get(topic_partition, 0)
        if begin > end[topic_partition] and is_loss_fatal:
            raise SourceOffsetError(
                f"{topic_partition}: the planned range ends at offset {end[topic_partition]}, before its start {begin}"
            )
        if begin < end[topic_partition]:
            topic_id = view.topic_ids.get(topic_partition.topic, NO_TOPIC_ID)
            ranges.append(OffsetRange(topic_partition, begin, end[topic_partition], topic_id=topic_id))
    return [KafkaInputPartition((each,), _part_of(view, (each.topic_partition,))) for each in ranges]


def _part_of(view: ClusterView, topic_partitions: Iterable[TopicPartition]) -> ClusterView:
    """Return what a task needs of a view: it is pickled once per task."""
    partitions = {each: view.partitions[each] for each in topic_partitions if each in view.partitions}
    topics = {each.topic for each in partitions}
    topic_ids = {topic: each for topic, each in view.topic_ids.items() if topic in topics}
    return ClusterView(nodes=view.nodes, partitions=partitions, topic_ids=topic_ids, cluster_id=view.cluster_id)
