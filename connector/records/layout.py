"""Where things stand in fetched records, and the walk from one record batch to the next.

Fetched records are record batches one after the other. The first may begin below the fetch offset and the last may
be cut anywhere (KIP-74). Batches of magic 2 have the header that is described here; messages of magic 0 and 1,
which segments from before Kafka 0.11 may still hold, have the same first two fields and the magic byte at the same
place, so the walk is one for all formats.

Spec: Kafka message format, "Record Batch" (KIP-98). Counterpart: ``DefaultRecordBatch``, ``ByteBufferLogInputStream``.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

from connector.errors import CorruptBatch
from connector.model import NO_EPOCH, RecordsScan, TopicPartition

__all__ = [
    "ATTRIBUTES_AT",
    "CODEC_MASK",
    "CONTROL_MASK",
    "HEADER_BYTES",
    "LENGTH_END",
    "LOG_APPEND_MASK",
    "MAGIC_V2",
    "SMALLEST_LENGTH",
    "TRANSACTIONAL_MASK",
    "BatchHeader",
    "RecordBody",
    "name_for_errors",
    "scan_record_batches",
    "walk_record_batches",
]

MAGIC_V2: Final = 2
LENGTH_END: Final = 12
"""The length field counts what follows it: a batch measures 12 + length bytes."""
MAGIC_END: Final = 17
"""Byte 16 is the magic, in every format."""
ATTRIBUTES_AT: Final = 21
"""First byte that the checksum covers, up to the batch's end; brokers rewrite the leader epoch in front of it."""
HEADER_BYTES: Final = 61
"""The records of a batch start here, compressed or not."""

CODEC_MASK: Final = 0x07
LOG_APPEND_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20

BatchHeader: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""Base offset, length, partition leader epoch, magic, CRC-32C, attributes, last offset delta, base timestamp, max
timestamp, producer id, record count.

A plain tuple, because one is made for every batch. For magic 0 and 1 the first field is the offset of the message, or
of the last one inside it; only length and magic mean something besides.
"""

RecordBody: TypeAlias = tuple[memoryview, int, int, int, int, int, int, int]
"""Records that can be read: the buffer, their first byte, the byte after the last, how many they are, the offset that
their deltas count from, the largest delta, and the timestamp and timestamp type that `RowSink.begin` takes.
"""

# Left out: producer epoch and base sequence, in front of the count.
_HEADER: Final = Struct(">qiibIhiqqq6xi")

SMALLEST_LENGTH: Final = {0: 14, 1: 22, MAGIC_V2: HEADER_BYTES - LENGTH_END}
"""By magic, a batch without a record (``LegacyRecord.RECORD_OVERHEAD_V0`` and ``_V1``, ``RECORD_BATCH_OVERHEAD``)."""
_UNREACHABLE_LENGTH: Final = 1 << 31
_LAST_BASE_OFFSET: Final = (1 << 63) - 1 - (1 << 31)
"""Up to here a batch's offsets fit into 64 bits, and so does the next batch's."""


def walk_record_batches(
    records: memoryview, topic_partition: TopicPartition | None
) -> Iterator[tuple[int, int, BatchHeader]]:
    """Go from batch to batch by their lengths.

    Parameters
    ----------
    records : memoryview of bytes
        Fetched records; borrowed.
    topic_partition : TopicPartition or None
        For the messages of errors.

    Yields
    ------
    (start, stop, header) : a complete batch's first byte, the byte after its last, and its header, sane as far as
        that shows without looking at what follows. A cut tail yields nothing.

    Raises
    ------
    CorruptBatch
        A header contradicts itself: its length, magic, offsets or record count can't be true.
    """
    size = len(records)
    start = 0
    while size - start >= MAGIC_END:
        if size - start >= HEADER_BYTES:
            header: BatchHeader = _HEADER.unpack_from(records, start)
        else:  # a cut header, or a short message of magic 0 or 1
            header = _HEADER.unpack(records[start:].tobytes().ljust(HEADER_BYTES, b"\0"))
        base_offset, length, _, magic, _, _, last_offset_delta, _, _, _, record_count = header
        if length < SMALLEST_LENGTH.get(magic, _UNREACHABLE_LENGTH) or not 0 <= base_offset <= _LAST_BASE_OFFSET:
            raise _contradiction(header, start, topic_partition)
        stop = start + LENGTH_END + length
        if stop > size:
            return
        if (last_offset_delta < 0 or record_count < 0) and magic == MAGIC_V2:
            raise _contradiction(header, start, topic_partition)
        yield start, stop, header
        start = stop


def scan_record_batches(records: memoryview, topic_partition: TopicPartition | None = None) -> RecordsScan:
    """Tell from the headers alone what fetched records hold and where the next fetch continues.

    Parameters
    ----------
    records : memoryview of bytes
        Fetched records; borrowed.
    topic_partition : TopicPartition, optional
        For the messages of errors.

    Returns
    -------
    RecordsScan
        Checksums are not verified, so it is a plan to act upon while the records are decoded, not their content.
        A message of magic 0 or 1 counts as one record; its offset is that of its last inner message, and it has no
        leader epoch.

    Raises
    ------
    CorruptBatch
        As `walk_record_batches` does.
    """
    header = None
    batch_count = record_total = complete_bytes = 0
    for _, stop, header in walk_record_batches(records, topic_partition):
        complete_bytes = stop
        batch_count += 1
        record_total += header[-1] if header[3] == MAGIC_V2 else 1
    if header is None:
        return RecordsScan(next_offset=-1, batch_count=0, record_count=0, complete_bytes=0)
    base_offset, _, leader_epoch, magic, _, _, last_offset_delta, *_ = header
    if magic != MAGIC_V2:
        leader_epoch, last_offset_delta = NO_EPOCH, 0
    next_offset = base_offset + last_offset_delta + 1
    return RecordsScan(next_offset, batch_count, record_total, complete_bytes, leader_epoch)


def name_for_errors(topic_partition: TopicPartition | None) -> str:
    """Return the topic-partition's name as errors carry it."""
    return "topic-partition unknown" if topic_partition is None else str(topic_partition)


def _contradiction(header: BatchHeader, start: int, topic_partition: TopicPartition | None) -> CorruptBatch:
    """Make the error that says what is wrong with a header."""
    base_offset, length, _, magic, _, _, last_offset_delta, _, _, _, record_count = header
    if magic not in SMALLEST_LENGTH:
        reason = f"its magic byte is {magic}; 0, 1 and 2 exist"
    elif length < SMALLEST_LENGTH[magic]:
        reason = f"its length field is {length}; magic {magic} needs {SMALLEST_LENGTH[magic]} at least"
    elif not 0 <= base_offset <= _LAST_BASE_OFFSET:
        reason = f"its base offset {base_offset} can't be one"
    else:
        reason = f"its header announces last offset delta {last_offset_delta} and {record_count} records"
    return CorruptBatch(name_for_errors(topic_partition), base_offset, start, reason)
