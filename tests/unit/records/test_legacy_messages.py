"""Messages of magic 0 and 1: what becomes of odd but true ones, and which are refused.

Expected: Java's ``LegacyRecord`` and ``AbstractLegacyRecordBatch``; what they wrote is in `test_golden_records`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.errors import CorruptBatch, UnsupportedFeature
from connector.records.layout import scan_record_batches
from tests.unit.records.built_rows import EPOCH, EVERYTHING, arrow_batches, offsets, rows
from tests.unit.records.record_bytes import CODEC_NUMBERS, LOG_APPEND, batch_of, message, wrapper

OLD_CODECS = [codec for codec in CODEC_NUMBERS if codec != "zstd"]
INT64_MAX = 2**63 - 1
either_magic = pytest.mark.parametrize("magic", [0, 1])


def wrapped(magic: int, log_offset: int, count: int, codec: str = "gzip", **fields: Any) -> bytes:
    """Messages up to an offset, in a wrapper as brokers write it."""
    first = log_offset - count + 1 if magic == 0 else 0
    return wrapper(magic, log_offset, [message(magic, first + i) for i in range(count)], codec, **fields)


def refused(records: bytes, wanted: tuple[int, int] = EVERYTHING) -> str:
    """Return the reason why these records are refused, and see to it that it says where."""
    in_front = batch_of(3)
    with pytest.raises(CorruptBatch) as raised:
        offsets(in_front + records, wanted)
    assert raised.value.byte_position == len(in_front)
    assert raised.value.base_offset == struct.unpack_from(">q", records)[0]
    return raised.value.reason


@st.composite
def message_sets(draw: Callable[..., Any]) -> tuple[bytes, list[tuple[Any, ...]]]:
    """Messages of both formats, plain and wrapped, with gaps as compaction leaves them; and the rows to expect."""
    written, expected = b"", []
    log_offset = draw(st.integers(1, 5))
    any_bytes = st.none() | st.binary(max_size=20)
    for _ in range(draw(st.integers(1, 4))):
        magic, is_log_append = draw(st.sampled_from([(0, False), (1, False), (1, True)]))
        codec = draw(st.sampled_from(OLD_CODECS))
        first, inner = log_offset, []
        outer_ms = draw(st.integers(0, 10**12))
        for _ in range(draw(st.integers(1, 4)) if codec != "none" else 1):
            key, value, timestamp_ms = draw(any_bytes), draw(any_bytes), draw(st.integers(-1, 10**12))
            if codec == "none" and is_log_append:
                timestamp_ms = outer_ms
            inner.append((log_offset, key, value, timestamp_ms))
            seen_ms = -1 if magic == 0 else outer_ms if is_log_append else timestamp_ms
            expected.append((log_offset, key, value, seen_ms, -1 if magic == 0 else int(is_log_append)))
            log_offset += draw(st.sampled_from([1, 1, 2, 9]))
        attributes = LOG_APPEND if is_log_append else 0
        if codec == "none":
            written += message(magic, *inner[0][:3], timestamp_ms=inner[0][3], attributes=attributes)
            continue
        shift = 0 if magic == 0 else first
        encoded = [message(magic, at - shift, key, value, timestamp_ms=ms) for at, key, value, ms in inner]
        attributes |= CODEC_NUMBERS[codec]
        written += wrapper(magic, inner[-1][0], encoded, codec, attributes=attributes, timestamp_ms=outer_ms)
    return written, expected


@settings(max_examples=60, deadline=None)
@given(message_sets(), st.integers(0, 30), st.integers(0, 60), st.integers(1, 5))
def test_rows_of_any_messages(
    messages: tuple[bytes, list[tuple[Any, ...]]], start_offset: int, end_offset: int, max_rows: int
) -> None:
    written, expected = messages
    found = rows(written, (start_offset, end_offset), max_rows=max_rows, include_headers=True)
    assert [
        (
            row["offset"],
            row["key"],
            row["value"],
            round((row["timestamp"] - EPOCH).total_seconds() * 1000),
            row["timestampType"],
        )
        for row in found
    ] == [each for each in expected if start_offset <= each[0] < end_offset]
    assert all(row["headers"] is None for row in found)


@either_magic
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_every_codec(magic: int, codec: str) -> None:
    written = wrapped(magic, 12, 3, codec) if codec != "none" else b"".join(message(magic, i) for i in (10, 11, 12))
    assert offsets(batch_of(10) + written + batch_of(2, 13)) == list(range(15))


def test_wrappers_offset_reaches_over_what_compaction_took_from_its_end() -> None:
    """Java counts back from the last message that is there, whatever was behind it."""
    assert offsets(wrapper(1, 12, [message(1, 0), message(1, 4)])) == [8, 12]
    assert offsets(wrapper(0, 12, [message(0, 3), message(0, 7)])) == [3, 7]


@either_magic
def test_wrapper_at_offset_zero_has_offsets_from_zero_on(magic: int) -> None:
    """Some versions of librdkafka sent such."""
    written = wrapper(magic, 0, [message(magic, i) for i in range(4)])
    assert offsets(written) == [0, 1, 2, 3]
    assert offsets(written, (2, 4)) == [2, 3]
    assert scan_record_batches(memoryview(written)).next_offset == 1


@pytest.mark.parametrize("at_ms", [INT64_MAX // 1000, -(INT64_MAX // 1000)])
def test_extreme_timestamps(at_ms: int) -> None:
    for attributes in (0, LOG_APPEND):
        [batch] = arrow_batches(message(1, 5, timestamp_ms=at_ms, attributes=attributes))
        assert batch.column("timestamp").cast("int64").to_pylist() == [at_ms * 1000]
        with pytest.raises(UnsupportedFeature, match="record 1 of 1: its timestamp is more than Spark can hold"):
            rows(message(1, 5, timestamp_ms=at_ms + (1 if at_ms > 0 else -1), attributes=attributes))


@either_magic
@pytest.mark.parametrize("size", [-1, -2, -(2**31)])
def test_any_negative_length_is_null(magic: int, size: int) -> None:
    stamped = b"" if magic == 0 else bytes(8)
    body = bytes([magic, 0]) + stamped + struct.pack(">ii", size, size)
    [row] = rows(with_checksum(3, body))
    assert (row["key"], row["value"]) == (None, None)


def with_checksum(log_offset: int, body: bytes) -> bytes:
    """A message whose bytes from the magic on are given."""
    return struct.pack(">qiI", log_offset, len(body) + 4, zlib.crc32(body)) + body


@either_magic
def test_what_lies_behind_the_end_is_not_looked_at(magic: int) -> None:
    """A wrapper may begin in front of the end, but what follows the first that reaches it can't."""
    broken = bytearray(wrapped(magic, 9, 2))
    broken[-1] ^= 1
    written = message(magic, 3) + wrapped(magic, 7, 4) + bytes(broken)
    assert offsets(written, (0, 4)) == [3]
    assert offsets(written, (0, 6)) == [3, 4, 5]
    assert offsets(written, (0, 7)) == [3, 4, 5, 6]
    with pytest.raises(CorruptBatch):
        offsets(written, (0, 8))
    assert offsets(wrapped(magic, 7, 4) + message(magic, 8)[:-1] + b"?", (0, 8)) == [4, 5, 6, 7]
    assert offsets(batch_of(3) + message(magic, 3)[:-1] + b"?", (0, 3)) == [0, 1, 2]


@either_magic
def test_what_lies_below_the_start_is_verified_but_not_opened(magic: int) -> None:
    unreadable = wrapper(magic, 7, [], value=b"no gzip")
    assert offsets(unreadable + message(magic, 8), (8, 9)) == [8]
    broken = bytearray(unreadable)
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        offsets(bytes(broken) + message(magic, 8), (8, 9))


@either_magic
def test_every_bit_that_the_checksum_covers(magic: int) -> None:
    for good in (message(magic, 3), wrapped(magic, 3, 1)):
        for at in range(16, len(good)):
            bad = bytearray(good)
            bad[at] ^= 0x10
            with pytest.raises(CorruptBatch):
                rows(bytes(bad))


@either_magic
def test_checksum_of_an_inner_message(magic: int) -> None:
    first = 0 if magic else 2
    bad = bytearray(message(magic, first + 1))
    bad[-1] ^= 1
    assert "message 2 inside it: its checksum is 0x" in refused(wrapper(magic, 3, [message(magic, first), bytes(bad)]))


@either_magic
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (struct.pack(">i", 5) + b"four", "its key goes beyond the message"),
        (struct.pack(">i", 2**31 - 1) + b"four", "its key goes beyond the message"),
        (struct.pack(">i", 4) + b"four", "its value goes beyond the message"),
        (struct.pack(">i", 2) + b"ab" + b"\0\0", "its value goes beyond the message"),
        (struct.pack(">i", -1) + struct.pack(">i", 1), "its value goes beyond the message"),
        (struct.pack(">ii", -1, -1) + b"?", "its length is not that of its fields"),
    ],
)
def test_fields_that_do_not_fit(magic: int, body: bytes, told: str) -> None:
    stamped = b"" if magic == 0 else bytes(8)
    assert told in refused(with_checksum(3, bytes([magic, 0]) + stamped + body))
    inner = with_checksum(0, bytes([magic, 0]) + stamped + body)
    assert f"message 1 inside it: {told}" in refused(wrapper(magic, 3, [inner]))


@either_magic
def test_wrapper_that_contradicts_itself(magic: int) -> None:
    good, other = message(magic, 0), message(1 - magic, 1)
    cases = {
        "null value": wrapper(magic, 3, [], value=None),
        "nothing is inside": wrapper(magic, 3, []),
        "compressed with zstd": wrapper(magic, 3, [good], "zstd"),
        "message 2 inside it has another format": wrapper(magic, 3, [good, other]),
        "message 1 inside it has another format, or is compressed itself": wrapper(magic, 3, [wrapped(magic, 0, 1)]),
        "message 1 inside it: a message of magic 2": wrapper(magic, 3, [batch_of(1)]),
        "message 2 inside it: its 10 bytes are less": wrapper(magic, 3, [good, message(magic, 1)[:10]]),
        "message 2 inside it: a message of magic": wrapper(magic, 3, [good, message(magic, 1)[:-1]]),
        "message 1 inside it: its offset -1 can't be one": wrapper(magic, 3, [message(magic, -1)]),
        "the larger offset 4": wrapper(magic, 3, [message(magic, 4)]),
        "do not ascend": wrapper(magic, 3, [message(magic, 1), message(magic, 1)]),
        "do not ascend, or too far": wrapper(magic, 2**40, [message(magic, 0), message(magic, 2**40)]),
        "can't be decompressed with gzip": wrapper(magic, 3, [], value=b"no gzip"),
        "can't be decompressed with lz4": wrapper(magic, 3, [], "lz4", value=b"\x04\x22"),
        "can't be decompressed with snappy": wrapper(magic, 3, [], "snappy", value=b""),
    }
    for told, written in cases.items():
        assert told in refused(written), told


@settings(max_examples=100, deadline=None)
@given(message_sets(), st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=3), st.integers(0, 40))
def test_whatever_is_inside_a_wrapper_is_read_or_refused(
    messages: tuple[bytes, list[tuple[Any, ...]]], damage: list[tuple[int, int]], cut: int
) -> None:
    inner = bytearray(messages[0])
    for at, byte in damage:
        inner[at % len(inner)] = byte
    inner = inner[: len(inner) - cut]
    for magic in (0, 1):
        try:
            found = offsets(wrapper(magic, 1000, [bytes(inner)]))
        except CorruptBatch:
            continue
        assert found == sorted(set(found))
        assert found[-1] <= 1000


@either_magic
@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(magic: int, codec: int) -> None:
    with pytest.raises(UnsupportedFeature, match=f"codec {codec}"):
        rows(message(magic, 3, attributes=codec))


@either_magic
@pytest.mark.parametrize("length", [-1, 0, 13, 2**31 - 1])
def test_length_of_an_inner_message_that_can_not_be(magic: int, length: int) -> None:
    told = refused(wrapper(magic, 3, [message(magic, 0, length=length)]))
    assert f"message 1 inside it: a message of magic {magic} and length {length} does not fit there" in told


def test_lz4_header_checksum_matters_from_magic_1_on() -> None:
    """Clients up to 0.9 got it wrong, so Java does not look at it in magic 0."""
    for magic in (0, 1):
        frame = bytearray(wrapped(magic, 3, 2, "lz4"))
        at = frame.index(b"\x04\x22\x4d\x18") + 6
        frame[at] ^= 0xFF
        written = with_checksum(3, bytes(frame[16:]))
        if magic == 0:
            assert offsets(written) == [2, 3]
        else:
            assert "can't be decompressed with lz4" in refused(written)
