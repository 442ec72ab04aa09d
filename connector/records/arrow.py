"""Fetched records in, arrow batches out.

The path of a record batch: it is verified and decompressed (`connector.records.bodies`), and the compiled loop writes
its records into the columns. Python runs once a batch, and once an arrow batch; once a record only for messages of
magic 0 and 1.

Spec: Kafka message format (KIP-98). Counterpart: ``CompletedFetch``, and Spark's ``KafkaRecordToRowConverter``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import pyarrow as pa

from connector.errors import CorruptBatch, LocalViolation, RecordDecodeError, UnsupportedFeature
from connector.model import TopicPartition
from connector.records.bodies import open_body
from connector.records.columns import TIMESTAMP_TYPE, RecordColumns, run_columns
from connector.records.compiled import ParseStatus
from connector.records.layout import MAGIC_V2, BatchHeader, RecordBody, walk_record_batches
from connector.records.legacy import holds_earlier_messages
from connector.records.transactions import AbortedTransactions

__all__ = ["RowBuilder", "arrow_schema"]

_LONGEST_TOPIC_NAME: Final = 249
_MOST_BYTES: Final = (1 << 31) - 1
"""What a 32-bit Arrow offset can reach."""

_HEADERS_TYPE: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_COLUMNS: Final = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", TIMESTAMP_TYPE),
    ("timestampType", pa.int32()),
)

_DONE: Final = int(ParseStatus.DONE)
_FULL: Final = int(ParseStatus.FULL)
_NEEDS_ROOM: Final = int(ParseStatus.NEEDS_ROOM)
_REFUSALS: Final[Mapping[int, tuple[type[RecordDecodeError], str]]] = {
    ParseStatus.RECORD_COUNT: (CorruptBatch, "the batch ends before the records that it announces do"),
    ParseStatus.RECORD_SIZE: (CorruptBatch, "its length is impossible or goes beyond the batch"),
    ParseStatus.OFFSET_DELTA: (
        CorruptBatch,
        "its offset delta is unreadable, not ascending, or above the batch's last",
    ),
    ParseStatus.TIMESTAMP: (UnsupportedFeature, "its timestamp is more than Spark can hold (microseconds in 64 bits)"),
    ParseStatus.KEY_SIZE: (CorruptBatch, "its key is unreadable or goes beyond the record"),
    ParseStatus.VALUE_SIZE: (CorruptBatch, "its value is unreadable or goes beyond the record"),
    ParseStatus.HEADER_COUNT: (CorruptBatch, "its header count is unreadable, negative or more than can be there"),
    ParseStatus.HEADER_KEY_SIZE: (CorruptBatch, "a header key is unreadable, null or goes beyond the record"),
    ParseStatus.HEADER_VALUE_SIZE: (CorruptBatch, "a header value is unreadable or goes beyond the record"),
    ParseStatus.SIZE_MISMATCH: (CorruptBatch, "its length is not that of its fields"),
    ParseStatus.BYTES_LEFT: (CorruptBatch, "the batch goes on behind the records that it announces"),
}


def arrow_schema(include_headers: bool) -> pa.Schema:
    """Return the schema of the rows, equal to what Spark makes of the built-in Kafka source's columns.

    Parameters
    ----------
    include_headers : bool
        Whether the column `headers` is there.

    Returns
    -------
    pyarrow.Schema
        All fields nullable; key and value binary, timestamp in microseconds UTC, timestampType 0 (create time),
        1 (log append time) or -1 (none: a message of magic 0).
    """
    return pa.schema([*_COLUMNS, ("headers", _HEADERS_TYPE)] if include_headers else _COLUMNS)


class RowBuilder:
    """Makes arrow batches of fetched records.

    A null key or value stays null and an empty one empty; a record without headers has null headers, not an empty
    list; header keys that are no UTF-8 are read as Java reads them. Control batches make no rows. Messages of magic 0
    have timestamp -1 ms and timestamp type -1, as in Spark's own source.

    Parameters
    ----------
    include_headers : bool
        Whether rows have the column `headers`.
    max_rows : int
        Rows of an arrow batch at most.
    max_bytes : int
        Bytes of an arrow batch at most, as its records measure on the wire; one record alone may be larger.

    Notes
    -----
    Not thread-safe. Several topic-partitions may share an arrow batch; the rows of one stay in order.
    """

    def __init__(self, *, include_headers: bool, max_rows: int = 10_000, max_bytes: int = 8 * 1024 * 1024) -> None:
        if not 0 < max_rows <= _MOST_BYTES // _LONGEST_TOPIC_NAME or not 0 < max_bytes <= _MOST_BYTES:
            raise LocalViolation(f"arrow batches of {max_rows} rows and {max_bytes} bytes can't be made")
        self._schema = arrow_schema(include_headers)
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._columns = RecordColumns(_HEADERS_TYPE if include_headers else None, max_rows, max_bytes)
        self._sink = self._columns.sink
        self._runs: list[tuple[TopicPartition, int]] = []
        self._taken_row_count = 0
        self._is_appending = False

    @property
    def row_count(self) -> int:
        """Rows appended since construction, taken or not."""
        return self._taken_row_count + self._sink.row_count

    def append(
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        start_offset: int,
        end_offset: int,
        aborted_transactions: Collection[tuple[int, int]] | None = (),
    ) -> Iterator[pa.RecordBatch]:
        """Append the rows of fetched records with ``start_offset <= offset < end_offset``.

        Nothing happens until the iterator is asked, and it must be used up before anything else is called.

        Parameters
        ----------
        topic_partition : TopicPartition
            Whose records they are.
        records : memoryview of bytes
            Record batches, the last of which may be cut. Borrowed until the iterator is used up; arrow batches do
            not refer to it.
        start_offset, end_offset : int
            The range that is wanted.
        aborted_transactions : collection of (producer id, first offset), optional
            What the answer that brought the records names as aborted; their records are left out. The records must
            then be that answer's from its first batch on, however far below the start offset, because the marker
            that ends a transaction may stand there.

        Yields
        ------
        pyarrow.RecordBatch
            Each arrow batch that is full. What is left stays here for the next call, or for `finish`.

        Raises
        ------
        CorruptBatch
            A batch fails its checksum, can't be decompressed or contradicts itself.
        UnsupportedFeature
            An unknown codec, or a timestamp that Spark can't hold.
        LocalViolation
            An earlier call of `append` did not end, or failed; its rows are lost, so this builder is of no more use.
        """
        self._check_idle()
        self._is_appending = True
        self._columns.expect_value_bytes(min(len(records), self._max_bytes))
        self._on_run(topic_partition)
        aborted = AbortedTransactions(aborted_transactions) if aborted_transactions else None
        is_end_reached = False
        for start, stop, header in walk_record_batches(records, topic_partition):
            if header[0] >= end_offset:
                if is_end_reached or header[3] == MAGIC_V2 or not holds_earlier_messages(records, start):
                    break
                is_end_reached = True
            body = open_body(topic_partition, records, start, stop, header, start_offset, aborted)
            if body is None:
                continue
            source, first, last, record_count, base_offset, last_offset_delta, timestamp_ms, timestamp_type = body
            self._sink.begin(
                first,
                last,
                record_count,
                base_offset,
                last_offset_delta,
                start_offset,
                end_offset,
                timestamp_ms,
                timestamp_type,
            )
            while (status := self._run(source)) == _FULL:
                yield self._take()
                self._on_run(topic_partition)
            if status != _DONE:
                raise self._refused_record(status, topic_partition, start, header, body)
        if self._sink.row_count == self._max_rows:
            yield self._take()
        self._is_appending = False

    def finish(self) -> pa.RecordBatch | None:
        """Return the rows that no full arrow batch took away, or None if there are none.

        Raises
        ------
        LocalViolation
            As `append` does.
        """
        self._check_idle()
        return self._take() if self._sink.row_count else None

    def _check_idle(self) -> None:
        if self._is_appending:
            raise LocalViolation("an append of fetched records was left before its end, or failed: rows are missing")

    def _on_run(self, topic_partition: TopicPartition) -> None:
        """Note whose rows come next."""
        first_row = self._sink.row_count
        if self._runs and self._runs[-1][1] == first_row:
            self._runs.pop()
        self._runs.append((topic_partition, first_row))

    def _run(self, source: memoryview) -> int:
        """Run the loop over a batch, giving it room as it asks."""
        while (status := self._sink.run(source)) == _NEEDS_ROOM:
            self._columns.make_room()
        return status

    def _take(self) -> pa.RecordBatch:
        """Make an arrow batch of the rows so far."""
        row_count = self._sink.row_count
        topic, partition = run_columns(self._runs, row_count)
        key, value, *others = self._columns.take()
        self._runs.clear()
        self._taken_row_count += row_count
        return pa.RecordBatch.from_arrays([key, value, topic, partition, *others], schema=self._schema)

    def _refused_record(
        self, status: int, topic_partition: TopicPartition, start: int, header: BatchHeader, body: RecordBody
    ) -> RecordDecodeError:
        """Make the error for the record at which the loop gave up."""
        _, first, _, record_count, *_ = body
        error, reason = _REFUSALS[status]
        where = f"record {record_count - self._sink.records_left + 1} of {record_count}"
        if header[3] == MAGIC_V2:
            where += f", at byte {self._sink.position - first} of its records"
        return error(str(topic_partition), header[0], start, f"{where}: {reason}")
