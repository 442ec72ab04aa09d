"""Where the logs end: asked of the brokers at most every 100 ms, however often Spark wants to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from connector.config import ConnectorConfig
from connector.model import LATEST_TIMESTAMP, ClusterView, TopicPartition
from connector.net.clock import monotonic_ms
from connector.net.pool import cluster_client
from connector.spark.planning import select_topic_partitions

__all__ = ["LatestOffsets", "Poll"]

_POLL_INTERVAL_MS: Final = 100
"""Spark asks an idle source every 10 ms or so, twice each time."""
_DESCRIBE_INTERVAL_MS: Final = 1_000
"""New topic-partitions are noticed within this time."""


@dataclass(frozen=True, slots=True)
class Poll:
    """The cluster at one moment, and the end of every log that is read."""

    view: ClusterView
    offsets: dict[TopicPartition, int]


class LatestOffsets:
    """Polls the ends of the logs that a query reads.

    Parameters
    ----------
    config : ConnectorConfig
        What is read, and how to reach it.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self._client = cluster_client(config.client)
        self._view: ClusterView | None = None
        self._described_ms = 0
        self._poll: Poll | None = None
        self._polled_ms = 0

    def view(self) -> ClusterView:
        """Return a view of the cluster that is no older than a second."""
        now_ms = monotonic_ms()
        if self._view is None or now_ms - self._described_ms >= _DESCRIBE_INTERVAL_MS:
            self._view = self._client.describe(self._config.subscription.topics)
            self._described_ms = now_ms
        return self._view

    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """Return what the query reads in this cluster."""
        return select_topic_partitions(self._config.subscription, self.view())

    def poll(self, *, is_fresh: bool = False) -> Poll:
        """Return the ends of the logs: no older than 100 ms, or asked for this very moment."""
        now_ms = monotonic_ms()
        if is_fresh or self._poll is None or now_ms - self._polled_ms >= _POLL_INTERVAL_MS:
            if is_fresh:
                self._view = None
            offsets = self.ask(dict.fromkeys(self.topic_partitions(), LATEST_TIMESTAMP))
            self._poll = Poll(self.view(), offsets)
            self._polled_ms = now_ms
        return self._poll

    def ask(self, timestamps: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return offsets by timestamp, asked for this very moment."""
        return self._client.log_offsets(timestamps)
