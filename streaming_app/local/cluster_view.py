"""What one broker, or any of several, says about the cluster: alive nodes, leaders, in-sync replicas."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

__all__ = ["ClusterViewer", "PartitionView", "TopicView", "quiet_admin"]

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


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's id, which a topic created again under the same name does not have, and its partitions."""

    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionView]


def quiet_admin(bootstrap_servers: str) -> AdminClient:
    """Return an admin client that keeps trying quickly and prints nothing about brokers that are down on purpose."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET}, logger=logging.getLogger("confluent_kafka"))


class ClusterViewer:
    """Asks for cluster and topic metadata; with one bootstrap address it is that broker's own view."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = quiet_admin(bootstrap_servers)

    def alive_node_ids(self, timeout_s: float) -> set[int]:
        """Return the ids of brokers that are registered and not fenced; empty when nobody answered in time.

        Asked with a plain metadata request: DescribeCluster would go to another broker, which the one bootstrap broker
        names, and would wait for that one even when it is dead.
        """
        try:
            metadata = self._admin.list_topics(timeout=timeout_s)
        except KafkaException:
            return set()
        return set(metadata.brokers)

    def topic(self, name: str, timeout_s: float = 10.0) -> TopicView:
        """Return a topic's id and partitions; `KafkaException` when it is not known there."""
        request = self._admin.describe_topics(TopicCollection([name]), request_timeout=timeout_s)
        found = request[name].result()
        high, low = found.topic_id.get_most_significant_bits(), found.topic_id.get_least_significant_bits()
        return TopicView(
            uuid.UUID(int=(high % 2**64 << 64) | low % 2**64),
            {
                each.id: PartitionView(
                    each.leader.id if each.leader is not None else -1,
                    tuple(node.id for node in each.replicas),
                    tuple(node.id for node in each.isr),
                )
                for each in found.partitions
            },
        )

    def partitions(self, topic: str, timeout_s: float = 10.0) -> dict[int, PartitionView]:
        """Return a topic's partitions; empty when the topic is not known there."""
        metadata = self._admin.list_topics(topic, timeout=timeout_s).topics[topic]
        if metadata.error is not None:
            return {}
        return {
            number: PartitionView(found.leader, tuple(found.replicas), tuple(found.isrs))
            for number, found in metadata.partitions.items()
        }
