"""Reading without a broker's choice: from the leader only, or from a replica that we choose ourselves.

Reference 11.10, and seed 002 for how the length of local logs ranks (`leader.election.eligible.local.log.*`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from connector.config.settings import ReplicaSelection
from connector.fetch.actions import (
    DEBUG_REPLICA_ID,
    LEADER_ONLY_VERSION,
    Action,
    SendDescribeLogDirs,
    SendFetch,
    SendListOffsets,
)
from connector.fetch.selection import candidates_in_rack, choose_replica
from connector.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    NO_NODE,
    ClusterView,
    LogDirSize,
    OffsetAnswer,
    OffsetRange,
    PartitionInfo,
    ReplicaChange,
    TopicPartition,
)
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import (
    FOLLOWER,
    LEADER,
    NODES,
    SETTINGS,
    T0,
    T1,
    Driver,
    changes,
    info,
    positions,
    spans,
    view,
    where,
)

CLIENT = replace(SETTINGS, replica_selection=ReplicaSelection.CLIENT)
LEADER_ONLY = (LEADER, LEADER_ONLY_VERSION)
TWO_IN_RACK = {**NODES, 3: replace(NODES[3], rack="az-b")}
"""Brokers 2 and 3 are in our rack."""


def of_client(*ranges: OffsetRange, **given: Any) -> Driver:
    return Driver(*(ranges or [OffsetRange(T0, 100, 200)]), settings=CLIENT, **given)


def choose(cluster: ClusterView, rack: str = "az-b", topic_partition: TopicPartition = T0, **given: Any) -> int:
    return choose_replica(topic_partition, cluster, rack, given.get("is_eligible", lambda _: True))


# ----------------------------------------------------------------------------------------------------- the leader only


def test_leader_selection_reads_the_leader_in_the_form_that_it_never_redirects() -> None:
    driver = Driver(OffsetRange(T0, 0, 10), replica_selection=ReplicaSelection.LEADER)
    sent = driver.fetch()
    assert (where(sent), sent.plan.rack) == (LEADER_ONLY, "")


# --------------------------------------------------------------------------------------------------------- our choice


def test_a_replica_in_our_rack_is_read_without_asking_the_leader() -> None:
    sent = of_client().fetch()
    assert (where(sent), sent.plan.rack, positions(sent)) == ((FOLLOWER, None), "", {T0: 100})


@pytest.mark.parametrize(
    ("infos", "rack", "expected"),
    [
        pytest.param(info(), "az-b", (2,), id="in our rack"),
        pytest.param(info(), "az-a", (1,), id="the leader's rack"),
        pytest.param(info(), "az-x", (), id="a rack without brokers"),
        pytest.param(info(replicas=(1, 3)), "az-b", (), id="not a replica"),
        pytest.param(info(isr=(1, 3)), "az-b", (), id="out of sync"),
        pytest.param(info(offline=(2,)), "az-b", (), id="offline"),
        pytest.param(info(replicas=(1, 4), isr=(1, 4)), "az-b", (), id="not in the cluster"),
    ],
)
def test_only_replicas_that_are_in_sync_and_online_are_taken(
    infos: PartitionInfo, rack: str, expected: tuple[int, ...]
) -> None:
    assert candidates_in_rack(infos, view(infos), rack) == expected
    assert choose(view(infos), rack) == (expected[0] if expected else NO_NODE)


@pytest.mark.parametrize("rack", ["", "az-x"])
def test_without_a_replica_in_our_rack_the_leader_is_read(rack: str) -> None:
    sent = Driver(OffsetRange(T0, 0, 10), settings=CLIENT, rack=rack).fetch()
    assert (sent.plan.node_id, sent.plan.rack) == (LEADER, "")


def test_no_rack_is_not_the_rack_of_brokers_that_tell_none() -> None:
    assert choose(view(nodes={each: replace(node, rack="") for each, node in NODES.items()}), "") == NO_NODE


def test_a_leader_in_our_rack_comes_first() -> None:
    nodes = {each: replace(node, rack="az-b") for each, node in NODES.items()}
    for leader in (1, 2, 3):
        assert choose(view(leader=leader, nodes=nodes)) == leader


def test_load_is_spread_over_the_replicas_in_our_rack_and_stays_where_it_is() -> None:
    names = [TopicPartition(topic, each) for topic in ("t", "orders", "clicks") for each in range(100)]
    cluster = replace(view(nodes=TWO_IN_RACK), partitions={each: info(each) for each in names})
    chosen = {each: choose(cluster, topic_partition=each) for each in names}
    count = Counter(chosen.values())
    assert set(count) == {2, 3}
    assert min(count.values()) > 120
    assert {each: choose(cluster, topic_partition=each) for each in names} == chosen


def test_a_replica_that_leaves_the_isr_is_left_with_the_next_metadata() -> None:
    driver = of_client()
    driver.answer(driver.fetch(), next_offset=110)
    driver.metadata(view(info(isr=(1, 3))))
    sent = driver.fetch()
    assert (sent.plan.node_id, positions(sent)) == (LEADER, {T0: 110})


@pytest.mark.parametrize("code", [codes.OFFSET_OUT_OF_RANGE, codes.NOT_LEADER_OR_FOLLOWER, codes.UNKNOWN_TOPIC_ID])
def test_after_an_error_of_our_choice_the_leader_is_read_for_a_while(code: int) -> None:
    driver = of_client(OffsetRange(T0, 100, 10_000))
    assert changes(driver.answer(driver.fetch(), code=code))[0] is not None
    sent = driver.fetch()
    left_ms = driver.now_ms
    assert (where(sent), positions(sent)) == (LEADER_ONLY, {T0: 100})
    driver.now_ms = left_ms + SETTINGS.leader_only_ms - 1
    driver.answer(sent, next_offset=110)
    sent = driver.fetch()
    assert where(sent) == LEADER_ONLY
    driver.pass_ms(1)
    driver.answer(sent, next_offset=120)
    assert where(driver.fetch()) == (FOLLOWER, None)


def test_a_silent_choice_is_left_for_the_leader() -> None:
    driver = of_client()
    assert changes(driver.fail(driver.fetch())) == [ReplicaChange.BROKER_DOWN]
    assert where(driver.fetch()) == LEADER_ONLY
    assert driver.metadata_count == 1


def test_other_topic_partitions_keep_clear_of_a_broker_that_did_not_answer_a_moment_ago() -> None:
    driver = of_client()
    driver.fail(driver.fetch())
    driver.start(OffsetRange(T1, 0, 10))
    assert driver.fetch().plan.node_id == LEADER
    driver.pass_ms(100)
    driver.start(OffsetRange(T1, 0, 10))
    assert driver.fetch().plan.node_id == FOLLOWER


def test_a_late_choice_is_waited_for_and_kept() -> None:
    driver = of_client(follower_wait_ms=0)
    driver.answer(driver.fetch(), high_watermark=100)
    sent = driver.fetch()
    assert where(sent) == LEADER_ONLY
    driver.answer(sent, next_offset=200)
    driver.start(OffsetRange(T0, 200, 300))
    assert driver.fetch().plan.node_id == FOLLOWER


def test_a_choice_that_is_late_again_and_again_is_left_for_a_while() -> None:
    driver = of_client(follower_wait_ms=0)
    for start_offset in (100, 200, 300):
        driver.start(OffsetRange(T0, start_offset, start_offset + 100))
        driver.answer(driver.fetch(), high_watermark=start_offset)
        driver.answer(driver.fetch(), next_offset=start_offset + 100)
    driver.start(OffsetRange(T0, 400, 500))
    assert where(driver.fetch()) == LEADER_ONLY


@pytest.mark.parametrize(
    ("rack", "asked"),
    [pytest.param("az-x", LEADER, id="by the leader"), pytest.param("az-b", FOLLOWER, id="by a follower before 3.3")],
)
def test_redirects_that_we_did_not_ask_for_end_in_records_all_the_same(rack: str, asked: int) -> None:
    # A selector of the cluster's own need not look at racks; 11.3: redirect loops are broken.
    driver = Driver(OffsetRange(T0, 100, 200), settings=CLIENT, rack=rack)
    sent = driver.fetch()
    assert sent.plan.node_id == asked
    for _ in range(20):
        if sent.max_version == LEADER_ONLY_VERSION:
            break
        driver.answer(sent, preferred=3)
        sent = driver.next_fetch(view())
    assert where(sent) == LEADER_ONLY
    assert spans(driver.answer(sent, next_offset=200)) == [(T0, 100, 200)]


# ------------------------------------------------------------------------------------------------------- local logs


@pytest.mark.parametrize(
    ("short", "expected"),
    [
        pytest.param(set(), {2, 3}, id="all are long enough, or not known"),
        pytest.param({2}, {3}, id="one is too short"),
        pytest.param({2, 3}, {2, 3}, id="all are too short: they are replicas all the same"),
    ],
)
def test_replicas_whose_local_log_is_too_short_rank_last(short: set[int], expected: set[int]) -> None:
    names = [TopicPartition("t", each) for each in range(40)]
    cluster = replace(view(nodes=TWO_IN_RACK), partitions={each: info(each) for each in names})
    chosen = {choose(cluster, topic_partition=each, is_eligible=lambda node: node not in short) for each in names}
    assert chosen == expected


def test_a_leader_in_our_rack_whose_local_log_is_too_short_ranks_last_too() -> None:
    cluster = view(nodes={**NODES, 1: replace(NODES[1], rack="az-b")})
    assert choose(cluster, is_eligible=lambda node: node != LEADER) == FOLLOWER


HOUR_MS = 3_600_000


class Questions(Driver):
    """Two replicas in our rack; T0 is read at `chosen` unless its local log is too short."""

    def __init__(self, **limits: int) -> None:
        super().__init__(OffsetRange(T0, 100, 200), settings=CLIENT, shipped=view(nodes=TWO_IN_RACK), **limits)
        self.chosen = choose(self.engine.view)
        self.spare = 5 - self.chosen

    def asks(self) -> Action:
        (action,) = self.actions()
        return action

    def tell_sizes(self, sent: Action, size_bytes: int) -> None:
        assert isinstance(sent, SendDescribeLogDirs)
        answers = [LogDirSize(each, size_bytes) for each in sent.topic_partitions]
        self.engine.on_log_dirs(sent, answers, self.now_ms)

    def tell_offsets(self, sent: Action, log_offset: int) -> None:
        assert isinstance(sent, SendListOffsets)
        assert self.offsets(sent, log_offset).decisions == ()

    def is_read_at_once(self) -> int:
        """Return where the next Fetch goes."""
        return self.fetch().plan.node_id


def test_a_replica_is_asked_how_many_bytes_it_has_before_it_is_read() -> None:
    driver = Questions(local_log_bytes=500)
    sent = driver.asks()
    assert sent == SendDescribeLogDirs(driver.chosen, (T0,))
    driver.tell_sizes(sent, 500)
    assert driver.is_read_at_once() == driver.chosen


def test_one_that_has_too_few_bytes_is_left_for_the_other_which_is_asked_as_well() -> None:
    driver = Questions(local_log_bytes=500)
    driver.tell_sizes(driver.asks(), 499)
    sent = driver.asks()
    assert sent == SendDescribeLogDirs(driver.spare, (T0,))
    driver.tell_sizes(sent, 500)
    assert driver.is_read_at_once() == driver.spare


def test_when_both_have_too_few_bytes_one_is_read_all_the_same() -> None:
    driver = Questions(local_log_bytes=500)
    driver.tell_sizes(driver.asks(), 499)
    driver.tell_sizes(driver.asks(), 499)
    assert driver.is_read_at_once() == driver.chosen


def test_a_replica_is_asked_how_old_its_oldest_local_records_are() -> None:
    # Local log start, and the first offset that is younger than the limit, both by the replica's own log.
    driver = Questions(local_log_ms=HOUR_MS)
    for timestamp, log_offset in ((EARLIEST_LOCAL_TIMESTAMP, 40), (1_000_000 + driver.now_ms - HOUR_MS + 1, 70)):
        sent = driver.asks()
        assert isinstance(sent, SendListOffsets)
        assert (sent.node_id, sent.replica_id) == (driver.chosen, DEBUG_REPLICA_ID)
        assert [(each.topic_partition, each.timestamp) for each in sent.queries] == [(T0, timestamp)]
        driver.tell_offsets(sent, log_offset)
    assert driver.is_read_at_once() == driver.chosen


@pytest.mark.parametrize(
    ("local_start", "first_young", "is_eligible"),
    [
        pytest.param(40, 41, True, id="its oldest record is older than the limit"),
        pytest.param(40, 40, False, id="its oldest record is younger"),
        pytest.param(40, 10, False, id="what is young begins in remote storage"),
        pytest.param(40, -1, True, id="all records are older"),
    ],
)
def test_a_local_log_is_long_enough_when_it_reaches_back_far_enough(
    local_start: int, first_young: int, is_eligible: bool
) -> None:
    driver = Questions(local_log_ms=HOUR_MS)
    driver.tell_offsets(driver.asks(), local_start)
    driver.tell_offsets(driver.asks(), first_young)
    sent = driver.asks()
    assert isinstance(sent, SendFetch) is is_eligible
    if isinstance(sent, SendListOffsets):
        assert sent.node_id == driver.spare


def test_either_limit_is_enough() -> None:
    driver = Questions(local_log_ms=HOUR_MS, local_log_bytes=500)
    driver.tell_sizes(driver.asks(), 499)
    driver.tell_offsets(driver.asks(), 40)
    driver.tell_offsets(driver.asks(), 41)
    assert driver.is_read_at_once() == driver.chosen


UNKNOWN: list[tuple[str, Callable[[Questions, Action], object]]] = [
    ("no answer", lambda driver, sent: driver.fail(sent)),
    ("left out", lambda driver, sent: driver.engine.on_log_dirs(sent, (), driver.now_ms)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("given", UNKNOWN, ids=lambda given: given[0])
def test_what_is_not_known_counts_as_long_enough(given: tuple[str, Callable[[Questions, Action], object]]) -> None:
    # Seed 002: "replicas with unknown local log state are treated as eligible".
    driver = Questions(local_log_bytes=500)
    given[1](driver, driver.asks())
    driver.pass_ms(100)
    assert driver.is_read_at_once() == driver.chosen


def test_a_replica_that_refuses_to_tell_counts_as_long_enough() -> None:
    driver = Questions(local_log_ms=HOUR_MS)
    for _ in range(2):
        sent = driver.asks()
        assert isinstance(sent, SendListOffsets)
        driver.engine.on_offsets(sent, [OffsetAnswer(T0, codes.UNSUPPORTED_VERSION, -1)], driver.now_ms)
    assert driver.is_read_at_once() == driver.chosen


def test_facts_are_asked_for_again_when_they_are_as_old_as_metadata_may_be() -> None:
    driver = Questions(local_log_bytes=500)
    driver.tell_sizes(driver.asks(), 500)
    driver.pass_ms(SETTINGS.metadata_max_age_ms - 1)
    driver.start(OffsetRange(T0, 100, 200))
    assert driver.is_read_at_once() == driver.chosen
    driver.pass_ms(1)
    driver.start(OffsetRange(T0, 100, 200))
    assert SendDescribeLogDirs(driver.chosen, (T0,)) in driver.actions()


def test_nothing_is_asked_where_the_answer_can_change_nothing() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), settings=CLIENT, local_log_bytes=500, local_log_ms=HOUR_MS)
    assert driver.fetch().plan.node_id == FOLLOWER, "the only one in our rack"
    driver = Questions()
    assert driver.is_read_at_once() == driver.chosen, "no limit is set"
