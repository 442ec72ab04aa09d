"""ListOffsets, OffsetForLeaderEpoch and DescribeLogDirs of the model (sections 5.1 and 6 of the reference)."""

from __future__ import annotations

import pytest

from connector.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    LogDirSize,
    TopicPartition,
)
from connector.wire import error_codes as codes
from tests.unit.model.model_driver import T0, Driver, high_watermarks


@pytest.mark.parametrize(
    ("broker_id", "replica_id", "timestamp", "isolation", "expected"),
    [
        pytest.param(1, -1, LATEST_TIMESTAMP, 0, (codes.NONE, 20), id="latest: high watermark"),
        pytest.param(1, -1, LATEST_TIMESTAMP, READ_COMMITTED, (codes.NONE, 15), id="latest: last stable offset"),
        pytest.param(1, -1, EARLIEST_TIMESTAMP, 0, (codes.NONE, 0), id="earliest: global log start"),
        pytest.param(1, -1, EARLIEST_LOCAL_TIMESTAMP, 0, (codes.NONE, 5), id="earliest local"),
        pytest.param(2, -1, LATEST_TIMESTAMP, 0, (codes.NOT_LEADER_OR_FOLLOWER, -1), id="follower, latest"),
        pytest.param(2, -1, EARLIEST_TIMESTAMP, 0, (codes.NOT_LEADER_OR_FOLLOWER, -1), id="follower, earliest"),
        pytest.param(2, -2, EARLIEST_LOCAL_TIMESTAMP, 0, (codes.NONE, 10), id="debug id: the follower's own start"),
        pytest.param(
            2, -2, LATEST_TIMESTAMP, READ_COMMITTED, (codes.NONE, 21), id="debug id: log end, uncommitted too"
        ),
        pytest.param(1, -1, -7, 0, (codes.UNSUPPORTED_VERSION, -1), id="unknown timestamp"),
    ],
)
def test_list_offsets(
    broker_id: int, replica_id: int, timestamp: int, isolation: int, expected: tuple[int, int]
) -> None:
    driver = Driver(tiered=True)
    driver.produce(5, 5, 5)
    driver.produce(5, producer_id=9, transactional=True)
    driver.cluster.expire_local(T0, 1, 5)
    driver.cluster.expire_local(T0, 2, 10)
    driver.produce(1, settle=False)
    driver.pass_ms(1)
    answer = driver.offset(broker_id, timestamp, isolation=isolation, replica_id=replica_id)
    assert (answer.error_code, answer.log_offset) == expected


def test_list_offsets_checks_version_epoch_and_place() -> None:
    driver = Driver()
    assert driver.offset(1, EARLIEST_LOCAL_TIMESTAMP, version=7).error_code == codes.UNSUPPORTED_VERSION
    driver.cluster.bump_epoch(T0)
    assert driver.offset(1, LATEST_TIMESTAMP, epoch=0).error_code == codes.FENCED_LEADER_EPOCH
    assert driver.offset(1, LATEST_TIMESTAMP, epoch=2).error_code == codes.UNKNOWN_LEADER_EPOCH
    driver.cluster.reassign(T0, (1, 2))
    driver.pass_ms(100)
    assert driver.offset(3, LATEST_TIMESTAMP, replica_id=-2).error_code == codes.NOT_LEADER_OR_FOLLOWER
    driver.cluster.delete_topic("t")
    assert driver.offset(1, LATEST_TIMESTAMP).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_offset_for_leader_epoch_is_the_leaders_and_not_limited_by_the_high_watermark() -> None:
    driver = Driver()
    driver.produce(10)
    driver.cluster.bump_epoch(T0)
    driver.cluster.pause_replication(T0, 2)
    driver.produce(5, settle=False)
    assert high_watermarks(driver, 1) == [10]
    driver.cluster.bump_epoch(T0)
    assert driver.epoch_end(1, 2).end_offset == 15, "known before anything is written in it"
    answers = [driver.epoch_end(1, each) for each in (0, 1, 3)]
    assert [(each.leader_epoch, each.end_offset) for each in answers] == [(0, 10), (1, 15), (-1, -1)]
    assert driver.epoch_end(2, 0).error_code == codes.NOT_LEADER_OR_FOLLOWER
    assert driver.epoch_end(1, 0, current_leader_epoch=1).error_code == codes.FENCED_LEADER_EPOCH
    assert driver.epoch_end(1, 0, current_leader_epoch=3).error_code == codes.UNKNOWN_LEADER_EPOCH
    driver.cluster.delete_topic("t")
    assert driver.epoch_end(1, 0).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_log_dirs_tell_what_is_on_the_brokers_own_disks() -> None:
    driver = Driver(tiered=True)
    driver.produce(1, 1, 1, size_bytes=500)
    driver.cluster.expire_local(T0, 2, 2)
    elsewhere = TopicPartition("other", 0)
    assert driver.cluster.describe_log_dirs(1, [T0, elsewhere]) == (LogDirSize(T0, 1_500),)
    assert driver.cluster.describe_log_dirs(2, [T0]) == (LogDirSize(T0, 500),)
