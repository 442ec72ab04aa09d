"""The aborted filter against the history that led to the records: who wrote them knows which were committed.

Producers write, commit and abort in any order; compaction takes records away by the cleaner's rules (an ABORT marker
outlives its data, and the index forgets a transaction at the earliest when its data is gone); a broker answers a fetch
from the middle of it all, below the last stable offset, with the aborted transactions that overlap.

Spec: KIP-98. Counterpart: ``ProducerStateManager``, ``TransactionIndex``, ``CleanedTransactionMetadata``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.records.built_rows import offsets
from tests.unit.records.record_bytes import ABORT, COMMIT, CONTROL, TRANSACTIONAL, marker, record, record_batch

IDEMPOTENT_PRODUCER = 9


@dataclass
class Transaction:
    producer_id: int
    first_offset: int
    marker_offset: int | None = None
    is_aborted: bool = False
    has_data_left: bool = False
    is_in_index: bool = True


@dataclass
class Batch:
    base_offset: int
    count: int
    producer_id: int
    transaction: Transaction | None
    is_marker: bool = False
    kept: list[int] = field(default_factory=list)
    is_removed: bool = False

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1

    def encoded(self) -> bytes:
        if self.is_marker and self.kept:
            assert self.transaction is not None
            return marker(self.producer_id, self.base_offset, ABORT if self.transaction.is_aborted else COMMIT)
        attributes = (TRANSACTIONAL if self.transaction else 0) | (CONTROL if self.is_marker else 0)
        return record_batch(
            [record(log_offset - self.base_offset) for log_offset in self.kept],
            base_offset=self.base_offset,
            last_offset_delta=self.count - 1,
            attributes=attributes,
            producer_id=self.producer_id,
        )

    def committed(self) -> list[int]:
        is_visible = not self.is_marker and not (self.transaction and self.transaction.is_aborted)
        return self.kept if is_visible else []


@dataclass
class Log:
    batches: list[Batch] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    open: dict[int, Transaction] = field(default_factory=dict)
    end_offset: int = 0

    def append(self, count: int, producer_id: int, transaction: Transaction | None, *, is_marker: bool = False) -> None:
        kept = list(range(self.end_offset, self.end_offset + count))
        self.batches.append(Batch(self.end_offset, count, producer_id, transaction, is_marker, kept))
        self.end_offset += count

    def write(self, producer_id: int, count: int) -> None:
        if producer_id in (-1, IDEMPOTENT_PRODUCER):
            self.append(count, producer_id, None)
            return
        if producer_id not in self.open:
            self.open[producer_id] = Transaction(producer_id, self.end_offset)
            self.transactions.append(self.open[producer_id])
        self.append(count, producer_id, self.open[producer_id])

    def finish(self, producer_id: int, *, is_aborted: bool) -> None:
        """End a transaction; brokers also write markers for those that wrote nothing here."""
        transaction = self.open.pop(producer_id, None) or Transaction(producer_id, self.end_offset, is_in_index=False)
        transaction.marker_offset, transaction.is_aborted = self.end_offset, is_aborted
        self.append(1, producer_id, transaction, is_marker=True)

    @property
    def last_stable_offset(self) -> int:
        return min((each.first_offset for each in self.open.values()), default=self.end_offset)

    def compact(self, draw: Callable[..., Any]) -> None:
        for batch in self.batches:
            if batch.last_offset >= self.last_stable_offset:
                break
            if not batch.is_marker:
                batch.kept = [each for each in batch.kept if draw(st.booleans())]
                batch.is_removed = not batch.kept and draw(st.booleans())
                if batch.kept and batch.transaction:
                    batch.transaction.has_data_left = True
            elif batch.transaction and not batch.transaction.has_data_left:
                batch.kept = batch.kept if draw(st.booleans()) else []
                batch.is_removed = not batch.kept and draw(st.booleans())
                batch.transaction.is_in_index &= bool(batch.kept) and draw(st.booleans())


@dataclass(frozen=True)
class Answer:
    records: bytes
    aborted: list[tuple[int, int]]
    wanted: tuple[int, int]
    committed: list[int]


@st.composite
def answers(draw: Callable[..., Any]) -> Answer:
    log = Log()
    steps = st.tuples(
        st.sampled_from(["write", "write", "write", "commit", "abort"]),
        st.sampled_from([1, 1, 2, 2, 3, -1, IDEMPOTENT_PRODUCER]),
        st.integers(1, 3),
    )
    for action, producer_id, count in draw(st.lists(steps, min_size=1, max_size=24)):
        if action == "write":
            log.write(producer_id, count)
        elif producer_id in (1, 2, 3):
            log.finish(producer_id, is_aborted=action == "abort")
    if draw(st.booleans()):
        log.compact(draw)

    fetch_offset = draw(st.integers(0, log.end_offset))
    readable = [each for each in log.batches if fetch_offset <= each.last_offset < log.last_stable_offset]
    returned = [each for each in readable if not each.is_removed][: draw(st.integers(1, 30))]
    upper = draw(st.integers(returned[-1].last_offset + 1 if returned else 0, log.end_offset + 1))
    overlapping = [
        (each.producer_id, each.first_offset)
        for each in log.transactions
        if each.is_aborted
        and each.is_in_index
        and each.first_offset < upper
        and (each.marker_offset or 0) >= fetch_offset
    ]
    start_offset = draw(st.integers(fetch_offset, log.end_offset))
    end_offset = draw(st.integers(start_offset, log.end_offset + 1))
    return Answer(
        b"".join(each.encoded() for each in returned),
        draw(st.permutations(overlapping)),
        (start_offset, end_offset),
        [each for batch in returned for each in batch.committed() if start_offset <= each < end_offset],
    )


@settings(max_examples=150, deadline=None)
@given(answers())
def test_what_was_committed_is_what_is_read(answer: Answer) -> None:
    assert offsets(answer.records, answer.wanted, answer.aborted) == answer.committed
