"""Record batches by hand, from the message format's text: whatever can be wrong in one can be made wrong here."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import crc32c
import pyarrow as pa

Headers = Sequence[tuple[bytes, bytes | None]]

CODEC_NUMBERS: Mapping[str, int] = {"none": 0, "gzip": 1, "snappy": 2, "snappy-xerial": 2, "lz4": 3, "zstd": 4}
LOG_APPEND = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
ABORT = 0
COMMIT = 1


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
    producer_id: int = -1,
    leader_epoch: int = 5,
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
        producer_id,
        -1,
        -1,
        count,
    )
    covered += COMPRESS[codec](b"".join(records)) if body is None else body
    announced = len(covered) + 9 if length is None else length
    return struct.pack(">qiibI", base_offset, announced, leader_epoch, magic, crc32c.crc32c(covered)) + covered


def batch_of(count: int, base_offset: int = 0, **fields: Any) -> bytes:
    """A batch of small records whose key and value tell their offset."""
    records = [record(i, b"k%d" % (base_offset + i), b"v%d" % (base_offset + i)) for i in range(count)]
    return record_batch(records, base_offset=base_offset, **fields)


def transactional(producer_id: int, base_offset: int, count: int = 1, **fields: Any) -> bytes:
    """A batch of a transaction."""
    return batch_of(count, base_offset, attributes=TRANSACTIONAL, producer_id=producer_id, **fields)


def marker(producer_id: int, log_offset: int, control_type: int, *, key: bytes | None = None, **fields: Any) -> bytes:
    """A control batch that ends a transaction; `key` replaces version 0 and the type."""
    ended = record(0, struct.pack(">hh", 0, control_type) if key is None else key, struct.pack(">hi", 0, 9))
    fields = {"attributes": TRANSACTIONAL | CONTROL, "producer_id": producer_id} | fields
    return record_batch([ended], base_offset=log_offset, **fields)


def message(
    magic: int,
    log_offset: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    *,
    timestamp_ms: int = 1_400_000_000_000,
    attributes: int = 0,
    length: int | None = None,
    surplus: bytes = b"",
) -> bytes:
    """One message of magic 0 or 1 with a true checksum; `length` can be given wrong, `surplus` stands behind it all."""
    content = bytes([magic, attributes]) + (struct.pack(">q", timestamp_ms) if magic == 1 else b"")
    content += int32_sized(key) + int32_sized(value) + surplus
    announced = len(content) + 4 if length is None else length
    return struct.pack(">qiI", log_offset, announced, zlib.crc32(content)) + content


def wrapper(magic: int, log_offset: int, inner: Sequence[bytes], codec: str = "gzip", **fields: Any) -> bytes:
    """Messages inside a compressed one."""
    fields = {"attributes": CODEC_NUMBERS[codec], "key": None, "value": COMPRESS[codec](b"".join(inner))} | fields
    return message(magic, log_offset, **fields)


def int32_sized(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


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
