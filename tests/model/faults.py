"""Lets the events of a history happen: between client and brokers, in the client, in the cluster.

What makes no sense at its time (a topic that is gone, a leader that is down) is left out, so that a shorter list of
events is a history as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from connector.model import NO_NODE, FetchPlan, FetchReply, PartitionFetch, TopicPartition
from tests.model.cluster import ModelCluster
from tests.model.histories import FOREVER_MS, Event, History, Kind
from tests.model.network import SimulatedNetwork, Timeline

__all__ = ["Faults"]


_RETRY_MS: Final = 500
_CROWD_VERSION: Final = 11


class Faults:
    """The events of one run.

    Attributes
    ----------
    healed_ms : int
        When the last fault that heals has healed; what follows from it takes its own time.
    consumer_pause_ms : int
        For how long nobody takes the rows that come next.
    compacted, thinned : set
        Topic-partitions that were compacted; those of which any replica may have lost batches that others have.
    replaced : set
        Topics that were deleted.
    foreign_session_ids : set
        Fetch sessions of other clients.
    topic_ids : dict
        The newest id of each topic.
    aborted_uids : dict
        Producer id by number of the batch, of all batches of aborted transactions.
    """

    def __init__(
        self,
        history: History,
        cluster: ModelCluster,
        network: SimulatedNetwork,
        timeline: Timeline,
        note: Callable[[str, object], None],
    ) -> None:
        self._note = note
        self._cluster, self._network, self._timeline = cluster, network, timeline
        self._topics = {topic.name: topic for topic in history.topics}
        self._producer_count = 0
        self.consumer_pause_ms = 0
        self.compacted: set[TopicPartition] = set()
        self.thinned: set[TopicPartition] = set()
        self.replaced: set[str] = set()
        self.aborted_uids: dict[int, int] = {}
        self.foreign_session_ids: set[int] = set()
        self.topic_ids: dict[str, UUID] = {}
        self.existing = dict.fromkeys(self._topics, True)
        ends_ms = [event.at_ms + event.duration_ms % FOREVER_MS for event in history.events]
        self.healed_ms = max(ends_ms, default=0)
        for event in history.events:
            timeline.at(event.at_ms, partial(self._happen, event))

    def exists(self, topic_partition: TopicPartition) -> bool:
        """Tell whether the topic exists at this moment, and has had a leader."""
        if not self.existing[topic_partition.topic]:
            return False
        return self._cluster.leader(topic_partition) != NO_NODE or self._cluster.leader_epoch(topic_partition) > 0

    def _happen(self, event: Event) -> None:
        topic_partition = event.topic_partition
        self._note("happens", event)
        if topic_partition is None:
            _AT_NODES[event.kind](self, event)
        elif self.exists(topic_partition):
            _IN_TOPICS[event.kind](self, event, topic_partition)

    def _until_ms(self, event: Event) -> int:
        return self._timeline.now_ms + event.duration_ms

    def _later(self, event: Event, callback: Callable[[], object]) -> None:
        self._timeline.at(self._until_ms(event), callback)

    # ------------------------------------------------------------------------------------- network, client, brokers

    def _pause_consumer(self, event: Event) -> None:
        self.consumer_pause_ms = event.duration_ms

    def _stop(self, event: Event) -> None:
        if self._cluster.is_running(event.node_id):
            self._cluster.stop_broker(event.node_id, is_controlled=event.kind is Kind.STOP)
            self._network.cut(event.node_id)
            if event.duration_ms < FOREVER_MS:
                self._later(event, partial(self._cluster.start_broker, event.node_id))

    def _crowd(self, event: Event) -> None:
        """Let other clients begin sessions, which may end ours."""
        wanted = PartitionFetch(TopicPartition("nowhere", 0), 0, 0)
        plan = FetchPlan(event.node_id, (wanted,), "", 0, 0, 0, session_epoch=0)
        for _ in range(event.amount if self._cluster.is_running(event.node_id) else 0):
            self._cluster.fetch(event.node_id, plan, _CROWD_VERSION, self._timeline.now_ms, self._on_crowded)

    def _on_crowded(self, reply: FetchReply) -> None:
        self.foreign_session_ids.add(reply.session_id)

    # ------------------------------------------------------------------------------------------------- in the cluster

    def _pause_replication(self, event: Event, topic_partition: TopicPartition) -> None:
        self._cluster.pause_replication(topic_partition, event.node_id)
        self._later(event, partial(self._cluster.resume_replication, topic_partition, event.node_id))

    def _elect(self, event: Event, topic_partition: TopicPartition) -> None:
        self._cluster.elect(topic_partition, event.node_id, unclean=event.kind is Kind.ELECT_UNCLEAN)

    def _reassign(self, event: Event, topic_partition: TopicPartition) -> None:
        """Let one replica take another's place."""
        replica_ids = list(self._cluster.replicas(topic_partition))
        if event.node_id in replica_ids and event.amount not in replica_ids:
            replica_ids[replica_ids.index(event.node_id)] = event.amount
            self._cluster.reassign(topic_partition, replica_ids)

    def _produce(self, event: Event, topic_partition: TopicPartition) -> None:
        self._cluster.produce(topic_partition, event.amount)

    def _transaction(self, event: Event, topic_partition: TopicPartition) -> None:
        """Begin a transaction, let others write meanwhile, and end it."""
        self._producer_count += 1
        producer_id = self._producer_count
        uids = []
        for is_in_it in (True, False, True):
            batch = self._cluster.produce(
                topic_partition, 3, producer_id=producer_id if is_in_it else -1, transactional=is_in_it
            )
            if batch is not None and is_in_it:
                uids.append(batch.uid)
        self._later(event, partial(self._end_transaction, event, topic_partition, producer_id, uids))

    def _end_transaction(
        self, event: Event, topic_partition: TopicPartition, producer_id: int, uids: Sequence[int]
    ) -> None:
        """Write the marker; a producer tries until there is a leader."""
        if not self.exists(topic_partition):
            return
        if self._cluster.leader(topic_partition) == NO_NODE:
            self._timeline.at(
                self._timeline.now_ms + _RETRY_MS,
                partial(self._end_transaction, event, topic_partition, producer_id, uids),
            )
        elif event.amount:
            self._cluster.commit(topic_partition, producer_id)
        elif self._cluster.abort(topic_partition, producer_id) is not None:
            self.aborted_uids |= dict.fromkeys(uids, producer_id)

    def _compact(self, event: Event, topic_partition: TopicPartition) -> None:
        if not self._cluster.settings.tiered:  # KIP-405 leaves compacted topics out
            self.compacted.add(topic_partition)
            self._cluster.compact(topic_partition, self._share(event, topic_partition))

    def _expire_local(self, event: Event, topic_partition: TopicPartition) -> None:
        """Let retention run on one broker; others come later, or never."""
        if self._cluster.is_running(event.node_id):
            self._cluster.expire_local(topic_partition, event.node_id, self._share(event, topic_partition))

    def _diverge(self, event: Event, topic_partition: TopicPartition) -> None:
        """Let a follower fall behind, be elected all the same, and write where others wrote something else."""
        self._cluster.pause_replication(topic_partition, event.node_id)
        self._cluster.produce(topic_partition, event.amount)
        self._later(event, partial(self._elect_behind, event, topic_partition))

    def _elect_behind(self, event: Event, topic_partition: TopicPartition) -> None:
        if not self.exists(topic_partition):
            return
        self._cluster.elect(topic_partition, event.node_id, unclean=True)
        self._cluster.resume_replication(topic_partition, event.node_id)
        for _ in range(3):
            self._cluster.produce(topic_partition, event.amount)

    def _delete_records(self, event: Event, topic_partition: TopicPartition) -> None:
        self._cluster.delete_records(topic_partition, self._share(event, topic_partition))

    def _share(self, event: Event, topic_partition: TopicPartition) -> int:
        """Return the offset below which so many percent of the log lie, for something that thins it."""
        self.thinned.add(topic_partition)
        log = self._cluster.log(topic_partition)
        return log.log_start_offset + (log.log_end_offset - log.log_start_offset) * event.amount // 100

    def _delete_topic(self, event: Event, topic_partition: TopicPartition) -> None:
        topic = topic_partition.topic
        self.replaced.add(topic)
        self.existing[topic] = False
        self._cluster.delete_topic(topic)
        if event.kind is Kind.RECREATE_TOPIC:
            self._later(event, partial(self.create_topic, topic))

    def create_topic(self, topic: str) -> None:
        """Create a topic as the history plans it."""
        assignments = self._topics[topic].assignments
        self.topic_ids[topic] = self._cluster.create_topic(topic, len(assignments), assignments)
        self.existing[topic] = True


_AT_NODES: Final[Mapping[Kind, Callable[[Faults, Event], object]]] = {
    Kind.CUT: lambda self, event: self._network.cut(event.node_id),
    Kind.REFUSE: lambda self, event: self._network.refuse(event.node_id, self._until_ms(event)),
    Kind.HOLD: lambda self, event: self._network.hold(event.node_id, self._until_ms(event)),
    Kind.SLOW: lambda self, event: self._network.slow(event.node_id, self._until_ms(event), event.amount),
    Kind.LOSE_REQUEST: lambda self, event: self._network.lose_request(event.node_id, self._until_ms(event)),
    Kind.LOSE_ANSWER: lambda self, event: self._network.lose_answer(event.node_id, self._until_ms(event)),
    Kind.THROTTLE: lambda self, event: self._cluster.set_throttle(event.node_id, self._until_ms(event)),
    Kind.CROWD: Faults._crowd,
    Kind.STOP: Faults._stop,
    Kind.CRASH: Faults._stop,
    Kind.PAUSE_CONSUMER: Faults._pause_consumer,
}
_IN_TOPICS: Final[Mapping[Kind, Callable[[Faults, Event, TopicPartition], None]]] = {
    Kind.PAUSE_REPLICATION: Faults._pause_replication,
    Kind.ELECT: Faults._elect,
    Kind.ELECT_UNCLEAN: Faults._elect,
    Kind.REASSIGN: Faults._reassign,
    Kind.PRODUCE: Faults._produce,
    Kind.TRANSACTION: Faults._transaction,
    Kind.COMPACT: Faults._compact,
    Kind.DIVERGE: Faults._diverge,
    Kind.EXPIRE_LOCAL: Faults._expire_local,
    Kind.DELETE_RECORDS: Faults._delete_records,
    Kind.DELETE_TOPIC: Faults._delete_topic,
    Kind.RECREATE_TOPIC: Faults._delete_topic,
}
