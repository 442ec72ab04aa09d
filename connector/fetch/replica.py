"""Which replica of a topic-partition is read (KIP-392).

A lease names the replica that a leader told us to read. It outlives a range: the next micro-batch goes straight to the
same replica. A leader-only period is its opposite: after redirects that led nowhere the leader is read in a form that
it never redirects, or it would send us back to the same replica until it leaves the ISR. `REPLICA_TRANSITIONS` is the
whole story of a topic-partition.

Counterpart: `SubscriptionState.preferredReadReplica` of the Java consumer; the leader-only period is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from connector.model import NO_NODE, Node, PartitionInfo, TopicPartition

__all__ = [
    "REPLICA_TRANSITIONS",
    "ReplicaChoices",
    "ReplicaEvent",
    "ReplicaState",
    "is_readable_replica",
]


class ReplicaState(StrEnum):
    """Where a topic-partition is read."""

    ASKING_LEADER = "asking leader"
    """At the leader, which may name a replica."""
    LEASED = "leased"
    """At the named replica."""
    LEADER_ONLY = "leader only"
    """At the leader, in the form that it never redirects."""


class ReplicaEvent(StrEnum):
    """What changes where a topic-partition is read."""

    REDIRECTED = "redirected"
    REDIRECTED_IN_VAIN = "redirected once too often without progress"
    LEFT = "replica failed, is gone or left the ISR"
    AVOIDED = "replica of our own choice failed"
    BEHIND = "replica too late once too often"
    LEASE_EXPIRED = "lease expired"
    COOLED_DOWN = "leader-only period over"
    LEADER_CHANGED = "leader or its epoch changed"


_S, _E = ReplicaState, ReplicaEvent
REPLICA_TRANSITIONS: Final[Mapping[tuple[ReplicaState, ReplicaEvent], ReplicaState]] = MappingProxyType(
    {
        (_S.ASKING_LEADER, _E.REDIRECTED): _S.LEASED,
        (_S.ASKING_LEADER, _E.REDIRECTED_IN_VAIN): _S.LEADER_ONLY,
        (_S.ASKING_LEADER, _E.LEFT): _S.ASKING_LEADER,
        (_S.ASKING_LEADER, _E.AVOIDED): _S.LEADER_ONLY,
        (_S.ASKING_LEADER, _E.BEHIND): _S.LEADER_ONLY,
        (_S.ASKING_LEADER, _E.LEADER_CHANGED): _S.ASKING_LEADER,
        (_S.LEASED, _E.REDIRECTED): _S.LEASED,
        (_S.LEASED, _E.REDIRECTED_IN_VAIN): _S.LEADER_ONLY,
        (_S.LEASED, _E.LEFT): _S.ASKING_LEADER,
        (_S.LEASED, _E.AVOIDED): _S.LEADER_ONLY,
        (_S.LEASED, _E.BEHIND): _S.LEADER_ONLY,
        (_S.LEASED, _E.LEASE_EXPIRED): _S.ASKING_LEADER,
        (_S.LEASED, _E.LEADER_CHANGED): _S.ASKING_LEADER,
        (_S.LEADER_ONLY, _E.REDIRECTED): _S.LEADER_ONLY,
        (_S.LEADER_ONLY, _E.REDIRECTED_IN_VAIN): _S.LEADER_ONLY,
        (_S.LEADER_ONLY, _E.LEFT): _S.LEADER_ONLY,
        (_S.LEADER_ONLY, _E.AVOIDED): _S.LEADER_ONLY,
        (_S.LEADER_ONLY, _E.BEHIND): _S.LEADER_ONLY,
        (_S.LEADER_ONLY, _E.COOLED_DOWN): _S.ASKING_LEADER,
        (_S.LEADER_ONLY, _E.LEADER_CHANGED): _S.ASKING_LEADER,
    }
)
"""Every step; one that is not here is a bug."""


def is_readable_replica(info: PartitionInfo, node_id: int, nodes: Mapping[int, Node]) -> bool:
    """Tell whether metadata allows reading this topic-partition at that node (Java: `Cluster.nodeIfOnline`)."""
    return node_id in nodes and node_id in info.replica_ids and node_id not in info.offline_ids


@dataclass(slots=True)
class _Choice:
    """What is known of one topic-partition's replicas."""

    state: ReplicaState = ReplicaState.ASKING_LEADER
    node_id: int = NO_NODE
    until_ms: int = 0
    redirect_count: int = 0
    behind_count: int = 0

    def on_event(self, event: ReplicaEvent) -> None:
        self.state = REPLICA_TRANSITIONS[self.state, event]
        if self.state is not ReplicaState.LEASED:
            self.node_id = NO_NODE


class ReplicaChoices:
    """Leases and leader-only periods of all topic-partitions that one fetcher has met.

    Parameters
    ----------
    lease_ms : int
        How long a preferred read replica is believed (Java: ``metadata.max.age.ms``).
    leader_only_ms : int
        How long the leader is read without being asked for a replica.
    redirect_limit : int
        So many redirects are followed without any records in between.
    behind_limit : int
        So many ranges in a row that a replica could not finish in time make us leave it.
    """

    def __init__(self, lease_ms: int, leader_only_ms: int, redirect_limit: int, behind_limit: int) -> None:
        self._lease_ms = lease_ms
        self._leader_only_ms = leader_only_ms
        self._redirect_limit = redirect_limit
        self._behind_limit = behind_limit
        self._choices: dict[TopicPartition, _Choice] = {}

    def preferred(self, topic_partition: TopicPartition, now_ms: int) -> int:
        """Return the node under a valid lease, or `NO_NODE`."""
        choice = self._choices.get(topic_partition)
        if choice is None or choice.state is not ReplicaState.LEASED or now_ms > choice.until_ms:
            return NO_NODE
        return choice.node_id

    def is_leader_only(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Tell whether the leader must be read in the form that it never redirects."""
        choice = self._choices.get(topic_partition)
        return choice is not None and choice.state is ReplicaState.LEADER_ONLY and now_ms < choice.until_ms

    def leases_on(self, node_id: int) -> tuple[TopicPartition, ...]:
        """Return the topic-partitions that are read at a node."""
        return tuple(name for name, choice in self._choices.items() if choice.node_id == node_id)

    def on_redirect(self, topic_partition: TopicPartition, node_id: int, now_ms: int) -> bool:
        """Take a broker's choice; True when it is another node than before.

        Being told the same node again does not extend its lease, so that the leader is asked again in time.
        """
        choice = self._current(topic_partition, now_ms)
        if choice.node_id == node_id:
            return False
        choice.redirect_count += 1
        if choice.redirect_count > self._redirect_limit:
            self._begin_leader_only(choice, ReplicaEvent.REDIRECTED_IN_VAIN, now_ms)
            return False
        choice.on_event(ReplicaEvent.REDIRECTED)
        if choice.state is ReplicaState.LEASED:
            choice.node_id, choice.until_ms = node_id, now_ms + self._lease_ms
            return True
        return False

    def on_redirected_in_vain(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Take note that a broker named a replica that can't be read; True when that begins a leader-only period."""
        choice = self._current(topic_partition, now_ms)
        choice.redirect_count += 1
        if choice.redirect_count > self._redirect_limit:
            self._begin_leader_only(choice, ReplicaEvent.REDIRECTED_IN_VAIN, now_ms)
            return True
        choice.on_event(ReplicaEvent.LEFT)
        return False

    def on_left(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Drop the lease: the leader is asked, and may name a replica again."""
        self._current(topic_partition, now_ms).on_event(ReplicaEvent.LEFT)

    def on_avoided(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Read the leader for a while: nobody else would keep us from choosing the same replica again."""
        self._begin_leader_only(self._current(topic_partition, now_ms), ReplicaEvent.AVOIDED, now_ms)

    def on_behind(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Take note that a replica was too late for a range; True when it is left for that."""
        choice = self._current(topic_partition, now_ms)
        choice.behind_count += 1
        if choice.behind_count < self._behind_limit:
            return False
        self._begin_leader_only(choice, ReplicaEvent.BEHIND, now_ms)
        return True

    def on_delivered(self, topic_partition: TopicPartition, *, is_finished_by_follower: bool) -> None:
        """Take note of records: the redirect before them was good; a follower that ends a range keeps up."""
        choice = self._choices.get(topic_partition)
        if choice is not None:
            choice.redirect_count = 0
            if is_finished_by_follower:
                choice.behind_count = 0

    def on_leader_changed(self, topic_partition: TopicPartition) -> None:
        """Forget all about a topic-partition whose leader or epoch is another."""
        choice = self._choices.pop(topic_partition, None)
        if choice is not None:
            choice.on_event(ReplicaEvent.LEADER_CHANGED)

    def _begin_leader_only(self, choice: _Choice, event: ReplicaEvent, now_ms: int) -> None:
        choice.on_event(event)
        choice.until_ms = now_ms + self._leader_only_ms
        choice.redirect_count = choice.behind_count = 0

    def _current(self, topic_partition: TopicPartition, now_ms: int) -> _Choice:
        """Return the choice after what the time that passed did to it."""
        choice = self._choices.setdefault(topic_partition, _Choice())
        if choice.state is ReplicaState.LEASED and now_ms > choice.until_ms:
            choice.on_event(ReplicaEvent.LEASE_EXPIRED)
            choice.redirect_count = 0
        elif choice.state is ReplicaState.LEADER_ONLY and now_ms >= choice.until_ms:
            choice.on_event(ReplicaEvent.COOLED_DOWN)
        return choice
