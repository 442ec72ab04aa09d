"""Watches what the engine sends: when, to whom and in which form, by what it was told before.

Leases, throttling and the view are followed here independently of the engine, from answers and from the decisions
that it reports. Where something happened that may end a lease, the lease is forgotten: what is checked then is less,
not wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from connector.config.settings import ReplicaSelection
from connector.fetch.actions import (
    LEADER_ONLY_VERSION,
    Action,
    Decision,
    EngineSettings,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.fetch.outcome import AskAgain, Deliver, ReadFromReplica, Wait
from connector.model import NO_NODE, ClusterView, ReplicaChange, TopicPartition
from tests.model import checks

__all__ = ["Conduct", "asked_with", "owner_of"]

RATE_WINDOW_MS: Final = 1_000


class _Lease(NamedTuple):
    node_id: int
    until_ms: int


class Conduct:
    """What one engine has been told so far, as far as it says what may be sent."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._under_way: dict[int, Action] = {}
        self._asked: set[TopicPartition] = set()
        self._asked_ms: dict[int, deque[int]] = {}
        self._rate_limit = 0
        self._leases: dict[TopicPartition, _Lease] = {}
        self._left: dict[TopicPartition, int] = {}
        self._leader_only_until_ms: dict[TopicPartition, int] = {}
        self._throttled_until_ms: dict[int, int] = {}
        self._view = ClusterView()

    def on_read_started(self, topic_partition_count: int) -> None:
        """Begin to count requests."""
        self._rate_limit = 10 + 8 * topic_partition_count
        self._asked_ms.clear()

    def on_read_ended(self) -> None:
        """Forget what was under way: nobody answers it any more. Metadata outlives its read."""
        self._under_way = {node_id: each for node_id, each in self._under_way.items() if node_id == NO_NODE}
        self._asked.clear()
        self._leader_only_until_ms.clear()

    def on_sent(self, action: Action, now_ms: int) -> None:
        """Take note of a request, and check that it may be sent."""
        node_id, asked = owner_of(action), asked_with(action)
        checks.one_request_at_a_time(node_id, self._under_way, asked, self._asked)
        checks.waits_while_throttled(node_id, now_ms, self._throttled_until_ms.get(node_id, 0))
        self._under_way[node_id] = action
        self._asked.update(asked)
        asked_ms = self._asked_ms.setdefault(node_id, deque(maxlen=self._rate_limit + 1))
        asked_ms.append(now_ms)
        checks.pauses_without_progress(node_id, asked_ms, RATE_WINDOW_MS, self._rate_limit)
        if isinstance(action, SendListOffsets | SendOffsetForLeaderEpoch):
            checks.asks_leaders_about_logs(action)
        elif isinstance(action, SendFetch):
            self._on_fetch_sent(action, now_ms)

    def _on_fetch_sent(self, sent: SendFetch, now_ms: int) -> None:
        node_id = sent.plan.node_id
        for topic_partition, asked in sent.asked.items():
            lease = self._leases.get(topic_partition)
            if lease is not None:
                checks.reads_where_it_was_told(topic_partition, node_id, now_ms, lease.node_id, lease.until_ms)
                if now_ms > lease.until_ms:
                    del self._leases[topic_partition]
            if not asked.from_leader:
                checks.leaves_who_did_not_answer(topic_partition, node_id, self._left.get(topic_partition, NO_NODE))
            if now_ms < self._leader_only_until_ms.get(topic_partition, 0):
                checks.finishes_at_the_leader(topic_partition, sent.max_version == LEADER_ONLY_VERSION)

    def on_settled(self, action: Action) -> None:
        """Take note that a request was answered, or will not be."""
        self._under_way.pop(owner_of(action), None)
        self._asked.difference_update(asked_with(action))

    def on_failure(self, node_ids: Collection[int]) -> None:
        """Take note that brokers did not answer: whatever was read there is read elsewhere."""
        for topic_partition, lease in list(self._leases.items()):
            if lease.node_id in node_ids:
                self._left[topic_partition] = lease.node_id
                del self._leases[topic_partition]

    def on_throttled(self, node_id: int, until_ms: int) -> None:
        """Take note that a broker wants to be left alone."""
        self._throttled_until_ms[node_id] = until_ms

    def on_delivered(self, node_id: int) -> None:
        """Take note of progress: a broker that serves may be asked as often as it does."""
        self._asked_ms.pop(node_id, None)

    def on_view(self, view: ClusterView) -> None:
        """Take the engine's view of the cluster, and forget leases on what changed."""
        before, self._view = self._view, view
        if before is view:
            return
        checks.view_never_goes_back(before, view)
        for topic_partition in [*self._leases, *self._left]:
            if view.partitions.get(topic_partition) != before.partitions.get(topic_partition):
                self._leases.pop(topic_partition, None)
                self._left.pop(topic_partition, None)

    def on_error(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Take note of a read that failed: what it had decided before is not told."""
        for each in topic_partitions:
            self._leases.pop(each, None)
            self._left.pop(each, None)

    def on_decisions(self, decisions: Iterable[Decision], sent: Action | None, now_ms: int) -> None:
        """Take what the engine says that an answer led to."""
        for each in decisions:
            topic_partition, outcome = each.topic_partition, each.outcome
            if (
                isinstance(sent, SendFetch)
                and topic_partition in sent.asked
                and each.change is not ReplicaChange.LEFT_ISR
            ):
                checks.judges_by_who_was_asked(
                    topic_partition, outcome, from_leader=sent.asked[topic_partition].from_leader
                )
            if each.change is ReplicaChange.FOLLOWER_BEHIND:
                self._leader_only_until_ms[topic_partition] = now_ms + self._settings.leader_only_ms
            if each.change is ReplicaChange.REDIRECT and self._settings.replica_selection is ReplicaSelection.BROKER:
                node_id = outcome.node_id if isinstance(outcome, ReadFromReplica) else NO_NODE
                node_id = outcome.preferred_read_replica if isinstance(outcome, Deliver) else node_id
                self._leases[topic_partition] = _Lease(node_id, now_ms + self._settings.metadata_max_age_ms)
                self._left.pop(topic_partition, None)
            elif not isinstance(outcome, Deliver | AskAgain | Wait):
                self._leases.pop(topic_partition, None)


def owner_of(action: Action) -> int:
    """Return the node that an action keeps busy; Metadata keeps none."""
    if isinstance(action, SendMetadata):
        return NO_NODE
    return action.plan.node_id if isinstance(action, SendFetch) else action.node_id


def asked_with(action: Action) -> tuple[TopicPartition, ...]:
    """Return the topic-partitions whose reading waits for the answer."""
    return tuple(action.asked) if isinstance(action, SendFetch | SendListOffsets | SendOffsetForLeaderEpoch) else ()
