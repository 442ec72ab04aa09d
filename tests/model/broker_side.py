"""Where requests of the simulated network meet the model cluster, as the decoders of `connector.wire` do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, assert_never

from connector.fetch.actions import (
    Action,
    SendDescribeLogDirs,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.model import NO_NODE, READ_UNCOMMITTED, FetchReply, TopicPartition
from tests.model.cluster import ModelCluster
from tests.model.planner import LIST_OFFSETS_VERSION
from tests.model.witness import Served, Witness

__all__ = ["BrokerSide", "Taken"]


class Taken(NamedTuple):
    """A Fetch answer on its way, with what was true when it left."""

    reply: FetchReply
    served: dict[TopicPartition, Served]


class BrokerSide:
    """Takes requests to brokers, and lets the witness look at each Fetch answer when it leaves."""

    def __init__(self, cluster: ModelCluster, witness: Witness) -> None:
        self._cluster, self._witness = cluster, witness

    def take(self, node_id: int, action: Action, deliver: Callable[[object], None]) -> None:
        """Let a broker take a request; the answer comes at once or later, or never if the broker stops."""
        cluster = self._cluster
        now_ms = cluster.now_ms
        match action:
            case SendMetadata():
                deliver(cluster.metadata(node_id, action.topics, now_ms))
            case SendFetch():
                version = cluster.settings.max_fetch_version
                if action.max_version is not None:
                    version = min(version, action.max_version)
                cluster.fetch(node_id, action.plan, version, now_ms, partial(self._on_served, action, deliver))
            case SendListOffsets():
                if action.replica_id == NO_NODE:
                    for each in action.queries:
                        log = cluster.log(each.topic_partition, node_id)
                        self._witness.on_bounds_told(each.topic_partition, log.log_start_offset)
                level, version = READ_UNCOMMITTED, LIST_OFFSETS_VERSION
                deliver(cluster.list_offsets(node_id, action.queries, level, action.replica_id, version, now_ms))
            case SendOffsetForLeaderEpoch():
                deliver(cluster.offset_for_leader_epoch(node_id, action.queries, now_ms))
            case SendDescribeLogDirs():
                deliver(cluster.describe_log_dirs(node_id, action.topic_partitions))
            case _:
                assert_never(action)

    def _on_served(self, sent: SendFetch, deliver: Callable[[object], None], reply: FetchReply) -> None:
        deliver(Taken(reply, self._witness.on_served(sent, reply)))
