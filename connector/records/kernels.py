"""The record loop: records of one decompressed batch into column buffers, without a Python object per record.

Written in Cython's pure-Python mode. Compiled by ``setup.py`` it is what the connector runs; the same file runs
uncompiled in tests, which hold the two against each other. Nothing here allocates, and nothing here trusts a
length: every read and every write is checked against the bounds of the source and of the columns by this code,
since Cython's own checks are switched off.

`RowSink` is told of a batch with `RowSink.begin`; then `RowSink.run` is called until it answers ``DONE``. Whatever
else it answers, `RowSink.position` is the first byte of a record of which no row exists. The caller takes the rows
away (``FULL``) or gives larger buffers (``NEEDS_ROOM``) and calls again. Any other status is an error of the data;
the header columns may then hold a part of the failed record, so all rows must be given up.

Spec: Kafka message format, "Record" (KIP-98). Counterpart: ``DefaultRecord.readFrom``, which takes any negative
key, value or header value length for null, and so does this code. Stricter than Java in one thing: offset deltas
must ascend and stay within the batch's last offset delta, since positions that come from batch headers would
otherwise lose or repeat records.
"""

from enum import IntEnum

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

__all__ = ["IS_COMPILED", "BinaryColumn", "ParseStatus", "RowSink"]

IS_COMPILED = cython.compiled


class ParseStatus(IntEnum):
    """Why `RowSink.run` came back."""

    DONE = 0
    """The batch is used up, or its records have reached the end offset."""
    FULL = 1
    """The next record belongs into another arrow batch."""
    NEEDS_ROOM = 2
    """No room for the next record: in the row columns, or in those whose `wanted_count` or `wanted_bytes` say so."""
    RECORD_COUNT = 3
    """The batch announces more records than its bytes hold."""
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
    """The batch has bytes behind the last record that it announces."""


# The same values as C integers: the loop runs without the GIL and can't look at an enum.
_DONE = cython.declare(cython.int, ParseStatus.DONE)
_FULL = cython.declare(cython.int, ParseStatus.FULL)
_NEEDS_ROOM = cython.declare(cython.int, ParseStatus.NEEDS_ROOM)
_RECORD_COUNT = cython.declare(cython.int, ParseStatus.RECORD_COUNT)
_RECORD_SIZE = cython.declare(cython.int, ParseStatus.RECORD_SIZE)
_OFFSET_DELTA = cython.declare(cython.int, ParseStatus.OFFSET_DELTA)
_TIMESTAMP = cython.declare(cython.int, ParseStatus.TIMESTAMP)
_KEY_SIZE = cython.declare(cython.int, ParseStatus.KEY_SIZE)
_VALUE_SIZE = cython.declare(cython.int, ParseStatus.VALUE_SIZE)
_HEADER_COUNT = cython.declare(cython.int, ParseStatus.HEADER_COUNT)
_HEADER_KEY_SIZE = cython.declare(cython.int, ParseStatus.HEADER_KEY_SIZE)
_HEADER_VALUE_SIZE = cython.declare(cython.int, ParseStatus.HEADER_VALUE_SIZE)
_SIZE_MISMATCH = cython.declare(cython.int, ParseStatus.SIZE_MISMATCH)
_BYTES_LEFT = cython.declare(cython.int, ParseStatus.BYTES_LEFT)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_zigzag(
    source: cython.pointer[cython.const[cython.uchar]],
    at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    last_shift: cython.int,
    last_mask: cython.uint,
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """Read a zig-zag varint whose last possible byte is shifted by `last_shift` and counts with `last_mask`.

    Returns
    -------
    (value, at) : the value and the byte after it; (0, stop + 1) when it is cut or too long. A read that starts
        behind `stop` fails as well, so that reads can follow each other before the first check.

    Notes
    -----
    Counterpart: ``ByteUtils.readVarint`` and ``readVarlong``; surplus bits of the last byte are dropped as there.
    """
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.ulonglong
    while at < stop:
        byte = source[at]
        at += 1
        if shift == last_shift:
            if byte > 0x7F:
                break
            byte &= last_mask
        raw |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1), at
        shift += 7
    return 0, stop + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_varint(
    source: cython.pointer[cython.const[cython.uchar]], at: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """Read a zig-zag varint of 32 bits; see `_read_zigzag`."""
    return _read_zigzag(source, at, stop, 28, 0x0F)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _read_varlong(
    source: cython.pointer[cython.const[cython.uchar]], at: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """Read a zig-zag varint of 64 bits; see `_read_zigzag`."""
    return _read_zigzag(source, at, stop, 63, 0x01)


@cython.final
@cython.cclass
class BinaryColumn:
    """Byte strings under construction, in Arrow's layout: offsets, data, validity bits.

    Attributes
    ----------
    count, used_bytes, null_count : int
        Values written so far, bytes of `data` in use, and values that are null.
    wanted_count, wanted_bytes : int
        What `count` and `used_bytes` would have become with the record that did not fit.
    """

    offsets: cython.int[::1]
    data: cython.uchar[::1]
    validity: cython.uchar[::1]
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    used_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    null_count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    wanted_count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    wanted_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    capacity: cython.Py_ssize_t
    capacity_bytes: cython.Py_ssize_t

    def __init__(self) -> None:
        self.clear()

    def attach(self, offsets: cython.int[::1], data: cython.uchar[::1], validity: cython.uchar[::1]) -> None:
        """Use these buffers; what the column holds must be in them.

        Parameters
        ----------
        offsets : buffer of int32, shape (capacity + 1,)
        data : buffer of uint8, shape (capacity_bytes,)
        validity : buffer of uint8, shape (at least capacity / 8,)
            Every bit that the column has not written must be set: only nulls are written.

        All are borrowed, and must neither move nor shrink until the next call.
        """
        self.offsets = offsets
        self.data = data
        self.validity = validity
        self.capacity = min(offsets.shape[0] - 1, validity.shape[0] * 8)
        self.capacity_bytes = data.shape[0]
        if self.count == 0:
            offsets[0] = 0

    def clear(self) -> None:
        """Forget all values; to be followed by `attach`."""
        self.count = self.used_bytes = self.null_count = self.wanted_count = self.wanted_bytes = 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def accepts(self, value_count: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Tell if so many values of `size` bytes together fit (negative: 0); else note what they need."""
        if size < 0:
            size = 0
        if self.count + value_count <= self.capacity and self.used_bytes + size <= self.capacity_bytes:
            return True
        self.wanted_count = self.count + value_count
        self.wanted_bytes = self.used_bytes + size
        return False

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def put(
        self,
        source: cython.pointer[cython.const[cython.uchar]],
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> cython.void:
        """Append ``source[at : at + size]``, or null when `size` is negative. It must have been accepted."""
        value_index: cython.Py_ssize_t = self.count
        if size < 0:
            self.validity[value_index >> 3] &= ~(1 << (value_index & 7))
            self.null_count += 1
        elif cython.compiled:
            memcpy(cython.address(self.data[self.used_bytes]), source + at, size)
            self.used_bytes += size
        else:
            self.data[self.used_bytes : self.used_bytes + size] = source[at : at + size]
            self.used_bytes += size
        self.count = value_index + 1
        self.offsets[value_index + 1] = self.used_bytes


@cython.final
@cython.cclass
class RowSink:
    """Rows under construction, and the place in a record batch where they come from.

    It starts without buffers, so the first record is answered by ``NEEDS_ROOM``.

    Parameters
    ----------
    key, value, header_key, header_value : BinaryColumn
        Where payloads go. The header columns stay untouched unless `include_headers`.
    include_headers : bool
        Read headers; otherwise they are skipped by the record's length.
    max_rows, max_bytes : int
        A row that would exceed either is not appended (``FULL``), unless it is the first. Bytes are those of whole
        records on the wire, so no 32-bit Arrow offset overflows when `max_bytes` is below 2**31.

    Attributes
    ----------
    row_count, byte_count : int
        Rows appended since `clear`, and what their records measured.
    null_list_count : int
        Rows without headers.
    position, records_left : int
        Next record to read, and how many the batch still announces.
    """

    key: BinaryColumn
    value: BinaryColumn
    header_key: BinaryColumn
    header_value: BinaryColumn
    include_headers: cython.bint
    max_rows: cython.Py_ssize_t
    max_bytes: cython.Py_ssize_t
    row_capacity: cython.Py_ssize_t

    log_offsets: cython.longlong[::1]
    timestamps: cython.longlong[::1]
    timestamp_types: cython.int[::1]
    list_offsets: cython.int[::1]
    list_validity: cython.uchar[::1]

    row_count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    byte_count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    null_list_count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    position = cython.declare(cython.Py_ssize_t, visibility="readonly")
    records_left = cython.declare(cython.Py_ssize_t, visibility="readonly")

    stop: cython.Py_ssize_t
    base_offset: cython.longlong
    last_offset_delta: cython.longlong
    previous_offset_delta: cython.longlong
    start_offset: cython.longlong
    end_offset: cython.longlong
    timestamp_ms: cython.longlong
    timestamp_type: cython.int
    lowest_timestamp_delta: cython.longlong
    highest_timestamp_delta: cython.longlong

    def __init__(
        self,
        key: BinaryColumn,
        value: BinaryColumn,
        header_key: BinaryColumn,
        header_value: BinaryColumn,
        include_headers: cython.bint,
        max_rows: cython.Py_ssize_t,
        max_bytes: cython.Py_ssize_t,
    ) -> None:
        self.key = key
        self.value = value
        self.header_key = header_key
        self.header_value = header_value
        self.include_headers = include_headers
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.position = self.records_left = self.row_capacity = 0
        self.clear()

    def attach(
        self,
        log_offsets: cython.longlong[::1],
        timestamps: cython.longlong[::1],
        timestamp_types: cython.int[::1],
        list_offsets: cython.int[::1],
        list_validity: cython.uchar[::1],
    ) -> None:
        """Use these buffers for rows from `clear` on.

        Parameters
        ----------
        log_offsets, timestamps : buffers of int64, shape (row capacity,)
            Timestamps are in microseconds.
        timestamp_types : buffer of int32, shape (row capacity,)
        list_offsets : buffer of int32, shape (row capacity + 1,)
        list_validity : buffer of uint8, shape (at least row capacity / 8,)
            All bits set. These two are for headers only, and not looked at without.

        All are borrowed, and must neither move nor shrink until the next call.
        """
        self.log_offsets = log_offsets
        self.timestamps = timestamps
        self.timestamp_types = timestamp_types
        self.list_offsets = list_offsets
        self.list_validity = list_validity
        self.row_capacity = min(log_offsets.shape[0], timestamps.shape[0], timestamp_types.shape[0])
        if self.include_headers:
            self.row_capacity = min(self.row_capacity, list_offsets.shape[0] - 1, list_validity.shape[0] * 8)
            list_offsets[0] = 0

    def clear(self) -> None:
        """Forget all rows; the columns are cleared by themselves."""
        self.row_count = self.byte_count = self.null_list_count = 0

    def begin(
        self,
        position: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        record_count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset_delta: cython.longlong,
        start_offset: cython.longlong,
        end_offset: cython.longlong,
        timestamp_ms: cython.longlong,
        timestamp_type: cython.int,
    ) -> None:
        """Take a batch's header fields; `run` then reads its records.

        Parameters
        ----------
        position, stop : int
            Where the records stand in the source that `run` will be given: 0 <= position <= stop <= its length.
        record_count : int
            As announced, not negative. Only believed as far as the bytes can hold it.
        base_offset, last_offset_delta : int
            Not negative, and their sum fits into 64 bits.
        start_offset, end_offset : int
            Records below the start are skipped; the first at or past the end ends the batch.
        timestamp_ms, timestamp_type : int
            The batch's base timestamp and 0 (create time), or what every record has: the batch's max timestamp and 1
            (log append time), or -1 and -1 (no timestamp, from before magic 1).
        """
        self.position = position
        self.stop = stop
        self.records_left = record_count
        self.base_offset = base_offset
        self.last_offset_delta = last_offset_delta
        self.previous_offset_delta = -1
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        # Spark counts microseconds in 64 bits: |ms| may be 9223372036854775 at most. As bounds on the delta, and
        # without leaving 64 bits on the way there.
        if timestamp_ms >= 0:
            self.highest_timestamp_delta = 9223372036854775 - timestamp_ms
            self.lowest_timestamp_delta = -9223372036854775 - min(timestamp_ms, 9214148664817921033)
        else:
            self.highest_timestamp_delta = 9223372036854775 - max(timestamp_ms, -9214148664817921032)
            self.lowest_timestamp_delta = -9223372036854775 - timestamp_ms

    def run(self, source: cython.const[cython.uchar][::1]) -> cython.int:
        """Append rows from `position` on until something stops it.

        Parameters
        ----------
        source : buffer of uint8
            Holds the batch's records at ``[position, stop)``; borrowed for this call.

        Returns
        -------
        int
            A `ParseStatus`. Never raises; the GIL is released while records are read.
        """
        status: cython.int
        pointer: cython.pointer[cython.const[cython.uchar]]
        if cython.compiled:  # noqa: SIM108 - the compiler drops one branch, and could not type both
            pointer = cython.address(source[0])
        else:
            pointer = source
        with cython.nogil:
            status = self.read_records(pointer)
        return status

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def read_records(self, source: cython.pointer[cython.const[cython.uchar]]) -> cython.int:
        """Read records until the batch is used up or one can't become a row."""
        at: cython.Py_ssize_t
        size: cython.longlong
        record_stop: cython.Py_ssize_t
        timestamp_delta: cython.longlong
        offset_delta: cython.longlong
        log_offset: cython.longlong
        status: cython.int
        while self.records_left > 0:
            if self.position >= self.stop:
                return _RECORD_COUNT
            size, at = _read_varint(source, self.position, self.stop)
            if size < 6 or size > self.stop - at:  # six fields of at least a byte, attributes to header count
                return _RECORD_SIZE
            record_stop = at + size
            timestamp_delta, at = _read_varlong(source, at + 1, record_stop)
            offset_delta, at = _read_varint(source, at, record_stop)
            if offset_delta <= self.previous_offset_delta or offset_delta > self.last_offset_delta or at > record_stop:
                return _OFFSET_DELTA
            log_offset = self.base_offset + offset_delta
            if log_offset >= self.end_offset:
                return _DONE
            if log_offset >= self.start_offset:
                status = self.append_record(source, at, record_stop, log_offset, timestamp_delta)
                if status != _DONE:
                    return status
            self.previous_offset_delta = offset_delta
            self.position = record_stop
            self.records_left -= 1
        return _DONE if self.position == self.stop else _BYTES_LEFT

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def append_record(
        self,
        source: cython.pointer[cython.const[cython.uchar]],
        at: cython.Py_ssize_t,
        record_stop: cython.Py_ssize_t,
        log_offset: cython.longlong,
        timestamp_delta: cython.longlong,
    ) -> cython.int:
        """Make a row of the record at `position`, whose key length stands at `at`; all of it or nothing."""
        row: cython.Py_ssize_t = self.row_count
        record_bytes: cython.Py_ssize_t = record_stop - self.position
        key_size: cython.longlong
        key_at: cython.Py_ssize_t
        value_size: cython.longlong
        value_at: cython.Py_ssize_t
        status: cython.int
        if row >= self.max_rows or (row > 0 and self.byte_count + record_bytes > self.max_bytes):
            return _FULL
        if self.timestamp_type != 0:
            timestamp_delta = 0
        if timestamp_delta < self.lowest_timestamp_delta or timestamp_delta > self.highest_timestamp_delta:
            return _TIMESTAMP
        key_size, key_at = _read_varint(source, at, record_stop)
        if key_size > record_stop - key_at:
            return _KEY_SIZE
        value_size, value_at = _read_varint(source, key_at + max(key_size, 0), record_stop)
        if value_size > record_stop - value_at:
            return _VALUE_SIZE
        at = value_at + max(value_size, 0)
        if row >= self.row_capacity or not self.key.accepts(1, key_size) or not self.value.accepts(1, value_size):
            return _NEEDS_ROOM
        if self.include_headers:
            status = self.append_headers(source, at, record_stop)
            if status != _DONE:
                return status
        elif at >= record_stop:
            return _HEADER_COUNT
        self.key.put(source, key_at, key_size)
        self.value.put(source, value_at, value_size)
        self.log_offsets[row] = log_offset
        self.timestamps[row] = (self.timestamp_ms + timestamp_delta) * 1000
        self.timestamp_types[row] = self.timestamp_type
        self.row_count = row + 1
        self.byte_count += record_bytes
        return _DONE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def append_headers(
        self,
        source: cython.pointer[cython.const[cython.uchar]],
        at: cython.Py_ssize_t,
        record_stop: cython.Py_ssize_t,
    ) -> cython.int:
        """Make the next row's list of the headers that fill ``[at, record_stop)``; none at all make a null list."""
        row: cython.Py_ssize_t = self.row_count
        header_count: cython.longlong
        size: cython.longlong
        header_count, at = _read_varint(source, at, record_stop)
        if at > record_stop or header_count < 0 or header_count > (record_stop - at) // 2:  # two lengths each
            return _HEADER_COUNT
        if header_count == 0:
            self.list_validity[row >> 3] &= ~(1 << (row & 7))
            self.null_list_count += 1
        elif not (
            self.header_key.accepts(header_count, record_stop - at)
            and self.header_value.accepts(header_count, record_stop - at)
        ):
            return _NEEDS_ROOM
        while header_count > 0:
            size, at = _read_varint(source, at, record_stop)
            if size < 0 or size > record_stop - at:
                return _HEADER_KEY_SIZE
            self.header_key.put(source, at, size)
            size, at = _read_varint(source, at + size, record_stop)
            if size > record_stop - at:
                return _HEADER_VALUE_SIZE
            self.header_value.put(source, at, size)
            at += max(size, 0)
            header_count -= 1
        if at != record_stop:
            return _SIZE_MISMATCH
        self.list_offsets[row + 1] = self.header_key.count
        return _DONE
