"""What a fetched batch holds, opened for the record loop.

Its checksum is verified over the bytes as they arrived, it is dropped if it has no records for us, and what is
compressed is decompressed in one piece.

Spec: Kafka message format (KIP-98). Counterpart: ``CompletedFetch``.
"""

from __future__ import annotations

from crc32c import crc32c

from connector.errors import CorruptBatch
from connector.model import TopicPartition
from connector.records.codecs import NO_CODEC, decompress_records
from connector.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_BYTES,
    LOG_APPEND_MASK,
    MAGIC_V2,
    BatchHeader,
    RecordBody,
)
from connector.records.legacy import open_message
from connector.records.transactions import AbortedTransactions, control_type

__all__ = ["open_body"]


def open_body(
    topic_partition: TopicPartition,
    records: memoryview,
    start: int,
    stop: int,
    header: BatchHeader,
    start_offset: int,
    aborted: AbortedTransactions | None,
) -> RecordBody | None:
    """Verify a batch and return where its records are.

    Parameters
    ----------
    topic_partition : TopicPartition
        For the messages of errors.
    records : memoryview of bytes
        Fetched records; borrowed, and the result may refer to them.
    start, stop, header
        As `walk_record_batches` yields them, for one batch after the other.
    start_offset : int
        A batch that ends below it is not opened.
    aborted : AbortedTransactions or None
        Which transactions are aborted (read_committed); told of every batch. None drops none.

    Returns
    -------
    RecordBody or None
        None says that the batch has no records for us: it is empty (compaction leaves such), a control batch, aborted,
        or below the start offset, all of which is believed only of a header that the checksum vouches for.

    Raises
    ------
    CorruptBatch, UnsupportedFeature
        As `RowBuilder.append` says.
    """
    base_offset, _, _, magic, crc, attributes, last_offset_delta, base_ms, max_ms, _, record_count = header
    if magic != MAGIC_V2:
        return open_message(topic_partition, records, start, header, start_offset)
    computed = crc32c(records[start + ATTRIBUTES_AT : stop])
    if computed != crc:
        reason = f"its checksum is {computed:#010x}, and {crc:#010x} was written with it"
        raise CorruptBatch(str(topic_partition), base_offset, start, reason)
    if attributes & CONTROL_MASK:
        if aborted is not None:
            _note_marker(topic_partition, records, start, stop, header, aborted)
        return None
    if aborted is not None and aborted.on_data(header):
        return None
    if not record_count or base_offset + last_offset_delta < start_offset:
        return None
    source, first, last = records, start + HEADER_BYTES, stop
    if attributes & CODEC_MASK != NO_CODEC:
        source = _decompressed(topic_partition, records, start, stop, header)
        first, last = 0, len(source)
    if attributes & LOG_APPEND_MASK:
        return source, first, last, record_count, base_offset, last_offset_delta, max_ms, 1
    return source, first, last, record_count, base_offset, last_offset_delta, base_ms, 0


def _decompressed(
    topic_partition: TopicPartition, records: memoryview, start: int, stop: int, header: BatchHeader
) -> memoryview:
    """Return a compressed batch's records."""
    compressed = records[start + HEADER_BYTES : stop]
    return decompress_records(header[5] & CODEC_MASK, compressed, topic_partition, header[0], start)


def _note_marker(
    topic_partition: TopicPartition,
    records: memoryview,
    start: int,
    stop: int,
    header: BatchHeader,
    aborted: AbortedTransactions,
) -> None:
    """Tell of a control batch what it says about a producer's transaction, if it does."""
    base_offset, _, _, _, _, attributes, _, _, _, producer_id, record_count = header
    if producer_id < 0 or not record_count:
        return
    source = records[start + HEADER_BYTES : stop]
    if attributes & CODEC_MASK != NO_CODEC:
        source = _decompressed(topic_partition, records, start, stop, header)
    marker_type = control_type(source)
    if marker_type is None:
        reason = "it is a control batch, but its first record is no control record"
        raise CorruptBatch(str(topic_partition), base_offset, start, reason)
    aborted.on_marker(header, marker_type)
