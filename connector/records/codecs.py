"""Decompression of a record batch's records, by the codec that its attributes name.

Only what follows the batch header is compressed, all records together; in the old formats, a message's value. Java
writes snappy in the framing of snappy-java ("xerial"); other producers send a raw block, so both are read.

Spec: Kafka message format, "Compression". Counterpart: ``org.apache.kafka.common.compress``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Final

import cramjam

from connector.errors import CorruptBatch, UnsupportedFeature
from connector.model import TopicPartition

__all__ = ["LZ4", "NO_CODEC", "ZSTD", "decompress_records", "with_lz4_header_checksum"]

NO_CODEC: Final = 0
LZ4: Final = 3
ZSTD: Final = 4

XERIAL_PREFIX: Final = b"\x82SNAPPY\0"
XERIAL_HEADER_BYTES: Final = 16
"""The prefix, then two version numbers that are not looked at: some writers have them in little endian."""
_BLOCK_LENGTH: Final = Struct(">i")
_SNAPPY_MOST_GROWTH: Final = 22
"""The densest element of snappy makes 64 bytes of 3, so a larger announced size is a lie, and allocates nothing."""

_LZ4_DESCRIPTOR_AT: Final = 4
_LZ4_HAS_CONTENT_SIZE: Final = 0x08
_LZ4_HAS_DICTIONARY_ID: Final = 0x01
_XXH_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_WORD: Final = Struct("<I")


def decompress_records(
    codec: int, compressed: memoryview, topic_partition: TopicPartition, base_offset: int, batch_start: int
) -> memoryview:
    """Decompress the records of one batch.

    Parameters
    ----------
    codec : int
        Attribute bits 0 to 2; not `NO_CODEC`.
    compressed : memoryview of bytes
        What follows the batch header, or a wrapper message's value; borrowed.
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


def with_lz4_header_checksum(frame: memoryview) -> memoryview:
    """Return a copy of an LZ4 frame whose header checksum is right.

    Clients up to Kafka 0.9 took it over the frame's magic number too, and so it is in all messages of magic 0; nobody
    reads it there (``KafkaLZ4BlockInputStream``, "ignoreFlagDescriptorChecksum"). Too short a frame stays as it is.
    """
    mended = bytearray(frame)
    flags = mended[_LZ4_DESCRIPTOR_AT] if len(mended) > _LZ4_DESCRIPTOR_AT else 0
    checksum_at = _LZ4_DESCRIPTOR_AT + 2
    checksum_at += 8 * (flags & _LZ4_HAS_CONTENT_SIZE != 0) + 4 * (flags & _LZ4_HAS_DICTIONARY_ID != 0)
    if checksum_at < len(mended):
        mended[checksum_at] = _xxh32(mended[_LZ4_DESCRIPTOR_AT:checksum_at]) >> 8 & 0xFF
    return memoryview(mended)


def _xxh32(data: bytearray) -> int:
    """Hash less than 16 bytes with seed 0 (xxHash specification, XXH32)."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = _XXH_PRIMES
    words_stop = len(data) & ~3
    hashed = prime_5 + len(data)
    for (word,) in _WORD.iter_unpack(data[:words_stop]):
        hashed = _rotated(hashed + word * prime_3, 17) * prime_4
    for byte in data[words_stop:]:
        hashed = _rotated(hashed + byte * prime_5, 11) * prime_1
    hashed &= 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * prime_2 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * prime_3 & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def _rotated(value: int, bits: int) -> int:
    """Rotate the lower 32 bits of a number to the left."""
    value &= 0xFFFFFFFF
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF


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
    LZ4: ("lz4", _lz4),
    ZSTD: ("zstd", _zstd),
}
