"""read_committed: which batches of an answer are left out, case by case.

Expected: the filter of Java's ``CompletedFetch``, as its tests pin it (named where one does) and as KIP-98 tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.errors import CorruptBatch, UnsupportedFeature
from connector.records.layout import scan_record_batches
from connector.records.transactions import control_type
from tests.unit.records.built_rows import EVERYTHING, arrow_batches, offsets
from tests.unit.records.record_bytes import (
    ABORT,
    COMMIT,
    CONTROL,
    TRANSACTIONAL,
    batch_of,
    marker,
    message,
    record,
    record_batch,
    transactional,
    varint,
)


@dataclass(frozen=True)
class Case:
    batches: tuple[bytes, ...]
    aborted: tuple[tuple[int, int], ...]
    committed: list[int]
    start_offset: int = 0


def empty_marker(producer_id: int, log_offset: int) -> bytes:
    """A control batch whose record compaction took away."""
    attributes = TRANSACTIONAL | CONTROL
    return record_batch([], base_offset=log_offset, last_offset_delta=0, attributes=attributes, producer_id=producer_id)


ABORTED_THEN_COMMITTED = (
    transactional(1, 0, 3),
    marker(1, 3, ABORT),
    transactional(1, 4, 2),
    marker(1, 6, COMMIT),
)

CASES: dict[str, Case] = {
    "committed": Case((transactional(1, 0, 3), marker(1, 3, COMMIT), batch_of(1, 4)), (), [0, 1, 2, 4]),
    "committed while others are aborted": Case(
        (transactional(1, 0, 3), marker(1, 3, COMMIT), transactional(2, 4), marker(2, 5, ABORT)), ((2, 4),), [0, 1, 2]
    ),
    "aborted": Case((transactional(1, 0, 3), marker(1, 3, ABORT), batch_of(1, 4)), ((1, 0),), [4]),
    "aborted in several batches": Case(
        (transactional(1, 0), transactional(1, 1, 2), batch_of(1, 3), transactional(1, 4), marker(1, 5, ABORT)),
        ((1, 0),),
        [3],
    ),
    "aborted and then committed by the same producer": Case(ABORTED_THEN_COMMITTED, ((1, 0),), [4, 5]),
    "interleaved (testMultipleAbortMarkers)": Case(
        (
            transactional(1, 0, 2),
            transactional(2, 2, 2),
            transactional(1, 4),
            marker(1, 5, ABORT),
            transactional(1, 6),
            marker(2, 7, COMMIT),
            transactional(2, 8),
            marker(1, 9, COMMIT),
            marker(2, 10, ABORT),
        ),
        ((1, 0), (2, 8)),
        [2, 3, 6],
    ),
    "nested in time: the inner one aborted": Case(
        (transactional(1, 0), transactional(2, 1), marker(2, 2, ABORT), transactional(1, 3), marker(1, 4, COMMIT)),
        ((2, 1),),
        [0, 3],
    ),
    "nested in time: the outer one aborted": Case(
        (transactional(1, 0), transactional(2, 1), marker(2, 2, COMMIT), transactional(1, 3), marker(1, 4, ABORT)),
        ((1, 0),),
        [1],
    ),
    "aborted again and again, listed in no order": Case(
        (
            transactional(1, 0),
            marker(1, 1, ABORT),
            transactional(1, 2),
            marker(1, 3, ABORT),
            transactional(1, 4),
            marker(1, 5, COMMIT),
            transactional(1, 6),
            marker(1, 7, ABORT),
        ),
        ((1, 6), (1, 0), (1, 2)),
        [4],
    ),
    "list sorted by producer instead of offset": Case(
        (transactional(2, 0), transactional(1, 1), marker(2, 2, ABORT), marker(1, 3, ABORT), transactional(2, 4)),
        ((1, 1), (2, 0)),
        [4],
    ),
    "ABORT without data": Case(
        (batch_of(2), marker(1, 2, ABORT), transactional(1, 3), marker(1, 4, COMMIT)), (), [0, 1, 3]
    ),
    "ABORT without data, listed (testReadCommittedWithCompactedTopic)": Case(
        (batch_of(2), marker(1, 2, ABORT), transactional(1, 3), marker(1, 4, COMMIT)), ((1, 2),), [0, 1, 3]
    ),
    "aborted data compacted away, the list reaches further back": Case(
        (marker(1, 30, ABORT), transactional(1, 31), marker(1, 32, COMMIT)), ((1, 3),), [31]
    ),
    "aborted at the end, marker not included": Case(
        (transactional(2, 0), transactional(1, 1, 2), batch_of(1, 3), transactional(1, 4)), ((1, 1),), [0, 3]
    ),
    "first offset before the fetch offset": Case(
        (transactional(1, 10, 4), batch_of(1, 14), marker(1, 15, ABORT), transactional(1, 16)), ((1, 3),), [14, 16], 12
    ),
    "marker before the start offset": Case(ABORTED_THEN_COMMITTED, ((1, 0),), [4, 5], 4),
    "marker right at the start offset": Case(ABORTED_THEN_COMMITTED, ((1, 0),), [4, 5], 3),
    "aborted data before and after the start offset": Case(
        (transactional(1, 0, 2), transactional(1, 2, 2), marker(1, 4, ABORT), batch_of(1, 5)), ((1, 0),), [5], 3
    ),
    "first offset within a batch": Case((transactional(1, 0, 4), marker(1, 4, ABORT)), ((1, 2),), []),
    "first offset is the batch's last": Case((transactional(1, 0, 4), marker(1, 4, ABORT)), ((1, 3),), []),
    "first offset right behind the batch": Case((transactional(1, 0, 4), marker(1, 4, ABORT)), ((1, 4),), [0, 1, 2, 3]),
    "list goes beyond the data": Case(
        (transactional(1, 0), marker(1, 1, ABORT), transactional(2, 2)), ((2, 900), (1, 0), (3, 500)), [2]
    ),
    "list is empty though there are markers": Case((transactional(1, 0), marker(1, 1, COMMIT)), (), [0]),
    "idempotent without transaction is never left out": Case(
        (batch_of(2, producer_id=1), transactional(1, 2), batch_of(1, 3, producer_id=1), marker(1, 4, ABORT)),
        ((1, 0),),
        [0, 1, 3],
    ),
    "no producer": Case((batch_of(2), transactional(1, 2), marker(1, 3, ABORT), batch_of(1, 4)), ((1, 2),), [0, 1, 4]),
    "old formats have no producer": Case(
        (transactional(1, 0), message(0, 1), message(1, 2), transactional(1, 3), marker(1, 4, ABORT)), ((1, 0),), [1, 2]
    ),
    "empty control batch is no marker (testEmptyControlBatch)": Case(
        (empty_marker(1, 0), transactional(2, 1), marker(2, 2, COMMIT)), ((1, 0),), [1]
    ),
    "empty control batch ends nothing": Case(
        (transactional(1, 0), empty_marker(1, 1), transactional(1, 2), marker(1, 3, ABORT), transactional(1, 4)),
        ((1, 0),),
        [4],
    ),
    "empty batch of an aborted transaction": Case(
        (
            record_batch([], last_offset_delta=4, attributes=TRANSACTIONAL, producer_id=1),
            transactional(1, 5),
            marker(1, 6, ABORT),
            batch_of(1, 7),
        ),
        ((1, 0),),
        [7],
    ),
    "empty batch whose range has the first offset": Case(
        (record_batch([], last_offset_delta=4), transactional(1, 5), marker(1, 6, ABORT)), ((1, 3),), []
    ),
    "COMMIT of another producer ends nothing": Case(
        (transactional(1, 0), transactional(2, 1), marker(2, 2, COMMIT), transactional(1, 3), marker(1, 4, ABORT)),
        ((1, 0),),
        [1],
    ),
    "ABORT of another producer ends nothing": Case(
        (transactional(1, 0), transactional(2, 1), marker(2, 2, ABORT), transactional(1, 3), marker(1, 4, ABORT)),
        ((1, 0), (2, 1)),
        [],
    ),
    "compressed data and marker": Case(
        (transactional(1, 0, 3, codec="zstd"), marker(1, 3, ABORT, codec="lz4"), transactional(1, 4, codec="gzip")),
        ((1, 0),),
        [4],
    ),
    "marker of a later key version": Case(
        (transactional(1, 0), marker(1, 1, ABORT, key=b"\0\x07\0\0and more"), transactional(1, 2)), ((1, 0),), [2]
    ),
}
for other in (1, 2, 3, 4, 5, 6, 7, -1, 256):
    CASES[f"control record of type {other} does not abort"] = Case(
        (transactional(1, 0), marker(1, 1, other), transactional(1, 2), marker(1, 3, ABORT)), ((1, 0),), []
    )


@pytest.mark.parametrize("name", CASES)
def test_what_is_committed(name: str) -> None:
    case = CASES[name]
    wanted = (case.start_offset, EVERYTHING[1])
    assert offsets(b"".join(case.batches), wanted, case.aborted) == case.committed


@pytest.mark.parametrize("name", CASES)
def test_read_uncommitted_has_all_but_control_records(name: str) -> None:
    case = CASES[name]
    data = [
        log_offset
        for each in case.batches
        if not is_control(each)
        for log_offset in offsets(each, (case.start_offset, EVERYTHING[1]))
    ]
    nothing: tuple[list[tuple[int, int]] | None, ...] = ([], None)
    for nothing_aborted in nothing:
        assert offsets(b"".join(case.batches), (case.start_offset, EVERYTHING[1]), nothing_aborted) == data


def is_control(batch: bytes) -> bool:
    return batch[16] == 2 and batch[22] & CONTROL != 0


@pytest.mark.parametrize("name", CASES)
def test_position_passes_aborted_data_and_markers(name: str) -> None:
    """Positions come from batches, not from rows, or a range that ends in a marker would never end."""
    case = CASES[name]
    last = scan_record_batches(memoryview(case.batches[-1]))
    assert scan_record_batches(memoryview(b"".join(case.batches))).next_offset == last.next_offset


def test_every_answer_is_judged_by_its_own_list() -> None:
    """A transaction that one answer leaves open is open in the next one only if that lists it again."""
    first, second = transactional(1, 0, 2), transactional(1, 2, 2)
    assert offsets(first, aborted=[(1, 0)]) == []
    assert offsets(second, aborted=[(1, 0)]) == []
    assert offsets(second, aborted=[]) == [2, 3]


def test_end_offset_within_an_aborted_transaction() -> None:
    written = batch_of(2) + transactional(1, 2, 4) + marker(1, 6, ABORT) + batch_of(1, 7)
    assert [offsets(written, (0, end), [(1, 2)]) for end in (1, 2, 4, 7, 8)] == [[0], [0, 1], [0, 1], [0, 1], [0, 1, 7]]


def test_aborted_batches_are_cut_out_of_arrow_batches_that_go_on() -> None:
    written = b"".join(transactional(i % 2, 10 * i, 10) for i in range(6))
    cut = arrow_batches(written, aborted=[(1, 0)], max_rows=12)
    assert [each.num_rows for each in cut] == [12, 12, 6]
    kept = [log_offset for each in cut for log_offset in each.column("offset").to_pylist()]
    assert kept == [*range(10), *range(20, 30), *range(40, 50)]


def test_damage_in_an_aborted_batch_is_still_told() -> None:
    """The attributes and the producer id that decide are only believed with the checksum."""
    for batch in (transactional(1, 0), marker(1, 0, ABORT)):
        bad = bytearray(batch)
        bad[-1] ^= 1
        with pytest.raises(CorruptBatch, match="checksum"):
            offsets(bytes(bad), aborted=[(1, 0)])


@pytest.mark.parametrize(
    "records",
    [
        record(0, None),
        record(0, b""),
        record(0, b"\0\0\0"),
        record(0, b"\xff\xff\0\0"),
        varint(60) + b"\0" + b"\xff" * 60,
        varint(9) + b"\0\0\0" + varint(4) + b"\0\0",
        b"\x80",
    ],
    ids=["null key", "empty key", "short key", "negative version", "endless number", "cut key", "cut"],
)
def test_control_record_that_is_none(records: bytes) -> None:
    assert control_type(memoryview(records)) is None
    bad = record_batch([records], base_offset=3, attributes=TRANSACTIONAL | CONTROL, producer_id=1)
    with pytest.raises(CorruptBatch, match="no control record") as raised:
        offsets(batch_of(3) + bad, aborted=[(1, 0)])
    assert (raised.value.base_offset, raised.value.byte_position) == (3, len(batch_of(3)))
    assert offsets(batch_of(3) + bad) == [0, 1, 2]


@pytest.mark.parametrize(
    "fields", [{"timestamp_delta": 2**62}, {"timestamp_delta": -(2**62)}, {"offset_delta": 2**31 - 1}]
)
def test_control_record_behind_long_numbers(fields: dict[str, Any]) -> None:
    for expected in (0, 1, 5):
        assert control_type(memoryview(record(key=bytes([0, 0, 0, expected]), **fields))) == expected


@given(st.binary(max_size=40))
def test_any_bytes_are_a_control_record_or_none(records: bytes) -> None:
    found = control_type(memoryview(records))
    assert found is None or -(2**15) <= found < 2**15


def test_marker_in_an_unknown_codec_is_refused_and_not_overlooked() -> None:
    bad = marker(1, 1, ABORT, attributes=TRANSACTIONAL | CONTROL | 5)
    with pytest.raises(UnsupportedFeature, match="codec 5"):
        offsets(transactional(1, 0) + bad, aborted=[(1, 0)])


def test_control_batch_without_a_producer_is_not_looked_into() -> None:
    """KRaft's own, such as a leader change."""
    foreign = record_batch([record(0, b"")], base_offset=1, attributes=CONTROL)
    assert offsets(transactional(1, 0) + foreign + transactional(1, 2), aborted=[(1, 0)]) == []
