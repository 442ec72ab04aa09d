"""The record loop: the compiled form against the plain one, byte for byte, and each reason to stop.

Every buffer stands between guard bytes, so that a write out of bounds by compiled code shows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.records import kernels as compiled_kernels
from connector.records.kernels import ParseStatus
from tests.unit.records.record_bytes import record, sized, varint

GUARD = b"\xa5" * 16
LARGEST_MS = 9_223_372_036_854_775
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def load_plain_kernels() -> ModuleType:
    """Load the source of the record loop as plain Python, under another name."""
    source = Path(compiled_kernels.__file__).with_name("kernels.py")
    spec = importlib.util.spec_from_file_location("plain_kernels", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain_kernels = load_plain_kernels()


def test_the_two_forms_are_what_they_should_be() -> None:
    assert compiled_kernels.IS_COMPILED
    assert not plain_kernels.IS_COMPILED


@dataclass(frozen=True)
class Batch:
    """What the loop is told of a batch, and the limits that it works under."""

    body: bytes
    record_count: int
    base_offset: int = 1000
    last_offset_delta: int = 2**31 - 1
    start_offset: int = 0
    end_offset: int = INT64_MAX
    timestamp_ms: int = 1_700_000_000_000
    timestamp_type: int = 0
    include_headers: bool = True
    max_rows: int = 1000
    max_bytes: int = 1 << 20
    first_capacity: int = 0


class Guarded:
    """A buffer between guard bytes; grows by being made anew."""

    def __init__(self, size: int, fill: bytes = b"\0", held: bytes = b"") -> None:
        self._memory = bytearray(GUARD + held.ljust(size, fill) + GUARD)

    @property
    def view(self) -> memoryview:
        return memoryview(self._memory)[len(GUARD) : -len(GUARD)]

    def content(self) -> bytes:
        assert self._memory.startswith(GUARD)
        assert self._memory.endswith(GUARD)
        return bytes(self.view)


@dataclass
class Column:
    """One binary column of either form."""

    column: Any
    capacity: int
    offsets: Guarded = field(init=False)
    data: Guarded = field(init=False)
    validity: Guarded = field(init=False)

    def start(self) -> None:
        self.column.clear()
        self.offsets = Guarded(4 * (self.capacity + 1))
        self.data = Guarded(self.capacity)
        self.validity = Guarded((self.capacity + 7) // 8, b"\xff")
        self._attach()

    def grow(self) -> None:
        """Give exactly what is wanted, so that the next record wants again."""
        if self.column.wanted_count > len(self.offsets.view) // 4 - 1:
            self.offsets = Guarded(4 * (self.column.wanted_count + 1), held=self.offsets.content())
            self.validity = Guarded((self.column.wanted_count + 7) // 8, b"\xff", self.validity.content())
        if self.column.wanted_bytes > len(self.data.view):
            self.data = Guarded(self.column.wanted_bytes, held=self.data.content())
        self._attach()

    def _attach(self) -> None:
        self.column.attach(self.offsets.view.cast("i"), self.data.view, self.validity.view)

    def content(self) -> tuple[object, ...]:
        counts = (self.column.count, self.column.used_bytes, self.column.null_count)
        return (*counts, self.offsets.content(), self.data.content(), self.validity.content())


class Loop:
    """One form of the loop over one batch: every stop it made, and every byte it wrote."""

    def __init__(self, kernels: Any, batch: Batch) -> None:
        self.batch = batch
        self.columns = [Column(kernels.BinaryColumn(), batch.first_capacity) for _ in range(4)]
        limits = (batch.include_headers, batch.max_rows, batch.max_bytes)
        self.sink = kernels.RowSink(*(each.column for each in self.columns), *limits)
        self.rows: list[Guarded] = []

    def start(self, row_capacity: int) -> None:
        sizes = (8 * row_capacity, 8 * row_capacity, 4 * row_capacity, 4 * (row_capacity + 1))
        self.rows = [*(Guarded(size) for size in sizes), Guarded((row_capacity + 7) // 8, b"\xff")]
        log_offsets, timestamps, types, list_offsets, list_validity = (each.view for each in self.rows)
        self.sink.attach(
            log_offsets.cast("q"), timestamps.cast("q"), types.cast("i"), list_offsets.cast("i"), list_validity
        )

    def stops(self) -> Iterator[tuple[int, int, tuple[object, ...]]]:
        batch = self.batch
        for each in self.columns:
            each.start()
        self.start(0)
        in_front = b"in front"
        self.sink.begin(
            len(in_front),
            len(in_front) + len(batch.body),
            batch.record_count,
            batch.base_offset,
            batch.last_offset_delta,
            batch.start_offset,
            batch.end_offset,
            batch.timestamp_ms,
            batch.timestamp_type,
        )
        source = in_front + batch.body + record() * 3
        while True:
            status = self.sink.run(memoryview(source))
            yield status, self.sink.position - len(in_front), self.content()
            if status == ParseStatus.FULL:
                assert self.sink.row_count > 0
                self.sink.clear()
                for each in self.columns:
                    each.start()
                self.start(batch.max_rows)
            elif status == ParseStatus.NEEDS_ROOM:
                if not self.rows[0].view:
                    self.start(batch.max_rows)
                for each in self.columns:
                    each.grow()
            else:
                return

    def content(self) -> tuple[object, ...]:
        counts = (self.sink.row_count, self.sink.byte_count, self.sink.null_list_count, self.sink.records_left)
        return (*counts, *(each.content() for each in self.columns), *(each.content() for each in self.rows))


def last_stop(kernels: Any, batch: Batch) -> tuple[ParseStatus, int]:
    *_, (status, position, _) = Loop(kernels, batch).stops()
    return ParseStatus(status), position


small_bytes = st.binary(max_size=12)
small_ints = st.one_of(st.integers(-3, 40), st.sampled_from([2**31 - 1, -(2**31), 2**31, 2**40]))
timestamps = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([INT64_MAX, INT64_MIN, LARGEST_MS, LARGEST_MS + 1, -LARGEST_MS, -LARGEST_MS - 1]),
    st.integers(INT64_MIN, INT64_MAX),
)


@st.composite
def record_bodies(draw: Callable[..., Any]) -> tuple[bytes, int]:
    """Records as a producer would write them, then, sometimes, damaged."""
    records = []
    offset_delta = -1
    for _ in range(draw(st.integers(0, 6))):
        offset_delta += draw(st.sampled_from([1, 1, 1, 2, 70, 0]))
        headers = draw(st.lists(st.tuples(small_bytes, st.none() | small_bytes), max_size=3))
        records.append(
            record(
                offset_delta,
                draw(st.none() | small_bytes),
                draw(st.none() | small_bytes),
                headers,
                timestamp_delta=draw(timestamps),
                header_count=draw(st.sampled_from([None] * 9 + [draw(small_ints)])),
                body_length=draw(st.sampled_from([None] * 9 + [draw(small_ints)])),
            )
        )
    body = bytearray(b"".join(records))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        if body:
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    if draw(st.sampled_from([False, False, True])):
        body = body[: draw(st.integers(0, len(body)))]
    return bytes(body), len(records)


@st.composite
def batches(draw: Callable[..., Any]) -> Batch:
    body, count = draw(st.one_of(record_bodies(), record_bodies(), st.tuples(st.binary(max_size=60), st.just(3))))
    base_offset = draw(st.sampled_from([0, 1000, INT64_MAX - 2**31]))
    return Batch(
        body=body,
        record_count=draw(st.sampled_from([count] * 6 + [count + 1, max(count - 1, 0), 0, 2**31 - 1])),
        base_offset=base_offset,
        last_offset_delta=draw(st.sampled_from([2**31 - 1, 2**31 - 1, 3, 0])),
        start_offset=base_offset + draw(st.sampled_from([0, 0, 2, 500])),
        end_offset=base_offset + draw(st.sampled_from([2**31 - 1, 2**31 - 1, 3, 0])),
        timestamp_ms=draw(timestamps),
        timestamp_type=draw(st.integers(-1, 1)),
        include_headers=draw(st.booleans()),
        max_rows=draw(st.sampled_from([1, 2, 9, 1000])),
        max_bytes=draw(st.sampled_from([1, 30, 1 << 20])),
        first_capacity=draw(st.sampled_from([0, 1, 9, 200])),
    )


@settings(max_examples=300, deadline=None)
@given(batches())
def test_compiled_and_plain_agree_at_every_stop(batch: Batch) -> None:
    compiled, plain = Loop(compiled_kernels, batch).stops(), Loop(plain_kernels, batch).stops()
    for compiled_stop, plain_stop in zip(compiled, plain, strict=True):
        assert compiled_stop == plain_stop


GOOD = record(0, b"key", b"value", [(b"h", b"1"), (b"h", None)])
OVERLONG_32 = b"\xff\xff\xff\xff\xff\x01"
OVERLONG_64 = b"\xff" * 10 + b"\x01"


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


def after_fixed(rest: bytes) -> bytes:
    """A record of offset delta 1, whose key length and all that follows it are given."""
    return framed(b"\0\0" + varint(1) + rest)


STOPS: dict[str, tuple[Batch, ParseStatus]] = {
    "good": (Batch(GOOD + record(1), 2), ParseStatus.DONE),
    "no records": (Batch(b"", 0), ParseStatus.DONE),
    "more announced than there": (Batch(GOOD, 2), ParseStatus.RECORD_COUNT),
    "hostile count": (Batch(GOOD, 2**31 - 1), ParseStatus.RECORD_COUNT),
    "count without a byte": (Batch(b"", 1), ParseStatus.RECORD_COUNT),
    "fewer announced than there": (Batch(GOOD + record(1), 1), ParseStatus.BYTES_LEFT),
    "record cut": (Batch(GOOD + record(1)[:-1], 2), ParseStatus.RECORD_SIZE),
    "record length cut": (Batch(GOOD + b"\xff", 2), ParseStatus.RECORD_SIZE),
    "record length overlong": (Batch(GOOD + OVERLONG_32 + bytes(99), 2), ParseStatus.RECORD_SIZE),
    "record length negative": (Batch(GOOD + record(1, body_length=-1), 2), ParseStatus.RECORD_SIZE),
    "record length largest": (Batch(GOOD + record(1, body_length=2**31 - 1), 2), ParseStatus.RECORD_SIZE),
    "record length too small": (Batch(GOOD + record(1, body_length=5), 2), ParseStatus.RECORD_SIZE),
    "record length one too long": (Batch(GOOD + record(1, body_length=9) + b"\0", 2), ParseStatus.SIZE_MISMATCH),
    "timestamp delta overlong": (Batch(GOOD + framed(b"\0" + OVERLONG_64 + bytes(9)), 2), ParseStatus.OFFSET_DELTA),
    "offset delta overlong": (Batch(GOOD + framed(b"\0\0" + OVERLONG_32 + bytes(9)), 2), ParseStatus.OFFSET_DELTA),
    "offset delta cut": (Batch(GOOD + framed(b"\0\0" + b"\x80" * 4), 2), ParseStatus.OFFSET_DELTA),
    "offset delta negative": (Batch(record(-1), 1), ParseStatus.OFFSET_DELTA),
    "offset delta again": (Batch(GOOD + record(0), 2), ParseStatus.OFFSET_DELTA),
    "offset delta falls": (Batch(record(5) + record(4), 2), ParseStatus.OFFSET_DELTA),
    "offset delta above the last": (Batch(GOOD + record(8), 2, last_offset_delta=7), ParseStatus.OFFSET_DELTA),
    "offset delta that is the last": (Batch(GOOD + record(7), 2, last_offset_delta=7), ParseStatus.DONE),
    "key beyond the record": (Batch(GOOD + after_fixed(varint(9) + b"12345678"), 2), ParseStatus.KEY_SIZE),
    "key largest": (Batch(GOOD + after_fixed(varint(2**31 - 1) + bytes(9)), 2), ParseStatus.KEY_SIZE),
    "key length overlong": (Batch(GOOD + after_fixed(OVERLONG_32 + bytes(9)), 2), ParseStatus.KEY_SIZE),
    "no value length": (Batch(GOOD + after_fixed(sized(b"12345")), 2), ParseStatus.VALUE_SIZE),
    "value beyond the record": (Batch(GOOD + after_fixed(sized(b"") + varint(3) + b"12"), 2), ParseStatus.VALUE_SIZE),
    "no header count": (Batch(GOOD + after_fixed(sized(b"") + sized(b"12")), 2), ParseStatus.HEADER_COUNT),
    "header count negative": (Batch(GOOD + record(1, header_count=-1), 2), ParseStatus.HEADER_COUNT),
    "header count hostile": (Batch(GOOD + record(1, header_count=2**31 - 1), 2), ParseStatus.HEADER_COUNT),
    "header count one too many": (
        Batch(GOOD + record(1, headers=[(b"", b"")], header_count=2), 2),
        ParseStatus.HEADER_COUNT,
    ),
    "header count one too few": (
        Batch(GOOD + record(1, headers=[(b"a", b"")], header_count=0), 2),
        ParseStatus.SIZE_MISMATCH,
    ),
    "header key null": (
        Batch(GOOD + after_fixed(sized(b"") + sized(b"") + varint(1) + varint(-1) + sized(b"")), 2),
        ParseStatus.HEADER_KEY_SIZE,
    ),
    "header key beyond the record": (
        Batch(GOOD + after_fixed(sized(b"") + sized(b"") + varint(1) + varint(2) + b"1"), 2),
        ParseStatus.HEADER_KEY_SIZE,
    ),
    "header value missing": (
        Batch(GOOD + after_fixed(sized(b"") + sized(b"") + varint(1) + sized(b"12")), 2),
        ParseStatus.HEADER_VALUE_SIZE,
    ),
    "header value beyond the record": (
        Batch(GOOD + after_fixed(sized(b"") + sized(b"") + varint(1) + sized(b"1") + varint(9) + b"2"), 2),
        ParseStatus.HEADER_VALUE_SIZE,
    ),
    "timestamp too large": (
        Batch(record(0, timestamp_delta=LARGEST_MS + 1), 1, timestamp_ms=0),
        ParseStatus.TIMESTAMP,
    ),
    "timestamp too small": (
        Batch(record(0, timestamp_delta=-LARGEST_MS - 1), 1, timestamp_ms=0),
        ParseStatus.TIMESTAMP,
    ),
    "largest timestamp": (Batch(record(0, timestamp_delta=LARGEST_MS), 1, timestamp_ms=0), ParseStatus.DONE),
    "smallest timestamp": (Batch(record(0, timestamp_delta=-LARGEST_MS), 1, timestamp_ms=0), ParseStatus.DONE),
    "timestamp beyond 64 bits on its way": (
        Batch(record(0, timestamp_delta=INT64_MAX), 1, timestamp_ms=INT64_MAX),
        ParseStatus.TIMESTAMP,
    ),
    "delta that brings the base back": (
        Batch(record(0, timestamp_delta=INT64_MIN), 1, timestamp_ms=INT64_MAX),
        ParseStatus.DONE,
    ),
    "base that the delta brings back": (
        Batch(record(0, timestamp_delta=INT64_MAX), 1, timestamp_ms=INT64_MIN),
        ParseStatus.DONE,
    ),
    "log append time leaves the delta out": (
        Batch(record(0, timestamp_delta=INT64_MAX), 1, timestamp_ms=5, timestamp_type=1),
        ParseStatus.DONE,
    ),
    "log append time too large": (
        Batch(record(0), 1, timestamp_ms=LARGEST_MS + 1, timestamp_type=1),
        ParseStatus.TIMESTAMP,
    ),
}
WITHOUT_HEADERS = {
    "header count negative",
    "header count hostile",
    "header count one too many",
    "header count one too few",
    "header key null",
    "header key beyond the record",
    "header value missing",
    "header value beyond the record",
    "record length one too long",
}


@pytest.mark.parametrize("kernels", [compiled_kernels, plain_kernels], ids=["compiled", "plain"])
@pytest.mark.parametrize("case", STOPS)
def test_why_it_stops_and_where(kernels: ModuleType, case: str) -> None:
    batch, expected = STOPS[case]
    status, position = last_stop(kernels, batch)
    assert status is expected
    if status is ParseStatus.DONE:
        assert position == len(batch.body)
    elif status in (ParseStatus.BYTES_LEFT, ParseStatus.RECORD_COUNT) or batch.body.startswith(GOOD):
        assert position == min(len(batch.body), len(GOOD))
    else:
        assert position in (0, len(record(5)))


@pytest.mark.parametrize("case", STOPS)
def test_headers_that_nobody_wants_are_skipped_by_the_records_length(case: str) -> None:
    batch, expected = STOPS[case]
    status, _ = last_stop(compiled_kernels, replace(batch, include_headers=False))
    assert status is (ParseStatus.DONE if case in WITHOUT_HEADERS else expected)


def test_any_negative_length_is_null_as_in_java() -> None:
    body = after_fixed(varint(-7) + varint(-(2**31)) + varint(1) + sized(b"h") + varint(-2))
    loop = Loop(compiled_kernels, Batch(body, 1))
    assert [status for status, *_ in loop.stops()][-1] == ParseStatus.DONE
    assert [each.column.null_count for each in loop.columns] == [1, 1, 0, 1]


def test_surplus_bits_of_a_varints_last_byte_are_dropped_as_in_java() -> None:
    zero_in_five_bytes = b"\x80\x80\x80\x80\x70"
    zero_in_ten_bytes = b"\x80" * 9 + b"\x7e"
    body = framed(b"\0" + zero_in_ten_bytes + zero_in_five_bytes + sized(None) + sized(None) + b"\0")
    assert last_stop(compiled_kernels, Batch(body, 1)) == (ParseStatus.DONE, len(body))
