"""Record batches by hand, from the message format's text: whatever can be wrong in one can be made wrong here."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import crc32c
import pyarrow as pa

Headers = Sequence[tuple[bytes, bytes | None]]

CODEC_NUMBERS: Mapping[str, int] = {"none": 0, "gzip": 1, "snappy": 2, "snappy-xerial": 2, "lz4": 3, "zstd": 4}
LOG_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


def varint(value: int, width: int = 64) -> bytes:
    """Zig-zag, then seven bits a byte, lowest first."""
    rest = ((value << 1) ^ (value >> (width - 1))) & ((1 << width) - 1)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    offset_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Headers = (),
    *,
    timestamp_delta: int = 0,
    header_count: int | None = None,
    body_length: int | None = None,
) -> bytes:
    """One record; `header_count` and `body_length` can be given wrong."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
    body += varint(len(headers) if header_count is None else header_count)
    body += b"".join(sized(header_key) + sized(header_value) for header_key, header_value in headers)
    return varint(len(body) if body_length is None else body_length) + body


def record_batch(
    records: Sequence[bytes],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    codec: str = "none",
    attributes: int = 0,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int = 1_700_000_009_999,
    magic: int = 2,
    body: bytes | None = None,
    length: int | None = None,
) -> bytes:
    """One batch with a true checksum; `body` replaces the compressed records."""
    count = len(records) if record_count is None else record_count
    covered = struct.pack(
        ">hiqqqhii",
        attributes | CODEC_NUMBERS[codec],
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        -1,
        -1,
        -1,
        count,
    )
    covered += COMPRESS[codec](b"".join(records)) if body is None else body
    announced = len(covered) + 9 if length is None else length
    return struct.pack(">qiibI", base_offset, announced, 5, magic, crc32c.crc32c(covered)) + covered


def batch_of(count: int, base_offset: int = 0, **fields: Any) -> bytes:
    """A batch of small records whose key and value tell their offset."""
    records = [record(i, b"k%d" % (base_offset + i), b"v%d" % (base_offset + i)) for i in range(count)]
    return record_batch(records, base_offset=base_offset, **fields)


def old_message(magic: int, log_offset: int, value: bytes = b"old") -> bytes:
    """A message of magic 0 or 1, whose CRC nobody looks at."""
    content = bytes([magic, 0]) + (struct.pack(">q", 1) if magic == 1 else b"")
    content += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", log_offset, len(content) + 4, 0) + content


def xerial(data: bytes, *, block_bytes: int = 100, versions: bytes = b"\0\0\0\1\0\0\0\1") -> bytes:
    """snappy-java's stream: prefix, two version numbers, then raw blocks with their lengths in front."""
    blocks = [raw_snappy(data[at : at + block_bytes]) for at in range(0, len(data), block_bytes)]
    return b"\x82SNAPPY\0" + versions + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    compressed: bytes = pa.compress(data, codec="snappy", asbytes=True)
    return compressed


def _with_pyarrow(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        compressed: bytes = pa.compress(data, codec=codec, asbytes=True)
        return compressed

    return compress


COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "gzip": gzip.compress,
    "snappy": raw_snappy,
    "snappy-xerial": xerial,
    "lz4": _with_pyarrow("lz4"),
    "zstd": _with_pyarrow("zstd"),
}
