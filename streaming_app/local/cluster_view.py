"""What one broker, or any of several, says about the cluster: alive nodes, leaders, in-sync replicas."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

__all__ = ["ClusterViewer", "PartitionView", "quiet_admin"]

QUIET: Final = {
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 250,
    "socket.connection.setup.timeout.ms": 2000,
}


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Leader and replicas of one partition; `leader` is -1 when there is none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def quiet_admin(bootstrap_servers: str) -> AdminClient:
    """Return an admin client that keeps trying quickly and prints nothing about brokers that are down on purpose."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET}, logger=logging.getLogger("confluent_kafka"))


class ClusterViewer:
    """Asks for cluster and topic metadata; with one bootstrap address it is that broker's own view."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = quiet_admin(bootstrap_servers)

    def alive_node_ids(self, timeout_s: float) -> set[int]:
        """Return the ids of brokers that are registered and not fenced; empty when nobody answered in time."""
        try:
            cluster = self._admin.describe_cluster(request_timeout=timeout_s).result()
        except KafkaException:
            return set()
        return {node.id for node in cluster.nodes}

    def partitions(self, topic: str, timeout_s: float = 10.0) -> dict[int, PartitionView]:
        """Return a topic's partitions; empty when the topic is not known there."""
        metadata = self._admin.list_topics(topic, timeout=timeout_s).topics[topic]
        if metadata.error is not None:
            return {}
        return {
            number: PartitionView(found.leader, tuple(found.replicas), tuple(found.isrs))
            for number, found in metadata.partitions.items()
        }
