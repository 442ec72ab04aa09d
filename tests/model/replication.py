"""How followers copy a leader's log, how the high watermark rises and spreads, and who counts as in sync.

A follower pulls: each of its fetches tells the leader how far its log reaches, so the leader's high watermark (the
shortest log among the in-sync replicas) rises one round after the copy, and the follower hears of it yet one answer
later. An answer carries the high watermark from before the request was counted. With nothing to send, the leader
holds the request for `ModelSettings.replica_fetch_wait_ms`; a stale high watermark does not end that (KAFKA-9952).

A round here is one such fetch and its answer at one instant. A held request that has nothing to tell either side is
not repeated in the model; `Replica.last_round_ms` knows when it would have been.

Spec: KIP-101, KIP-320 and KIP-595 (truncation), KIP-207 (a new leader's high watermark); "Fetch Request & Replication
Protocol". Counterpart: ``Partition``, ``Replica``, ``AbstractFetcherThread``, ``ReplicaFetcherThread``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from connector.model import NO_EPOCH, NO_NODE, TopicPartition
from connector.wire import error_codes as codes
from tests.model.election import LocalLog
from tests.model.log import ModelLog
from tests.model.timers import Timer

__all__ = ["FollowerState", "PartitionImage", "Replica", "Round", "replicate"]

UNKNOWN_OFFSET = -1


class PartitionImage(NamedTuple):
    """What the controller decided about one topic-partition, at one moment."""

    leader_id: int
    leader_epoch: int
    replica_ids: tuple[int, ...]
    isr_ids: tuple[int, ...]


class FollowerState:
    """What a leader knows of a follower: only what its fetches told (``Replica``, ``ReplicaState``)."""

    __slots__ = ("caught_up_ms", "last_fetch_leader_end", "last_fetch_ms", "log_end_offset", "log_start_offset")

    def __init__(self) -> None:
        self.log_end_offset = self.log_start_offset = self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_ms = self.caught_up_ms = 0

    def on_fetch(self, follower: ModelLog, leader_end_offset: int, now_ms: int) -> None:
        """Note a fetch. Who reaches where the leader's log ended at its fetch before was caught up at that time."""
        if follower.log_end_offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif follower.log_end_offset >= self.last_fetch_leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset, self.log_start_offset = follower.log_end_offset, follower.log_start_offset
        self.last_fetch_leader_end, self.last_fetch_ms = leader_end_offset, now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Tell whether a member may stay in the ISR (``Partition.isFollowerOutOfSync``)."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms


class Replica:
    """One broker's copy of a topic-partition, in the role that the broker's own image gives it.

    Attributes
    ----------
    epoch_start_offset : int
        Where this leader's epoch began; until the high watermark is there, it is not known to be true (KIP-207).
    told_high_watermark : int
        What a follower heard last from its leader, be it beyond the own log; -1 when it heard nothing.
    round_timer : Timer
        A follower's next fetch; not set while the leader holds one that has nothing to tell.
    """

    def __init__(
        self, broker_id: int, topic_partition: TopicPartition, topic_id: UUID, fetch: Callable[[Replica], None]
    ) -> None:
        self.broker_id = broker_id
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = ModelLog()
        self.image = PartitionImage(NO_NODE, NO_EPOCH, (), ())
        self.followers: dict[int, FollowerState] = {}
        self.epoch_start_offset = 0
        self.told_high_watermark = UNKNOWN_OFFSET
        self.round_timer = Timer(lambda: fetch(self))
        self.held_since_ms: int | None = None
        self.is_paused = False

    @property
    def is_leader(self) -> bool:
        """Whether this broker takes itself for the leader. Two may, until both have heard of a change."""
        return self.image.leader_id == self.broker_id

    def agrees_with(self, other: Replica) -> bool:
        """Tell whether both brokers know the same topic, leader and leader epoch here."""
        return self.topic_id == other.topic_id and self.image[:2] == other.image[:2]

    def check(self, current_leader_epoch: int, *, needs_leader: bool) -> int:
        """Return the error code for a request that knows `current_leader_epoch`, by this broker's own view (KIP-320).

        Counterpart: ``Partition.checkCurrentLeaderEpoch``, ``localLogWithEpochOrThrow``.
        """
        if current_leader_epoch != NO_EPOCH and current_leader_epoch < self.image.leader_epoch:
            return codes.FENCED_LEADER_EPOCH
        if current_leader_epoch > self.image.leader_epoch:
            return codes.UNKNOWN_LEADER_EPOCH
        return codes.NONE if self.is_leader or not needs_leader else codes.NOT_LEADER_OR_FOLLOWER

    def on_image(self, image: PartitionImage, now_ms: int) -> bool:
        """Take on the role that `image` gives; return whether role or epoch changed.

        A new leader knows no follower's log: it redirects nobody and its high watermark stands still until they
        have fetched. It notes where its epoch begins, written to or not.
        """
        was_leader, old = self.is_leader, self.image
        self.image = image
        self.followers = {
            each: self.followers.get(each) or FollowerState()
            for each in (image.replica_ids if self.is_leader else ())
            if each != self.broker_id
        }
        is_changed = image.leader_epoch != old.leader_epoch or self.is_leader != was_leader
        if is_changed:
            self.told_high_watermark, self.held_since_ms = UNKNOWN_OFFSET, None
            self.round_timer.due_ms = None
            self.epoch_start_offset = self.log.log_end_offset if self.is_leader else 0
        if is_changed and self.is_leader:
            self.log.assign_epoch(image.leader_epoch, self.epoch_start_offset)
            for each, state in self.followers.items():
                state.caught_up_ms = now_ms if each in image.isr_ids else 0
        return is_changed

    def raise_high_watermark(self) -> bool:
        """Raise a leader's high watermark to the shortest log of the ISR, as far as those are known."""
        log = self.log
        ends = [state.log_end_offset for each, state in self.followers.items() if each in self.image.isr_ids]
        reached = min(ends, default=log.log_end_offset)
        if reached <= log.high_watermark:
            return False
        log.high_watermark = min(reached, log.log_end_offset)
        return True

    def may_join_isr(self, follower_id: int) -> bool:
        """Tell whether a follower has reached the high watermark and this leader's epoch (KAFKA-7128)."""
        end = self.followers[follower_id].log_end_offset
        return (
            follower_id not in self.image.isr_ids and end >= self.log.high_watermark and end >= self.epoch_start_offset
        )

    def out_of_sync_ids(self, now_ms: int, lag_time_max_ms: int) -> set[int]:
        """Return members of the ISR that have not caught up for too long."""
        end = self.log.log_end_offset
        return {
            each
            for each, state in self.followers.items()
            if each in self.image.isr_ids and not state.is_caught_up(end, now_ms, lag_time_max_ms)
        }

    def lagging(self) -> Iterator[FollowerState]:
        """Yield members of the ISR that do not reach the log's end, as far as the leader knows."""
        for each, state in self.followers.items():
            if each in self.image.isr_ids and state.log_end_offset != self.log.log_end_offset:
                yield state

    def local_log(self) -> LocalLog:
        """Return what this replica reports about its own disks with each fetch."""
        return LocalLog(self.log.local_start_ms, self.log.local_bytes)

    def last_round_ms(self, now_ms: int, wait_ms: int) -> int:
        """Return when a follower whose request is held has sent it: the model leaves out renewals in silence."""
        held = now_ms if self.held_since_ms is None else self.held_since_ms
        return held + (now_ms - held) // wait_ms * wait_ms


class Round(Enum):
    """What one fetch of a follower led to."""

    REFUSED = auto()
    """Leader and follower do not agree on leader or epoch; the follower waits before it tries again."""
    TRUNCATED = auto()
    """The logs had parted, or the leader no longer holds the follower's next offset; the follower's moved."""
    COPIED = auto()
    """Batches were copied; the next fetch, which tells so, follows at once."""
    HELD = auto()
    """Nothing to copy: the request is held."""


def replicate(follower: Replica, leader: Replica | None, now_ms: int, max_bytes: int) -> Round:
    """Carry out one fetch of a follower; the leader's high watermark is raised by what it told.

    Batches come up to `max_bytes`, one at least. So a follower out of sync may know a high watermark beyond its log.

    The log start of a follower rises to its leader's, as far as is committed; its own retention may have moved it
    further. Spec: KIP-107, KIP-595 (diverging epoch in Fetch).
    """
    if leader is None or not follower.agrees_with(leader) or follower.broker_id not in leader.followers:
        return Round.REFUSED
    source, copy = leader.log, follower.log
    if _truncate(copy, source):
        return Round.TRUNCATED
    told_high_watermark = source.high_watermark
    leader.followers[follower.broker_id].on_fetch(copy, source.log_end_offset, now_ms)
    leader.raise_high_watermark()
    is_behind = copy.log_end_offset < source.log_end_offset
    if is_behind:
        _copy(copy, source, max_bytes)
    follower.told_high_watermark = told_high_watermark
    copy.high_watermark = max(copy.log_start_offset, min(told_high_watermark, copy.log_end_offset))
    copy.advance_log_start(min(source.log_start_offset, copy.high_watermark))
    return Round.COPIED if is_behind else Round.HELD


def _copy(copy: ModelLog, source: ModelLog, max_bytes: int) -> None:
    size_bytes = 0
    for batch in source.batches[source.index_of(copy.log_end_offset) :]:
        size_bytes += len(batch.encoded)
        if size_bytes > max_bytes and size_bytes > len(batch.encoded):
            return
        copy.append(batch)
    copy.log_end_offset = source.log_end_offset


def _truncate(copy: ModelLog, source: ModelLog) -> bool:
    """Move a follower's log to where it agrees with its leader's, or to the leader's start; tell whether it moved.

    The leader names the end of the follower's last epoch, or of the largest one below that it knows; the follower
    cuts to the smaller of both ends of that epoch, and asks again.
    """
    local_start = source.local_log_start_offset
    if copy.log_end_offset < local_start:
        copy.restart_at(source, local_start)
        return True
    if copy.last_epoch == NO_EPOCH:
        return False
    leader_epoch, leader_end = source.end_of_epoch(copy.last_epoch)
    if leader_epoch == copy.last_epoch and leader_end >= copy.log_end_offset:
        return False
    cut_at = min(copy.end_of_epoch(leader_epoch)[1], leader_end)
    if cut_at < copy.log_start_offset:
        copy.restart_at(source, local_start)
    else:
        copy.truncate_to(cut_at)
    return True
