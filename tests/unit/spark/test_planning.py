"""Planning: limits shared out as Spark does it, ranges, and explicit offsets."""

from __future__ import annotations

import pytest

from connector.config import Assign, PartitionOffsets, Subscribe, WholeLog
from connector.errors import ConfigError, SourceOffsetError
from connector.model import ClusterView, Node, OffsetRange, PartitionInfo, TopicPartition
from connector.spark.planning import (
    plan_input_partitions,
    plan_limited_end,
    plan_timestamps,
    select_topic_partitions,
)

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


def view_of(*topic_partitions: TopicPartition, internal: frozenset[str] = frozenset()) -> ClusterView:
    infos = {each: PartitionInfo(each, 0, 1, 0, (1,), (1,), ()) for each in topic_partitions}
    return ClusterView(nodes={1: Node(1, "h", 9)}, partitions=infos, internal_topics=internal)


def test_limit_ten_over_101_11_1_is_8_1_1_as_in_sparks_own_suite() -> None:
    # KafkaMicroBatchSourceSuite, "maxOffsetsPerTrigger": the third gets one although its share is below one.
    latest = {T0: 101, T1: 11, T2: 1}
    first = plan_limited_end(10, {T0: 0, T1: 0, T2: 0}, latest)
    assert first == {T0: 8, T1: 1, T2: 1}  # 10 * 101/113 = 8.9, 10 * 11/113 = 0.97, 10 * 1/113 = 0.09
    second = plan_limited_end(10, first, latest)
    assert {each: second[each] - first[each] for each in latest} == {T0: 9, T1: 1, T2: 0}


def test_a_limit_above_the_backlog_takes_all() -> None:
    assert plan_limited_end(2**63 - 1, {T0: 5}, {T0: 7}) == {T0: 7}


def test_a_new_topic_partition_counts_from_its_beginning() -> None:
    assert plan_limited_end(4, {T0: 10}, {T0: 10, T1: 8}) == {T0: 10, T1: 4}


def test_ranges_leave_out_what_is_empty_and_start_new_ones_at_0() -> None:
    planned = plan_input_partitions({T0: 3, T1: 4}, {T0: 3, T1: 6, T2: 2}, view_of(T0, T1, T2))
    assert [each.ranges for each in planned] == [(OffsetRange(T1, 4, 6),), (OffsetRange(T2, 0, 2),)]
    assert [set(each.view.partitions) for each in planned] == [{T1}, {T2}]


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(SourceOffsetError, match="t-0"):
        plan_input_partitions({T0: 5}, {T0: 4}, view_of(T0))


def test_internal_topics_are_left_out_and_assign_keeps_what_exists() -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    view = view_of(T1, T0, internal, internal=frozenset({"__consumer_offsets"}))
    assert select_topic_partitions(Subscribe(("t", "__consumer_offsets")), view) == (T0, T1)
    assert select_topic_partitions(Assign((T1, T2)), view) == (T1,)


def test_explicit_offsets_must_name_exactly_what_is_read() -> None:
    bound = PartitionOffsets(((T0, 5), (T2, -1)))
    with pytest.raises(ConfigError, match=r"missing: t-1; not read: t-2"):
        plan_timestamps("startingOffsets", bound, [T0, T1])


def test_bounds_split_into_given_offsets_and_timestamps() -> None:
    bound = PartitionOffsets(((T0, 5), (T1, -1), (T2, -2)))
    assert plan_timestamps("startingOffsets", bound, [T0, T1, T2]) == ({T0: 5}, {T1: -1, T2: -2})
    assert plan_timestamps("startingOffsets", WholeLog.EARLIEST, [T0]) == ({}, {T0: -2})
