"""The front of the model: one cluster, the requests of its clients, what happens to it, and the truth for checks.

Time is virtual. Every request carries it; `ModelCluster.advance` lets pass what is due until then, and
`ModelCluster.next_event_ms` tells when something will happen by itself. Chance is the injected generator's: the same
seed and the same calls lead to the same history. What happens to a cluster happens at `ModelCluster.now_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from connector.model import (
    ClusterView,
    EpochAnswer,
    EpochQuery,
    FetchPlan,
    FetchReply,
    LogDirSize,
    OffsetAnswer,
    OffsetQuery,
    TopicPartition,
)
from connector.records.layout import HEADER_BYTES
from tests.model.log import Batch, ModelLog, encode_batch
from tests.model.lookups import describe_log_dir, end_offset_for_epoch, list_offset
from tests.model.replicated import ReplicatedCluster
from tests.model.settings import ModelSettings, TopicSettings

__all__ = ["ModelCluster", "ModelSettings"]

RECORD_BYTES = 20


class ModelCluster(ReplicatedCluster):
    """A cluster with one broker per entry of `ModelSettings.racks`, ids from 1."""

    @property
    def now_ms(self) -> int:
        """How far time has passed."""
        return self._timers.now_ms

    def advance(self, now_ms: int) -> None:
        """Let replication, news, timeouts and long polls happen that are due until `now_ms`."""
        self._timers.advance(now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        """Return when something happens next by itself, not before `now_ms`; None if nothing ever does."""
        next_ms = self._timers.next_ms()
        return None if next_ms is None else max(next_ms, now_ms)

    # ----------------------------------------------------------------------------------------------------- requests

    def is_running(self, broker_id: int) -> bool:
        """Tell whether a broker accepts connections; requests to others raise ConnectionError."""
        return self._brokers[broker_id].is_running

    def fetch(
        self, broker_id: int, plan: FetchPlan, version: int, now_ms: int, deliver: Callable[[FetchReply], None]
    ) -> None:
        """Ask a broker. `deliver` is called at once or in a later `advance`, never twice; never if the broker stops."""
        self._running(broker_id, now_ms)
        self._services[broker_id].on_fetch(plan, version, deliver)

    def list_offsets(
        self,
        broker_id: int,
        queries: Iterable[OffsetQuery],
        isolation_level: int,
        replica_id: int,
        version: int,
        now_ms: int,
    ) -> tuple[OffsetAnswer, ...]:
        """Ask a broker for offsets."""
        broker = self._running(broker_id, now_ms)
        return tuple(list_offset(broker, each, isolation_level, replica_id, version) for each in queries)

    def offset_for_leader_epoch(
        self, broker_id: int, queries: Iterable[EpochQuery], now_ms: int
    ) -> tuple[EpochAnswer, ...]:
        """Ask a broker where epochs end."""
        broker = self._running(broker_id, now_ms)
        return tuple(end_offset_for_epoch(broker, each) for each in queries)

    def describe_log_dirs(self, broker_id: int, topic_partitions: Iterable[TopicPartition]) -> tuple[LogDirSize, ...]:
        """Ask a broker for sizes on its own disks."""
        return describe_log_dir(self._running(broker_id, self.now_ms), topic_partitions)

    def metadata(self, broker_id: int, topics: Sequence[str], now_ms: int) -> ClusterView:
        """Ask a broker what it knows of the cluster, be it late. Without topics, of all."""
        return self._running(broker_id, now_ms).view(topics)

    # -------------------------------------------------------------------------------- what happens: topics, records

    def create_topic(self, name: str, partition_count: int, replicas: Sequence[Sequence[int]], **config: Any) -> UUID:
        """Create a topic; partition ``i`` has the assignment ``replicas[i % len(replicas)]``.

        `config` are fields of `TopicSettings`. Brokers hear of it one by one.
        """
        settings = TopicSettings(**config).resolved(self.settings)
        partitions = self._controller.create_topic(name, partition_count, replicas, settings)
        for partition in partitions:
            self._follow(partition)
        return partitions[0].topic_id

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Creating it anew makes another topic of that name."""
        self._controller.delete_topic(name)

    def produce(
        self,
        topic_partition: TopicPartition,
        record_count: int,
        *,
        producer_id: int = -1,
        transactional: bool = False,
        size_bytes: int | None = None,
    ) -> Batch | None:
        """Append one batch at the leader; None where nobody leads or too few are in sync (acks=all)."""
        size_bytes = HEADER_BYTES + RECORD_BYTES * record_count if size_bytes is None else size_bytes
        content = Batch(record_count=record_count, producer_id=producer_id, is_transactional=transactional)
        return self._append(topic_partition, content, size_bytes)

    def commit(self, topic_partition: TopicPartition, producer_id: int) -> Batch | None:
        """End this producer's transaction with a COMMIT marker; None if it has none open, or nobody leads."""
        return self._end_transaction(topic_partition, producer_id, is_abort=False)

    def abort(self, topic_partition: TopicPartition, producer_id: int) -> Batch | None:
        """End this producer's transaction with an ABORT marker; None if it has none open, or nobody leads."""
        return self._end_transaction(topic_partition, producer_id, is_abort=True)

    def _end_transaction(self, topic_partition: TopicPartition, producer_id: int, *, is_abort: bool) -> Batch | None:
        leader = self._leading_replica(topic_partition)
        if leader is None or not leader.log.is_open(producer_id):
            return None
        marker = Batch(producer_id=producer_id, is_transactional=True, is_control=True, is_abort=is_abort)
        return self._append(topic_partition, marker, HEADER_BYTES + RECORD_BYTES)

    def _append(self, topic_partition: TopicPartition, content: Batch, size_bytes: int) -> Batch | None:
        leader, partition = self._leading_replica(topic_partition), self._controller.partitions[topic_partition]
        if leader is None or len(partition.image.isr_ids) < partition.settings.min_insync_replicas:
            return None
        self._batch_count += 1
        base_offset = leader.log.log_end_offset
        batch = content._replace(
            base_offset=base_offset,
            last_offset=base_offset + content.record_count - 1,
            leader_epoch=leader.image.leader_epoch,
            uid=self._batch_count,
            append_ms=self.now_ms,
        )
        batch = encode_batch(batch, size_bytes)
        leader.log.append(batch)
        partition.appended.append(batch)
        self._on_leader_log_grown(leader, partition)
        return batch

    def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> None:
        """Move the log start at the leader (KIP-107), at most to the high watermark; followers hear of it later."""
        leader = self._leading_replica(topic_partition)
        if leader is not None:
            leader.log.advance_log_start(min(before_offset, leader.log.high_watermark))
            self._on_leader_moved(leader)

    def expire_local(self, topic_partition: TopicPartition, broker_id: int, up_to: int) -> None:
        """Let one replica's retention take whole batches below `up_to`: from its disks only if the topic is tiered."""
        replica = self._brokers[broker_id].replicas.get(topic_partition)
        if replica is None:
            return
        log = replica.log
        at = log.index_of(up_to)
        boundary = log.batches[at].base_offset if at < len(log.batches) else log.log_end_offset
        boundary = min(boundary, up_to, log.high_watermark)
        if self._controller.partitions[topic_partition].settings.tiered:
            log.advance_local_start(boundary)
        else:
            log.advance_log_start(boundary)
        self._on_log_start_moved(replica)

    def compact(self, topic_partition: TopicPartition, before_offset: int, broker_id: int | None = None) -> None:
        """Clean one replica's log (the leader's): batches lose some records, all of them, or go altogether.

        Offsets stay. Markers and the last batch stay too, and what is not decided yet.
        """
        log = self.log(topic_partition, broker_id)
        stop = min(before_offset, log.last_stable_offset)
        for at in reversed(range(len(log.batches) - 1)):
            batch = log.batches[at]
            if batch.last_offset < stop and batch.record_count and not batch.is_control:
                kept_count = self._rng.randint(-1, batch.record_count)
                smaller = batch._replace(record_count=max(kept_count, 0))
                size_bytes = HEADER_BYTES + (len(batch.encoded) - HEADER_BYTES) * kept_count // batch.record_count
                log.replace(at, None if kept_count < 0 else encode_batch(smaller, size_bytes))

    # -------------------------------------------------------------------------- what happens: brokers, leaders, ISR

    def stop_broker(self, broker_id: int, *, is_controlled: bool = False) -> None:
        """Stop a broker: controlled, others lead first; a crash is noticed when its controller session ends."""
        broker = self._brokers[broker_id]
        if broker.is_running:
            for replica in broker.replicas.values():
                self._credit_held_fetches(replica)
            if is_controlled:
                self._controller.fence(broker_id)
            else:
                self._timers.set(self._fencing[broker_id], self.now_ms + self.settings.broker_session_ms)
            broker.stop(is_clean=is_controlled)
            self._services[broker_id].stop()

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker: it hears all news, and counts as alive then."""
        broker = self._brokers[broker_id]
        if not broker.is_running:
            self._fencing[broker_id].due_ms = None
            self._controller.fence(broker_id)
            broker.start()
            self._controller.unfence(broker_id)
            broker.catch_up()

    def pause_replication(self, topic_partition: TopicPartition, follower_id: int) -> None:
        """Let a replica send no fetches to its leader, as if stuck; nothing happens where there is no replica."""
        replica = self._brokers[follower_id].replicas.get(topic_partition)
        if replica is not None:
            self._credit_held_fetches(replica)
            replica.is_paused, replica.held_since_ms, replica.round_timer.due_ms = True, None, None

    def resume_replication(self, topic_partition: TopicPartition, follower_id: int) -> None:
        """Let a replica go on."""
        replica = self._brokers[follower_id].replicas.get(topic_partition)
        if replica is not None and replica.is_paused:
            replica.is_paused = False
            if self.is_running(follower_id) and not replica.is_leader:
                self._timers.hasten(replica.round_timer, self.now_ms)

    def reassign(self, topic_partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Begin to move a topic-partition to these brokers."""
        self._controller.reassign(self._controller.partitions[topic_partition], replicas)

    def elect(self, topic_partition: TopicPartition, leader_id: int | None = None, unclean: bool = False) -> int:
        """Elect this broker, or who comes first; return who leads then, which may be who did before."""
        return self._controller.elect(self._controller.partitions[topic_partition], leader_id, is_unclean=unclean)

    def bump_epoch(self, topic_partition: TopicPartition) -> None:
        """Raise the leader epoch; the leader stays."""
        self._controller.bump_epoch(self._controller.partitions[topic_partition])

    def set_throttle(self, broker_id: int, until_ms: int) -> None:
        """Let a broker answer Fetch with nothing but a throttle time (KIP-219)."""
        self._brokers[broker_id].throttled_until_ms = until_ms

    # ------------------------------------------------------------------------------------------------ truth for checks

    def log(self, topic_partition: TopicPartition, broker_id: int | None = None) -> ModelLog:
        """Return a replica's log, empty where there is none yet: of `broker_id`, else of who leads or led last."""
        broker_id = self._controller.partitions[topic_partition].last_leader_id if broker_id is None else broker_id
        replica = self._brokers[broker_id].replicas.get(topic_partition)
        return ModelLog() if replica is None else replica.log

    def has_replica(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Tell whether a broker has taken on a replica, which it does when it hears that it is to have one."""
        return topic_partition in self._brokers[broker_id].replicas

    def appended(self, topic_partition: TopicPartition) -> Sequence[Batch]:
        """Return every batch that a leader of this topic ever wrote, in order, kept or lost."""
        return self._controller.partitions[topic_partition].appended

    def committed_end(self, topic_partition: TopicPartition) -> int:
        """Return the offset behind the last committed record: the highest that a leader's high watermark was."""
        return self._controller.partitions[topic_partition].committed_end

    def committed(self, topic_partition: TopicPartition) -> list[Batch]:
        """Return what the leader holds below `committed_end`. An unclean election takes committed batches back."""
        log = self.log(topic_partition)
        return log.batches[: log.index_of(self.committed_end(topic_partition))]

    def high_watermark(self, topic_partition: TopicPartition, broker_id: int | None = None) -> int:
        """Return a replica's high watermark."""
        return self.log(topic_partition, broker_id).high_watermark

    def last_stable_offset(self, topic_partition: TopicPartition, broker_id: int | None = None) -> int:
        """Return a replica's last stable offset."""
        return self.log(topic_partition, broker_id).last_stable_offset

    def leader(self, topic_partition: TopicPartition) -> int:
        """Return who leads, or `NO_NODE`."""
        return self._controller.partitions[topic_partition].image.leader_id

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the current leader epoch."""
        return self._controller.partitions[topic_partition].image.leader_epoch

    def isr(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return the in-sync replicas."""
        return self._controller.partitions[topic_partition].image.isr_ids

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Return the assignment."""
        return self._controller.partitions[topic_partition].image.replica_ids

    def open_sessions(self, broker_id: int) -> Mapping[int, Sequence[TopicPartition]]:
        """Return a broker's fetch sessions."""
        return self._brokers[broker_id].sessions.all()
