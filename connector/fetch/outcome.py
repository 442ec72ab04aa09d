"""What a broker's answer for one topic-partition means, as a value.

`decide` is a function of the answer and of what was asked; it changes nothing, so a table of cases tests it.
Whether the answer came from the leader is part of what was asked, recorded when the request was sent: current state
may be another by then.

Counterpart: `FetchCollector.handleInitializeErrors` and `FetchCollector.initialize` of the Java consumer. Where it
keeps a follower after an error, we read at the leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from connector.errors import ConnectorError, CorruptBatch, OffsetOutOfRange, RemoteViolation
from connector.model import NO_NODE, PartitionReply, RecordsScan, ReplicaChange, TopicPartition
from connector.wire import error_codes

__all__ = [
    "AskAgain",
    "Asked",
    "Deliver",
    "Fail",
    "LookUpOffsets",
    "Outcome",
    "ReadFromReplica",
    "RefreshMetadata",
    "ReturnToLeader",
    "Wait",
    "decide",
    "decide_out_of_range",
]


@dataclass(frozen=True, slots=True)
class Deliver:
    """Records up to `next_offset` arrived; later fetches go to `preferred_read_replica` if there is one."""

    next_offset: int
    preferred_read_replica: int = NO_NODE


@dataclass(frozen=True, slots=True)
class ReadFromReplica:
    """The leader names the replica to read; this answer holds no records."""

    node_id: int


@dataclass(frozen=True, slots=True)
class ReturnToLeader:
    """The follower can't serve this position; the leader can or knows why not."""

    reason: ReplicaChange
    problem: str
    refresh_metadata: bool = False


@dataclass(frozen=True, slots=True)
class LookUpOffsets:
    """The leader does not hold this offset: ask it what it holds, since the error does not say."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to read here yet; ask again after a pause."""

    problem: str


@dataclass(frozen=True, slots=True)
class AskAgain:
    """There is more, but other topic-partitions filled the answer; ask again at once (KIP-74)."""


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """The node is not, or not yet, what metadata says; learn the leader, then ask again after a pause."""

    problem: str


@dataclass(frozen=True, slots=True)
class Fail:
    """No retry can help."""

    error: ConnectorError


Outcome: TypeAlias = (
    Deliver | ReadFromReplica | ReturnToLeader | LookUpOffsets | Wait | AskAgain | RefreshMetadata | Fail
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of a node for one topic-partition, as far as it decides what the answer means.

    Attributes
    ----------
    waited_ms : int
        How long ago this position was first asked of a follower.
    is_budget_spent : bool
        Whether the same answer holds records of other topic-partitions.
    """

    topic_partition: TopicPartition
    fetch_offset: int
    node: str
    from_leader: bool
    waited_ms: int
    follower_wait_ms: int
    is_budget_spent: bool = False


class _AtLeader(Enum):
    """What an error code means when the leader answers it."""

    REFRESH = auto()
    WAIT = auto()
    LOOK_UP = auto()
    FAIL = auto()


_AT_LEADER: Final[Mapping[int, _AtLeader]] = {
    error_codes.UNKNOWN_SERVER_ERROR: _AtLeader.WAIT,
    error_codes.OFFSET_OUT_OF_RANGE: _AtLeader.LOOK_UP,
    error_codes.CORRUPT_MESSAGE: _AtLeader.FAIL,
    error_codes.UNKNOWN_TOPIC_OR_PARTITION: _AtLeader.REFRESH,
    error_codes.LEADER_NOT_AVAILABLE: _AtLeader.REFRESH,
    error_codes.NOT_LEADER_OR_FOLLOWER: _AtLeader.REFRESH,
    error_codes.REPLICA_NOT_AVAILABLE: _AtLeader.REFRESH,
    error_codes.TOPIC_AUTHORIZATION_FAILED: _AtLeader.FAIL,
    error_codes.KAFKA_STORAGE_ERROR: _AtLeader.REFRESH,
    error_codes.FENCED_LEADER_EPOCH: _AtLeader.REFRESH,
    error_codes.UNKNOWN_LEADER_EPOCH: _AtLeader.WAIT,
    error_codes.OFFSET_NOT_AVAILABLE: _AtLeader.WAIT,
    error_codes.UNKNOWN_TOPIC_ID: _AtLeader.REFRESH,
    error_codes.INCONSISTENT_TOPIC_ID: _AtLeader.REFRESH,
}
"""Codes that are not here fail the read: retrying what is not understood hides it."""

_ADVICE: Final[Mapping[int, str]] = {
    error_codes.TOPIC_AUTHORIZATION_FAILED: "Grant READ and DESCRIBE on the topic to the principal of this query.",
    error_codes.CORRUPT_MESSAGE: "The leader's log segment is damaged; check the broker's disk and log.",
}


def decide(reply: PartitionReply, scan: RecordsScan, asked: Asked) -> Outcome:
    """Return what an answer means.

    Parameters
    ----------
    reply : PartitionReply
        The answer.
    scan : RecordsScan
        What the headers of its records tell.
    asked : Asked
        What was asked, and of whom.
    """
    if reply.error_code != error_codes.NONE:
        return _decide_error(reply.error_code, asked)
    if scan.next_offset > asked.fetch_offset:
        return Deliver(scan.next_offset, reply.preferred_read_replica)
    if reply.preferred_read_replica != NO_NODE:
        return ReadFromReplica(reply.preferred_read_replica)
    if len(reply.records) > 0:
        return _decide_useless_records(scan, asked)
    return _decide_empty(reply, asked)


def _decide_error(code: int, asked: Asked) -> Outcome:
    name = error_codes.error_name(code)
    problem = f"{name} from broker {asked.node}"
    at_leader = _AT_LEADER.get(code, _AtLeader.FAIL)
    if not asked.from_leader and code != error_codes.TOPIC_AUTHORIZATION_FAILED:
        is_range = code == error_codes.OFFSET_OUT_OF_RANGE
        reason = ReplicaChange.OUT_OF_RANGE if is_range else ReplicaChange.FOLLOWER_ERROR
        return ReturnToLeader(reason, problem, refresh_metadata=at_leader is _AtLeader.REFRESH)
    match at_leader:
        case _AtLeader.REFRESH:
            return RefreshMetadata(problem)
        case _AtLeader.WAIT:
            return Wait(problem)
        case _AtLeader.LOOK_UP:
            return LookUpOffsets()
        case _AtLeader.FAIL:
            subject = f"fetching {asked.topic_partition} at offset {asked.fetch_offset}"
            return Fail(error_codes.broker_error(code, subject, asked.node, _ADVICE.get(code, "")))


def _decide_useless_records(scan: RecordsScan, asked: Asked) -> Outcome:
    """Judge records that move the position nowhere: fetching them again would be a spin."""
    if not asked.from_leader:
        return ReturnToLeader(ReplicaChange.FOLLOWER_ERROR, f"records without progress from broker {asked.node}")
    if scan.batch_count == 0:
        reason = f"broker {asked.node} sent records without one complete record batch"
        return Fail(CorruptBatch(str(asked.topic_partition), asked.fetch_offset, 0, reason))
    reason = (
        f"{asked.topic_partition}: broker {asked.node} sent only records below offset {asked.fetch_offset}, "
        f"up to {scan.next_offset}"
    )
    return Fail(RemoteViolation(reason))


def _decide_empty(reply: PartitionReply, asked: Asked) -> Outcome:
    """No records and no error: the end of what this replica shows, or no room left in the answer."""
    seen = f"broker {asked.node} shows offsets up to {reply.high_watermark}"
    if asked.is_budget_spent and asked.fetch_offset < reply.high_watermark:
        return AskAgain()
    if not asked.from_leader and asked.waited_ms >= asked.follower_wait_ms:
        return ReturnToLeader(ReplicaChange.FOLLOWER_BEHIND, seen)
    return Wait(seen)


def decide_out_of_range(asked: Asked, log_start_offset: int, log_end_offset: int) -> Outcome:
    """Return what the leader's own bounds say about an offset that it refused.

    Parameters
    ----------
    log_start_offset, log_end_offset : int
        ListOffsets earliest and latest at the leader.
    """
    if log_start_offset <= asked.fetch_offset <= log_end_offset:
        return Wait(f"OFFSET_OUT_OF_RANGE, though the leader holds {log_start_offset} to {log_end_offset}")
    return Fail(
        OffsetOutOfRange(str(asked.topic_partition), asked.fetch_offset, asked.node, log_start_offset, log_end_offset)
    )
