"""One broker: its replicas, and what it knows of the cluster, which is what it was told so far.

News of the cluster reach every broker in the same order but not at the same time; a broker acts by what it has, as
leader or follower and in its Metadata answers.

Spec: KIP-500 (metadata as a log), KIP-516 (topic ids). Counterpart: ``BrokerMetadataPublisher``, ``ReplicaManager``,
``KRaftMetadataCache``.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias
from uuid import UUID

from connector.model import NO_NODE, ClusterView, Node, PartitionInfo, TopicPartition
from connector.wire import error_codes as codes
from tests.model.replication import PartitionImage, Replica
from tests.model.session_cache import SessionCache
from tests.model.settings import ModelSettings
from tests.model.timers import Timer, Timers

__all__ = ["Broker", "News"]


class Broker:
    """A broker with its replicas.

    Attributes
    ----------
    partitions : dict of TopicPartition to PartitionImage
        Every topic-partition that this broker has heard of, replica here or not.
    on_replica_changed : callable
        Told of each replica whose role, epoch or readable end changed, or that is gone.
    """

    def __init__(
        self,
        broker_id: int,
        settings: ModelSettings,
        timers: Timers,
        rng: random.Random,
        fetch: Callable[[Replica], None],
        on_replica_changed: Callable[[Broker, TopicPartition], None],
    ) -> None:
        self.broker_id = broker_id
        self.is_running = True
        self.throttled_until_ms = 0
        self.topic_ids: dict[str, UUID] = {}
        self.topic_names: dict[UUID, str] = {}
        self.compression_types: dict[str, str] = {}
        self.partitions: dict[TopicPartition, PartitionImage] = {}
        self.alive_ids: frozenset[int] = frozenset()
        self.replicas: dict[TopicPartition, Replica] = {}
        self.sessions = SessionCache(settings, rng)
        self._settings, self._timers, self._rng = settings, timers, rng
        self._fetch, self._on_replica_changed = fetch, on_replica_changed
        self._was_clean = True
        self._inbox: deque[tuple[int, News]] = deque()
        self._inbox_timer = Timer(self._on_inbox_due)

    # ------------------------------------------------------------------------------------------ news of the cluster

    def tell(self, news: News, due_ms: int) -> None:
        """Let `news` arrive at `due_ms`, but not before what was told earlier."""
        if self._inbox:
            due_ms = max(due_ms, self._inbox[-1][0])
        self._inbox.append((due_ms, news))
        if self.is_running and due_ms <= self._timers.now_ms:
            self.catch_up()
        elif self.is_running:
            self._timers.hasten(self._inbox_timer, due_ms)

    def catch_up(self) -> None:
        """Hear everything at once, as a broker does that starts, or that a client would wait for."""
        while self._inbox:
            self._inbox.popleft()[1](self)
        self._inbox_timer.due_ms = None

    def _on_inbox_due(self) -> None:
        while self._inbox and self._inbox[0][0] <= self._timers.now_ms:
            self._inbox.popleft()[1](self)
        if self._inbox and self.is_running:
            self._timers.set(self._inbox_timer, self._inbox[0][0])

    def on_topic(self, topic: str, topic_id: UUID, compression_type: str) -> None:
        """Hear of a topic that was created."""
        self.compression_types[topic] = compression_type
        self.topic_ids[topic] = topic_id
        self.topic_names[topic_id] = topic

    def on_topic_deleted(self, topic: str) -> None:
        """Hear that a topic is gone, replicas and all."""
        del self.topic_names[self.topic_ids.pop(topic)]
        for each in [each for each in self.partitions if each.topic == topic]:
            del self.partitions[each]
            self._drop(each)

    def on_partition(self, topic_partition: TopicPartition, image: PartitionImage) -> None:
        """Hear who leads, replicates and is in sync; take on or give up a role."""
        self.partitions[topic_partition] = image
        if self.broker_id not in image.replica_ids:
            self._drop(topic_partition)
            return
        replica = self.replicas.get(topic_partition)
        if replica is None:
            topic_id = self.topic_ids[topic_partition.topic]
            replica = self.replicas[topic_partition] = Replica(self.broker_id, topic_partition, topic_id, self._fetch)
        is_changed = replica.on_image(image, self._timers.now_ms)
        if not replica.is_leader and is_changed:
            self._begin_fetching(replica)
        if is_changed or replica.is_leader:
            self._on_replica_changed(self, topic_partition)

    def _begin_fetching(self, follower: Replica) -> None:
        delay_ms = self._rng.randint(*self._settings.replica_round_ms)
        self._timers.set(follower.round_timer, self._timers.now_ms + delay_ms)

    def _drop(self, topic_partition: TopicPartition) -> None:
        replica = self.replicas.pop(topic_partition, None)
        if replica is not None:
            replica.round_timer.due_ms = None
            self._on_replica_changed(self, topic_partition)

    # --------------------------------------------------------------------------------------------- stop and start

    def stop(self, *, is_clean: bool) -> None:
        """Stop: no round, no news. A crash (not `is_clean`) shows at the next start."""
        self.is_running, self._was_clean = False, is_clean
        self._inbox_timer.due_ms = None
        for replica in self.replicas.values():
            replica.round_timer.due_ms = None

    def start(self) -> None:
        """Start with the logs as they were and without any session.

        After a crash the checkpoint of the high watermark may be old; the oldest it can be is the log start.
        """
        self.sessions = SessionCache(self._settings, self._rng)
        for replica in self.replicas.values():
            replica.held_since_ms, replica.told_high_watermark, replica.is_paused = None, -1, False
            if not self._was_clean:
                replica.log.high_watermark = replica.log.log_start_offset
        self.is_running = True
        self.catch_up()
        for replica in self.replicas.values():
            if not replica.is_leader:
                self._begin_fetching(replica)

    # ---------------------------------------------------------------------------------------------------- Metadata

    def lookup(self, topic_partition: TopicPartition) -> Replica | int:
        """Return the replica here, or the error code for a request that asks for one.

        Counterpart: ``ReplicaManager.getPartitionOrError``.
        """
        replica = self.replicas.get(topic_partition)
        if replica is not None:
            return replica
        is_known = topic_partition in self.partitions
        return codes.NOT_LEADER_OR_FOLLOWER if is_known else codes.UNKNOWN_TOPIC_OR_PARTITION

    def view(self, topics: Sequence[str]) -> ClusterView:
        """Answer Metadata by what this broker knows; without topics, for all."""
        asked = dict.fromkeys(topics or self.topic_ids)  # in a fixed order, so that a history can be repeated
        return ClusterView(
            nodes={each: self.node(each) for each in sorted(self.alive_ids)},
            partitions={
                each: self._info(each, image) for each, image in self.partitions.items() if each.topic in asked
            },
            topic_ids={each: self.topic_ids[each] for each in asked if each in self.topic_ids},
            topic_errors={each: codes.UNKNOWN_TOPIC_OR_PARTITION for each in asked if each not in self.topic_ids},
            cluster_id="model",
        )

    def node(self, broker_id: int) -> Node:
        """Return a broker as Metadata names it."""
        return Node(broker_id, f"broker-{broker_id}", 9092, self._settings.racks[broker_id - 1])

    def _info(self, topic_partition: TopicPartition, image: PartitionImage) -> PartitionInfo:
        has_leader = image.leader_id in self.alive_ids
        return PartitionInfo(
            topic_partition,
            codes.NONE if has_leader else codes.LEADER_NOT_AVAILABLE,
            image.leader_id if has_leader else NO_NODE,
            image.leader_epoch,
            image.replica_ids,
            image.isr_ids,
            self._offline(image.replica_ids),
        )

    def _offline(self, replica_ids: Iterable[int]) -> tuple[int, ...]:
        return tuple(each for each in replica_ids if each not in self.alive_ids)


News: TypeAlias = Callable[[Broker], None]
