"""Who may lead a topic-partition, and in which order the candidates are taken.

Replicas stand in the order of their assignment. Where a threshold for local logs is set, those whose local log is
long enough (in time or in bytes, either will do) come first; within both groups the order stays. It is a preference:
when only short local logs are left, one of them leads. A replica that has not reported counts as long enough.

Spec: "Deprioritize followers with limited local log in leader election" (seed 002); KIP-106 (unclean election).
Counterpart: ``PartitionChangeBuilder.electLeader``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from connector.model import NO_NODE

__all__ = ["LocalLog", "Thresholds", "choose_leader", "election_order", "is_eligible"]


class LocalLog(NamedTuple):
    """What a replica reports of its own disks; `start_ms` is None while there is no record."""

    start_ms: int | None
    size_bytes: int


class Thresholds(NamedTuple):
    """``leader.election.eligible.local.log.ms`` and ``.bytes``; a value that is not positive is off."""

    local_log_ms: int
    local_log_bytes: int


def is_eligible(reported: LocalLog | None, thresholds: Thresholds, now_ms: int) -> bool:
    """Tell whether a replica is preferred: long enough in time or bytes, not known, or nothing is asked for."""
    local_log_ms, local_log_bytes = thresholds
    if reported is None or (local_log_ms <= 0 and local_log_bytes <= 0):
        return True
    is_old = local_log_ms > 0 and reported.start_ms is not None and now_ms - reported.start_ms >= local_log_ms
    return is_old or (local_log_bytes > 0 and reported.size_bytes >= local_log_bytes)


def election_order(
    replica_ids: Sequence[int], reported: Mapping[int, LocalLog], thresholds: Thresholds, now_ms: int
) -> list[int]:
    """Sort replicas, stably, so that those with enough local data come first."""
    return sorted(replica_ids, key=lambda each: not is_eligible(reported.get(each), thresholds, now_ms))


def choose_leader(
    order: Sequence[int], isr_ids: Collection[int], alive_ids: Collection[int], *, is_unclean_allowed: bool
) -> int:
    """Return the first candidate that is alive and in sync; failing that, when allowed, one that is alive."""
    for each in order:
        if each in isr_ids and each in alive_ids:
            return each
    return next((each for each in order if each in alive_ids), NO_NODE) if is_unclean_allowed else NO_NODE
