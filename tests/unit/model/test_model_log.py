"""The model's log: bytes, leader epochs, transactions, retention, compaction."""

from __future__ import annotations

from struct import unpack_from

import pytest

from connector.model import NO_EPOCH
from connector.records.layout import CONTROL_MASK, HEADER_BYTES, scan_record_batches
from tests.model.log import Batch, ModelLog, encode_batch
from tests.unit.model.model_driver import T0, Driver, spans


def written(log: ModelLog, record_count: int = 1, *, epoch: int = 0, size_bytes: int = 100, **kind: int) -> Batch:
    first = log.log_end_offset
    batch = Batch(first, first + record_count - 1, epoch, uid=first, record_count=record_count, **kind)  # type: ignore[arg-type]
    batch = encode_batch(batch, size_bytes)
    log.append(batch)
    return batch


def log_of(*record_counts: int, size_bytes: int = 100) -> ModelLog:
    log = ModelLog()
    for each in record_counts:
        written(log, each, size_bytes=size_bytes)
    log.high_watermark = log.log_end_offset
    return log


def test_batches_have_a_header_that_the_connector_walks() -> None:
    log = ModelLog()
    batch = encode_batch(Batch(0, 4, 3, 77, 5, 9, True, True, False, 1234), 200)
    log.append(batch)
    scan = scan_record_batches(log.read(0, 5, 1_000, must_give_one=True))
    assert (scan.next_offset, scan.batch_count, scan.record_count, scan.complete_bytes) == (5, 1, 5, 200)
    leader_epoch, magic = unpack_from(">ib", batch.encoded, 12)
    attributes, _, uid, max_timestamp, producer_id = unpack_from(">hiqqq", batch.encoded, 21)
    assert (leader_epoch, magic, uid, max_timestamp, producer_id) == (3, 2, 77, 1234, 9)
    assert attributes == 0x10 | CONTROL_MASK


@pytest.mark.parametrize(
    ("max_bytes", "must_give_one", "size_bytes"),
    [
        pytest.param(1_000, True, 300, id="all"),
        pytest.param(250, True, 250, id="last one cut"),
        pytest.param(200, False, 200, id="whole batches only by chance"),
        pytest.param(99, True, 100, id="first one above the limit comes whole"),
        pytest.param(99, False, 0, id="first one above the limit, another has given"),
        pytest.param(0, False, 0, id="nothing left"),
    ],
)
def test_reads_respect_size_limits(max_bytes: int, must_give_one: bool, size_bytes: int) -> None:
    log = log_of(2, 2, 2)
    assert len(log.read(1, 6, max_bytes, must_give_one=must_give_one)) == size_bytes


def test_a_read_begins_with_the_batch_that_holds_the_offset_and_ends_before_the_end_offset() -> None:
    log = log_of(5, 5, 5)
    assert spans(log.read(7, 10, 1_000, must_give_one=True)) == [(5, 9)]


EPOCHS = [(1, 0), (3, 10), (4, 20)]
"""Epochs of a log that ends at 25."""


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param(4, (4, 25), id="latest: log end"),
        pytest.param(3, (3, 20), id="known: start of the next"),
        pytest.param(2, (1, 10), id="between: largest below, and where it ends"),
        pytest.param(0, (0, 0), id="below all: the asked one, start of the first"),
        pytest.param(5, (-1, -1), id="above all"),
        pytest.param(NO_EPOCH, (-1, -1), id="undefined"),
    ],
)
def test_epoch_ends_are_those_of_leader_epoch_file_cache(asked: int, answer: tuple[int, int]) -> None:
    log = ModelLog()
    for epoch, count in ((1, 10), (3, 10), (4, 5)):
        written(log, count, epoch=epoch)
    assert log.epochs == EPOCHS
    assert log.end_of_epoch(asked) == answer


def test_an_epoch_without_a_record_is_known_until_the_next_begins_at_the_same_offset() -> None:
    log = log_of(5)
    log.assign_epoch(2, 5)
    assert log.end_of_epoch(2) == (2, 5)
    log.assign_epoch(3, 5)
    assert log.epochs == [(0, 0), (3, 5)]


def test_epochs_follow_truncation_and_retention() -> None:
    log = ModelLog()
    for epoch, count in ((1, 10), (3, 10), (4, 5)):
        written(log, count, epoch=epoch)
    log.high_watermark = 25
    log.truncate_to(20)
    assert (log.epochs, log.log_end_offset, log.high_watermark) == ([(1, 0), (3, 10)], 20, 20)
    log.advance_log_start(15)
    assert log.epochs == [(3, 15)]
    assert (log.epoch_at(15), log.epoch_at(14)) == (3, NO_EPOCH)


def test_an_empty_log_knows_no_epoch() -> None:
    assert ModelLog().end_of_epoch(0) == (-1, -1)


def transactional(log: ModelLog, producer_id: int, count: int = 1) -> None:
    written(log, count, producer_id=producer_id, is_transactional=True)


def marker(log: ModelLog, producer_id: int, *, is_abort: bool) -> None:
    written(log, producer_id=producer_id, is_transactional=True, is_control=True, is_abort=is_abort)


def test_last_stable_offset_is_the_oldest_open_transaction_below_the_high_watermark() -> None:
    log = log_of(2)
    transactional(log, 1, 3)  # 2..4
    transactional(log, 2, 3)  # 5..7
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 2
    marker(log, 1, is_abort=False)  # 8
    assert log.last_stable_offset == 2, "a marker that is not committed decides nothing"
    log.high_watermark = 9
    assert log.last_stable_offset == 5
    marker(log, 2, is_abort=True)  # 9
    log.high_watermark = 10
    assert log.last_stable_offset == 10
    log.high_watermark = 4
    assert log.last_stable_offset == 2, "lower on a follower that lags"


def test_aborted_transactions_are_named_when_they_overlap_the_read() -> None:
    log = ModelLog()
    transactional(log, 1)  # 0
    transactional(log, 2)  # 1
    marker(log, 1, is_abort=True)  # 2
    marker(log, 2, is_abort=False)  # 3
    transactional(log, 1)  # 4
    marker(log, 1, is_abort=True)  # 5
    assert log.aborted_within(0, 6) == ((1, 0), (1, 4)), "the committed one is not named"
    assert log.aborted_within(2, 4) == ((1, 0),), "may begin before the offset asked for"
    assert log.aborted_within(3, 4) == ()


def test_truncation_forgets_markers() -> None:
    log = ModelLog()
    transactional(log, 1)
    marker(log, 1, is_abort=True)
    log.high_watermark = 2
    log.truncate_to(1)
    assert (log.is_open(1), log.last_stable_offset, log.aborted_within(0, 9)) == (True, 0, ())


def test_local_bytes_count_what_is_on_the_brokers_own_disks() -> None:
    log = log_of(5, 5, 5, size_bytes=100)
    log.advance_local_start(5)
    assert (log.local_bytes, log.log_start_offset, log.local_log_start_offset) == (200, 0, 5)
    log.truncate_to(10)
    assert log.local_bytes == 100
    log.advance_log_start(10)
    assert (log.local_bytes, log.log_start_offset, log.batches) == (0, 10, [])


def test_compaction_leaves_holes_and_empty_batches_but_every_offset_can_be_passed() -> None:
    driver = Driver()
    driver.produce(*[3] * 15)
    driver.produce(3, producer_id=1, transactional=True)
    driver.cluster.abort(T0, 1)
    driver.produce(*[3] * 13, 2)
    before = {each.uid for each in driver.cluster.log(T0).batches}
    driver.cluster.compact(T0, 30)
    driver.cluster.compact(T0, 90)
    log = driver.cluster.log(T0)
    counts = [each.record_count for each in log.batches]
    assert len(log.batches) < len(before)
    assert {0, 1, 2, 3} >= set(counts)
    assert counts.count(0) > 0
    assert min(len(each.encoded) for each in log.batches) == HEADER_BYTES
    assert log.batches[-1].record_count == 2, "the last batch stays"
    assert [(each.base_offset, each.record_count) for each in log.batches if each.is_control] == [(48, 1)]
    assert log.local_bytes == sum(len(each.encoded) for each in log.batches)
    scan = scan_record_batches(log.read(0, 90, 100_000, must_give_one=True))
    assert (scan.next_offset, scan.record_count) == (90, sum(counts))


def test_compaction_stops_at_what_is_not_decided() -> None:
    driver = Driver()
    driver.produce(3, producer_id=1, transactional=True)
    driver.produce(*[3] * 9)
    before = list(driver.cluster.log(T0).batches)
    driver.cluster.compact(T0, 1_000)
    assert driver.cluster.log(T0).batches == before


def test_the_same_seed_makes_the_same_cluster() -> None:
    def history() -> list[tuple[int, ...]]:
        driver = Driver(replica_round_ms=(1, 50), metadata_lag_ms=(0, 100))
        driver.produce(5, settle=False)
        seen = []
        while (next_ms := driver.cluster.next_event_ms(driver.cluster.now_ms)) is not None:
            driver.cluster.advance(next_ms)
            seen.append((next_ms, *(driver.cluster.high_watermark(T0, each) for each in (1, 2, 3))))
        return seen

    assert history() == history()
