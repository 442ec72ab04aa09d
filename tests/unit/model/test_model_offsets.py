"""What a replica of the model answers, by the offset it is asked for (sections 3.3, 5.4 and 13 of the reference)."""

from __future__ import annotations

import pytest

from connector.model import READ_COMMITTED
from connector.wire import error_codes as codes
from tests.unit.model.model_driver import T0, T1, Driver, lagging, offsets, spans

DATA, EMPTY, AT_ONCE, WAITS = "data", "empty", 0, 500


@pytest.mark.parametrize(
    ("broker_id", "fetch_offset", "error_code", "content", "after_ms"),
    [
        pytest.param(1, 0, codes.NONE, DATA, AT_ONCE, id="leader: log start"),
        pytest.param(1, 39, codes.NONE, DATA, AT_ONCE, id="leader: below the high watermark"),
        pytest.param(1, 40, codes.NONE, EMPTY, WAITS, id="leader: at the high watermark"),
        pytest.param(1, 41, codes.NONE, EMPTY, AT_ONCE, id="leader: above it"),
        pytest.param(1, 50, codes.NONE, EMPTY, AT_ONCE, id="leader: at the log end"),
        pytest.param(1, 51, codes.OFFSET_OUT_OF_RANGE, EMPTY, AT_ONCE, id="leader: above the log end"),
        pytest.param(1, -1, codes.OFFSET_OUT_OF_RANGE, EMPTY, AT_ONCE, id="leader: below the log start"),
        pytest.param(2, 9, codes.OFFSET_OUT_OF_RANGE, EMPTY, AT_ONCE, id="follower: below its own log start"),
        pytest.param(2, 10, codes.NONE, DATA, AT_ONCE, id="follower: its log start"),
        pytest.param(2, 29, codes.NONE, DATA, AT_ONCE, id="follower: below its high watermark"),
        pytest.param(2, 30, codes.NONE, EMPTY, WAITS, id="follower: at its high watermark, committed elsewhere"),
        pytest.param(2, 31, codes.NONE, EMPTY, AT_ONCE, id="follower: above it"),
        pytest.param(2, 40, codes.NONE, EMPTY, AT_ONCE, id="follower: at its log end"),
        pytest.param(2, 41, codes.OFFSET_OUT_OF_RANGE, EMPTY, AT_ONCE, id="follower: beyond, though it exists"),
        pytest.param(2, 51, codes.OFFSET_OUT_OF_RANGE, EMPTY, AT_ONCE, id="follower: beyond, where nothing is"),
    ],
)
def test_the_answer_by_offset(broker_id: int, fetch_offset: int, error_code: int, content: str, after_ms: int) -> None:
    driver = lagging()
    answers = driver.send(broker_id, driver.ask(fetch_offset), wait_ms=500)
    assert driver.answered_after_ms(answers) == after_ms
    (partition,) = answers[0].partitions
    assert (partition.error_code, DATA if partition.records else EMPTY) == (error_code, content)
    start, end = (0, 40) if broker_id == 1 else (10, 30)
    assert offsets(partition) == ((end, end, start) if error_code == codes.NONE else (-1, -1, -1))
    assert all(first < end for first, _ in spans(partition.records))


@pytest.mark.parametrize(
    ("broker_id", "fetch_offset", "error_code"),
    [
        pytest.param(1, 40, codes.NONE, id="at the high watermark"),
        pytest.param(1, 45, codes.OFFSET_NOT_AVAILABLE, id="case 1: uncommitted"),
        pytest.param(2, 35, codes.OFFSET_NOT_AVAILABLE, id="case 1 on a follower"),
        pytest.param(2, 9, codes.OFFSET_OUT_OF_RANGE, id="case 3: too small"),
        pytest.param(2, 41, codes.OFFSET_OUT_OF_RANGE, id="case 4: too large for all it knows"),
    ],
)
def test_kip_392_as_written(broker_id: int, fetch_offset: int, error_code: int) -> None:
    driver = lagging(answers_offset_not_available=True, fills_offsets_on_error=True)
    partition = driver.read(broker_id, fetch_offset)
    assert partition.error_code == error_code
    if error_code == codes.OFFSET_OUT_OF_RANGE:
        assert offsets(partition) == (30, -1, 10), "too small or too large can be told"


def test_kip_392_case_2_a_follower_out_of_sync_knows_that_the_offset_exists() -> None:
    driver = Driver(answers_offset_not_available=True, replica_lag_time_max_ms=500, replica_fetch_max_bytes=100)
    driver.cluster.pause_replication(T0, 2)
    driver.produce(10, 10, 10)
    driver.cluster.resume_replication(T0, 2)
    driver.pass_ms(0)
    assert (driver.cluster.log(T0, 2).log_end_offset, driver.cluster.high_watermark(T0, 2)) == (10, 10)
    assert [driver.read(2, each).error_code for each in (10, 29, 30, 31)] == [
        codes.NONE,
        codes.OFFSET_NOT_AVAILABLE,
        codes.OFFSET_NOT_AVAILABLE,
        codes.OFFSET_OUT_OF_RANGE,
    ]


def test_one_offset_above_the_readable_ends_the_wait_of_the_whole_request() -> None:
    driver = lagging(partition_count=2)
    answers = driver.send(1, driver.ask(45, 0), wait_ms=500)
    assert len(answers) == 1
    answers = driver.send(1, driver.ask(40, 0), wait_ms=500)
    assert driver.answered_after_ms(answers) == 500


def test_an_error_is_answered_at_once_although_min_bytes_are_not_there() -> None:
    driver = lagging()
    assert len(driver.send(2, driver.ask(5), wait_ms=500, min_bytes=100_000)) == 1


def test_read_committed_ends_at_the_last_stable_offset_and_names_aborted_transactions() -> None:
    driver = Driver()
    driver.produce(2, producer_id=1, transactional=True)  # 0, 1
    driver.produce(2, producer_id=2, transactional=True)  # 2, 3
    driver.cluster.abort(T0, 1)  # 4
    driver.produce(3)  # 5..7
    driver.cluster.commit(T0, 2)  # 8
    driver.produce(1, producer_id=3, transactional=True)  # 9
    for broker_id in (1, 3):
        partition = driver.read(broker_id, 1, isolation=READ_COMMITTED)
        assert (offsets(partition), spans(partition.records)[-1]) == ((10, 9, 0), (8, 8))
        assert partition.aborted_transactions == ((1, 0),)
        assert driver.read(broker_id, 5, isolation=READ_COMMITTED).aborted_transactions == ()
        assert spans(driver.read(broker_id, 1).records)[-1] == (9, 9)
        assert driver.read(broker_id, 0).aborted_transactions == ()
        waiting = driver.send(broker_id, driver.ask(9), isolation=READ_COMMITTED, wait_ms=300)
        assert driver.answered_after_ms(waiting) == 300
    assert driver.cluster.commit(T0, 1) is None, "nothing open"


def test_a_tiered_topic_is_read_below_the_local_log_one_topic_partition_at_a_time() -> None:
    driver = Driver(partition_count=2, tiered=True)
    for each in (T0, T1):
        driver.produce(10, 10, 10, tp=each)
        driver.cluster.expire_local(each, 2, 20)
    reply = driver.fetch(2, driver.ask(5, 5))
    assert [spans(each.records) for each in reply.partitions] == [[(0, 9), (10, 19)], []]
    assert [offsets(each) for each in reply.partitions] == [(30, 30, 0)] * 2
    assert [spans(each.records) for each in driver.fetch(2, driver.ask(5, 20)).partitions] == [
        [(0, 9), (10, 19)],
        [(20, 29)],
    ]
    assert len(driver.send(2, driver.ask(5, 30), wait_ms=500, min_bytes=10_000)) == 1, "is not waited for"
    driver.cluster.delete_records(T0, 10)
    assert driver.read(1, 5).error_code == codes.OFFSET_OUT_OF_RANGE
