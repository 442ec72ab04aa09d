"""Crashes, elections, truncation and reassignment in the model, and what holds in every history."""

from __future__ import annotations

import random

import pytest

from connector.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_NODE,
)
from connector.wire import error_codes as codes
from tests.model.cluster import ModelCluster
from tests.model.log import Batch
from tests.model.settings import ModelSettings
from tests.unit.model.model_driver import T0, Driver, ends, high_watermarks


def test_a_crashed_leader_is_replaced_when_its_session_ends_and_loses_what_was_not_committed() -> None:
    driver = Driver(broker_session_ms=4_000)
    driver.produce(10)
    driver.cluster.produce(T0, 5)
    driver.cluster.stop_broker(1)
    driver.pass_ms(3_999)
    assert (driver.cluster.leader(T0), driver.cluster.produce(T0, 1)) == (1, None)
    driver.pass_ms(1)
    assert (driver.cluster.leader(T0), driver.cluster.isr(T0)) == (2, (2, 3))
    driver.produce(2)
    driver.cluster.start_broker(1)
    driver.pass_ms(3_000)
    assert driver.cluster.isr(T0) == (1, 2, 3)
    assert driver.cluster.log(T0, 1).batches == driver.cluster.log(T0, 2).batches
    assert driver.cluster.log(T0, 1).epochs == [(0, 0), (1, 10)]


def test_a_leader_that_is_back_before_anyone_noticed_has_been_replaced_all_the_same() -> None:
    driver = Driver()
    driver.produce(10)
    driver.cluster.stop_broker(1)
    driver.pass_ms(100)
    driver.cluster.start_broker(1)
    assert (driver.cluster.leader(T0), driver.cluster.leader_epoch(T0)) == (2, 1)
    driver.pass_ms(20_000)
    assert driver.cluster.isr(T0) == (1, 2, 3)
    assert driver.cluster.metadata(2, ["t"], driver.cluster.now_ms).nodes.keys() == {1, 2, 3}


@pytest.mark.parametrize(("is_controlled", "high_watermark"), [(True, 11), (False, 0)])
def test_after_a_crash_a_follower_may_know_no_high_watermark(is_controlled: bool, high_watermark: int) -> None:
    driver = Driver()
    driver.produce(10)
    driver.cluster.elect(T0, 2)
    driver.produce(1)
    driver.cluster.pause_replication(T0, 3)
    driver.cluster.stop_broker(3, is_controlled=is_controlled)
    driver.cluster.start_broker(3)
    assert (ends(driver, 3), high_watermarks(driver, 3)) == ([11], [high_watermark])
    assert driver.offset(3, LATEST_TIMESTAMP, replica_id=-2).log_offset == 11
    driver.pass_ms(10)
    assert high_watermarks(driver, 3) == [11], "who was stuck is not any more"


def test_a_controlled_stop_moves_leaders_first() -> None:
    driver = Driver()
    driver.cluster.stop_broker(1, is_controlled=True)
    assert driver.cluster.leader(T0) == 2
    with pytest.raises(ConnectionError):
        driver.read(1, 0)


def test_without_an_in_sync_replica_nobody_leads_until_it_is_back() -> None:
    driver = Driver(broker_session_ms=1_000)
    driver.produce(5)
    for each in (3, 2, 1):
        driver.cluster.stop_broker(each)
        driver.pass_ms(1_000)
    assert (driver.cluster.leader(T0), driver.cluster.isr(T0)) == (NO_NODE, (1,))
    driver.cluster.start_broker(2)
    driver.pass_ms(3_000)
    assert driver.cluster.leader(T0) == NO_NODE
    info = driver.cluster.metadata(2, ["t"], driver.cluster.now_ms).partitions[T0]
    assert (info.error_code, info.leader_id, info.offline_ids) == (codes.LEADER_NOT_AVAILABLE, NO_NODE, (1, 3))
    driver.cluster.start_broker(1)
    driver.pass_ms(3_000)
    assert (driver.cluster.leader(T0), driver.cluster.isr(T0), ends(driver, 1, 2)) == (1, (1, 2), [5, 5])


def test_an_unclean_leader_takes_committed_records_back() -> None:
    driver = Driver(unclean_leader_election=True, replica_lag_time_max_ms=500, broker_session_ms=1_000)
    driver.produce(5)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(5)
    assert (driver.cluster.isr(T0), driver.cluster.committed_end(T0)) == ((1, 2), 10)
    driver.cluster.stop_broker(1)
    driver.cluster.stop_broker(2)
    driver.pass_ms(1_000)
    assert (driver.cluster.leader(T0), driver.cluster.isr(T0)) == (3, (3,))
    assert driver.cluster.committed_end(T0) == 5
    driver.produce(1)
    driver.cluster.start_broker(1)
    driver.pass_ms(3_000)
    assert [each.last_offset for each in driver.cluster.log(T0, 1).batches] == [4, 5]
    assert driver.cluster.log(T0, 1).batches == driver.cluster.log(T0, 3).batches
    assert len(driver.cluster.appended(T0)) == 3


def test_who_still_leads_unknowing_of_an_unclean_election_commits_nothing() -> None:
    driver = Driver(metadata_lag_ms=(100, 100), replica_lag_time_max_ms=100)
    driver.produce(5)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(5)
    driver.produce(5, settle=False)
    assert (driver.cluster.isr(T0), driver.cluster.committed_end(T0)) == ((1, 2), 10)
    assert driver.cluster.elect(T0, 3, unclean=True) == 3
    driver.pass_ms(50)
    assert (high_watermarks(driver, 1), driver.cluster.committed_end(T0)) == ([15], 10)
    driver.pass_ms(50)
    assert driver.cluster.committed_end(T0) == 5


def test_a_follower_whose_log_begins_above_its_leaders_end_begins_anew() -> None:
    driver = Driver(replica_lag_time_max_ms=500)
    driver.produce(10)
    driver.cluster.pause_replication(T0, 3)
    driver.produce(10, 10)
    driver.cluster.delete_records(T0, 20)
    driver.cluster.elect(T0, 3, unclean=True)
    driver.pass_ms(3_000)
    for each in (1, 2):
        log = driver.cluster.log(T0, each)
        assert (log.log_start_offset, log.batches) == (0, driver.cluster.log(T0, 3).batches)


def test_logs_that_parted_in_several_epochs_find_their_common_end() -> None:
    """KIP-101: two leaders in turn that each wrote what the other never had."""
    driver = Driver(unclean_leader_election=True)
    driver.produce(10)
    driver.cluster.stop_broker(3)
    driver.cluster.pause_replication(T0, 2)
    driver.produce(2, 2)  # broker 1, epoch 0
    driver.cluster.elect(T0, 2, unclean=True)
    driver.cluster.pause_replication(T0, 1)
    driver.produce(3)  # broker 2, a later epoch
    driver.cluster.resume_replication(T0, 1)
    driver.cluster.resume_replication(T0, 2)
    driver.pass_ms(3_000)
    assert driver.cluster.log(T0, 1).batches == driver.cluster.log(T0, 2).batches
    assert [(each.base_offset, each.leader_epoch) for each in driver.cluster.log(T0, 1).batches] == [(0, 0), (10, 1)]


def test_each_leader_change_raises_the_epoch_and_so_does_a_reassignment_that_takes_a_replica_away() -> None:
    driver = Driver(racks=("az-a", "az-b", "az-c", "az-a"))
    assert driver.cluster.elect(T0, 2) == 2
    assert driver.cluster.elect(T0, 2) == 2
    assert driver.cluster.leader_epoch(T0) == 1
    driver.cluster.bump_epoch(T0)
    assert (driver.cluster.leader(T0), driver.cluster.leader_epoch(T0)) == (2, 2)
    driver.produce(5)
    driver.cluster.reassign(T0, (1, 2, 3, 4))
    driver.pass_ms(2_000)
    assert (driver.cluster.isr(T0), driver.cluster.leader_epoch(T0)) == ((1, 2, 3, 4), 2)
    driver.cluster.reassign(T0, (3, 4))
    driver.pass_ms(2_000)
    assert (driver.cluster.leader(T0), driver.cluster.isr(T0), driver.cluster.leader_epoch(T0)) == (3, (3, 4), 3)
    assert ends(driver, 3, 4) == [5, 5]
    assert driver.read(1, 0).error_code == codes.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_does_not_vouch_for_its_high_watermark_until_its_followers_have_fetched() -> None:
    driver = Driver()
    driver.produce(10, settle=False)
    driver.pass_ms(2)
    assert high_watermarks(driver, 1, 2) == [10, 0]
    driver.cluster.pause_replication(T0, 3)
    driver.cluster.elect(T0, 2)
    assert driver.offset(2, LATEST_TIMESTAMP).error_code == codes.OFFSET_NOT_AVAILABLE
    assert driver.offset(2, LATEST_TIMESTAMP, version=4).error_code == codes.LEADER_NOT_AVAILABLE
    assert driver.offset(2, EARLIEST_TIMESTAMP).log_offset == 0
    assert driver.read(2, 0).high_watermark == 0, "Fetch tells the old one (13.2)"
    assert driver.cluster.committed_end(T0) == 10
    driver.cluster.resume_replication(T0, 3)
    driver.pass_ms(1_000)
    answer = driver.offset(2, LATEST_TIMESTAMP)
    assert (answer.log_offset, answer.leader_epoch) == (10, 1)


def step(cluster: ModelCluster, rng: random.Random) -> None:
    """Do one thing of many to a cluster."""
    broker_id = rng.randint(1, 4)
    kind = rng.randrange(12)
    if kind < 5:
        cluster.produce(T0, rng.randint(1, 5), producer_id=rng.randint(1, 2), transactional=rng.random() < 0.5)
    elif kind == 5:
        rng.choice((cluster.commit, cluster.abort))(T0, rng.randint(1, 2))
    elif kind == 6:
        cluster.stop_broker(broker_id, is_controlled=rng.random() < 0.5)
    elif kind in (7, 8):
        cluster.start_broker(broker_id)
    elif kind == 9:
        cluster.elect(T0, rng.choice((None, broker_id)))
    elif kind == 10:
        cluster.reassign(T0, rng.sample((1, 2, 3, 4), 3))
    elif broker_id in cluster.replicas(T0):
        cluster.pause_replication(T0, broker_id)
        cluster.advance(cluster.now_ms + rng.randint(0, 1_000))
        if broker_id in cluster.replicas(T0):
            cluster.resume_replication(T0, broker_id)
    cluster.advance(cluster.now_ms + rng.choice((0, 1, 5, 50, 700)))


@pytest.mark.parametrize("seed", range(12))
def test_what_was_committed_stays_and_is_the_same_everywhere(seed: int) -> None:
    """KIP-101: without an unclean election no leader lacks a committed record, and no follower shows another."""
    rng = random.Random(seed)
    settings = ModelSettings(
        racks=("a", "b", "c", "d"),
        metadata_lag_ms=(0, 60),
        replica_lag_time_max_ms=400,
        replica_fetch_max_bytes=300,
        broker_session_ms=300,
    )
    cluster = ModelCluster(settings, rng)
    cluster.create_topic("t", 1, [(1, 2, 3)])
    committed: list[Batch] = []
    for _ in range(60):
        step(cluster, rng)
        known = cluster.committed(T0) if cluster.leader(T0) != NO_NODE else committed
        assert known[: len(committed)] == committed
        committed = known
        for replica in (each.replicas.get(T0) for each in cluster._brokers.values()):
            if replica is not None:
                log = replica.log
                assert log.high_watermark <= min(log.log_end_offset, cluster.committed_end(T0))
                assert log.batches[: log.index_of(log.high_watermark)] == committed[: log.index_of(log.high_watermark)]
    assert committed
    for each in (1, 2, 3, 4):
        cluster.start_broker(each)
    cluster.advance(cluster.now_ms + 10_000)
    logs = [cluster.log(T0, each) for each in cluster.replicas(T0)]
    assert cluster.leader(T0) != NO_NODE
    assert [each.batches for each in logs] == [logs[0].batches] * len(logs)
    assert {each.high_watermark for each in logs} == {logs[0].log_end_offset}
    assert {each.last_stable_offset for each in logs} == {logs[0].last_stable_offset}
