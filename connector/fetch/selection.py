"""Choosing a replica from metadata, for clusters whose brokers choose none (`replicaSelection=client`).

Only replicas in our rack that are in sync and online are taken. Those whose local log is too short rank last, by the
rule with which brokers rank candidates for leadership: old offsets of such a replica come from remote storage.

Spec: KIP-392 (rack); `leader.election.eligible.local.log.ms` and `.bytes` (either is enough, unknown is eligible).
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from connector.model import NO_NODE, ClusterView, PartitionInfo, TopicPartition

__all__ = ["candidates_in_rack", "choose_replica"]


def candidates_in_rack(info: PartitionInfo, view: ClusterView, rack: str) -> tuple[int, ...]:
    """Return the in-sync, online replicas in a rack, in the order of the assignment."""
    return tuple(
        each
        for each in info.replica_ids
        if each in info.isr_ids
        and each not in info.offline_ids
        and each in view.nodes
        and view.nodes[each].rack == rack
    )


def choose_replica(
    topic_partition: TopicPartition, view: ClusterView, rack: str, is_eligible: Callable[[int], bool]
) -> int:
    """Return the replica to read, or `NO_NODE` when our rack has none.

    A leader in our rack is taken first, since it never lags. Among followers, topic-partitions are spread evenly, and
    each stays with its replica as long as the candidates are the same.

    Parameters
    ----------
    is_eligible : callable
        Whether a replica's local log is long enough, as far as that is known.
    """
    info = view.partitions[topic_partition]
    candidates = candidates_in_rack(info, view, rack) if rack else ()
    ranked = [each for each in candidates if is_eligible(each)] or candidates
    if not ranked:
        return NO_NODE
    if info.leader_id in ranked:
        return info.leader_id
    return ranked[crc32(str(topic_partition).encode()) % len(ranked)]
