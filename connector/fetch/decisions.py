"""What a broker's answer for one topic-partition means.

`decide` and its siblings are functions of the answer and of what was asked; they change nothing, so tables of cases
test them. Who answered is part of what was asked, recorded when the request was sent: current state may be another by
then. What an error code means is data (`ERROR_RULES`): one column for the leader, whose word is final, one for a
follower, whose word only ever means "ask the leader".

Counterpart: `FetchCollector.handleInitializeErrors`, `FetchUtils.requestMetadataUpdate` and
`OffsetsForLeaderEpochUtils` of the Java consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from connector.errors import CorruptBatch, DataLossError, LogTruncated, OffsetsAgedOut, RemoteViolation
from connector.fetch.outcome import (
    AskAgain,
    Asked,
    Deliver,
    Fail,
    LookUpOffsets,
    Outcome,
    ReadFromReplica,
    RefreshMetadata,
    ReturnToLeader,
    Skip,
    ValidateEpoch,
    Wait,
)
from connector.model import NO_EPOCH, NO_NODE, READ_COMMITTED, EpochAnswer, PartitionReply, RecordsScan, ReplicaChange
from connector.wire import error_codes

__all__ = [
    "ERROR_RULES",
    "AtFollower",
    "AtLeader",
    "ErrorRule",
    "decide",
    "decide_bounds",
    "decide_epoch_end",
    "decide_loss",
    "decide_question_error",
    "visible_end_offset",
]


class AtLeader(StrEnum):
    """What an error code means when the leader answers it."""

    REFRESH = "learn the leader"
    WAIT = "wait"
    CHECK = "validate epoch, else look up offsets"
    FAIL = "fail"


class AtFollower(StrEnum):
    """What an error code means when a follower answers it."""

    LEAVE_AND_REFRESH = "leader, learn replicas"
    LEAVE = "leader"
    NOT_YET_THEN_LEAVE = "wait, then leader"
    NOT_YET_THEN_FINISH = "wait, then leader; lease kept"
    FINISH = "leader; lease kept"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What an error code means, by who answered it."""

    at_leader: AtLeader
    at_follower: AtFollower


_STALE: Final = ErrorRule(AtLeader.REFRESH, AtFollower.LEAVE_AND_REFRESH)
_UNKNOWN: Final = ErrorRule(AtLeader.FAIL, AtFollower.FINISH)
"""Codes without a row: retrying what is not understood would hide it, but only the leader's word counts."""

ERROR_RULES: Final[Mapping[int, ErrorRule]] = MappingProxyType(
    {
        error_codes.UNKNOWN_SERVER_ERROR: ErrorRule(AtLeader.WAIT, AtFollower.NOT_YET_THEN_FINISH),
        error_codes.OFFSET_OUT_OF_RANGE: ErrorRule(AtLeader.CHECK, AtFollower.LEAVE),
        error_codes.CORRUPT_MESSAGE: ErrorRule(AtLeader.FAIL, AtFollower.FINISH),
        error_codes.UNKNOWN_TOPIC_OR_PARTITION: _STALE,
        error_codes.LEADER_NOT_AVAILABLE: _STALE,
        error_codes.NOT_LEADER_OR_FOLLOWER: _STALE,
        error_codes.REPLICA_NOT_AVAILABLE: _STALE,
        error_codes.TOPIC_AUTHORIZATION_FAILED: ErrorRule(AtLeader.FAIL, AtFollower.FAIL),
        error_codes.UNSUPPORTED_VERSION: _UNKNOWN,
        error_codes.KAFKA_STORAGE_ERROR: _STALE,
        error_codes.FENCED_LEADER_EPOCH: _STALE,
        error_codes.UNKNOWN_LEADER_EPOCH: ErrorRule(AtLeader.WAIT, AtFollower.NOT_YET_THEN_FINISH),
        error_codes.UNSUPPORTED_COMPRESSION_TYPE: _UNKNOWN,
        error_codes.OFFSET_NOT_AVAILABLE: ErrorRule(AtLeader.REFRESH, AtFollower.NOT_YET_THEN_LEAVE),
        error_codes.UNKNOWN_TOPIC_ID: _STALE,
        error_codes.INCONSISTENT_TOPIC_ID: _STALE,
    }
)
"""Every error code that brokers are known to answer to a Fetch for a topic-partition."""

_ADVICE: Final[Mapping[int, str]] = MappingProxyType(
    {
        error_codes.TOPIC_AUTHORIZATION_FAILED: "Grant READ and DESCRIBE on the topic to the principal of this query.",
        error_codes.CORRUPT_MESSAGE: "The leader's log segment is damaged; check the broker's disk and log.",
        error_codes.UNSUPPORTED_COMPRESSION_TYPE: "The topic is compressed with zstd; the broker must be 2.1 or newer.",
    }
)


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
    if reply.diverging_epoch != NO_EPOCH:
        return _decide_diverging(reply, asked)
    if scan.next_offset > asked.fetch_offset:
        return Deliver(scan.next_offset, scan.last_leader_epoch, reply.preferred_read_replica)
    if reply.preferred_read_replica != NO_NODE:
        return ReadFromReplica(reply.preferred_read_replica)
    if len(reply.records) > 0:
        return _decide_useless_records(scan, asked)
    return _decide_empty(reply, asked)


def visible_end_offset(reply: PartitionReply, isolation_level: int) -> int:
    """Return up to where the broker lets consumers read, or -1 if it does not tell."""
    return reply.last_stable_offset if isolation_level == READ_COMMITTED else reply.high_watermark


def _decide_error(code: int, asked: Asked) -> Outcome:
    rule = ERROR_RULES.get(code, _UNKNOWN)
    problem = f"{error_codes.error_name(code)} from broker {asked.node}"
    if not asked.from_leader and rule.at_follower is not AtFollower.FAIL:
        return _decide_follower_error(code, rule.at_follower, problem, asked)
    match rule.at_leader:
        case AtLeader.REFRESH:
            return RefreshMetadata(problem)
        case AtLeader.WAIT:
            return Wait(problem)
        case AtLeader.CHECK:
            return _decide_doubt(problem, asked)
        case AtLeader.FAIL:
            subject = f"fetching {asked.topic_partition} at offset {asked.fetch_offset}"
            return Fail(error_codes.broker_error(code, subject, asked.node, _ADVICE.get(code, "")))


def _decide_follower_error(code: int, rule: AtFollower, problem: str, asked: Asked) -> Outcome:
    is_not_yet = rule in (AtFollower.NOT_YET_THEN_LEAVE, AtFollower.NOT_YET_THEN_FINISH)
    if is_not_yet and asked.not_yet_count < asked.not_yet_limit and asked.waited_ms < asked.follower_wait_ms:
        return Wait(problem, is_not_yet=True)
    reason = ReplicaChange.FOLLOWER_BEHIND if is_not_yet else ReplicaChange.FOLLOWER_ERROR
    if code == error_codes.OFFSET_OUT_OF_RANGE:
        reason = ReplicaChange.OUT_OF_RANGE
    return ReturnToLeader(
        reason,
        problem,
        refresh_metadata=rule in (AtFollower.LEAVE_AND_REFRESH, AtFollower.NOT_YET_THEN_LEAVE),
        is_lease_kept=rule in (AtFollower.FINISH, AtFollower.NOT_YET_THEN_FINISH),
    )


def _decide_doubt(problem: str, asked: Asked) -> Outcome:
    """Ask the leader for the end of the position's epoch; where that can't help, or did not, for its log's bounds."""
    has_epochs = NO_EPOCH not in (asked.offset_epoch, asked.leader_epoch)
    return ValidateEpoch(problem) if has_epochs and not asked.is_validated else LookUpOffsets(problem)


def _decide_diverging(reply: PartitionReply, asked: Asked) -> Outcome:
    """Judge a hint that histories part: of a follower that only lags it is false (KIP-320, KIP-595)."""
    problem = f"broker {asked.node} says that leader epoch {reply.diverging_epoch} ends at {reply.diverging_end_offset}"
    if not asked.from_leader:
        return ReturnToLeader(ReplicaChange.FOLLOWER_ERROR, problem)
    return _decide_doubt(problem, asked)


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
    visible = visible_end_offset(reply, asked.isolation_level)
    if asked.is_budget_spent and asked.fetch_offset < visible:
        return AskAgain()
    seen = f"broker {asked.node} shows offsets up to {visible}"
    if not asked.from_leader and asked.waited_ms >= asked.follower_wait_ms:
        return ReturnToLeader(ReplicaChange.FOLLOWER_BEHIND, seen, is_lease_kept=True)
    return Wait(seen)


def decide_epoch_end(answer: EpochAnswer, asked: Asked) -> Outcome:
    """Return what the leader's word on the end of the position's leader epoch means (KIP-320).

    Parameters
    ----------
    answer : EpochAnswer
        OffsetForLeaderEpoch at the leader.
    """
    if answer.error_code == error_codes.UNSUPPORTED_VERSION:
        # Brokers before 2.3 want cluster rights for the question; Java's consumer does without it there, too.
        return AskAgain()
    if answer.error_code != error_codes.NONE:
        return decide_question_error("OffsetForLeaderEpoch", answer.error_code, asked)
    # A lower epoch than that of a record which was read: the leader never had it, however long its log is. That is so
    # when an earlier leader comes back by an unclean election. (Java compares the end offset alone.) An epoch that was
    # only planned with may have been a leader's that wrote nothing.
    is_foreign = asked.is_epoch_of_record and answer.leader_epoch < asked.offset_epoch
    if answer.leader_epoch != NO_EPOCH and answer.end_offset >= asked.fetch_offset and not is_foreign:
        return AskAgain()
    is_told = answer.leader_epoch != NO_EPOCH and answer.end_offset < asked.fetch_offset
    divergent_offset = answer.end_offset if is_told else -1
    error = LogTruncated(
        str(asked.topic_partition), asked.fetch_offset, divergent_offset, asked.offset_epoch, asked.node
    )
    # Offsets go on to count from here: those of the other history before this position are never read.
    skipped_count = asked.fetch_offset - divergent_offset if divergent_offset >= 0 else 0
    return decide_loss(error, asked, asked.fetch_offset, skipped_count)


def decide_question_error(api: str, code: int, asked: Asked) -> Outcome:
    """Return what it means that the leader refuses a question about a position: usually that it is the leader no more.

    Parameters
    ----------
    api : str
        The question's name.
    code : int
        The error code that was answered.
    """
    if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
        return Fail(error_codes.not_authorized(asked.topic_partition.topic))
    return RefreshMetadata(f"{api}: {error_codes.error_name(code)} from broker {asked.node}")


def decide_bounds(asked: Asked, log_start_offset: int, log_end_offset: int) -> Outcome:
    """Return what the leader's own bounds say about an offset that it refused.

    Parameters
    ----------
    log_start_offset, log_end_offset : int
        ListOffsets earliest and latest at the leader.
    """
    topic_partition = str(asked.topic_partition)
    if asked.fetch_offset < log_start_offset:
        error: DataLossError = OffsetsAgedOut(topic_partition, asked.fetch_offset, log_start_offset, asked.node)
        next_offset = min(log_start_offset, asked.end_offset)
    elif asked.fetch_offset > log_end_offset:
        error = LogTruncated(topic_partition, asked.fetch_offset, log_end_offset, asked.offset_epoch, asked.node)
        next_offset = asked.end_offset
    else:
        return Wait(f"OFFSET_OUT_OF_RANGE, though the leader holds {log_start_offset} to {log_end_offset}")
    return decide_loss(error, asked, next_offset, next_offset - asked.fetch_offset)


def decide_loss(error: DataLossError, asked: Asked, next_offset: int, skipped_count: int) -> Outcome:
    """Return what lost offsets mean: an error, or a skip that is counted (Spark: ``failOnDataLoss``)."""
    return Fail(error) if asked.is_loss_fatal else Skip(next_offset, skipped_count, error)
