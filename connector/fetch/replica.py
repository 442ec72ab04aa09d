"""Which replica of a topic-partition is read (KIP-392).

A lease names the replica that the leader told us to read. It outlives a range: the next micro-batch goes straight to
the same replica. A leader-only period is its opposite: after a replica failed us, the leader is read without asking
for a redirect, or it would send us back to the same replica until it leaves the ISR.

Counterpart: `SubscriptionState.preferredReadReplica` of the Java consumer; the leader-only period is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connector.model import NO_NODE, Node, PartitionInfo, TopicPartition

__all__ = ["Lease", "ReplicaChoices", "is_readable_replica"]


@dataclass(frozen=True, slots=True)
class Lease:
    """A preferred read replica, believed until `expires_ms` (inclusive)."""

    node_id: int
    expires_ms: int


def is_readable_replica(info: PartitionInfo, node_id: int, nodes: Mapping[int, Node]) -> bool:
    """Tell whether metadata allows reading this topic-partition at that node (Java: `Cluster.nodeIfOnline`)."""
    return node_id in nodes and node_id in info.replica_ids and node_id not in info.offline_ids


class ReplicaChoices:
    """Leases and leader-only periods of all topic-partitions that one fetcher has met.

    Parameters
    ----------
    lease_ms : int
        How long a preferred read replica is believed (Java: ``metadata.max.age.ms``).
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._leases: dict[TopicPartition, Lease] = {}
        self._leader_only_until_ms: dict[TopicPartition, int] = {}

    def preferred(self, topic_partition: TopicPartition, now_ms: int) -> int:
        """Return the node under a valid lease, or `NO_NODE`."""
        lease = self._leases.get(topic_partition)
        if lease is None or now_ms > lease.expires_ms:
            return NO_NODE
        return lease.node_id

    def is_leader_only(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Tell whether the leader must be read in the form that it never redirects."""
        return now_ms < self._leader_only_until_ms.get(topic_partition, now_ms)

    def on_redirect(self, topic_partition: TopicPartition, node_id: int, now_ms: int) -> bool:
        """Take the leader's choice; True when it is another node than before.

        Being told the same node again does not extend its lease, so that the leader is asked again in time.
        """
        if self.preferred(topic_partition, now_ms) == node_id:
            return False
        self._leases[topic_partition] = Lease(node_id, now_ms + self._lease_ms)
        return True

    def on_returned_to_leader(self, topic_partition: TopicPartition, leader_only_until_ms: int) -> None:
        """Drop the lease; read at the leader, without being redirected, until the given instant."""
        self._leases.pop(topic_partition, None)
        self._leader_only_until_ms[topic_partition] = leader_only_until_ms

    def on_leader_changed(self, topic_partition: TopicPartition) -> None:
        """Forget all about a topic-partition whose leader or epoch is another."""
        self._leader_only_until_ms.pop(topic_partition, None)
        self._leases.pop(topic_partition, None)
