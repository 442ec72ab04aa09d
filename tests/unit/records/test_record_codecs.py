"""Decompression: what independent encoders wrote comes back, and what is damaged is told."""

from __future__ import annotations

import gzip
import struct
import zlib

import cramjam
import pyarrow as pa
import pytest

from connector.errors import CorruptBatch, UnsupportedFeature
from connector.model import TopicPartition
from connector.records.codecs import decompress_records, with_lz4_header_checksum
from tests.unit.records.record_bytes import CODEC_NUMBERS, COMPRESS, raw_snappy, xerial

DATA = b"".join(b"%d, the %dth line of a text that compresses;" % (i, i * i) for i in range(500))
COMPRESSED = [name for name in CODEC_NUMBERS if name != "none"]
ORDERS = TopicPartition("orders", 0)


def decompress(codec: int, compressed: bytes) -> bytes:
    surrounded = b"in front" + compressed + b"behind"
    view = memoryview(surrounded)[8 : 8 + len(compressed)]
    return bytes(decompress_records(codec, view, ORDERS, 1234, 99))


@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=["empty", "one byte", "text"])
@pytest.mark.parametrize("name", COMPRESSED)
def test_round_trip(name: str, data: bytes) -> None:
    assert decompress(CODEC_NUMBERS[name], COMPRESS[name](data)) == data


def test_result_outlives_its_source() -> None:
    source = bytearray(COMPRESS["zstd"](DATA))
    decompressed = decompress_records(4, memoryview(source), ORDERS, 0, 0)
    source[:] = bytes(len(source))
    assert decompressed == DATA


@pytest.mark.parametrize(
    "versions",
    [b"\0\0\0\1\0\0\0\1", b"\1\0\0\0\1\0\0\0", b"\xff" * 8],
    ids=["snappy-java", "little endian", "nonsense"],
)
def test_xerial_versions_are_not_looked_at(versions: bytes) -> None:
    assert decompress(2, xerial(DATA, versions=versions)) == DATA


@pytest.mark.parametrize("block_bytes", [1, 7, 32 * 1024])
def test_xerial_blocks_of_any_size(block_bytes: int) -> None:
    assert decompress(2, xerial(DATA, block_bytes=block_bytes)) == DATA


def test_zstd_frames_without_content_size() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(DATA)
    stream = bytes(compressor.finish())
    assert stream[4] & 0xE0 == 0, "the frame header announces a content size"
    assert decompress(4, stream) == DATA


def test_several_zstd_frames() -> None:
    assert decompress(4, COMPRESS["zstd"](DATA[:1000]) + COMPRESS["zstd"](DATA[1000:])) == DATA


def test_lz4_with_dependent_blocks() -> None:
    header = b"\x40\x40"  # version 1, blocks depend on each other, 64 KiB at most
    raw: bytes = pa.compress(DATA, codec="lz4_raw", asbytes=True)
    # A second block that says: 100 bytes from 100 back, which only the first block has; then five literals.
    copy = b"\x0f\x64\x00" + bytes([100 - 4 - 15]) + b"\x50after"
    frame = b"\x04\x22\x4d\x18" + header + bytes([_xxh32(header) >> 8 & 0xFF])
    frame += b"".join(struct.pack("<I", len(block)) + block for block in (raw, copy)) + bytes(4)
    assert decompress(3, frame) == DATA + DATA[-100:] + b"after"


def _xxh32(data: bytes) -> int:
    """Hash less than four bytes, with seed 0 (xxHash specification)."""
    mask = 0xFFFFFFFF
    hashed = 374761393 + len(data)
    for byte in data:
        hashed = (hashed + byte * 374761393) & mask
        hashed = ((hashed << 11 | hashed >> 21) * 2654435761) & mask
    hashed = ((hashed ^ hashed >> 15) * 2246822519) & mask
    hashed = ((hashed ^ hashed >> 13) * 3266489917) & mask
    return hashed ^ hashed >> 16


@pytest.mark.parametrize(
    ("flags", "added"),
    [
        (0x60, b""),
        (0x68, struct.pack("<q", len(DATA))),
        (0x61, b"\0\0\0\0"),
        (0x69, struct.pack("<q", len(DATA)) + b"\0\0\0\0"),
    ],
    ids=["plain", "content size", "dictionary id", "both"],
)
def test_lz4_header_checksum_is_mended(flags: int, added: bytes) -> None:
    """The lz4 library is the judge: it refuses a frame whose header checksum is wrong."""
    frame = COMPRESS["lz4"](DATA)
    assert frame[4] == 0x60
    mendable = frame[:4] + bytes([flags]) + frame[5:6] + added + b"?" + frame[7:]
    with pytest.raises(CorruptBatch, match="headerChecksum"):
        decompress(3, mendable)
    assert decompress(3, bytes(with_lz4_header_checksum(memoryview(mendable)))) == DATA


def test_lz4_frame_that_ends_in_its_header_stays_what_it_is() -> None:
    frame = COMPRESS["lz4"](DATA)
    for cut in range(7):
        assert bytes(with_lz4_header_checksum(memoryview(frame[:cut]))) == frame[:cut]


def test_gzip_with_every_optional_field() -> None:
    deflated = zlib.compress(DATA, wbits=-15)
    head = b"\x1f\x8b\x08\x1c" + bytes(4) + b"\0\xff" + b"\x02\0ab" + b"name\0" + b"comment\0"
    assert decompress(1, head + deflated + struct.pack("<II", zlib.crc32(DATA), len(DATA))) == DATA


@pytest.mark.parametrize("name", COMPRESSED)
def test_cut_input(name: str) -> None:
    compressed = COMPRESS[name](DATA)
    for cut in (0, 3, 11, 18, len(compressed) // 2, len(compressed) - 1):
        if name == "snappy-xerial" and cut == 0:
            continue  # an empty input is no xerial stream, and raw snappy refuses it under its own name
        with pytest.raises(CorruptBatch, match="decompressed with") as raised:
            decompress(CODEC_NUMBERS[name], compressed[:cut])
        assert (raised.value.topic_partition, raised.value.base_offset, raised.value.byte_position) == (
            "orders-0",
            1234,
            99,
        )


@pytest.mark.parametrize("name", COMPRESSED)
def test_another_codecs_bytes(name: str) -> None:
    other = gzip.compress(DATA) if name != "gzip" else COMPRESS["zstd"](DATA)
    with pytest.raises(CorruptBatch, match=name.partition("-")[0]):
        decompress(CODEC_NUMBERS[name], other)


def test_snappy_that_announces_more_than_it_can_hold_allocates_nothing() -> None:
    four_gib_announced = b"\xff\xff\xff\xff\x0f" + b"abcde"
    for compressed in (four_gib_announced, xerial(b"")[:16] + struct.pack(">i", 10) + four_gib_announced):
        with pytest.raises(CorruptBatch, match="10 bytes of snappy can't hold the 4294967295"):
            decompress(2, compressed)


def test_densest_snappy_is_believed() -> None:
    zeros = bytes(1 << 20)
    assert decompress(2, raw_snappy(zeros)) == zeros


@pytest.mark.parametrize("block_length", [-1, 0, 2**31 - 1, -(2**31)])
def test_xerial_block_length_that_can_not_be(block_length: int) -> None:
    with pytest.raises(CorruptBatch, match="xerial block at byte 16"):
        decompress(2, xerial(b"")[:16] + struct.pack(">i", block_length) + raw_snappy(DATA))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(UnsupportedFeature, match=f"codec {codec} is not known"):
        decompress(codec, DATA)
