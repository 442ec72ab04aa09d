"""Who leads: seed 002's examples as tables, and the order at work in a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from connector.model import NO_NODE
from tests.model.election import LocalLog, Thresholds, choose_leader, election_order, is_eligible
from tests.unit.model.model_driver import T0, Driver

MINUTE_MS = 60_000
NOW_MS = 100 * MINUTE_MS


def old(minutes: int, size_bytes: int = 0) -> LocalLog:
    return LocalLog(NOW_MS - minutes * MINUTE_MS, size_bytes)


@pytest.mark.parametrize(
    ("reported", "thresholds", "expected"),
    [
        pytest.param(old(60), (10 * MINUTE_MS, -1), True, id="1 hour >= 10 min"),
        pytest.param(old(30), (10 * MINUTE_MS, -1), True, id="30 min >= 10 min"),
        pytest.param(old(3), (10 * MINUTE_MS, -1), False, id="3 min < 10 min"),
        pytest.param(old(10), (10 * MINUTE_MS, -1), True, id="exactly as long"),
        pytest.param(old(0, 500), (-1, 500), True, id="bytes, exactly as many"),
        pytest.param(old(60, 499), (-1, 500), False, id="bytes, too few; its age does not matter"),
        pytest.param(old(3, 500), (10 * MINUTE_MS, 500), True, id="either: bytes suffice"),
        pytest.param(old(10, 0), (10 * MINUTE_MS, 500), True, id="either: time suffices"),
        pytest.param(old(3, 499), (10 * MINUTE_MS, 500), False, id="neither"),
        pytest.param(None, (10 * MINUTE_MS, 500), True, id="not reported counts as eligible"),
        pytest.param(LocalLog(None, 0), (10 * MINUTE_MS, -1), False, id="no record at all"),
        pytest.param(old(0), (-1, -1), True, id="off"),
        pytest.param(old(0), (0, 0), True, id="zero is off as well"),
    ],
)
def test_a_replica_is_eligible(reported: LocalLog | None, thresholds: tuple[int, int], expected: bool) -> None:
    assert is_eligible(reported, Thresholds(*thresholds), NOW_MS) is expected


@pytest.mark.parametrize(
    ("reported", "order"),
    [
        pytest.param({1: old(60), 2: old(30), 3: old(3)}, [1, 2, 3], id="the paper's example"),
        pytest.param({1: old(3), 2: old(30), 3: old(60)}, [2, 3, 1], id="eligible first, in their order"),
        pytest.param({1: old(3), 2: old(2), 3: old(60)}, [3, 1, 2], id="others in theirs"),
        pytest.param({1: old(3), 2: old(2), 3: old(1)}, [1, 2, 3], id="none eligible"),
        pytest.param({1: old(3), 3: old(3)}, [2, 1, 3], id="unknown counts as eligible"),
    ],
)
def test_the_order_is_a_stable_sort(reported: dict[int, LocalLog], order: list[int]) -> None:
    assert election_order((1, 2, 3), reported, Thresholds(10 * MINUTE_MS, -1), NOW_MS) == order


@pytest.mark.parametrize(
    ("isr_ids", "alive_ids", "is_unclean", "leader_id"),
    [
        pytest.param({1, 2, 3}, {1, 2, 3}, False, 1, id="first"),
        pytest.param({2, 3}, {1, 2, 3}, False, 2, id="only in sync"),
        pytest.param({1, 2}, {2, 3}, False, 2, id="only alive"),
        pytest.param({1}, {2, 3}, False, NO_NODE, id="nobody in sync is alive"),
        pytest.param({1}, {2, 3}, True, 2, id="unclean: the first alive"),
        pytest.param({3}, {2, 3}, True, 3, id="unclean allowed, but a clean one exists"),
        pytest.param({1}, set(), True, NO_NODE, id="nobody alive"),
    ],
)
def test_a_leader_is_alive_and_in_sync(
    isr_ids: set[int], alive_ids: set[int], is_unclean: bool, leader_id: int
) -> None:
    assert choose_leader((1, 2, 3), isr_ids, alive_ids, is_unclean_allowed=is_unclean) == leader_id


def tiered(**given: Any) -> Driver:
    """Broker 2 has little on its own disks, and its leader knows."""
    driver = Driver(tiered=True, **given)
    driver.produce(*[10] * 10)
    driver.pass_ms(MINUTE_MS)
    driver.produce(10)
    driver.cluster.expire_local(T0, 2, 100)
    driver.pass_ms(1_000)
    return driver


def test_a_replica_with_a_short_local_log_is_passed_over() -> None:
    driver = tiered(local_log_ms=30_000)
    driver.cluster.stop_broker(1, is_controlled=True)
    assert driver.cluster.leader(T0) == 3


def test_it_leads_when_nobody_else_can() -> None:
    driver = tiered(local_log_ms=30_000)
    driver.cluster.stop_broker(3, is_controlled=True)
    driver.cluster.stop_broker(1, is_controlled=True)
    assert driver.cluster.leader(T0) == 2


def test_it_is_taken_again_once_its_local_log_is_long_enough() -> None:
    driver = tiered(local_log_ms=30_000)
    driver.pass_ms(30_000)
    driver.cluster.stop_broker(1, is_controlled=True)
    assert driver.cluster.leader(T0) == 2


def test_without_a_threshold_the_assignment_decides() -> None:
    driver = tiered()
    driver.cluster.stop_broker(1, is_controlled=True)
    assert driver.cluster.leader(T0) == 2


def test_a_topic_overrides_the_cluster() -> None:
    driver = Driver(tiered=True, local_log_ms=30_000, topic={"local_log_ms": -1, "local_log_bytes": 10_000})
    driver.produce(*[10] * 10, size_bytes=2_000)
    driver.cluster.expire_local(T0, 2, 60)
    driver.pass_ms(MINUTE_MS)
    driver.cluster.stop_broker(1, is_controlled=True)
    assert driver.cluster.leader(T0) == 3, "8,000 bytes, however old"


def test_a_preferred_election_goes_by_the_same_order() -> None:
    driver = tiered(local_log_ms=30_000)
    driver.cluster.expire_local(T0, 1, 100)
    driver.produce(1)
    assert driver.cluster.elect(T0) == 3
    driver.pass_ms(MINUTE_MS)
    assert driver.cluster.elect(T0) == 1


def test_a_new_follower_of_a_tiered_topic_begins_at_the_leaders_local_log() -> None:
    driver = Driver(racks=("az-a", "az-b", "az-c", "az-b"), tiered=True)
    driver.produce(*[10] * 5)
    driver.cluster.bump_epoch(T0)
    driver.produce(*[10] * 5)
    driver.cluster.expire_local(T0, 1, 80)
    driver.cluster.reassign(T0, (1, 4, 3))
    driver.pass_ms(5_000)
    log = driver.cluster.log(T0, 4)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 80, 100)
    assert log.local_bytes == sum(len(each.encoded) for each in log.batches[8:])
    assert log.epochs == [(0, 0), (1, 50)]
    assert driver.cluster.isr(T0) == (1, 4, 3)
