"""How rows are cut into arrow batches, and the memory that these hold."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from connector.errors import LocalViolation
from connector.model import TopicPartition
from connector.records.arrow import RowBuilder
from tests.unit.records.built_rows import EVERYTHING, ORDERS, arrow_batches, offsets, row_counts, rows
from tests.unit.records.record_bytes import batch_of, record, record_batch


def test_row_limit_cuts_within_batches() -> None:
    batches = arrow_batches(batch_of(10) + batch_of(4, 10), max_rows=3)
    assert row_counts(batches) == [3, 3, 3, 3, 2]
    assert [row for each in batches for row in each.to_pylist()] == rows(batch_of(10) + batch_of(4, 10))


def test_full_arrow_batch_does_not_wait() -> None:
    builder = RowBuilder(include_headers=False, max_rows=5)
    assert row_counts(builder.append(ORDERS, memoryview(batch_of(5)), *EVERYTHING)) == [5]
    assert builder.finish() is None


def test_byte_limit_is_on_what_records_measure() -> None:
    one = record(0, b"k", bytes(100))
    written = record_batch([record(i, b"k", bytes(100)) for i in range(10)])
    assert row_counts(arrow_batches(written, max_bytes=3 * len(one))) == [3, 3, 3, 1]
    assert row_counts(arrow_batches(written, max_bytes=3 * len(one) - 1)) == [2] * 5


def test_record_larger_than_the_byte_limit_is_alone() -> None:
    large = bytes(range(256)) * 400
    written = record_batch([record(0), record(1, large, large, [(b"h", large)]), record(2)])
    batches = arrow_batches(written, include_headers=True, max_bytes=1000)
    assert row_counts(batches) == [1, 1, 1]
    assert batches[1].to_pylist()[0]["value"] == large
    assert batches[1].to_pylist()[0]["headers"] == [{"key": "h", "value": large}]


def test_values_that_outgrow_what_was_expected() -> None:
    values = [bytes([i]) * (i * i * 10) for i in range(100)]
    written = b"".join(
        record_batch([record(0, b"%d" % i * i, value)], base_offset=i, codec="zstd") for i, value in enumerate(values)
    )
    found = rows(written)
    assert [row["value"] for row in found] == values
    assert [row["key"] for row in found] == [b"%d" % i * i for i in range(100)]


@pytest.mark.parametrize(
    "limits", [{"max_rows": 0}, {"max_rows": 2**31 // 249 + 1}, {"max_bytes": 0}, {"max_bytes": 2**31}]
)
def test_limits_that_32_bit_offsets_can_not_keep(limits: dict[str, int]) -> None:
    with pytest.raises(LocalViolation, match="can't be made"):
        RowBuilder(include_headers=False, **limits)


def test_topic_partitions_share_an_arrow_batch() -> None:
    builder = RowBuilder(include_headers=False, max_rows=8)
    full = []
    appended = [
        (TopicPartition("orders", 0), batch_of(3)),
        (TopicPartition("idle", 5), b""),
        (TopicPartition("größe", 1), batch_of(2)),
        (TopicPartition("orders", 2), batch_of(7)),
    ]
    for topic_partition, records in appended:
        full += list(builder.append(topic_partition, memoryview(records), *EVERYTHING))
    rest = builder.finish()
    assert rest is not None
    assert row_counts([*full, rest]) == [8, 4]
    assert [(row["topic"], row["partition"], row["offset"]) for each in [*full, rest] for row in each.to_pylist()] == [
        (*topic_partition, i) for topic_partition, records in appended for i in range(len(offsets(records)))
    ]


def test_builder_goes_on_after_finish() -> None:
    builder = RowBuilder(include_headers=False)
    for base_offset in (0, 10):
        assert list(builder.append(ORDERS, memoryview(batch_of(2, base_offset)), *EVERYTHING)) == []
        rest = builder.finish()
        assert rest is not None
        assert rest.column("offset").to_pylist() == [base_offset, base_offset + 1]
    assert builder.row_count == 4


def test_thousands_of_tiny_batches() -> None:
    written = b"".join(batch_of(1, base_offset) for base_offset in range(5000))
    batches = arrow_batches(written, max_rows=2000)
    assert row_counts(batches) == [2000, 2000, 1000]
    assert [value for each in batches for value in each.column("value").to_pylist()] == [
        b"v%d" % i for i in range(5000)
    ]


def test_thousands_of_topic_partitions() -> None:
    builder = RowBuilder(include_headers=False)
    for partition in range(3000):
        assert list(builder.append(TopicPartition("t", partition), memoryview(batch_of(1)), *EVERYTHING)) == []
    rest = builder.finish()
    assert rest is not None
    assert rest.column("partition").to_pylist() == list(range(3000))


def test_rows_are_copies() -> None:
    source = bytearray(batch_of(3))
    builder = RowBuilder(include_headers=False)
    assert list(builder.append(ORDERS, memoryview(source), *EVERYTHING)) == []
    source[:] = bytes(len(source))
    rest = builder.finish()
    assert rest is not None
    assert rest.column("value").to_pylist() == [b"v0", b"v1", b"v2"]


def test_arrow_batches_hold_no_spare_memory_and_the_builder_holds_no_arrow_batch() -> None:
    written = record_batch([record(i, None, bytes(1000), [(b"h", b"1")]) for i in range(20)])
    builder = RowBuilder(include_headers=True)
    gc.collect()
    before = pa.total_allocated_bytes()
    assert list(builder.append(ORDERS, memoryview(written), *EVERYTHING)) == []
    rest = builder.finish()
    assert rest is not None
    assert rest.get_total_buffer_size() < 24_000
    assert pa.total_allocated_bytes() - before < 30_000
    del rest
    assert pa.total_allocated_bytes() - before < 1_000


def test_what_is_sent_is_what_is_used() -> None:
    written = record_batch([record(i, b"key", bytes(1000), [(b"h", None)]) for i in range(20)])
    sink = pa.BufferOutputStream()
    batch = arrow_batches(written, include_headers=True)[0]
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    sent = sink.getvalue()
    assert sent.size < 26_000
    assert pa.ipc.open_stream(sent).read_all().to_batches()[0].equals(batch)


def test_append_that_was_left_early_is_not_taken_for_done() -> None:
    builder = RowBuilder(include_headers=False, max_rows=2)
    next(builder.append(ORDERS, memoryview(batch_of(5)), *EVERYTHING))
    with pytest.raises(LocalViolation, match="before its end"):
        builder.finish()
    with pytest.raises(LocalViolation, match="before its end"):
        next(builder.append(ORDERS, memoryview(batch_of(5)), *EVERYTHING))
