"""Messages of magic 0 and 1, which segments from before Kafka 0.11 may still hold, as records of format 2.

A message is offset, length, CRC-32, magic, attributes, key and value, with a timestamp in front of the key since
magic 1. Compressed messages travel as the value of a wrapper message, whose offset is that of the last one inside.
Inside a wrapper of magic 0 offsets are the log's; of magic 1, relative to each other. Once read, the messages are
written down as format 2 has them, so that one loop makes the rows of all formats.

What no broker stores is refused, even where Java would read on: bytes that belong to no field, a cut message inside a
wrapper, messages of another format than their wrapper's, or with offsets that do not ascend. Both checksums must hold,
the wrapper's and each message's.

Spec: Kafka message format, "Old Message Format"; KIP-31, KIP-32. Counterpart: ``AbstractLegacyRecordBatch``,
``LegacyRecord``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from connector.errors import CorruptBatch
from connector.model import TopicPartition
from connector.records.codecs import LZ4, NO_CODEC, ZSTD, decompress_records, with_lz4_header_checksum
from connector.records.layout import CODEC_MASK, LENGTH_END, LOG_APPEND_MASK, SMALLEST_LENGTH, BatchHeader, RecordBody

__all__ = ["holds_earlier_messages", "open_message"]

NO_TIMESTAMP: Final = -1
NO_TIMESTAMP_TYPE: Final = -1
"""What Java's consumer, and so Spark's own source, shows of a message that has no timestamp."""

# Offset, length, CRC-32, magic, attributes.
_MESSAGE: Final = Struct(">qiIbB")
_COVERED_FROM: Final = 16
"""First byte that the checksum covers, up to the message's end: the magic."""
_ATTRIBUTES_AT: Final = 17
_TIMESTAMP: Final = Struct(">q")
_SIZE: Final = Struct(">i")
_LARGEST_DELTA: Final = (1 << 31) - 1
_LARGEST_OFFSET: Final = (1 << 63) - 2


class _Contradiction(Exception):
    """A message that can't be true, and why."""


class _Message(NamedTuple):
    """One message; its key and value are borrowed."""

    log_offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None
    stop: int


def holds_earlier_messages(records: memoryview, start: int) -> bool:
    """Tell whether a message is a wrapper, so that offsets below its own are inside."""
    return records[start + _ATTRIBUTES_AT] & CODEC_MASK != NO_CODEC


def open_message(
    topic_partition: TopicPartition, records: memoryview, start: int, header: BatchHeader, start_offset: int
) -> RecordBody | None:
    """Verify the message at `start` and return what it holds as records of format 2.

    Parameters
    ----------
    topic_partition : TopicPartition
        For the messages of errors.
    records : memoryview of bytes
        Fetched records; borrowed, the result does not refer to them.
    start, header
        As `walk_record_batches` yields them.
    start_offset : int
        A message below it is not opened.

    Returns
    -------
    RecordBody or None
        None says that all of it is below the start offset.

    Raises
    ------
    CorruptBatch
        A checksum is wrong, it can't be decompressed, or it contradicts itself.
    UnsupportedFeature
        An unknown codec.
    """
    try:
        message = _read_message(records, start)
        codec = message.attributes & CODEC_MASK
        # A wrapper at offset 0 may reach further: some versions of librdkafka sent such, and so Java reads them.
        if message.log_offset < start_offset and (codec == NO_CODEC or message.log_offset):
            return None
        if codec == NO_CODEC:
            return _as_records(message, [message])
        decompressed = decompress_records(codec, _compressed(message, codec), topic_partition, header[0], start)
        return _as_records(message, _with_log_offsets(message, list(_inner_messages(decompressed, message.magic))))
    except _Contradiction as problem:
        raise CorruptBatch(str(topic_partition), header[0], start, str(problem)) from problem


def _compressed(wrapper: _Message, codec: int) -> memoryview:
    """Return the bytes that a wrapper's codec is to read."""
    if wrapper.value is None:
        raise _Contradiction("it is compressed but has a null value")
    if codec == ZSTD:
        raise _Contradiction(f"it says that it is compressed with zstd, which message format {wrapper.magic} has not")
    if codec == LZ4 and wrapper.magic == 0:
        return with_lz4_header_checksum(wrapper.value)
    return wrapper.value


def _inner_messages(decompressed: memoryview, wrapper_magic: int) -> Iterator[_Message]:
    """Yield the messages inside a wrapper, with the offsets that they carry there."""
    at = number = 0
    while at < len(decompressed):
        number += 1
        try:
            message = _read_message(decompressed, at)
        except _Contradiction as problem:
            raise _Contradiction(f"message {number} inside it: {problem}") from problem
        if message.magic != wrapper_magic or message.attributes & CODEC_MASK != NO_CODEC:
            raise _Contradiction(f"message {number} inside it has another format, or is compressed itself")
        yield message
        at = message.stop


def _with_log_offsets(wrapper: _Message, inner: Sequence[_Message]) -> Sequence[_Message]:
    """Return the messages inside a wrapper with their offsets in the log."""
    if not inner:
        raise _Contradiction("it is compressed but nothing is inside")
    if wrapper.log_offset == 0:
        return inner
    base_offset = wrapper.log_offset - inner[-1].log_offset
    if base_offset < 0:
        raise _Contradiction(f"the last message inside it has the larger offset {inner[-1].log_offset}")
    if wrapper.magic == 0:
        return inner
    return [each._replace(log_offset=base_offset + each.log_offset) for each in inner]


def _read_message(source: memoryview, start: int) -> _Message:
    """Read the message at `start`, checking all that can be checked."""
    if len(source) - start < LENGTH_END + SMALLEST_LENGTH[0]:
        raise _Contradiction(f"its {len(source) - start} bytes are less than a message needs")
    log_offset, length, crc, magic, attributes = _MESSAGE.unpack_from(source, start)
    stop = start + LENGTH_END + length
    if magic not in (0, 1) or length < SMALLEST_LENGTH[magic] or stop > len(source):
        raise _Contradiction(f"a message of magic {magic} and length {length} does not fit there")
    if not 0 <= log_offset <= _LARGEST_OFFSET:
        raise _Contradiction(f"its offset {log_offset} can't be one")
    computed = zlib.crc32(source[start + _COVERED_FROM : stop])
    if computed != crc:
        raise _Contradiction(f"its checksum is {computed:#010x}, and {crc:#010x} was written with it")
    at = start + _MESSAGE.size
    timestamp_ms = NO_TIMESTAMP
    if magic == 1:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(source, at)
        at += _TIMESTAMP.size
    key, at = _read_bytes(source, at, stop, "key")
    value, at = _read_bytes(source, at, stop, "value")
    if at != stop:
        raise _Contradiction("its length is not that of its fields")
    return _Message(log_offset, magic, attributes, timestamp_ms, key, value, stop)


def _read_bytes(source: memoryview, at: int, stop: int, field: str) -> tuple[memoryview | None, int]:
    """Return a byte string with its size in front (negative: null), and the byte after it."""
    value_at = at + _SIZE.size
    size = _SIZE.unpack_from(source, at)[0] if value_at <= stop else stop
    if size < 0:
        return None, value_at
    if size > stop - value_at:
        raise _Contradiction(f"its {field} goes beyond the message")
    return source[value_at : value_at + size], value_at + size


def _as_records(outer: _Message, messages: Sequence[_Message]) -> RecordBody:
    """Write messages down as records of format 2; `outer` is the wrapper, or the one message itself."""
    base_offset = messages[0].log_offset
    timestamp_type = _timestamp_type(outer)
    body = bytearray()
    offset_delta = -1
    for message in messages:
        previous_delta, offset_delta = offset_delta, message.log_offset - base_offset
        if not previous_delta < offset_delta <= _LARGEST_DELTA:
            raise _Contradiction(f"offsets inside it do not ascend, or too far: {message.log_offset}")
        head = b"\0" + _varint(message.timestamp_ms) + _varint(offset_delta)
        key, value = message.key, message.value
        key_size = _varint(-1 if key is None else len(key))
        value_size = _varint(-1 if value is None else len(value))
        parts = (head, key_size, key or b"", value_size, value or b"", b"\0")
        body += _varint(sum(map(len, parts)))
        for part in parts:
            body += part
    timestamp_ms = outer.timestamp_ms if timestamp_type else 0
    return memoryview(body), 0, len(body), len(messages), base_offset, offset_delta, timestamp_ms, timestamp_type


def _timestamp_type(outer: _Message) -> int:
    """Return 0 (create time: each message's own), 1 (log append time: the wrapper's for all), or -1 (none)."""
    if outer.magic == 0:
        return NO_TIMESTAMP_TYPE
    return int(outer.attributes & LOG_APPEND_MASK != 0)


def _varint(value: int) -> bytes:
    """Write a number of 64 bits as zig-zag varint."""
    rest = value << 1 ^ value >> 63
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)
