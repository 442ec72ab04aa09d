"""Fetched records to arrow batches: which rows come out, how they are cut, and what is refused."""

from __future__ import annotations

import gc
import io
import pickle
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.schema import NewRecordBatch, Record, RecordHeader
from kio.records.writers import write_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from connector.errors import CorruptBatch, LocalViolation, RecordDecodeError, UnsupportedFeature
from connector.model import TopicPartition
from connector.records.arrow import RowBuilder, arrow_schema
from tests.unit.records.record_bytes import (
    CODEC_NUMBERS,
    CONTROL,
    LOG_APPEND,
    TRANSACTIONAL,
    Headers,
    batch_of,
    old_message,
    record,
    record_batch,
    sized,
    varint,
)

ORDERS = TopicPartition("orders", 3)
EVERYTHING = (0, 2**63 - 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def arrow_batches(
    records: bytes,
    wanted: tuple[int, int] = EVERYTHING,
    *,
    include_headers: bool = False,
    **limits: int,
) -> list[pa.RecordBatch]:
    builder = RowBuilder(include_headers=include_headers, **limits)
    batches = list(builder.append(ORDERS, memoryview(records), *wanted))
    rest = builder.finish()
    if rest is not None:
        batches.append(rest)
    for each in batches:
        each.validate(full=True)
        assert each.num_rows > 0
        assert each.schema.equals(arrow_schema(include_headers), check_metadata=True)
    assert builder.row_count == sum(each.num_rows for each in batches)
    return batches


def rows(records: bytes, wanted: tuple[int, int] = EVERYTHING, **options: Any) -> list[dict[str, Any]]:
    return [row for each in arrow_batches(records, wanted, **options) for row in each.to_pylist()]


def offsets(records: bytes, wanted: tuple[int, int] = EVERYTHING) -> list[int]:
    return [row["offset"] for row in rows(records, wanted)]


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


@pytest.mark.parametrize("codec", [codec for codec in CODEC_NUMBERS if codec != "none"])
def test_damage_below_a_good_checksum(codec: str) -> None:
    bad = record_batch([record(0)], base_offset=3, codec=codec, body=b"\x82SNAPPY\0 no codec wrote this")
    with pytest.raises(CorruptBatch, match=codec.partition("-")[0]) as raised:
        rows(batch_of(3) + bad)
    assert (raised.value.base_offset, raised.value.byte_position) == (3, len(batch_of(3)))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(UnsupportedFeature, match=f"codec {codec}"):
        rows(batch_of(3, attributes=codec))


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


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), None),
        ([(b"a", b"1")], [{"key": "a", "value": b"1"}]),
        ([(b"a", None)], [{"key": "a", "value": None}]),
        ([(b"", b"")], [{"key": "", "value": b""}]),
        (
            [(b"a", b"1"), (b"b", None), (b"a", b"2")],
            [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b"2"}],
        ),
        ([("größe".encode(), b"\xff")], [{"key": "größe", "value": b"\xff"}]),
    ],
    ids=["none", "one", "null value", "empty", "duplicate key", "text"],
)
def test_headers(headers: Headers, expected: object) -> None:
    written = record_batch([record(0, headers=[(b"x", b"y")]), record(1, headers=headers), record(2)])
    assert [row["headers"] for row in rows(written, include_headers=True)] == [
        [{"key": "x", "value": b"y"}],
        expected,
        None,
    ]


def test_many_headers_in_one_record() -> None:
    headers = [(b"header %d" % i, None if i % 7 == 0 else b"%d" % i) for i in range(5000)]
    found = rows(record_batch([record(0), record(1, headers=headers)]), include_headers=True)
    assert [(each["key"].encode(), each["value"]) for each in found[1]["headers"]] == headers


@pytest.mark.parametrize(
    ("key", "java"),
    [
        ("61ff62", "a\ufffdb"),
        ("c080", "\ufffd\ufffd"),
        ("e28241", "\ufffdA"),
        ("e282", "\ufffd"),
        ("e08080", "\ufffd\ufffd\ufffd"),
        ("eda080", "\ufffd"),
        ("edb080ed9fbf", "\ufffd\ud7ff"),
        ("eda0", "\ufffd"),
        ("eda041", "\ufffdA"),
        ("ed80", "\ufffd"),
        ("f09f92", "\ufffd"),
        ("f09f9241", "\ufffdA"),
        ("f4908080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f8888080", "\ufffd\ufffd\ufffd\ufffd"),
        ("f09f9280", "\U0001f480"),
    ],
)
def test_header_key_that_is_no_utf_8_reads_as_in_java(key: str, java: str) -> None:
    """Expected: what ``new String(bytes, UTF_8)`` of OpenJDK 17 gives for these bytes."""
    headers = [("é".encode(), b"1"), (bytes.fromhex(key), b"2"), (b"plain", None)]
    found = rows(record_batch([record(0, headers=headers)]), include_headers=True)
    assert [each["key"] for each in found[0]["headers"]] == ["é", java, "plain"]


def test_character_split_over_two_header_keys_is_not_one() -> None:
    whole = "é".encode()
    found = rows(record_batch([record(0, headers=[(whole[:1], b""), (whole[1:], b"")])]), include_headers=True)
    assert [each["key"] for each in found[0]["headers"]] == ["\ufffd", "\ufffd"]


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


@pytest.mark.parametrize("milliseconds", [9_223_372_036_854_776, -9_223_372_036_854_776, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("attributes", [0, LOG_APPEND])
def test_timestamp_that_spark_can_not_hold(milliseconds: int, attributes: int) -> None:
    written = record_batch([record(0)], attributes=attributes, base_timestamp=milliseconds, max_timestamp=milliseconds)
    with pytest.raises(RecordDecodeError, match="timestamp is more than Spark can hold"):
        rows(written)


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


def test_what_lies_behind_the_end_is_not_looked_at() -> None:
    broken = bytearray(batch_of(5, 5))
    broken[-1] ^= 1
    assert offsets(batch_of(5) + broken, (0, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptBatch):
        offsets(batch_of(5) + broken, (0, 6))


def test_control_batches_make_no_rows() -> None:
    marker = record_batch([record(0, b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=3, attributes=CONTROL | TRANSACTIONAL)
    assert offsets(batch_of(3) + marker + batch_of(2, 4)) == [0, 1, 2, 4, 5]


def test_transactional_batches_are_batches() -> None:
    assert offsets(batch_of(3, attributes=TRANSACTIONAL)) == [0, 1, 2]


def test_every_bit_that_the_checksum_covers() -> None:
    good = batch_of(2)
    for at in range(17, len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                rows(bytes(bad))


def test_leader_epoch_is_not_covered_since_brokers_rewrite_it() -> None:
    rewritten = bytearray(batch_of(2))
    rewritten[12:16] = b"\xff" * 4
    assert offsets(bytes(rewritten)) == [0, 1]


def test_checksum_is_castagnoli() -> None:
    """Bit by bit, from the polynomial of RFC 3720."""
    written = bytearray(batch_of(2))
    register = 0xFFFFFFFF
    for byte in written[21:]:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    written[17:21] = (register ^ 0xFFFFFFFF).to_bytes(4, "big")
    assert offsets(bytes(written)) == [0, 1]


def test_checksum_error_says_where() -> None:
    bad = bytearray(batch_of(2, 3))
    bad[30] ^= 1
    with pytest.raises(
        CorruptBatch, match=r"^orders-3: record batch at offset 3 \(byte \d+ .*checksum is 0x"
    ) as raised:
        rows(batch_of(3) + bad)
    assert raised.value.byte_position == len(batch_of(3))
    copy = pickle.loads(pickle.dumps(raised.value))
    assert str(copy) == str(raised.value)


def test_skipped_batches_are_verified_too() -> None:
    """Its last offset delta decides that a batch is skipped, so nobody may have changed it."""
    bad = bytearray(batch_of(3))
    bad[30] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        rows(bytes(bad) + batch_of(3, 3), (3, 6))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats(magic: int) -> None:
    with pytest.raises(UnsupportedFeature, match=f"format {magic}, from before Kafka 0.11") as raised:
        rows(batch_of(3) + old_message(magic, 3))
    assert (raised.value.base_offset, raised.value.byte_position) == (3, len(batch_of(3)))


def test_unknown_magic() -> None:
    with pytest.raises(CorruptBatch, match="magic byte is 9"):
        rows(batch_of(3, magic=9))


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize(
    ("records", "count", "told"),
    [
        ([record(0)], 2**31 - 1, r"record 2 of 2147483647, at byte 9 of its records: the batch ends before"),
        ([record(0), record(1)], 1, r"record 2 of 1, at byte 9 of its records: the batch goes on"),
        ([record(0), record(1, body_length=99)], 2, r"record 2 of 2, at byte 9 of its records: its length"),
        ([record(0), record(0)], 2, "offset delta"),
        ([record(9)], 1, "offset delta"),
        ([varint(8) + b"\0\0\0" + varint(50) + b"\0\0\0\0"], 1, "key"),
        ([varint(8) + b"\0\0\0" + sized(None) + varint(50) + b"\0\0\0"], 1, "value"),
        ([record(0, header_count=-1)], 1, "header count"),
        ([record(0, header_count=9)], 1, "header count"),
        ([record(0, headers=[(b"ab", b"")], header_count=0)], 1, "not that of its fields"),
        ([varint(8) + b"\0\0\0" + sized(None) * 2 + varint(1) + varint(-1) + varint(0)], 1, "header key"),
        ([varint(8) + b"\0\0\0" + sized(None) * 2 + varint(1) + varint(0) + varint(9)], 1, "header value"),
    ],
)
def test_records_that_contradict_themselves(codec: str, records: list[bytes], count: int, told: str) -> None:
    bad = record_batch(records, base_offset=3, record_count=count, codec=codec, last_offset_delta=8)
    with pytest.raises(CorruptBatch, match=told) as raised:
        rows(batch_of(3) + bad, include_headers=True)
    assert (raised.value.base_offset, raised.value.byte_position) == (3, len(batch_of(3)))


def row_counts(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [each.num_rows for each in batches]


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


def test_builder_that_failed_gives_nothing() -> None:
    builder = RowBuilder(include_headers=True)
    bad = record_batch([record(0), record(1, headers=[(b"h", b""), (b"h", b"")], body_length=9)])
    with pytest.raises(CorruptBatch):
        list(builder.append(ORDERS, memoryview(bad), *EVERYTHING))
    with pytest.raises(LocalViolation, match="failed"):
        builder.finish()
