"""What one replica answers for one topic-partition, by the offset it is asked for.

===============================  =============================  ===================================================
fetch offset                     leader                         follower
===============================  =============================  ===================================================
below the log start              OFFSET_OUT_OF_RANGE            the same, by its own log start
tiered, below the local start    from the remote log            from the remote log
below high watermark (or LSO)    records                        records up to its own high watermark (or LSO)
at it                            empty, long poll               empty, long poll
above it, up to the log end      empty, at once                 empty, at once
above the log end                OFFSET_OUT_OF_RANGE            OFFSET_OUT_OF_RANGE, be it committed elsewhere
===============================  =============================  ===================================================

An error carries -1 for high watermark, last stable offset and log start.

Spec: KIP-392, "Out of range handling", as Apache built it; KIP-405 (tiered), KIP-595 (diverging epoch).
Counterpart: ``Partition.readRecords``, ``LocalLog.read``, ``ReplicaManager.createLogReadResult``.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from connector.model import NO_EPOCH, NO_NODE, READ_COMMITTED, READ_UNCOMMITTED, PartitionFetch
from connector.wire import error_codes as codes
from tests.model.log import EMPTY, ModelLog
from tests.model.replication import Replica
from tests.model.settings import ModelSettings

__all__ = ["Isolation", "Read", "end_of", "read_replica"]


class Isolation(Enum):
    """Up to where somebody may read (``FetchIsolation``)."""

    LOG_END = -1
    HIGH_WATERMARK = READ_UNCOMMITTED
    LAST_STABLE_OFFSET = READ_COMMITTED


class Read(NamedTuple):
    """The answer for one topic-partition, before the session decides whether it is told."""

    error_code: int = codes.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: memoryview = EMPTY
    aborted_transactions: tuple[tuple[int, int], ...] = ()
    preferred_read_replica: int = NO_NODE
    diverging_epoch: int = NO_EPOCH
    diverging_end_offset: int = -1
    is_remote: bool = False


def end_of(log: ModelLog, isolation: Isolation) -> int:
    """Return the first offset that must not be read."""
    if isolation is Isolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.log_end_offset if isolation is Isolation.LOG_END else log.last_stable_offset


def read_replica(
    replica: Replica,
    request: PartitionFetch,
    isolation: Isolation,
    settings: ModelSettings,
    *,
    max_bytes: int,
    must_give_one: bool = True,
    last_fetched_epoch: int = NO_EPOCH,
) -> Read:
    """Read one topic-partition for a request that has passed `Replica.check`.

    `last_fetched_epoch` is what followers send and consumers do not; where it is given, a log that has parted from
    this replica's is told so, also when this replica merely lags.
    """
    log, fetch_offset = replica.log, request.fetch_offset
    state = Read(codes.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    if last_fetched_epoch != NO_EPOCH and fetch_offset >= log.log_start_offset:
        epoch, end_offset = log.end_of_epoch(last_fetched_epoch)
        if epoch == NO_EPOCH:
            return Read(codes.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return state._replace(diverging_epoch=epoch, diverging_end_offset=end_offset)
    if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
        return _out_of_range(replica, fetch_offset, settings)
    end_offset = end_of(log, isolation)
    if fetch_offset > log.high_watermark and settings.answers_offset_not_available:
        return Read(codes.OFFSET_NOT_AVAILABLE)
    is_remote = fetch_offset < log.local_log_start_offset
    if fetch_offset >= end_offset:
        return state
    stop = min(end_offset, log.local_log_start_offset) if is_remote else end_offset
    records = log.read(fetch_offset, stop, max_bytes, must_give_one=must_give_one)
    aborted: tuple[tuple[int, int], ...] = ()
    if isolation is Isolation.LAST_STABLE_OFFSET:  # found through the index: may name some beyond the records
        aborted = log.aborted_within(fetch_offset, end_offset)
    return state._replace(records=records, aborted_transactions=aborted, is_remote=is_remote)


def _out_of_range(replica: Replica, fetch_offset: int, settings: ModelSettings) -> Read:
    """Refuse an offset; KIP-392 as written knows more than Apache tells (cases 2 and 3)."""
    log = replica.log
    is_known_elsewhere = log.log_end_offset < fetch_offset <= replica.told_high_watermark
    if settings.answers_offset_not_available and is_known_elsewhere:
        return Read(codes.OFFSET_NOT_AVAILABLE)
    if settings.fills_offsets_on_error:
        return Read(codes.OFFSET_OUT_OF_RANGE, log.high_watermark, -1, log.log_start_offset)
    return Read(codes.OFFSET_OUT_OF_RANGE)
