"""Records that are refused: what the error says, and what is looked at at all."""

from __future__ import annotations

import pickle

import pytest

from connector.errors import CorruptBatch, LocalViolation, RecordDecodeError, UnsupportedFeature
from connector.records.arrow import RowBuilder
from tests.unit.records.built_rows import EVERYTHING, ORDERS, offsets, rows
from tests.unit.records.record_bytes import CODEC_NUMBERS, LOG_APPEND, batch_of, record, record_batch, sized, varint


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


@pytest.mark.parametrize("milliseconds", [9_223_372_036_854_776, -9_223_372_036_854_776, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("attributes", [0, LOG_APPEND])
def test_timestamp_that_spark_can_not_hold(milliseconds: int, attributes: int) -> None:
    written = record_batch([record(0)], attributes=attributes, base_timestamp=milliseconds, max_timestamp=milliseconds)
    with pytest.raises(RecordDecodeError, match="timestamp is more than Spark can hold"):
        rows(written)


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


def test_what_lies_behind_the_end_is_not_looked_at() -> None:
    broken = bytearray(batch_of(5, 5))
    broken[-1] ^= 1
    assert offsets(batch_of(5) + broken, (0, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptBatch):
        offsets(batch_of(5) + broken, (0, 6))


def test_builder_that_failed_gives_nothing() -> None:
    builder = RowBuilder(include_headers=True)
    bad = record_batch([record(0), record(1, headers=[(b"h", b""), (b"h", b"")], body_length=9)])
    with pytest.raises(CorruptBatch):
        list(builder.append(ORDERS, memoryview(bad), *EVERYTHING))
    with pytest.raises(LocalViolation, match="failed"):
        builder.finish()
