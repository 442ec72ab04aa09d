"""Which replica a leader names to a consumer.

Only leaders ask (KAFKA-13735), and only for consumers that may have told a rack (Fetch 11 and later).

Spec: KIP-392, "Finding the preferred follower". Counterpart: ``ReplicaSelector``, ``RackAwareReplicaSelector``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

__all__ = ["ReplicaView", "Selector", "select_leader", "select_nearest"]


class ReplicaView(NamedTuple):
    """A candidate as its leader knows it: what it last reported, not what it holds. The leader's own lag is 0."""

    broker_id: int
    rack: str
    log_end_offset: int
    lag_ms: int


Selector: TypeAlias = Callable[[str, Sequence[ReplicaView]], int]
"""Rack of the consumer, candidates with the leader first -> broker id."""


def select_leader(_: str, candidates: Sequence[ReplicaView]) -> int:
    """Stay with the leader (``LeaderSelector``, the default)."""
    return candidates[0].broker_id


def select_nearest(rack: str, candidates: Sequence[ReplicaView]) -> int:
    """Take a replica of the same rack: the leader if it is one, else who is most caught up.

    Most caught up: largest log end, then caught up most recently, then largest id. Without a rack, or without a
    replica in it, the leader serves. Nothing spreads load.
    """
    leader = candidates[0]
    nearby = [each for each in candidates if each.rack == rack] if rack else []
    if not nearby or leader in nearby:
        return leader.broker_id
    return max(nearby, key=lambda each: (each.log_end_offset, -each.lag_ms, each.broker_id)).broker_id
