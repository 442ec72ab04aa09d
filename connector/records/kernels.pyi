"""Types of `connector.records.kernels`, whose own annotations are Cython's."""

from enum import IntEnum
from typing import Final

from typing_extensions import Buffer

__all__ = ["IS_COMPILED", "BinaryColumn", "ParseStatus", "RowSink"]

IS_COMPILED: Final[bool]

class ParseStatus(IntEnum):
    DONE = 0
    FULL = 1
    NEEDS_ROOM = 2
    RECORD_COUNT = 3
    RECORD_SIZE = 4
    OFFSET_DELTA = 5
    TIMESTAMP = 6
    KEY_SIZE = 7
    VALUE_SIZE = 8
    HEADER_COUNT = 9
    HEADER_KEY_SIZE = 10
    HEADER_VALUE_SIZE = 11
    SIZE_MISMATCH = 12
    BYTES_LEFT = 13

class BinaryColumn:
    @property
    def count(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def null_count(self) -> int: ...
    @property
    def wanted_count(self) -> int: ...
    @property
    def wanted_bytes(self) -> int: ...
    def attach(self, offsets: Buffer, data: Buffer, validity: Buffer) -> None: ...
    def clear(self) -> None: ...

class RowSink:
    def __init__(
        self,
        key: BinaryColumn,
        value: BinaryColumn,
        header_key: BinaryColumn,
        header_value: BinaryColumn,
        include_headers: bool,
        max_rows: int,
        max_bytes: int,
    ) -> None: ...
    @property
    def row_count(self) -> int: ...
    @property
    def byte_count(self) -> int: ...
    @property
    def null_list_count(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def records_left(self) -> int: ...
    def attach(
        self,
        log_offsets: Buffer,
        timestamps: Buffer,
        timestamp_types: Buffer,
        list_offsets: Buffer,
        list_validity: Buffer,
    ) -> None: ...
    def clear(self) -> None: ...
    def begin(
        self,
        position: int,
        stop: int,
        record_count: int,
        base_offset: int,
        last_offset_delta: int,
        start_offset: int,
        end_offset: int,
        timestamp_ms: int,
        timestamp_type: int,
    ) -> None: ...
    def run(self, source: Buffer) -> int: ...
