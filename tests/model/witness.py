"""Keeps what one run has shown so far, and calls the checks with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from connector.errors import ConnectorError
from connector.fetch.actions import Delivery, FetchEvents, SendFetch
from connector.fetch.outcome import Skip
from connector.fetch.session import SessionState
from connector.model import NO_EPOCH, NO_NODE, READ_COMMITTED, ClusterView, FetchReply, OffsetRange, TopicPartition
from tests.model import checks
from tests.model.cluster import ModelCluster
from tests.model.faults import Faults
from tests.model.log import Batch
from tests.model.truth import Losses, Mark, marks_of

__all__ = ["Served", "Witness"]


class Served(NamedTuple):
    """Records of one topic-partition as a broker sent them: what is in them, and what its log has before."""

    node_id: int
    records: memoryview
    marks: list[Mark]
    before: Mark | None
    aborted_transactions: tuple[tuple[int, int], ...]


class Witness:
    """Sees all that goes to the engine and comes from it.

    Attributes
    ----------
    positions : dict
        Position and end of each range of the read that is on.
    last_read : dict
        The last batch that was read of each topic-partition, where no loss was announced since.
    served_by : dict
        Which brokers' records were delivered in this read.
    """

    def __init__(
        self, cluster: ModelCluster, faults: Faults, isolation_level: int, view: Callable[[], ClusterView]
    ) -> None:
        self._cluster, self._faults, self._isolation_level, self._view = cluster, faults, isolation_level, view
        self.positions: dict[TopicPartition, tuple[int, int]] = {}
        self.last_read: dict[TopicPartition, Mark] = {}
        self._before_read = self.last_read
        self._last_touched: dict[TopicPartition, Mark] = {}
        self._started_at: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self.served_by: dict[TopicPartition, list[int]] = {}
        self.losses = Losses(replaced_topics=faults.replaced)
        self._planned: dict[TopicPartition, list[Mark]] = {}
        self._aborted_lists: dict[int, set[tuple[tuple[int, int], ...]]] = {}
        self._orphan_ids: dict[int, set[int]] = {}

    # ------------------------------------------------------------------------------------------------------- a read

    def on_read_started(self, ranges: Iterable[OffsetRange]) -> None:
        """Take down what is to be read, and what of it the leaders have."""
        ranges = tuple(ranges)
        self.positions = {each.topic_partition: (each.start_offset, each.end_offset) for each in ranges}
        self.served_by = {each: [] for each in self.positions}
        self._started_at = {each: position for each, (position, _) in self.positions.items()}
        self._planned = {each: self._planned_marks(each) for each in self.positions}
        self._topic_ids = dict(self._faults.topic_ids)
        self._before_read = self.last_read
        unknown = {each.topic_partition for each in ranges if each.start_epoch == NO_EPOCH}
        self.last_read = {each: mark for each, mark in self.last_read.items() if each not in unknown}

    def _planned_marks(self, topic_partition: TopicPartition) -> list[Mark]:
        """Return what the leader has of a range; of what was taken from it, what it had: others may have it still."""
        log, (start_offset, end_offset) = self._cluster.log(topic_partition), self.positions[topic_partition]
        batches: Sequence[Batch] = log.batches[log.index_of(start_offset) : log.index_of(end_offset) + 1]
        if topic_partition in self._faults.thinned:
            batches = self._cluster.appended(topic_partition)
        return [_mark(each) for each in batches if each.last_offset >= start_offset and each.base_offset < end_offset]

    def on_read_ended(self, *, is_abandoned: bool) -> None:
        """Remember what was read, as far as the leader has it: what it lacks by then is noticed by nobody."""
        if is_abandoned:
            self.last_read = self._before_read
        for each, mark in list(self.last_read.items()):
            if self._is_gone(each, mark):
                self.losses.truncated.add(each)
                del self.last_read[each]

    def unfinished(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the ranges that stand before their ends."""
        return {each: bounds for each, bounds in self.positions.items() if bounds[0] < bounds[1]}

    # ---------------------------------------------------------------------------------------------- what brokers sent

    def on_served(self, sent: SendFetch, reply: FetchReply) -> dict[TopicPartition, Served]:
        """Look at an answer in the moment it leaves the broker: later its log may be another."""
        node_id = sent.plan.node_id
        checks.session_request_is_valid(sent.plan, reply.error_code)
        if sent.plan.session_epoch == 0 and reply.session_id:
            self._orphan_ids.setdefault(node_id, set()).add(reply.session_id)
        served: dict[TopicPartition, Served] = {}
        is_committed = self._isolation_level == READ_COMMITTED
        for each in reply.partitions:
            if not len(each.records):
                continue
            topic_partition = each.topic_partition
            marks = marks_of(each.records)
            log = self._cluster.log(topic_partition, node_id)
            visible = log.last_stable_offset if is_committed else log.high_watermark
            checks.nothing_above_what_is_visible(topic_partition, marks, visible)
            before = None
            asked = sent.asked.get(topic_partition)
            if asked is not None:
                at = log.index_of(asked.fetch_offset)
                before = _mark(log.batches[at - 1]) if at else None
            served[topic_partition] = Served(node_id, each.records, marks, before, each.aborted_transactions)
            if is_committed:
                for mark in marks:
                    self._aborted_lists.setdefault(mark.uid, {()}).add(each.aborted_transactions)
        return served

    def on_received(self, node_id: int, reply: FetchReply, believed: SessionState) -> None:
        """Look at sessions when an answer has been taken in, and nothing is under way at its broker."""
        orphan_ids = self._orphan_ids.setdefault(node_id, set())
        orphan_ids.discard(reply.session_id)
        if not self._cluster.is_running(node_id):
            return
        held = self._cluster.open_sessions(node_id)
        checks.session_agrees(node_id, believed, held.get(believed.session_id))
        self.on_sessions(node_id)

    def on_sessions(self, node_id: int, limit: int = 1) -> None:
        """Count the sessions that a broker keeps for us."""
        held = self._cluster.open_sessions(node_id).keys() - self._faults.foreign_session_ids
        orphan_count = len(self._orphan_ids.get(node_id, set()) & held)
        checks.sessions_are_bounded(node_id, len(held), orphan_count, limit)

    # --------------------------------------------------------------------------------------------- what the engine said

    def on_events(self, events: FetchEvents, served: dict[TopicPartition, Served]) -> None:
        """Take records and skips that an answer led to."""
        for delivery in events.deliveries:
            self._on_delivery(delivery, served.get(delivery.topic_partition))
        for decision in events.decisions:
            if isinstance(decision.outcome, Skip):
                self._on_skip(decision.topic_partition, decision.outcome)

    def _on_delivery(self, delivery: Delivery, served: Served | None) -> None:
        topic_partition = delivery.topic_partition
        position, end_offset = self.positions[topic_partition]
        checks.delivers_in_order_without_gaps(delivery, position, end_offset)
        if served is None:  # kept from an earlier answer
            marks = marks_of(delivery.records)
        else:
            marks = served.marks
            checks.reads_one_history(
                topic_partition,
                self._provable_last_read(topic_partition, position),
                served.before,
                may_lack_batches=topic_partition in self._faults.compacted,
            )
            self.served_by[topic_partition].append(served.node_id)
        found = [mark for mark in marks if mark.last_offset >= position and mark.base_offset < delivery.end_offset]
        checks.delivers_exactly_what_is_there(
            delivery,
            found,
            self._planned[topic_partition],
            may_lack_batches=topic_partition in self._faults.compacted,
            is_lossy=lambda: self._is_lossy(topic_partition, found),
        )
        if self._is_view_current(topic_partition):
            gone = [mark for mark in found if self._is_gone(topic_partition, mark)]
            checks.delivers_no_false_history(topic_partition, gone)
        self._check_aborted(delivery, found)
        whole = [mark for mark in found if mark.last_offset < delivery.end_offset]
        if found:
            self._last_touched[topic_partition] = found[-1]
        if whole:
            self.last_read[topic_partition] = whole[-1]
        self.positions[topic_partition] = (delivery.end_offset, end_offset)

    def _provable_last_read(self, topic_partition: TopicPartition, position: int) -> Mark | None:
        """Return what was read before, as far as the leader's word on its epoch can show that it is lost (KIP-320).

        Where a range begins, its epoch may be that of a leader which wrote nothing. Then an older epoch, which is what
        a leader without it tells, proves nothing as long as that reaches the position.
        """
        last_read = self.last_read.get(topic_partition)
        if last_read is None or position > self._started_at[topic_partition]:
            return last_read
        if not self._faults.exists(topic_partition):
            return None
        leader_epoch, end_offset = self._cluster.log(topic_partition).end_of_epoch(last_read.leader_epoch)
        return last_read if leader_epoch == NO_EPOCH or end_offset < position else None

    def _is_view_current(self, topic_partition: TopicPartition) -> bool:
        """Tell whether the engine knows the leader epoch that is, and reads the topic that is."""
        view, topic = self._view(), topic_partition.topic
        info = view.partitions.get(topic_partition)
        return (
            self._faults.exists(topic_partition)
            and info is not None
            and info.leader_epoch == self._cluster.leader_epoch(topic_partition)
            and view.topic_ids.get(topic) == self._topic_ids[topic] == self._faults.topic_ids[topic]
        )

    def _check_aborted(self, delivery: Delivery, found: list[Mark]) -> None:
        lists: set[tuple[tuple[int, int], ...]] = {()}
        aborted = self._faults.aborted_uids
        if found and self._isolation_level == READ_COMMITTED:
            lists = set.intersection(*(self._aborted_lists[mark.uid] for mark in found))
        elif not found:
            lists = {delivery.aborted_transactions}  # nothing of an answer tells it from others
        is_committed = self._isolation_level == READ_COMMITTED
        needed = [(aborted[mark.uid], mark.last_offset) for mark in found if is_committed and mark.uid in aborted]
        checks.aborted_transactions_are_those_of_the_answer(delivery, lists, needed)

    def _on_skip(self, topic_partition: TopicPartition, skip: Skip) -> None:
        position, end_offset = self.positions[topic_partition]
        self.on_losses()
        checks.skips_only_what_is_lost(topic_partition, position, skip.next_offset, skip.error, self.losses)
        self.positions[topic_partition] = (min(skip.next_offset, end_offset), end_offset)
        self.last_read.pop(topic_partition, None)

    def on_error(self, error: ConnectorError) -> None:
        """Take what ended the read."""
        self.on_losses()
        checks.ends_only_for_a_true_reason(error, self.positions, self.losses)

    def on_stuck(self, now_ms: int) -> None:
        """Take note of a read that does not end, long after all has healed."""
        self.on_losses()
        excused = {each for each in self.positions if self.losses.is_lossy(each)} | self.losses.unreachable
        checks.finishes_in_time(now_ms, {each: at for each, at in self.unfinished().items() if each not in excused})

    # ----------------------------------------------------------------------------------------------------- the truth

    def on_losses(self) -> None:
        """Find out what is lost of that which is read."""
        for each in self.positions:
            if not self._faults.exists(each):
                continue
            self._is_lossy(each, [self._last_touched[each]] if each in self._last_touched else [])
            self.on_bounds_told(each, self._cluster.log(each).log_start_offset)
            if self._cluster.leader(each) == NO_NODE:
                self.losses.unreachable.add(each)
            else:
                self.losses.unreachable.discard(each)

    def on_bounds_told(self, topic_partition: TopicPartition, log_start_offset: int) -> None:
        """Take note of where a leader's log began at some time."""
        starts = self.losses.log_start_offsets
        starts[topic_partition] = max(starts.get(topic_partition, 0), log_start_offset)

    def _is_lossy(self, topic_partition: TopicPartition, found: Iterable[Mark]) -> bool:
        """Tell whether the leader lacks batches that were planned or read, other than by retention or compaction."""
        if any(self._is_gone(topic_partition, mark) for mark in (*self._planned[topic_partition], *found)):
            self.losses.truncated.add(topic_partition)
        return self.losses.is_lossy(topic_partition)

    def _is_gone(self, topic_partition: TopicPartition, mark: Mark) -> bool:
        if not self._faults.exists(topic_partition):
            return True
        log = self._cluster.log(topic_partition)
        if mark.last_offset < log.log_start_offset:
            return False
        at = log.index_of(mark.base_offset)
        batch = log.batches[at] if at < len(log.batches) else None
        if batch is None or batch.base_offset != mark.base_offset:
            return topic_partition not in self._faults.compacted
        return batch.uid != mark.uid


def _mark(batch: Batch) -> Mark:
    return Mark(batch.base_offset, batch.last_offset, batch.uid, batch.leader_epoch)
