"""A cluster at work: brokers, controller and followers' fetches wired together, and what happens by itself.

Each handler carries out one event and sees to what follows from it: who fetches, who is woken, who joins or leaves
the in-sync replicas.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from functools import partial

from connector.model import NO_NODE, TopicPartition
from tests.model.broker import Broker, News
from tests.model.controller import Controller, Partition
from tests.model.replication import Replica, Round, replicate
from tests.model.selector import select_leader, select_nearest
from tests.model.serving import FetchService
from tests.model.settings import ModelSettings
from tests.model.timers import Timer, Timers

__all__ = ["ReplicatedCluster"]


class ReplicatedCluster:
    """Brokers that copy from each other, in virtual time."""

    def __init__(self, settings: ModelSettings, rng: random.Random) -> None:
        selector = {
            "rack_aware": select_nearest,
            "leader": select_leader,
            "custom": settings.custom_selector,
        }[settings.selector]
        if selector is None:
            raise ValueError("ModelSettings.selector 'custom' needs a custom_selector.")
        self.settings = settings
        self._rng, self._timers, self._batch_count = rng, Timers(), 0
        self._brokers = {
            each: Broker(each, settings, self._timers, rng, self._on_round_due, self._on_replica_changed)
            for each in range(1, len(settings.racks) + 1)
        }
        self._services = {
            each: FetchService(broker, settings, self._timers, selector) for each, broker in self._brokers.items()
        }
        self._controller = Controller(self._brokers.keys(), self._timers, rng, self._publish)
        self._fencing = {each: Timer(partial(self._controller.fence, each)) for each in self._brokers}
        for broker in self._brokers.values():
            broker.catch_up()

    def _publish(self, news: News, urgent_ids: Collection[int]) -> None:
        """Tell all brokers. A leader acts by its own change of the ISR from the moment it is accepted.

        It must: a high watermark that left out a new member would commit what that member lacks (maximal ISR).
        """
        now_ms = self._timers.now_ms
        for broker in self._brokers.values():
            if broker.broker_id in urgent_ids and broker.is_running:
                broker.tell(news, now_ms)
                broker.catch_up()
            else:
                broker.tell(news, now_ms + self._rng.randint(*self.settings.metadata_lag_ms))

    def _running(self, broker_id: int, now_ms: int) -> Broker:
        """Return a broker at `now_ms`, if a client reaches it."""
        self._timers.advance(now_ms)
        broker = self._brokers[broker_id]
        if not broker.is_running:
            raise ConnectionError(f"Broker {broker_id} is not running.")
        return broker

    def _leading_replica(self, topic_partition: TopicPartition) -> Replica | None:
        """Return the leader's replica; a producer would try until the leader has heard of its election."""
        broker = self._brokers.get(self._controller.partitions[topic_partition].image.leader_id)
        if broker is None or not broker.is_running:
            return None
        broker.catch_up()
        return broker.replicas[topic_partition]

    def _leader_of(self, follower: Replica) -> Replica | None:
        """Return whom this replica fetches from, if that broker can be reached."""
        broker = self._brokers.get(follower.image.leader_id)
        return broker.replicas.get(follower.topic_partition) if broker is not None and broker.is_running else None

    def _followers(self, leader: Replica) -> Iterator[Replica]:
        """Yield replicas that fetch from this one, as far as they know."""
        for each in leader.followers:
            replica = self._brokers[each].replicas.get(leader.topic_partition)
            if replica is not None and replica.agrees_with(leader) and self._brokers[each].is_running:
                yield replica

    def _decided(self, leader: Replica) -> Partition | None:
        """Return what was decided about a leader's topic-partition; None for who no longer leads, unknowing."""
        decided = self._controller.partitions.get(leader.topic_partition)
        return decided if decided is not None and decided.image[:2] == leader.image[:2] else None

    # -------------------------------------------------------------------------------------------- followers' fetches

    def _on_round_due(self, follower: Replica) -> None:
        """Carry out a follower's fetch."""
        follower.held_since_ms = None
        if follower.is_paused or follower.image.leader_id == NO_NODE:
            return
        leader, settings, now_ms = self._leader_of(follower), self.settings, self._timers.now_ms
        leader_end, follower_end = leader.log.high_watermark if leader else 0, follower.log.high_watermark
        outcome = replicate(follower, leader, now_ms, settings.replica_fetch_max_bytes)
        if leader is None or outcome is Round.REFUSED:
            self._timers.set(follower.round_timer, now_ms + settings.replica_backoff_ms)
            return
        if outcome is Round.HELD:
            follower.held_since_ms = now_ms
            if _has_news(leader, follower):
                self._timers.set(follower.round_timer, now_ms + settings.replica_fetch_wait_ms)
        else:
            self._timers.set(follower.round_timer, self._next_round_ms())
        if follower.log.high_watermark != follower_end and settings.wakes_parked_on_followers:
            self._services[follower.broker_id].on_replica_changed(follower.topic_partition)
        decided = self._decided(leader)
        if decided is not None and outcome is not Round.TRUNCATED:
            self._on_follower_known(leader, follower, decided)
        if leader.log.high_watermark != leader_end:
            self._on_leader_moved(leader)

    def _on_follower_known(self, leader: Replica, follower: Replica, decided: Partition) -> None:
        """Let a leader report what a follower's fetch told: who joins the ISR, and the local logs of the ISR."""
        if leader.may_join_isr(follower.broker_id):
            self._controller.alter_isr(decided, leader.image, (*leader.image.isr_ids, follower.broker_id))
        if decided.has_thresholds and follower.broker_id in leader.image.isr_ids:
            decided.reported[follower.broker_id] = follower.local_log()
            decided.reported[leader.broker_id] = leader.local_log()

    def _next_round_ms(self) -> int:
        return self._timers.now_ms + self._rng.randint(*self.settings.replica_round_ms)

    def _renew_round(self, follower: Replica) -> None:
        """Let a follower's held fetch end when its time is up, which is left out while nothing is new."""
        if follower.held_since_ms is not None:
            wait_ms = self.settings.replica_fetch_wait_ms
            self._timers.hasten(follower.round_timer, follower.last_round_ms(self._timers.now_ms, wait_ms) + wait_ms)

    def _credit_held_fetches(self, follower: Replica) -> None:
        """Let the leader know of a follower's fetches that were left out: each of them found it caught up."""
        leader = self._leader_of(follower)
        if leader is not None and follower.held_since_ms is not None and follower.broker_id in leader.followers:
            state = leader.followers[follower.broker_id]
            sent_ms = follower.last_round_ms(self._timers.now_ms, self.settings.replica_fetch_wait_ms)
            state.caught_up_ms = state.last_fetch_ms = sent_ms

    # ------------------------------------------------------------------------------------------ what replicas run into

    def _on_leader_log_grown(self, leader: Replica, decided: Partition) -> None:
        """End the held fetches of followers, and begin to count how long they lag."""
        for follower in self._followers(leader):
            if follower.held_since_ms is not None:
                self._credit_held_fetches(follower)
                self._timers.hasten(follower.round_timer, self._next_round_ms())
        if leader.raise_high_watermark():
            self._on_leader_moved(leader)
        self._watch_isr(leader, decided)

    def _on_leader_moved(self, leader: Replica) -> None:
        """See to a leader's higher high watermark or log start: followers hear of it with their next fetch."""
        decided = self._controller.partitions.get(leader.topic_partition)
        is_same = decided is not None and decided.topic_id == leader.topic_id
        if decided is not None and is_same and leader.image.leader_epoch >= decided.clean_since_epoch:
            decided.committed_end = max(decided.committed_end, leader.log.high_watermark)
        self._services[leader.broker_id].on_replica_changed(leader.topic_partition)
        for follower in self._followers(leader):
            if _has_news(leader, follower):
                self._renew_round(follower)

    def _on_log_start_moved(self, replica: Replica) -> None:
        """See to a replica whose retention took something: followers tell it with their next fetch."""
        if replica.is_leader:
            self._on_leader_moved(replica)
        else:
            self._renew_round(replica)

    def _on_replica_changed(self, broker: Broker, topic_partition: TopicPartition) -> None:
        """See to a replica whose broker heard news of it."""
        replica = broker.replicas.get(topic_partition)
        decided = self._decided(replica) if replica is not None and replica.is_leader else None
        if replica is not None and decided is not None:
            decided.committed_end = min(decided.committed_end, replica.log.log_end_offset)
            replica.raise_high_watermark()
            self._on_leader_moved(replica)
            self._watch_isr(replica, decided)
        self._services[broker.broker_id].on_replica_changed(topic_partition)

    # ------------------------------------------------------------------------------------------------------- the ISR

    def _follow(self, decided: Partition) -> None:
        """Begin to look after the in-sync replicas of a topic-partition."""
        decided.isr_timer.action = partial(self._on_isr_due, decided)

    def _watch_isr(self, leader: Replica, decided: Partition) -> None:
        """Look at the ISR when its slowest member may have lagged for too long."""
        caught_up_ms = min((state.caught_up_ms for state in leader.lagging()), default=None)
        if caught_up_ms is not None:
            due_ms = caught_up_ms + self.settings.replica_lag_time_max_ms + 1
            self._timers.hasten(decided.isr_timer, max(due_ms, self._timers.now_ms))

    def _on_isr_due(self, decided: Partition) -> None:
        broker = self._brokers.get(decided.image.leader_id)
        leader = broker.replicas.get(decided.topic_partition) if broker is not None and broker.is_running else None
        if leader is None:
            return
        late_ids = leader.out_of_sync_ids(self._timers.now_ms, self.settings.replica_lag_time_max_ms)
        if late_ids:  # refused of a leader that has yet to hear of a decision; it looks again when it does
            self._controller.alter_isr(decided, leader.image, set(leader.image.isr_ids) - late_ids)
        else:
            self._watch_isr(leader, decided)


def _has_news(leader: Replica, follower: Replica) -> bool:
    """Tell whether a follower's next fetch would tell either side anything but records."""
    known, log = leader.followers[follower.broker_id], follower.log
    return (
        log.high_watermark != leader.log.high_watermark
        or log.log_start_offset < leader.log.log_start_offset
        or known.log_start_offset != log.log_start_offset
    )
