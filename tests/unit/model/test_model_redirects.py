"""Which replica a leader of the model names, and who serves whom (KIP-392)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from connector.model import NO_NODE
from connector.wire import error_codes as codes
from tests.model.selector import ReplicaView, select_leader, select_nearest
from tests.unit.model.model_driver import T0, Driver, lagging, offsets


@pytest.mark.parametrize(
    ("rack", "expected"),
    [
        pytest.param("az-b", 2, id="a follower's rack"),
        pytest.param("az-a", 1, id="the leader's rack"),
        pytest.param("az-x", 1, id="nobody's rack"),
        pytest.param("", 1, id="no rack"),
        pytest.param("az-c", 5, id="largest log end, caught up last, largest id"),
        pytest.param("AZ-B", 1, id="exact match only"),
    ],
)
def test_rack_aware_selection(rack: str, expected: int) -> None:
    candidates = [
        ReplicaView(1, "az-a", 100, 0),
        ReplicaView(2, "az-b", 90, 10),
        ReplicaView(3, "az-c", 90, 0),
        ReplicaView(4, "az-c", 95, 20),
        ReplicaView(5, "az-c", 95, 10),
        ReplicaView(6, "az-c", 95, 20),
        ReplicaView(7, "az-a", 100, 0),
    ]
    assert select_nearest(rack, candidates) == expected
    assert select_leader(rack, candidates) == 1


def test_of_equal_candidates_the_largest_id_is_taken() -> None:
    candidates = [ReplicaView(1, "az-a", 9, 0), *(ReplicaView(each, "az-b", 9, 5) for each in (4, 2, 3))]
    assert select_nearest("az-b", candidates) == 4


@pytest.mark.parametrize(
    ("broker_id", "version", "rack", "preferred", "error_code"),
    [
        pytest.param(1, 16, "az-b", 2, codes.NONE, id="leader, a follower's rack"),
        pytest.param(1, 11, "az-c", 3, codes.NONE, id="leader, v11"),
        pytest.param(1, 16, "az-a", NO_NODE, codes.NONE, id="leader, own rack"),
        pytest.param(1, 10, "az-b", NO_NODE, codes.NONE, id="leader, v10 is never redirected"),
        pytest.param(2, 11, "az-b", NO_NODE, codes.NONE, id="follower, its own rack"),
        pytest.param(2, 11, "az-c", NO_NODE, codes.NONE, id="follower never redirects"),
        pytest.param(2, 16, "", NO_NODE, codes.NONE, id="follower, no rack"),
        pytest.param(2, 10, "", NO_NODE, codes.NOT_LEADER_OR_FOLLOWER, id="follower, v10"),
    ],
)
def test_who_serves_whom(broker_id: int, version: int, rack: str, preferred: int, error_code: int) -> None:
    driver = Driver()
    driver.produce(10)
    partition = driver.read(broker_id, 0, version=version, rack=rack)
    assert (partition.preferred_read_replica, partition.error_code) == (preferred, error_code)
    assert bool(partition.records) is (preferred == NO_NODE and error_code == codes.NONE)
    if error_code == codes.NONE:
        assert offsets(partition) == (10, 10, 0)


def test_a_redirect_is_answered_at_once_although_min_bytes_are_not_there() -> None:
    driver = Driver()
    driver.produce(10)
    reply = driver.fetch(1, driver.ask(10), rack="az-b", wait_ms=500, min_bytes=1_000)
    assert len(reply.partitions[0].records) == 0


def test_old_brokers_hold_a_redirect() -> None:
    driver = Driver(holds_redirects=True)
    driver.produce(10)
    answers = driver.send(1, driver.ask(0), rack="az-b", wait_ms=500)
    assert driver.answered_after_ms(answers) == 500
    assert answers[0].partitions[0].preferred_read_replica == 2


@pytest.mark.parametrize(("is_old", "preferred"), [(False, NO_NODE), (True, 2)])
def test_only_in_sync_replicas_are_named(is_old: bool, preferred: int) -> None:
    driver = Driver(replica_lag_time_max_ms=500, redirects_to_lagging=is_old)
    driver.produce(10)
    driver.cluster.pause_replication(T0, 2)
    driver.produce(10)
    assert driver.cluster.isr(T0) == (1, 3)
    assert driver.read(1, 5, rack="az-b").preferred_read_replica == preferred


def test_only_replicas_that_reported_to_hold_the_offset_are_named() -> None:
    driver = lagging()
    named = [driver.read(1, each, rack="az-b").preferred_read_replica for each in (9, 10, 40, 41)]
    assert named == [NO_NODE, 2, 2, NO_NODE]


def test_a_new_leader_names_nobody_until_followers_have_fetched() -> None:
    driver = Driver()
    driver.produce(10)
    driver.cluster.elect(T0, 2)
    assert driver.read(2, 0, rack="az-c").preferred_read_replica == NO_NODE
    driver.pass_ms(10)
    assert driver.read(2, 0, rack="az-c").preferred_read_replica == 3


def test_a_stopped_follower_is_not_named_once_that_is_known() -> None:
    driver = Driver(broker_session_ms=1_000)
    driver.produce(10)
    driver.cluster.stop_broker(2)
    assert driver.read(1, 0, rack="az-b").preferred_read_replica == 2
    driver.pass_ms(1_000)
    assert driver.read(1, 0, rack="az-b").preferred_read_replica == NO_NODE
    assert driver.cluster.isr(T0) == (1, 3)


def test_a_stopped_follower_is_not_named_by_old_brokers_either() -> None:
    driver = Driver(redirects_to_lagging=True)
    driver.produce(10)
    driver.cluster.stop_broker(2, is_controlled=True)
    assert driver.read(1, 0, rack="az-b").preferred_read_replica == NO_NODE


def test_other_selectors() -> None:
    driver = Driver(selector="leader")
    driver.produce(1)
    assert driver.read(1, 0, rack="az-b").preferred_read_replica == NO_NODE
    seen: list[tuple[str, Sequence[ReplicaView]]] = []

    def choose_third(rack: str, candidates: Sequence[ReplicaView]) -> int:
        seen.append((rack, candidates))
        return 3

    driver = Driver(selector="custom", custom_selector=choose_third)
    driver.produce(1)
    assert driver.read(1, 0, rack="anything").preferred_read_replica == 3
    assert seen[0][0] == "anything"
    assert [each.broker_id for each in seen[0][1]] == [1, 2, 3]
    assert driver.read(2, 0, rack="anything").preferred_read_replica == NO_NODE, "a follower asks no selector"
    with pytest.raises(ValueError, match="custom_selector"):
        Driver(selector="custom")
