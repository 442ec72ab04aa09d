"""Arrow buffers that the record loop writes into, and the arrays they become without being copied.

Buffers are pyarrow's from the start. They grow when the loop asks for room; when their rows are taken they are cut
down to what is used and given away, and the columns start with nothing again. So an arrow batch holds no spare
memory, and nobody here holds an arrow batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from connector.model import TopicPartition
from connector.records.compiled import BinaryColumn, RowSink

__all__ = ["TIMESTAMP_TYPE", "RecordColumns", "run_columns"]

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")

# Java decodes a surrogate's three bytes, or its first two, to one replacement character; Python to one per byte.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()


class RecordColumns:
    """The columns of an arrow batch that come from records: all but topic and partition.

    Parameters
    ----------
    headers_type : pyarrow.ListType or None
        Type of the column `headers`; None leaves headers out.
    max_rows, max_bytes : int
        As `RowSink` takes them.

    Attributes
    ----------
    sink : RowSink
        The loop that fills the columns. `make_room` is what its ``NEEDS_ROOM`` asks for.
    """

    def __init__(self, headers_type: pa.ListType | None, max_rows: int, max_bytes: int) -> None:
        self._headers_type = headers_type
        self._max_rows = max_rows
        self._key = _BinaryBuffers(max_rows, max_bytes)
        self._value = _BinaryBuffers(max_rows, max_bytes)
        self._header_key = _BinaryBuffers(0, max_bytes)
        self._header_value = _BinaryBuffers(0, max_bytes)
        self._growing = (self._key, self._value, self._header_key, self._header_value)
        self.sink = RowSink(
            self._key.column,
            self._value.column,
            self._header_key.column,
            self._header_value.column,
            headers_type is not None,
            max_rows,
            max_bytes,
        )
        self._rows = _RowBuffers(0, self.sink)

    def expect_value_bytes(self, size: int) -> None:
        """Make the next value buffer at least this large, when it is made."""
        self._value.expected_bytes = max(self._value.expected_bytes, size)

    def make_room(self) -> None:
        """Give the record that stopped the sink the room that it wants."""
        if not self._rows.capacity:
            self._rows = _RowBuffers(self._max_rows, self.sink)
        for each in self._growing:
            each.make_room()

    def take(self) -> list[pa.Array]:
        """Return key, value, offset, timestamp, timestampType and, if wanted, headers; then start with nothing."""
        row_count = self.sink.row_count
        arrays = [
            self._key.take(pa.binary()),
            self._value.take(pa.binary()),
            _fixed_array(pa.int64(), row_count, self._rows.log_offsets),
            _fixed_array(TIMESTAMP_TYPE, row_count, self._rows.timestamps),
            _fixed_array(pa.int32(), row_count, self._rows.timestamp_types),
        ]
        if self._headers_type is not None:
            arrays.append(self._take_headers(self._headers_type, row_count))
        self.sink.clear()
        self._rows = _RowBuffers(0, self.sink)
        return arrays

    def _take_headers(self, headers_type: pa.ListType, row_count: int) -> pa.Array:
        children = [_text_array(self._header_key.take(pa.string())), self._header_value.take(pa.binary())]
        entries = pa.StructArray.from_arrays(children, fields=list(headers_type.value_type))
        null_count = self.sink.null_list_count
        validity = pa.py_buffer(self._rows.list_validity) if null_count else None
        buffers = [validity, _trimmed(self._rows.list_offsets, 4 * (row_count + 1))]
        return pa.Array.from_buffers(headers_type, row_count, buffers, null_count=null_count, children=[entries])


class _RowBuffers:
    """Buffers with one value a row, attached to the sink."""

    def __init__(self, capacity: int, sink: RowSink) -> None:
        self.capacity = capacity
        self.log_offsets = _allocated(8 * capacity)
        self.timestamps = _allocated(8 * capacity)
        self.timestamp_types = _allocated(4 * capacity)
        self.list_offsets = _allocated(4 * (capacity + 1))
        self.list_validity = bytearray(b"\xff") * _bitmap_bytes(capacity)
        sink.attach(
            memoryview(self.log_offsets).cast("q"),
            memoryview(self.timestamps).cast("q"),
            memoryview(self.timestamp_types).cast("i"),
            memoryview(self.list_offsets).cast("i"),
            self.list_validity,
        )


class _BinaryBuffers:
    """A column of byte strings and its buffers.

    Parameters
    ----------
    first_capacity : int
        Values to make room for when there is no room yet.
    max_bytes : int
        Bytes that the column does not exceed unless one record wants more.

    Attributes
    ----------
    column : BinaryColumn
        The loop's side of it.
    expected_bytes : int
        Bytes to make room for when there is no room yet.
    """

    def __init__(self, first_capacity: int, max_bytes: int) -> None:
        self.column = BinaryColumn()
        self.expected_bytes = 0
        self._first_capacity = first_capacity
        self._max_bytes = max_bytes
        self._capacity = 0
        self._offsets = _allocated(4)
        self._data = _allocated(0)
        self._validity = bytearray()
        self._attach()

    def make_room(self) -> None:
        """Give the column the room that it wants, and some more if it has begun to grow."""
        wanted_count, wanted_bytes = self.column.wanted_count, self.column.wanted_bytes
        if wanted_count > self._capacity:
            self._capacity = max(wanted_count, 2 * self._capacity, self._first_capacity)
            self._offsets.resize(4 * (self._capacity + 1))
            self._validity = self._validity.ljust(_bitmap_bytes(self._capacity), b"\xff")
        if wanted_bytes > self._data.size:
            generous = min(max(2 * self._data.size, self.expected_bytes), self._max_bytes)
            self._data.resize(max(wanted_bytes, generous))
        self._attach()

    def take(self, arrow_type: pa.DataType) -> pa.Array:
        """Return the values so far as an array of a binary type, and start with nothing."""
        count, used_bytes, null_count = self.column.count, self.column.used_bytes, self.column.null_count
        buffers = [
            pa.py_buffer(self._validity) if null_count else None,
            _trimmed(self._offsets, 4 * (count + 1)),
            _trimmed(self._data, used_bytes),
        ]
        values = pa.Array.from_buffers(arrow_type, count, buffers, null_count=null_count)
        self.expected_bytes = used_bytes + used_bytes // 8
        self._capacity, self._offsets, self._data, self._validity = 0, _allocated(4), _allocated(0), bytearray()
        self.column.clear()
        self._attach()
        return values

    def _attach(self) -> None:
        self.column.attach(memoryview(self._offsets).cast("i"), memoryview(self._data).cast("B"), self._validity)


def run_columns(runs: Sequence[tuple[TopicPartition, int]], row_count: int) -> tuple[pa.Array, pa.Array]:
    """Make the columns topic and partition, which are constant over runs of rows.

    Parameters
    ----------
    runs : sequence of (TopicPartition, int)
        Each run's topic-partition and first row; the first begins at row 0.
    row_count : int
        Rows in all.

    Returns
    -------
    (topic, partition) : arrays of string and int32, shape (row_count,)
    """
    first_rows = [first_row for _, first_row in runs]
    lengths = [stop - start for start, stop in zip(first_rows, [*first_rows[1:], row_count], strict=True)]
    partitions = np.repeat(np.array([each.partition for each, _ in runs], np.int32), lengths)
    topics = [each.topic.encode() for each, _ in runs]
    text_offsets = np.zeros(row_count + 1, np.int32)
    topic_sizes = np.array([len(topic) for topic in topics], np.int32)
    np.cumsum(np.repeat(topic_sizes, lengths), dtype=np.int32, out=text_offsets[1:])
    text = b"".join(topic * length for topic, length in zip(topics, lengths, strict=True))
    return (
        pa.Array.from_buffers(
            pa.string(), row_count, [None, pa.py_buffer(text_offsets), pa.py_buffer(text)], null_count=0
        ),
        pa.Array.from_buffers(pa.int32(), row_count, [None, pa.py_buffer(partitions)], null_count=0),
    )


def _allocated(size: int) -> pa.ResizableBuffer:
    return pa.allocate_buffer(size, resizable=True)


def _trimmed(buffer: pa.ResizableBuffer, size: int) -> pa.Buffer:
    """Cut a buffer down to what is used, giving the rest back."""
    buffer.resize(size, shrink_to_fit=True)
    return buffer


def _bitmap_bytes(capacity: int) -> int:
    return (capacity + 7) // 8


def _fixed_array(arrow_type: pa.DataType, row_count: int, buffer: pa.ResizableBuffer) -> pa.Array:
    data = _trimmed(buffer, row_count * arrow_type.bit_width // 8)
    return pa.Array.from_buffers(arrow_type, row_count, [None, data], null_count=0)


def _text_array(claimed: pa.StringArray) -> pa.StringArray:
    """Return strings whose bytes may be no UTF-8 as Java reads them (``Utils.utf8``)."""
    try:
        claimed.validate(full=True)
    except pa.ArrowInvalid:
        texts = [
            _SURROGATE.sub(_REPLACEMENT, each.as_buffer().to_pybytes()).decode(errors="replace") for each in claimed
        ]
        return pa.array(texts, pa.string())
    return claimed
