"""Fetched records to arrow batches: which rows come out, and what is in them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.schema import NewRecordBatch, Record, RecordHeader
from kio.records.writers import write_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from connector.records.arrow import RowBuilder, arrow_schema
from tests.unit.records.built_rows import EPOCH, arrow_batches, offsets, rows
from tests.unit.records.record_bytes import (
    CODEC_NUMBERS,
    CONTROL,
    LOG_APPEND,
    TRANSACTIONAL,
    batch_of,
    record,
    record_batch,
)


def test_schema_is_sparks() -> None:
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema

    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    spark_schema = (
        types.StructType()
        .add("key", types.BinaryType())
        .add("value", types.BinaryType())
        .add("topic", types.StringType())
        .add("partition", types.IntegerType())
        .add("offset", types.LongType())
        .add("timestamp", types.TimestampType())
        .add("timestampType", types.IntegerType())
    )
    assert arrow_schema(False).equals(to_arrow_schema(spark_schema, timezone="UTC"), check_metadata=True)
    spark_schema.add("headers", types.ArrayType(header))
    assert str(arrow_schema(True)) == str(to_arrow_schema(spark_schema, timezone="UTC"))


def test_one_record() -> None:
    written = record_batch([record(0, b"key", b"value", timestamp_delta=7)], base_offset=41, base_timestamp=1000)
    assert rows(written) == [
        {
            "key": b"key",
            "value": b"value",
            "topic": "orders",
            "partition": 3,
            "offset": 41,
            "timestamp": EPOCH + timedelta(milliseconds=1007),
            "timestampType": 0,
        }
    ]


def test_nothing_to_append() -> None:
    assert rows(b"") == []
    assert RowBuilder(include_headers=True).finish() is None


any_bytes = st.none() | st.binary(max_size=40)


any_text = st.text(max_size=8)


any_record = st.tuples(
    any_bytes, any_bytes, st.lists(st.tuples(any_text, any_bytes), max_size=3), st.integers(0, 10**7)
)


def as_another_writer_writes(base_offset: int, records: Sequence[tuple[Any, ...]]) -> bytes:
    written = io.BytesIO()
    entities = tuple(
        Record(
            attributes=i8(0),
            timestamp=TZAwareMicros.parse(EPOCH + timedelta(seconds=seconds)),
            offset=i64(base_offset + index),
            key=key,
            value=value,
            headers=tuple(RecordHeader(key=name.encode(), value=content) for name, content in headers),
        )
        for index, (key, value, headers, seconds) in enumerate(records)
    )
    write_batch(
        written,
        NewRecordBatch(
            producer_id=i64(9), producer_epoch=i16(1), base_sequence=i32(0), attributes=i16(0), records=entities
        ),
    )
    return written.getvalue()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(any_record, min_size=1, max_size=12), max_size=4),
    st.integers(0, 30),
    st.integers(0, 60),
    st.integers(1, 20),
    st.integers(1, 300),
)
def test_what_another_writer_wrote(
    batches: list[list[tuple[Any, ...]]], start_offset: int, end_offset: int, max_rows: int, max_bytes: int
) -> None:
    written = b""
    expected: list[tuple[Any, ...]] = []
    for records in batches:
        written += as_another_writer_writes(len(expected), records)
        expected += records
    found = rows(written, (start_offset, end_offset), include_headers=True, max_rows=max_rows, max_bytes=max_bytes)
    assert [
        (row["offset"], row["key"], row["value"], row["headers"], row["timestamp"], row["timestampType"])
        for row in found
    ] == [
        (
            log_offset,
            key,
            value,
            [{"key": name, "value": content} for name, content in headers] or None,
            EPOCH + timedelta(seconds=seconds),
            0,
        )
        for log_offset, (key, value, headers, seconds) in enumerate(expected)
        if start_offset <= log_offset < end_offset
    ]


@pytest.mark.parametrize("codec", CODEC_NUMBERS)
def test_every_codec(codec: str) -> None:
    written = b"".join(batch_of(50, base_offset, codec=codec) for base_offset in (0, 50))
    assert rows(written, max_rows=30) == rows(batch_of(50) + batch_of(50, 50))
    assert offsets(written, (10, 70)) == list(range(10, 70))


def test_null_is_not_empty() -> None:
    written = record_batch([record(0, None, b""), record(1, b"", None), record(2, None, None), record(3)])
    found = rows(written)
    assert [row["key"] for row in found] == [None, b"", None, b"k"]
    assert [row["value"] for row in found] == [b"", None, None, b"v"]


def test_nulls_across_validity_bytes() -> None:
    written = record_batch([record(i, None if i % 3 else b"k", None if i % 5 else b"v") for i in range(100)])
    found = rows(written, max_rows=37)
    assert [row["key"] for row in found] == [None if i % 3 else b"k" for i in range(100)]
    assert [row["value"] for row in found] == [None if i % 5 else b"v" for i in range(100)]


def test_log_append_time() -> None:
    records = [record(0, timestamp_delta=5), record(1, timestamp_delta=-6)]
    written = record_batch(records, attributes=LOG_APPEND, base_timestamp=1000, max_timestamp=4321)
    written += batch_of(1, 2, base_timestamp=1000)
    assert [(row["timestamp"], row["timestampType"]) for row in rows(written)] == [
        (EPOCH + timedelta(milliseconds=4321), 1),
        (EPOCH + timedelta(milliseconds=4321), 1),
        (EPOCH + timedelta(milliseconds=1000), 0),
    ]


@pytest.mark.parametrize("delta", [-1, -1_000, -(2**40), 0, 2**40])
def test_timestamp_deltas_of_either_sign(delta: int) -> None:
    written = record_batch([record(0, timestamp_delta=delta)], base_timestamp=1_700_000_000_000)
    timestamp = arrow_batches(written)[0].column("timestamp").cast(pa.int64())
    assert timestamp.to_pylist() == [(1_700_000_000_000 + delta) * 1000]


def test_missing_timestamp_is_one_millisecond_before_the_epoch_as_in_spark() -> None:
    assert rows(record_batch([record(0)], base_timestamp=-1))[0]["timestamp"] == EPOCH - timedelta(milliseconds=1)


def test_tail_cut_at_every_byte() -> None:
    first, second = batch_of(3), batch_of(2, 3)
    for cut in range(len(second)):
        assert offsets(first + second[:cut]) == [0, 1, 2], cut


def test_gaps_within_and_between_batches() -> None:
    compacted = record_batch([record(2), record(7)], base_offset=10, last_offset_delta=9)
    assert offsets(compacted + batch_of(2, 30)) == [12, 17, 30, 31]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batch_that_compaction_left_empty(codec: str) -> None:
    empty = record_batch([], base_offset=3, last_offset_delta=6, codec=codec, body=b"")
    assert offsets(batch_of(3) + empty + batch_of(1, 10)) == [0, 1, 2, 10]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((4, 2**63 - 1), [4, 5, 6, 7, 8, 9]),
        ((0, 4), [0, 1, 2, 3]),
        ((4, 5), [4]),
        ((5, 7), [5, 6]),
        ((4, 4), []),
        ((10, 20), []),
        ((0, 0), []),
    ],
)
def test_range_begins_and_ends_anywhere(wanted: tuple[int, int], expected: list[int]) -> None:
    assert offsets(batch_of(5) + batch_of(5, 5), wanted) == expected


def test_what_lies_below_the_start_is_not_decompressed() -> None:
    unreadable = record_batch([record(0)], codec="zstd", body=b"no zstd")
    assert offsets(unreadable + batch_of(2, 1), (1, 3)) == [1, 2]


def test_control_batches_make_no_rows() -> None:
    marker = record_batch([record(0, b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=3, attributes=CONTROL | TRANSACTIONAL)
    assert offsets(batch_of(3) + marker + batch_of(2, 4)) == [0, 1, 2, 4, 5]


def test_transactional_batches_are_batches() -> None:
    assert offsets(batch_of(3, attributes=TRANSACTIONAL)) == [0, 1, 2]
