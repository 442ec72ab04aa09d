"""What a broker's answer for one topic-partition can mean: values, made in `decisions` and committed in `commit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from connector.errors import ConnectorError, DataLossError
from connector.model import NO_EPOCH, NO_NODE, READ_UNCOMMITTED, ReplicaChange, TopicPartition

__all__ = [
    "AskAgain",
    "Asked",
    "Deliver",
    "Discard",
    "Fail",
    "LookUpOffsets",
    "Outcome",
    "ReadFromReplica",
    "RefreshMetadata",
    "ReturnToLeader",
    "Skip",
    "ValidateEpoch",
    "Wait",
]


@dataclass(frozen=True, slots=True)
class Deliver:
    """Records up to `next_offset` arrived, the last of `leader_epoch`; a preferred replica is read from there on."""

    next_offset: int
    leader_epoch: int = NO_EPOCH
    preferred_read_replica: int = NO_NODE


@dataclass(frozen=True, slots=True)
class ReadFromReplica:
    """The broker names the replica to read; this answer holds no records."""

    node_id: int


@dataclass(frozen=True, slots=True)
class ReturnToLeader:
    """The follower can't serve this position; the leader can, or knows why not.

    `is_lease_kept` says that the follower is sound: it is read again later, without asking the leader for it.
    """

    reason: ReplicaChange
    problem: str
    refresh_metadata: bool = False
    is_lease_kept: bool = False


@dataclass(frozen=True, slots=True)
class ValidateEpoch:
    """The leader's log may have another history: ask it where the position's leader epoch ends (KIP-320)."""

    problem: str


@dataclass(frozen=True, slots=True)
class LookUpOffsets:
    """The leader does not hold this offset: ask it what it holds, since the error does not say."""

    problem: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to read here yet; ask again after a pause. `is_not_yet` counts towards the patience with a follower."""

    problem: str
    is_not_yet: bool = False


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask again at once: other topic-partitions filled the answer (KIP-74), or a question has been settled."""


@dataclass(frozen=True, slots=True)
class Discard:
    """The answer is of no use: what it was asked under is not so any more."""

    problem: str


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """The node is not, or not yet, what metadata says; learn the leader, then ask again after a pause."""

    problem: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Offsets are lost and the query wants to go on: continue at `next_offset`."""

    next_offset: int
    skipped_count: int
    error: DataLossError


@dataclass(frozen=True, slots=True)
class Fail:
    """No retry can help."""

    error: ConnectorError


Outcome: TypeAlias = (
    Deliver
    | ReadFromReplica
    | ReturnToLeader
    | ValidateEpoch
    | LookUpOffsets
    | Wait
    | AskAgain
    | Discard
    | RefreshMetadata
    | Skip
    | Fail
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked of a node for one topic-partition, as far as it decides what the answer means.

    Attributes
    ----------
    end_offset : int
        Where the range ends: no more is skipped than is left of it.
    leader_epoch : int
        The leader epoch that was told, and that the broker checked.
    offset_epoch : int
        Leader epoch of the record before `fetch_offset`, or `NO_EPOCH`.
    is_epoch_of_record : bool
        Whether `offset_epoch` was read with a record, not only planned with.
    is_validated : bool
        Whether the leader said already that `offset_epoch` reaches the position.
    waited_ms : int
        How long ago this position was first asked of a follower.
    not_yet_count, not_yet_limit : int
        How often in a row the follower said "not yet", and how often it may.
    is_budget_spent : bool
        Whether the same answer holds records of other topic-partitions.
    is_loss_fatal : bool
        Whether lost offsets are an error or a counted skip.
    """

    topic_partition: TopicPartition
    fetch_offset: int
    end_offset: int
    node: str
    from_leader: bool
    leader_epoch: int = NO_EPOCH
    offset_epoch: int = NO_EPOCH
    is_epoch_of_record: bool = False
    is_validated: bool = False
    waited_ms: int = 0
    follower_wait_ms: int = 0
    not_yet_count: int = 0
    not_yet_limit: int = 0
    is_budget_spent: bool = False
    isolation_level: int = READ_UNCOMMITTED
    is_loss_fatal: bool = True
