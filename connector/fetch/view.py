"""The view of the cluster that decisions use, and when it must be asked for again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from connector.fetch.progress import Backoff, exponential_pause_ms
from connector.model import NO_EPOCH, ClusterView, Node, PartitionInfo, TopicPartition

__all__ = ["ViewKeeper"]


class ViewKeeper:
    """Holds the newest view; knows when a Metadata request is due.

    Parameters
    ----------
    max_age_ms : int
        A view older than this is asked for again.
    backoff : Backoff
        Pauses between requests that did not help.
    jitter : callable
        Numbers in [0, 1).
    """

    def __init__(self, max_age_ms: int, backoff: Backoff, jitter: Callable[[], float]) -> None:
        self._max_age_ms = max_age_ms
        self._backoff = backoff
        self._jitter = jitter
        self._view = ClusterView()
        self._asked_for: frozenset[str] = frozenset()
        self._expires_ms = 0
        self._not_before_ms = 0
        self._attempt_count = 0
        self._is_refresh_wanted = False
        self._is_under_way = False
        self.last_problem = ""

    @property
    def current(self) -> ClusterView:
        """The newest view."""
        return self._view

    def is_request_due(self, topics: Collection[str], now_ms: int, *, is_needed: bool) -> bool:
        """Tell whether Metadata of these topics should be asked for at this moment.

        `is_needed` says that reading can't go on without it.
        """
        if self._is_under_way or now_ms < self._not_before_ms:
            return False
        return (
            is_needed or self._is_refresh_wanted or now_ms >= self._expires_ms or not self._asked_for.issuperset(topics)
        )

    def wake_at_ms(self, *, is_needed: bool) -> int:
        """Return the next instant at which a request may become due without any event."""
        return (
            self._not_before_ms if is_needed or self._is_refresh_wanted else max(self._not_before_ms, self._expires_ms)
        )

    def on_refresh_wanted(self) -> None:
        """Take note that something contradicts the view."""
        self._is_refresh_wanted = True

    def on_request_sent(self, now_ms: int) -> None:
        """Take note that a request is on its way; the next one keeps its distance."""
        self._is_under_way = True
        self._is_refresh_wanted = False
        self._attempt_count += 1
        self._not_before_ms = now_ms + exponential_pause_ms(self._backoff, self._attempt_count, self._jitter)

    def on_request_failed(self, problem: str, now_ms: int) -> None:
        """Take note that no answer came."""
        self._is_under_way = False
        self._is_refresh_wanted = True
        self.last_problem = problem
        pause_ms = exponential_pause_ms(self._backoff, max(1, self._attempt_count), self._jitter)
        self._not_before_ms = max(self._not_before_ms, now_ms + pause_ms)

    def on_shipped(
        self, view: ClusterView, wanted: Iterable[TopicPartition], now_ms: int
    ) -> tuple[TopicPartition, ...]:
        """Take the planner's view if it knows more of what is wanted, or something newer; return what changed."""
        if not any(_is_news(view.partitions.get(each), self._view.partitions.get(each)) for each in wanted):
            return ()
        if self._expires_ms == 0:
            self._expires_ms = now_ms + self._max_age_ms
        self._asked_for |= {each.topic for each in view.partitions}
        return self._on_view(view)

    def on_reply(self, view: ClusterView, now_ms: int) -> tuple[TopicPartition, ...]:
        """Take a Metadata answer; return the topic-partitions whose leader or epoch is another than before."""
        self._is_under_way = False
        self._expires_ms = now_ms + self._max_age_ms
        self._asked_for |= {each.topic for each in view.partitions} | view.topic_errors.keys()
        return self._on_view(view)

    def on_satisfied(self) -> None:
        """Take note that reading can go on with this view: the next need begins with a short pause again."""
        self._attempt_count = 0

    def on_leader_hint(
        self, topic_partition: TopicPartition, leader_id: int, leader_epoch: int, nodes: Iterable[Node]
    ) -> bool:
        """Take a leader that an error names (KIP-951); True when that is news, and its address is known."""
        known = self._view.partitions.get(topic_partition)
        all_nodes = self._view.nodes | {each.node_id: each for each in nodes}
        if (
            known is None
            or leader_epoch == NO_EPOCH
            or leader_epoch <= known.leader_epoch
            or leader_id not in all_nodes
        ):
            return False
        info = replace(known, leader_id=leader_id, leader_epoch=leader_epoch)
        self._view = replace(self._view, nodes=all_nodes, partitions=self._view.partitions | {topic_partition: info})
        return True

    def _on_view(self, view: ClusterView) -> tuple[TopicPartition, ...]:
        before = self._view
        partitions = before.partitions | {
            topic_partition: info
            for topic_partition, info in view.partitions.items()
            if self._is_another_topic(view, topic_partition.topic)
            or not _is_older(info, before.partitions.get(topic_partition))
        }
        # A leader that only a hint named may be unknown to the broker that answered.
        leaders = {info.leader_id for info in partitions.values()} - view.nodes.keys()
        nodes = view.nodes | {each: before.nodes[each] for each in leaders & before.nodes.keys()}
        self._view = replace(view, nodes=nodes, partitions=partitions, topic_ids=before.topic_ids | view.topic_ids)
        return tuple(
            topic_partition
            for topic_partition, info in before.partitions.items()
            if _leadership(info, before) != _leadership(partitions[topic_partition], self._view)
        )

    def _is_another_topic(self, view: ClusterView, topic: str) -> bool:
        """Tell whether a topic was deleted and created again: its epochs start over (KIP-516)."""
        known_id, topic_id = self._view.topic_ids.get(topic), view.topic_ids.get(topic)
        return known_id is not None and topic_id is not None and known_id != topic_id


def _is_news(info: PartitionInfo | None, known: PartitionInfo | None) -> bool:
    return info is not None and (known is None or info.leader_epoch > known.leader_epoch)


def _is_older(info: PartitionInfo, known: PartitionInfo | None) -> bool:
    """Tell whether a broker that lags behind speaks of a past leader; epochs only grow (Java: `Metadata`)."""
    return known is not None and NO_EPOCH < info.leader_epoch < known.leader_epoch


def _leadership(info: PartitionInfo, view: ClusterView) -> tuple[int, int, Node | None]:
    return info.leader_id, info.leader_epoch, view.nodes.get(info.leader_id)
