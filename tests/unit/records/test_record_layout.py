"""The walk from batch to batch: what headers tell, where a cut tail ends it, and which headers are refused."""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime

import pytest
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from connector.errors import CorruptBatch
from connector.model import NO_EPOCH, RecordsScan, TopicPartition
from connector.records.layout import scan_record_batches
from tests.unit.records.record_bytes import batch_of, message, record, record_batch, wrapper

NOTHING = RecordsScan(next_offset=-1, batch_count=0, record_count=0, complete_bytes=0, last_leader_epoch=NO_EPOCH)


def scan(records: bytes) -> RecordsScan:
    return scan_record_batches(memoryview(records))


def test_batches_of_another_writer() -> None:
    written = io.BytesIO()
    for offsets in (range(100, 103), range(103, 104)):
        records = tuple(
            Record(
                attributes=i8(0),
                timestamp=TZAwareMicros.parse(datetime(2024, 1, 1, tzinfo=UTC)),
                offset=i64(log_offset),
                key=b"key",
                value=b"value",
                headers=(),
            )
            for log_offset in offsets
        )
        write_batch(
            written,
            NewRecordBatch(
                producer_id=i64(-1), producer_epoch=i16(-1), base_sequence=i32(-1), attributes=i16(0), records=records
            ),
        )
    assert scan(written.getvalue()) == RecordsScan(104, 2, 4, len(written.getvalue()), 0)


def test_no_records() -> None:
    assert scan(b"") == NOTHING


def test_position_comes_from_the_last_offset_delta_not_from_the_records() -> None:
    compacted = record_batch([record(2)], base_offset=10, last_offset_delta=9)
    assert scan(compacted) == RecordsScan(20, 1, 1, len(compacted), 5)


def test_empty_batch_moves_the_position() -> None:
    empty = record_batch([], base_offset=10, last_offset_delta=4)
    assert len(empty) == 61
    assert scan(batch_of(10) + empty) == RecordsScan(15, 2, 10, len(batch_of(10)) + 61, 5)


def test_tail_cut_at_every_byte() -> None:
    first, second = batch_of(3), batch_of(2, base_offset=3)
    for cut in range(len(second)):
        assert scan(first + second[:cut]) == RecordsScan(3, 1, 3, len(first), 5), cut


def test_only_a_cut_batch() -> None:
    assert scan(batch_of(3)[:-1]) == NOTHING


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_walked_past(magic: int) -> None:
    old = message(magic, 41)
    assert len(old) < 61
    assert scan(old) == RecordsScan(42, 1, 1, len(old))
    following = batch_of(3, base_offset=42)
    assert scan(old + following) == RecordsScan(45, 2, 4, len(old) + len(following), 5)
    assert scan(batch_of(41) + old).next_offset == 42


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_message_counts_as_one_record_at_its_last_offset(magic: int) -> None:
    inner = [message(magic, log_offset) for log_offset in range(3)]
    assert scan(wrapper(magic, 12, inner)).next_offset == 13
    assert scan(wrapper(magic, 12, inner)).record_count == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_leader_epoch_is_the_last_complete_batchs(magic: int) -> None:
    first, second = batch_of(3, leader_epoch=8), batch_of(3, 3, leader_epoch=2)
    assert scan(first).last_leader_epoch == 8
    assert scan(first + second).last_leader_epoch == 2
    assert scan(first + second[:-1]).last_leader_epoch == 8
    assert scan(first + message(magic, 3)).last_leader_epoch == NO_EPOCH
    assert scan(message(magic, 0) + second).last_leader_epoch == 2
    assert scan(batch_of(1, leader_epoch=-1)).last_leader_epoch == NO_EPOCH


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_that_is_cut(magic: int) -> None:
    first = message(magic, 7)
    for cut in range(len(first)):
        assert scan(first + first[:cut]) == RecordsScan(8, 1, 1, len(first)), cut


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"length": 48}, "length field is 48; magic 2 needs 49"),
        ({"length": 0}, "length field is 0"),
        ({"length": -1}, "length field is -1"),
        ({"length": -(2**31)}, "length field is -2147483648"),
        ({"magic": 3}, "magic byte is 3"),
        ({"magic": -1}, "magic byte is -1"),
        ({"magic": 1, "length": 21}, "magic 1 needs 22"),
        ({"magic": 0, "length": 13}, "magic 0 needs 14"),
        ({"base_offset": -1}, "base offset -1"),
        ({"base_offset": 2**63 - 1}, "base offset 9223372036854775807"),
        ({"last_offset_delta": -1}, "last offset delta -1"),
        ({"record_count": -1}, "-1 records"),
        ({"record_count": -(2**31)}, "-2147483648 records"),
    ],
)
def test_header_that_contradicts_itself(fields: dict[str, int], told: str) -> None:
    arguments = {"base_offset": 3} | fields
    bad = record_batch([record(0), record(1)], **arguments)  # type: ignore[arg-type] # every field here is an int
    with pytest.raises(CorruptBatch, match=told) as raised:
        scan(batch_of(3) + bad)
    assert raised.value.byte_position == len(batch_of(3))
    assert raised.value.base_offset == arguments["base_offset"]


def test_error_names_the_topic_partition_when_it_is_known() -> None:
    with pytest.raises(CorruptBatch, match=r"^orders-7: record batch at offset 0 \(byte 0 "):
        scan_record_batches(memoryview(batch_of(1, length=3)), TopicPartition("orders", 7))


def test_largest_offsets() -> None:
    last_base_offset = 2**63 - 1 - 2**31
    edge = record_batch([record(0)], base_offset=last_base_offset, last_offset_delta=2**31 - 1)
    assert scan(edge).next_offset == 2**63 - 1


def test_length_that_reaches_beyond_what_is_there_is_a_cut_tail() -> None:
    announced = struct.pack(">qiib", 3, 2**31 - 1, 0, 2) + bytes(100)
    assert scan(batch_of(3) + announced) == RecordsScan(3, 1, 3, len(batch_of(3)), 5)
