"""What the cluster decided: topics and their ids, assignments, leaders, in-sync replicas, and who is alive.

The controller's word is the truth; brokers hear of it later. Only a leader that has heard everything may propose a
change of the in-sync replicas. A change of leader raises the leader epoch, and so does taking replicas away.

Spec: KIP-497 (AlterPartition, partition epoch), KIP-455 (reassignment), KIP-516 (topic ids), KIP-841 (fenced brokers
leave the ISR). Counterpart: ``ReplicationControlManager``, ``PartitionChangeBuilder``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from connector.model import NO_NODE, TopicPartition
from tests.model.broker import News
from tests.model.election import LocalLog, Thresholds, choose_leader, election_order
from tests.model.log import Batch
from tests.model.replication import PartitionImage
from tests.model.settings import TopicSettings
from tests.model.timers import Timer, Timers

__all__ = ["Controller", "Partition"]


class Partition:
    """A topic-partition as decided.

    Attributes
    ----------
    thresholds : Thresholds
        From where on a local log counts as long enough to be preferred; without any, none is reported.
    target_ids : tuple of int or None
        Where a reassignment under way leads to; until its replicas are in sync, `image` has the old ones as well.
    reported : dict of broker id to LocalLog
        What replicas said of their own disks; a replica that is missing has not reported.
    last_leader_id : int
        The leader, or while there is none, who was it last.
    committed_end : int
        Highest high watermark of a leader so far; an unclean election takes back what its leader does not have.
    clean_since_epoch : int
        Leader epoch of the last unclean election. Who leads by an older one, unknowing, commits nothing any more; by
        a later one it does: its successor has all that its in-sync replicas had.
    appended : list of Batch
        All that leaders wrote.
    isr_timer : Timer
        When the in-sync replicas are looked at next.
    """

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, settings: TopicSettings) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.settings = settings
        self.thresholds = Thresholds(settings.local_log_ms or -1, settings.local_log_bytes or -1)
        self.has_thresholds = max(self.thresholds) > 0
        self.image = PartitionImage(NO_NODE, -1, (), ())
        self.target_ids: tuple[int, ...] | None = None
        self.reported: dict[int, LocalLog] = {}
        self.last_leader_id = NO_NODE
        self.committed_end = 0
        self.clean_since_epoch = 0
        self.appended: list[Batch] = []
        self.isr_timer = Timer(lambda: None)


class Controller:
    """Decides, and tells all brokers.

    Parameters
    ----------
    publish : callable
        Hands news to all brokers; those in the second argument hear at once, because they asked for it.
    """

    def __init__(
        self,
        broker_ids: Collection[int],
        timers: Timers,
        rng: random.Random,
        publish: Callable[[News, Collection[int]], None],
    ) -> None:
        self.alive_ids: frozenset[int] = frozenset()
        self.partitions: dict[TopicPartition, Partition] = {}
        self._timers, self._rng, self._publish = timers, rng, publish
        self._set_alive(frozenset(broker_ids))

    # ------------------------------------------------------------------------------------------------------- topics

    def create_topic(
        self, topic: str, partition_count: int, replicas: Sequence[Sequence[int]], settings: TopicSettings
    ) -> list[Partition]:
        """Make a topic with a fresh id; the first replica of each assignment that is alive leads."""
        if any(each.topic == topic for each in self.partitions):
            raise ValueError(f"Topic {topic} exists; delete it first.")
        topic_id = UUID(int=self._rng.getrandbits(128), version=4)
        self._publish(lambda broker: broker.on_topic(topic, topic_id, settings.compression_type), ())
        for index in range(partition_count):
            partition = Partition(TopicPartition(topic, index), topic_id, settings)
            self.partitions[partition.topic_partition] = partition
            replica_ids = tuple(replicas[index % len(replicas)])
            isr_ids = tuple(each for each in replica_ids if each in self.alive_ids) or replica_ids[:1]
            leader_id = isr_ids[0] if isr_ids[0] in self.alive_ids else NO_NODE
            self._decide(partition, PartitionImage(leader_id, 0, replica_ids, isr_ids), (leader_id,))
        return [each for each in self.partitions.values() if each.topic_id == topic_id]

    def delete_topic(self, topic: str) -> None:
        """Take a topic away; its name may be used anew and gets another id then."""
        for each in [each for each in self.partitions if each.topic == topic]:
            self.partitions.pop(each).isr_timer.due_ms = None
        self._publish(lambda broker: broker.on_topic_deleted(topic), ())

    # ------------------------------------------------------------------------------------------------------ leaders

    def elect(self, partition: Partition, wanted_id: int | None = None, *, is_unclean: bool = False) -> int:
        """Elect `wanted_id`, or who comes first in the order; return who leads then.

        Nothing changes when nobody can be elected who is not the leader already. An unclean leader is alone in sync.
        """
        image = partition.image
        order = election_order(image.replica_ids, partition.reported, partition.thresholds, self._timers.now_ms)
        candidates = order if wanted_id is None else [each for each in order if each == wanted_id]
        chosen = choose_leader(candidates, image.isr_ids, self.alive_ids, is_unclean_allowed=is_unclean)
        if chosen not in (NO_NODE, image.leader_id):
            if chosen not in image.isr_ids:
                partition.clean_since_epoch = image.leader_epoch + 1
            self._lead(partition, chosen, image.isr_ids if chosen in image.isr_ids else (chosen,))
        return partition.image.leader_id

    def bump_epoch(self, partition: Partition) -> None:
        """Keep the leader, in a higher epoch."""
        self._lead(partition, partition.image.leader_id, partition.image.isr_ids)

    def _lead(self, partition: Partition, leader_id: int, isr_ids: tuple[int, ...]) -> None:
        image = partition.image
        self._decide(partition, PartitionImage(leader_id, image.leader_epoch + 1, image.replica_ids, isr_ids))

    def _decide(self, partition: Partition, image: PartitionImage, urgent_ids: Collection[int] = ()) -> None:
        partition.image = image
        if image.leader_id != NO_NODE:
            partition.last_leader_id = image.leader_id
        topic_partition = partition.topic_partition
        self._publish(lambda broker: broker.on_partition(topic_partition, image), urgent_ids)

    # ------------------------------------------------------------------------------------------------- alive or not

    def fence(self, broker_id: int) -> None:
        """Count a broker as dead: it leaves every ISR that has another member, and leads nothing."""
        if broker_id not in self.alive_ids:
            return
        self._set_alive(self.alive_ids - {broker_id})
        for partition in self.partitions.values():
            image = partition.image
            if broker_id not in image.isr_ids:
                continue
            isr_ids = tuple(each for each in image.isr_ids if each != broker_id) or image.isr_ids
            if image.leader_id != broker_id:
                self._decide(partition, image._replace(isr_ids=isr_ids))
                continue
            partition.image = image._replace(leader_id=NO_NODE, isr_ids=isr_ids)
            if self.elect(partition, is_unclean=bool(partition.settings.unclean_leader_election)) == NO_NODE:
                self._lead(partition, NO_NODE, isr_ids)

    def unfence(self, broker_id: int) -> None:
        """Count a broker as alive again; it may lead what nobody leads."""
        self._set_alive(self.alive_ids | {broker_id})
        for partition in self.partitions.values():
            if partition.image.leader_id == NO_NODE:
                self.elect(partition, is_unclean=bool(partition.settings.unclean_leader_election))

    def _set_alive(self, alive_ids: frozenset[int]) -> None:
        self.alive_ids = alive_ids
        self._publish(lambda broker: setattr(broker, "alive_ids", alive_ids), ())

    # ----------------------------------------------------------------------------------------- replicas and the ISR

    def alter_isr(self, partition: Partition, known: PartitionImage, isr_ids: Collection[int]) -> None:
        """Accept what the leader proposes as in-sync replicas, if it knows of the last decision; it hears at once."""
        if known == partition.image:
            ordered = tuple(each for each in known.replica_ids if each in isr_ids)
            self._decide(partition, known._replace(isr_ids=ordered), (known.leader_id,))
            self._finish_reassignment(partition)

    def reassign(self, partition: Partition, replica_ids: Sequence[int]) -> None:
        """Move a topic-partition: first replicas are added, and once they are in sync, others leave (KIP-455)."""
        partition.target_ids = tuple(replica_ids)
        image = partition.image
        both = (*partition.target_ids, *(each for each in image.replica_ids if each not in partition.target_ids))
        self._decide(partition, image._replace(replica_ids=both))
        self._finish_reassignment(partition)

    def _finish_reassignment(self, partition: Partition) -> None:
        image, target_ids = partition.image, partition.target_ids
        if target_ids is None or not set(target_ids) <= set(image.isr_ids):
            return
        partition.target_ids = None
        isr_ids = tuple(each for each in target_ids if each in image.isr_ids)
        left = set(image.replica_ids) - set(target_ids)
        order = election_order(target_ids, partition.reported, partition.thresholds, self._timers.now_ms)
        leader_id = image.leader_id
        if leader_id not in target_ids:
            leader_id = choose_leader(order, isr_ids, self.alive_ids, is_unclean_allowed=False)
        self._decide(partition, PartitionImage(leader_id, image.leader_epoch + bool(left), target_ids, isr_ids))
