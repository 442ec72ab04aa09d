"""One replica's log: record batches, leader epochs, transactions, where it starts and what of it is committed.

Batches are shared by all replicas that hold them; a log only knows which it has. Offsets are those of the protocol:
``log_end_offset`` is the next one to be written, ``high_watermark`` the first that is not known to be committed.

Spec: KIP-98 (batches, transactions), KIP-101 and KIP-320 (leader epochs), KIP-405 (local log start).
Counterpart: ``UnifiedLog``, ``LeaderEpochFileCache``, ``ProducerStateManager``, ``TransactionIndex``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Final, NamedTuple

from connector.model import NO_EPOCH
from connector.records.layout import CONTROL_MASK, HEADER_BYTES, MAGIC_V2, TRANSACTIONAL_MASK

__all__ = ["EMPTY", "Batch", "ModelLog", "encode_batch"]

EMPTY: Final = memoryview(b"")

# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp, producer id,
# producer epoch, base sequence, record count.
_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH_END: Final = 12
_last_offset = attrgetter("last_offset")
_start_offset = itemgetter(1)


class Batch(NamedTuple):
    """A record batch as leaders wrote it; `uid` is unique in the cluster and stands in the base timestamp."""

    base_offset: int = -1
    last_offset: int = -1
    leader_epoch: int = NO_EPOCH
    uid: int = 0
    record_count: int = 1
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    is_abort: bool = False
    append_ms: int = 0
    encoded: bytes = b""


class EndedTransaction(NamedTuple):
    """A transaction with its marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_abort: bool


def encode_batch(batch: Batch, size_bytes: int) -> Batch:
    """Return the batch with its bytes: a true magic-2 header, then padding up to `size_bytes`."""
    length = max(size_bytes, HEADER_BYTES) - _LENGTH_END
    attributes = (TRANSACTIONAL_MASK if batch.is_transactional else 0) | (CONTROL_MASK if batch.is_control else 0)
    last_offset_delta = batch.last_offset - batch.base_offset
    header = _HEADER.pack(
        *(batch.base_offset, length, batch.leader_epoch, MAGIC_V2, 0, attributes, last_offset_delta),
        *(batch.uid, batch.append_ms, batch.producer_id, 0 if batch.producer_id >= 0 else -1, -1, batch.record_count),
    )
    return batch._replace(encoded=header.ljust(_LENGTH_END + length, b"\0"))


class ModelLog:
    """A replica's log.

    Attributes
    ----------
    local_log_start_offset : int
        First offset on the broker's own disks; above `log_start_offset` only when the topic is tiered. What lies
        between the two stays in `batches`: it stands for the remote log.
    epochs : list of (leader epoch, first offset)
        Ascending in both (``leader-epoch-checkpoint``).
    local_bytes : int
        Size of the batches on the broker's own disks.
    """

    def __init__(self, start_offset: int = 0) -> None:
        self.batches: list[Batch] = []
        self.log_start_offset = self.local_log_start_offset = start_offset
        self.log_end_offset = self.high_watermark = start_offset
        self.epochs: list[tuple[int, int]] = []
        self.local_bytes = 0
        self._open: dict[int, int] = {}
        self._ended: list[EndedTransaction] = []

    def append(self, batch: Batch) -> None:
        """Add a batch at the end, with what it says about epochs and transactions."""
        self.batches.append(batch)
        self.log_end_offset = batch.last_offset + 1
        self.local_bytes += len(batch.encoded)
        self.assign_epoch(batch.leader_epoch, batch.base_offset)
        if batch.is_transactional:
            self._track_transaction(batch)

    def _track_transaction(self, batch: Batch) -> None:
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
        elif (first_offset := self._open.pop(batch.producer_id, None)) is not None:
            ended = EndedTransaction(batch.producer_id, first_offset, batch.last_offset, batch.is_abort)
            self._ended.append(ended)

    # ------------------------------------------------------------------------------------------------ leader epochs

    @property
    def last_epoch(self) -> int:
        """The latest leader epoch of this log, or `NO_EPOCH`."""
        return self.epochs[-1][0] if self.epochs else NO_EPOCH

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Note that `leader_epoch` begins at `start_offset`: a new leader does, and who copies its first batch."""
        if leader_epoch > self.last_epoch:
            while self.epochs and self.epochs[-1][1] >= start_offset:  # an epoch without a record leaves no trace
                self.epochs.pop()
            self.epochs.append((leader_epoch, start_offset))

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Tell the largest known epoch that is not above `leader_epoch`, and the offset where it ends.

        (-1, -1) above all known epochs or for an undefined one; below all known ones, the asked epoch ends where the
        first known one begins. Not limited by the high watermark, whatever KIP-392 says.

        Spec: KIP-101, KIP-320. Counterpart: ``LeaderEpochFileCache.endOffsetFor``.
        """
        if leader_epoch == self.last_epoch:
            return leader_epoch, (self.log_end_offset if self.epochs else -1)
        at = bisect_right(self.epochs, leader_epoch, key=itemgetter(0))
        if at == len(self.epochs) or leader_epoch == NO_EPOCH:
            return NO_EPOCH, -1
        return (self.epochs[at - 1][0] if at else leader_epoch), self.epochs[at][1]

    def epoch_at(self, log_offset: int) -> int:
        """Return the leader epoch of the record at `log_offset`, or `NO_EPOCH`."""
        at = bisect_right(self.epochs, log_offset, key=_start_offset)
        return self.epochs[at - 1][0] if at else NO_EPOCH

    # ------------------------------------------------------------------------------------------------- transactions

    @property
    def last_stable_offset(self) -> int:
        """First offset of the oldest transaction that is not decided below the high watermark, else that.

        A transaction whose marker is not committed yet counts as open. Each replica goes by its own log.

        Spec: KIP-98. Counterpart: ``UnifiedLog.lastStableOffset``.
        """
        stable = self.high_watermark
        for ended in reversed(self._ended):
            if ended.last_offset < self.high_watermark:
                break
            stable = min(stable, ended.first_offset)
        return min(stable, *self._open.values()) if self._open else stable

    def is_open(self, producer_id: int) -> bool:
        """Tell whether this producer has begun a transaction here and not ended it."""
        return producer_id in self._open

    def aborted_within(self, first_offset: int, end_offset: int) -> tuple[tuple[int, int], ...]:
        """Return (producer id, first offset) of aborted transactions that overlap ``[first_offset, end_offset)``.

        They may begin before the offset that was asked for. Order is that of their markers.
        """
        return tuple(
            (ended.producer_id, ended.first_offset)
            for ended in self._ended
            if ended.is_abort and ended.last_offset >= first_offset and ended.first_offset < end_offset
        )

    # ------------------------------------------------------------------------------------------------------ reading

    def index_of(self, log_offset: int) -> int:
        """Return where in `batches` the first one stands that ends at or above `log_offset`."""
        return bisect_left(self.batches, log_offset, key=_last_offset)

    def read(self, log_offset: int, end_offset: int, max_bytes: int, *, must_give_one: bool) -> memoryview:
        """Return batches from the one that holds `log_offset` on, up to `end_offset` and `max_bytes`.

        The last one may be cut anywhere. A first batch above `max_bytes` comes whole with `must_give_one`, else not
        at all.

        Spec: KIP-74. Counterpart: ``LogSegment.read``, ``FetchDataInfo.firstEntryIncomplete``.
        """
        batches, parts, size = self.batches, [], 0
        for at in range(self.index_of(log_offset), len(batches)):
            if batches[at].base_offset >= end_offset:
                break
            parts.append(batches[at].encoded)
            size += len(batches[at].encoded)
            if size >= max_bytes:
                break
        if not parts:
            return EMPTY
        if len(parts[0]) > max_bytes:
            return memoryview(parts[0]) if must_give_one else EMPTY
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))[:max_bytes]

    def bytes_between(self, log_offset: int, end_offset: int) -> int:
        """Return how many bytes a read of these offsets would find."""
        first, stop = self.index_of(log_offset), self.index_of(end_offset)
        return sum(len(batch.encoded) for batch in self.batches[first:stop])

    # ------------------------------------------------------------------------------ truncation, retention, compaction

    def truncate_to(self, log_offset: int) -> None:
        """Drop everything from `log_offset` on, as a follower does whose log has parted from its leader's."""
        at = self.index_of(log_offset)
        for batch in self.batches[at:]:
            self.local_bytes -= len(batch.encoded)
        del self.batches[at:]
        self.log_end_offset = log_offset
        self.high_watermark = min(self.high_watermark, log_offset)
        while self.epochs and self.epochs[-1][1] >= log_offset:
            self.epochs.pop()
        self._open, self._ended = {}, []
        for batch in self.batches:
            if batch.is_transactional:
                self._track_transaction(batch)

    def restart_at(self, leader_log: ModelLog, log_offset: int) -> None:
        """Give up this log and begin at `log_offset` with the leader's past, which a tiered topic keeps elsewhere."""
        self.batches = [batch for batch in leader_log.batches if batch.last_offset < log_offset]
        self.log_start_offset = leader_log.log_start_offset
        self.epochs = [entry for entry in leader_log.epochs if entry[1] < log_offset]
        self.local_log_start_offset = log_offset
        self.local_bytes = 0
        self.truncate_to(log_offset)
        self.high_watermark = log_offset

    def advance_log_start(self, log_offset: int) -> None:
        """Lose everything below `log_offset`. Of the epochs, the one it falls into begins there.

        Counterpart: ``UnifiedLog.maybeIncrementLogStartOffset``, ``LeaderEpochFileCache.truncateFromStart``.
        """
        if log_offset <= self.log_start_offset:
            return
        self.advance_local_start(log_offset)
        del self.batches[: self.index_of(log_offset)]
        self.log_start_offset = log_offset
        at = bisect_right(self.epochs, log_offset, key=_start_offset)
        if at:
            self.epochs[:at] = [(self.epochs[at - 1][0], log_offset)]

    def advance_local_start(self, log_offset: int) -> None:
        """Take everything below `log_offset` from the broker's own disks (KIP-405: the remote log keeps it)."""
        if log_offset > self.local_log_start_offset:
            local_from, local_to = self.index_of(self.local_log_start_offset), self.index_of(log_offset)
            self.local_bytes -= sum(len(batch.encoded) for batch in self.batches[local_from:local_to])
            self.local_log_start_offset = log_offset

    @property
    def local_start_ms(self) -> int | None:
        """When the first batch on the broker's own disks was written; None without one."""
        at = self.index_of(self.local_log_start_offset)
        return self.batches[at].append_ms if at < len(self.batches) else None

    def replace(self, at: int, batch: Batch | None) -> None:
        """Put a smaller batch in the place of one, or nothing: what compaction does."""
        old = self.batches[at]
        if old.base_offset >= self.local_log_start_offset:
            self.local_bytes += (len(batch.encoded) if batch else 0) - len(old.encoded)
        self.batches[at : at + 1] = [batch] if batch else []
