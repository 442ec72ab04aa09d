"""Decompression of a record batch's records, by the codec that its attributes name.

Only what follows the batch header is compressed, all records together. Java writes snappy in the framing of
snappy-java ("xerial"); other producers send a raw block, so both are read.

Spec: Kafka message format, "Compression". Counterpart: ``org.apache.kafka.common.compress``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Final

import cramjam

from connector.errors import CorruptBatch, UnsupportedFeature
from connector.model import TopicPartition

__all__ = ["NO_CODEC", "decompress_records"]

NO_CODEC: Final = 0

XERIAL_PREFIX: Final = b"\x82SNAPPY\0"
XERIAL_HEADER_BYTES: Final = 16
"""The prefix, then two version numbers that are not looked at: some writers have them in little endian."""
_BLOCK_LENGTH: Final = Struct(">i")
_SNAPPY_MOST_GROWTH: Final = 22
"""The densest element of snappy makes 64 bytes of 3, so a larger announced size is a lie, and allocates nothing."""


def decompress_records(
    codec: int, compressed: memoryview, topic_partition: TopicPartition, base_offset: int, batch_start: int
) -> memoryview:
    """Decompress the records of one batch.

    Parameters
    ----------
    codec : int
        Attribute bits 0 to 2; not `NO_CODEC`.
    compressed : memoryview of bytes
        What follows the batch header; borrowed.
    topic_partition, base_offset, batch_start
        For the messages of errors.

    Returns
    -------
    memoryview of bytes
        Keeps its memory alive by itself.

    Raises
    ------
    CorruptBatch
        The codec can't make sense of the bytes.
    UnsupportedFeature
        No such codec.
    """
    if codec not in _CODECS:
        reason = f"compression codec {codec} is not known (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)"
        raise UnsupportedFeature(str(topic_partition), base_offset, batch_start, reason)
    name, decompress = _CODECS[codec]
    try:
        return decompress(compressed)
    except cramjam.DecompressionError as problem:
        reason = f"its records can't be decompressed with {name}: {problem}"
        raise CorruptBatch(str(topic_partition), base_offset, batch_start, reason) from problem


def _gzip(compressed: memoryview) -> memoryview:
    return memoryview(cramjam.gzip.decompress(compressed))


def _lz4(compressed: memoryview) -> memoryview:
    return memoryview(cramjam.lz4.decompress(compressed))


def _zstd(compressed: memoryview) -> memoryview:
    return memoryview(cramjam.zstd.decompress(compressed))


def _snappy(compressed: memoryview) -> memoryview:
    """Decompress a raw block, or the blocks of a xerial stream into one piece of memory."""
    if bytes(compressed[: len(XERIAL_PREFIX)]) != XERIAL_PREFIX:
        _snappy_size(compressed)
        return memoryview(cramjam.snappy.decompress_raw(compressed))
    blocks = list(_xerial_blocks(compressed))
    sizes = [_snappy_size(block) for block in blocks]
    decompressed = memoryview(bytearray(sum(sizes)))
    at = 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, decompressed[at : at + size])
        at += size
    return decompressed


def _xerial_blocks(compressed: memoryview) -> Iterator[memoryview]:
    """Yield the raw snappy blocks of a xerial stream."""
    at = XERIAL_HEADER_BYTES
    while at != len(compressed):
        block_start = at + _BLOCK_LENGTH.size
        size = _BLOCK_LENGTH.unpack_from(compressed, at)[0] if block_start <= len(compressed) else -1
        if not 0 < size <= len(compressed) - block_start:
            raise cramjam.DecompressionError(f"the xerial block at byte {at} does not fit into {len(compressed)} bytes")
        at = block_start + size
        yield compressed[block_start:at]


def _snappy_size(block: memoryview) -> int:
    """Return the decompressed size that a raw snappy block announces, if it can be true."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_MOST_GROWTH * len(block):
        raise cramjam.DecompressionError(f"{len(block)} bytes of snappy can't hold the {size} that they announce")
    return size


_CODECS: Final[Mapping[int, tuple[str, Callable[[memoryview], memoryview]]]] = {
    1: ("gzip", _gzip),
    2: ("snappy", _snappy),
    3: ("lz4", _lz4),
    4: ("zstd", _zstd),
}
