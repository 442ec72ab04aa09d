"""Errors, leader epochs, topic ids, the long poll and size limits of the model's Fetch."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from connector.model import NO_NODE, Node, PartitionFetch
from connector.wire import error_codes as codes
from tests.model.reading import Isolation, read_replica
from tests.unit.model.model_driver import T0, T1, Driver, lagging, offsets, spans


@pytest.mark.parametrize("broker_id", [1, 2])
@pytest.mark.parametrize(
    ("epoch", "error_code"),
    [
        pytest.param(1, codes.NONE, id="equal"),
        pytest.param(-1, codes.NONE, id="absent"),
        pytest.param(0, codes.FENCED_LEADER_EPOCH, id="lower"),
        pytest.param(2, codes.UNKNOWN_LEADER_EPOCH, id="higher"),
    ],
)
def test_leader_epochs_are_checked_on_leader_and_follower(broker_id: int, epoch: int, error_code: int) -> None:
    driver = Driver()
    driver.cluster.bump_epoch(T0)
    driver.produce(5)
    partition = driver.read(broker_id, 0, epoch=epoch)
    assert partition.error_code == error_code
    assert offsets(partition) == ((5, 5, 0) if error_code == codes.NONE else (-1, -1, -1))
    assert driver.read(broker_id, 0, epoch=epoch, rack="az-c").error_code == error_code
    reply = driver.fetch(broker_id, driver.ask(0, epoch=epoch), session=(0, 0))
    again = driver.fetch(broker_id, driver.ask(0, epoch=epoch), session=(reply.session_id, 1))
    assert [each.error_code for each in again.partitions] == [error_code]


def test_epochs_are_not_told_before_version_9() -> None:
    driver = Driver()
    driver.cluster.bump_epoch(T0)
    assert driver.read(1, 0, epoch=0, version=8).error_code == codes.NONE
    assert driver.read(1, 0, epoch=0, version=9).error_code == codes.FENCED_LEADER_EPOCH


def test_current_leader_and_its_address_come_with_two_errors_from_version_16() -> None:
    driver = Driver()
    driver.cluster.elect(T0, 2)
    reply = driver.fetch(3, driver.ask(0, epoch=0))
    (fenced,) = reply.partitions
    assert (fenced.current_leader_id, fenced.current_leader_epoch) == (2, 1)
    assert reply.nodes == (Node(2, "broker-2", 9092, "az-b"),)
    assert driver.read(3, 0, epoch=0, version=15).current_leader_id == NO_NODE
    assert driver.read(3, 0, epoch=2).current_leader_id == NO_NODE, "UNKNOWN_LEADER_EPOCH has none"
    driver.cluster.reassign(T0, (2, 3))
    driver.pass_ms(100)
    gone = driver.read(1, 0)
    assert (gone.error_code, gone.current_leader_id) == (codes.NOT_LEADER_OR_FOLLOWER, 2)
    driver.cluster._brokers[1].alive_ids = frozenset({1, 3})
    assert driver.fetch(1, driver.ask(0)).nodes == (), "an address only of a leader that is alive"


def test_a_broker_without_a_replica_and_a_topic_that_is_not_known() -> None:
    driver = Driver(racks=("az-a", "az-b", "az-c", "az-a"))
    assert driver.read(4, 0).error_code == codes.NOT_LEADER_OR_FOLLOWER
    driver.cluster.delete_topic("t")
    assert driver.read(1, 0, version=12).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.read(1, 0, version=13).error_code == codes.UNKNOWN_TOPIC_ID


def test_above_version_12_only_the_topic_id_counts() -> None:
    driver = Driver()
    driver.produce(1)
    (asked,) = driver.ask(0)
    other = replace(asked, topic_id=UUID(int=99))
    assert driver.fetch(1, (other,)).partitions[0].error_code == codes.UNKNOWN_TOPIC_ID
    by_name = driver.fetch(1, (other,), version=12).partitions[0]
    assert (by_name.error_code, by_name.topic_id) == (codes.NONE, UUID(int=0))
    driver.cluster.delete_topic("t")
    driver.topic_id = driver.cluster.create_topic("t", 1, [(1, 2, 3)])
    assert driver.fetch(1, (asked,)).partitions[0].error_code == codes.UNKNOWN_TOPIC_ID
    assert driver.read(1, 0).error_code == codes.NONE


def test_a_version_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(ValueError, match="newest is 12"):
        Driver(max_fetch_version=12).read(1, 0, version=13)


@pytest.mark.parametrize(
    ("compression_type", "version", "error_code"),
    [
        pytest.param("zstd", 9, codes.UNSUPPORTED_COMPRESSION_TYPE, id="zstd topic below version 10"),
        pytest.param("zstd", 10, codes.NONE, id="zstd topic from version 10"),
        pytest.param("producer", 9, codes.NONE, id="what producers chose is not looked at"),
    ],
)
def test_zstd_topics_need_version_10(compression_type: str, version: int, error_code: int) -> None:
    driver = Driver(topic={"compression_type": compression_type})
    driver.produce(1)
    partition = driver.read(1, 0, version=version)
    assert (partition.error_code, bool(partition.records)) == (error_code, error_code == codes.NONE)
    assert offsets(partition) == ((1, 1, 0) if error_code == codes.NONE else (-1, -1, -1))


def test_fetch_above_the_high_watermark_gives_a_follower_records() -> None:
    driver = lagging()
    replica = driver.cluster._brokers[1].replicas[T0]
    read = read_replica(replica, driver.ask(45)[0], Isolation.LOG_END, driver.cluster.settings, max_bytes=1_000)
    assert spans(read.records) == [(40, 49)]


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "error_code", "diverging"),
    [
        pytest.param(12, 2, codes.NONE, (-1, -1), id="agrees"),
        pytest.param(12, 0, codes.NONE, (0, 10), id="older epoch than the data at the offset"),
        pytest.param(16, 2, codes.NONE, (2, 15), id="epoch ended before"),
        pytest.param(12, 1, codes.NONE, (0, 10), id="epoch that this log skipped"),
        pytest.param(12, 3, codes.OFFSET_OUT_OF_RANGE, (-1, -1), id="epoch is not known here"),
        pytest.param(-5, 1, codes.OFFSET_OUT_OF_RANGE, (-1, -1), id="below the log start goes first"),
    ],
)
def test_diverging_epochs(
    fetch_offset: int, last_fetched_epoch: int, error_code: int, diverging: tuple[int, int]
) -> None:
    driver = Driver()
    driver.produce(10)
    driver.cluster.bump_epoch(T0)
    driver.cluster.bump_epoch(T0)
    driver.produce(5)
    read = read_replica(
        driver.cluster._brokers[2].replicas[T0],
        PartitionFetch(T0, fetch_offset, 1_000),
        Isolation.HIGH_WATERMARK,
        driver.cluster.settings,
        max_bytes=1_000,
        last_fetched_epoch=last_fetched_epoch,
    )
    assert (read.error_code, (read.diverging_epoch, read.diverging_end_offset)) == (error_code, diverging)
    assert bool(read.records) is (error_code == codes.NONE and diverging == (-1, -1))


# ------------------------------------------------------------------------------------------------------ long poll


def test_a_parked_fetch_on_the_follower_is_answered_when_the_record_is_committed_there() -> None:
    driver = Driver()
    answers = driver.send(2, driver.ask(0), wait_ms=20_000)
    driver.produce(1, settle=False)
    assert driver.answered_after_ms(answers) == 502, "copy, tell so, and hear of the high watermark 500 ms later"
    assert spans(answers[0].partitions[0].records) == [(0, 0)]


def test_on_old_followers_it_waits_out_its_time() -> None:
    driver = Driver(wakes_parked_on_followers=False)
    answers = driver.send(2, driver.ask(0), wait_ms=20_000)
    driver.produce(1, settle=False)
    assert driver.answered_after_ms(answers) == 20_000
    assert answers[0].partitions[0].records


def test_a_parked_fetch_on_the_leader_is_answered_when_the_high_watermark_rises() -> None:
    driver = Driver()
    answers = driver.send(1, driver.ask(0), wait_ms=20_000)
    driver.produce(1, settle=False)
    assert driver.answered_after_ms(answers) == 2


def test_it_waits_for_min_bytes() -> None:
    driver = Driver()
    answers = driver.send(1, driver.ask(0), wait_ms=5_000, min_bytes=250)
    driver.produce(1, 1, size_bytes=100)
    assert answers == []
    driver.produce(1, size_bytes=100)
    assert len(answers) == 1
    assert len(answers[0].partitions[0].records) == 300


def test_its_partition_limit_bounds_what_counts_for_min_bytes() -> None:
    driver = Driver()
    answers = driver.send(1, driver.ask(0, max_bytes=120), wait_ms=5_000, min_bytes=200)
    driver.produce(1, 1, 1, size_bytes=100)
    assert answers == []


def test_a_change_of_leader_ends_the_wait() -> None:
    driver = Driver()
    parked = [driver.send(each, driver.ask(0, epoch=0), wait_ms=20_000) for each in (1, 2, 3)]
    by_version_10 = driver.send(1, driver.ask(0), version=10, wait_ms=20_000)
    unfenced = driver.send(3, driver.ask(0), wait_ms=20_000)
    driver.cluster.elect(T0, 2)
    driver.pass_ms(1)
    assert [each[0].partitions[0].error_code for each in parked] == [codes.FENCED_LEADER_EPOCH] * 3
    assert by_version_10[0].partitions[0].error_code == codes.NOT_LEADER_OR_FOLLOWER
    assert unfenced == []


def test_the_end_of_its_topic_ends_the_wait() -> None:
    driver = Driver()
    answers = driver.send(1, driver.ask(0), wait_ms=20_000)
    driver.cluster.delete_topic("t")
    driver.pass_ms(1)
    assert answers[0].partitions[0].error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_what_is_unknown_on_arrival_shortens_no_wait_unless_nothing_else_is_asked() -> None:
    driver = Driver()
    unknown = replace(driver.ask(0)[0], topic_id=UUID(int=5))
    assert len(driver.send(1, (unknown,), wait_ms=500)) == 1
    answers = driver.send(1, (unknown, *driver.ask(0)), wait_ms=500)
    assert driver.answered_after_ms(answers) == 500
    assert {each.error_code for each in answers[0].partitions} == {codes.NONE, codes.UNKNOWN_TOPIC_ID}


def test_a_stopped_broker_answers_nothing() -> None:
    driver = Driver()
    answers = driver.send(1, driver.ask(0), wait_ms=500)
    driver.cluster.stop_broker(1)
    driver.pass_ms(5_000)
    assert answers == []


def test_a_throttled_client_is_told_to_wait_at_once_and_gets_no_session() -> None:
    driver = Driver()
    driver.produce(1)
    session_id = driver.fetch(1, driver.ask(0), session=(0, 0)).session_id
    driver.cluster.set_throttle(1, driver.cluster.now_ms + 300)
    reply = driver.fetch(1, driver.ask(0), session=(0, 0), wait_ms=500)
    assert (reply.throttle_ms, reply.error_code, reply.session_id, reply.partitions) == (300, 0, 0, ())
    assert driver.fetch(1, session=(session_id, 1)).session_id == session_id
    driver.pass_ms(300)
    reply = driver.fetch(1, session=(session_id, 2))
    assert (reply.throttle_ms, reply.error_code) == (0, codes.NONE), "the throttled request used its epoch"


# ----------------------------------------------------------------------------------------------- order and size


@pytest.mark.parametrize(
    ("partition_max_bytes", "max_bytes", "sizes"),
    [
        pytest.param(1_000, 1_000, [400, 400, 200], id="cut by the request's limit"),
        pytest.param(150, 1_000, [150, 150, 150], id="cut by each partition's"),
        pytest.param(10, 1_000, [100, 0, 0], id="the first gives a batch above its limit, others do not"),
        pytest.param(1_000, 10, [100, 0, 0], id="above the request's"),
        pytest.param(1_000, 450, [400, 0, 0], id="50 bytes are left: no whole batch, so none"),
    ],
)
def test_size_limits(partition_max_bytes: int, max_bytes: int, sizes: list[int]) -> None:
    driver = Driver(partition_count=3)
    for each in range(3):
        driver.produce(1, 1, 1, 1, tp=T0._replace(partition=each), size_bytes=100)
    reply = driver.fetch(1, driver.ask(0, 0, 0, max_bytes=partition_max_bytes), max_bytes=max_bytes)
    assert [len(each.records) for each in reply.partitions] == sizes
    assert {each.error_code for each in reply.partitions} == {codes.NONE}


def test_the_brokers_own_limit_counts_too() -> None:
    driver = Driver(fetch_max_bytes=250)
    driver.produce(1, 1, 1, 1, size_bytes=100)
    assert len(driver.read(1, 0).records) == 250


def test_an_empty_topic_partition_does_not_use_up_the_first_batch() -> None:
    driver = Driver(partition_count=2)
    driver.produce(1, tp=T1, size_bytes=100)
    reply = driver.fetch(1, driver.ask(0, 0, max_bytes=10))
    assert [len(each.records) for each in reply.partitions] == [0, 100]
