"""One broker's Fetch: request, read, long poll, answer.

An answer is due at once when there is nothing to wait for, enough bytes, an error of the read, a redirect, or an
offset above what may be read (a client that asks again at once spins then). Otherwise the request is parked until
enough can be read, something breaks, or its time is up; then everything is read anew.

Spec: KIP-74 (size limits), KIP-219 (throttling), KIP-227, KIP-392 (redirects), KIP-516 (topic ids), KIP-951 (current
leader). Counterpart: ``KafkaApis.handleFetchRequest``, ``ReplicaManager.fetchMessages``, ``DelayedFetch``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from connector.model import (
    NO_EPOCH,
    NO_NODE,
    NO_TOPIC_ID,
    READ_COMMITTED,
    FetchPlan,
    FetchReply,
    PartitionReply,
    TopicPartition,
)
from connector.wire import error_codes as codes
from tests.model.broker import Broker
from tests.model.log import EMPTY
from tests.model.reading import Isolation, Read, end_of, read_replica
from tests.model.replication import Replica
from tests.model.selector import ReplicaView, Selector
from tests.model.session_cache import NOWHERE, Answer, CachedPartition, FetchContext
from tests.model.settings import ModelSettings
from tests.model.timers import Timer, Timers

__all__ = ["FetchService", "ParkedFetch"]

FIRST_VERSION_WITH_EPOCHS: Final = 9
FIRST_VERSION_WITH_ZSTD: Final = 10
FIRST_VERSION_WITH_RACK: Final = 11
FIRST_VERSION_WITH_LEADER_HINTS: Final = 16
OLDEST_VERSION: Final = 4
_HINTED: Final = frozenset({codes.NOT_LEADER_OR_FOLLOWER, codes.FENCED_LEADER_EPOCH})


class ParkedFetch:
    """A request that has been accepted and not been answered.

    Attributes
    ----------
    refused : list of (CachedPartition, Read)
        What can't be read, as was clear on arrival: such topic-partitions shorten no wait, and are answered as found.
    waits_for : list of CachedPartition
        Whose records or errors may end the wait.
    timer : Timer
        Wakes it: at `expires_ms`, or earlier when something changed that it may wait for.
    """

    def __init__(
        self,
        plan: FetchPlan,
        version: int,
        context: FetchContext,
        expires_ms: int,
        deliver: Callable[[FetchReply], None],
    ) -> None:
        self.plan, self.version, self.context = plan, version, context
        self.expires_ms, self.deliver = expires_ms, deliver
        is_committed = plan.isolation_level == READ_COMMITTED
        self.isolation = Isolation.LAST_STABLE_OFFSET if is_committed else Isolation.HIGH_WATERMARK
        self.readable: list[CachedPartition] = []
        self.refused: list[Answer] = []
        self.waits_for: list[CachedPartition] = []
        self.timer = Timer(lambda: None)

    def epoch_of(self, asked: CachedPartition) -> int:
        """Return the leader epoch that the client knows, or `NO_EPOCH`."""
        return asked.request.current_leader_epoch if self.version >= FIRST_VERSION_WITH_EPOCHS else NO_EPOCH

    @property
    def is_leader_only(self) -> bool:
        """Whether the request has no place for a rack: only leaders serve it, and never redirect (KAFKA-9004)."""
        return self.version < FIRST_VERSION_WITH_RACK


class FetchService:
    """Serves Fetch on one broker."""

    def __init__(self, broker: Broker, settings: ModelSettings, timers: Timers, selector: Selector) -> None:
        self._broker, self._settings, self._timers, self._selector = broker, settings, timers, selector
        self._parked: dict[ParkedFetch, None] = {}

    def on_fetch(self, plan: FetchPlan, version: int, deliver: Callable[[FetchReply], None]) -> None:
        """Accept a request; `deliver` is called once, now or later, unless the broker stops before."""
        if not OLDEST_VERSION <= version <= self._settings.max_fetch_version:
            raise ValueError(
                f"Fetch version {version} is not spoken here; the newest is {self._settings.max_fetch_version}"
            )
        broker, now_ms = self._broker, self._timers.now_ms
        context = FetchContext(broker.sessions, plan, version, broker.topic_names, now_ms)
        if context.error_code == codes.NONE and now_ms < broker.throttled_until_ms:
            wait_ms = broker.throttled_until_ms - now_ms
            deliver(FetchReply(wait_ms, codes.NONE, context.throttled_session_id, ()))
            return
        fetch = ParkedFetch(plan, version, context, now_ms + plan.max_wait_ms, deliver)
        for asked in context.asked:
            error_code = self._refusal(asked)
            if error_code == codes.NONE:
                fetch.readable.append(asked)
            else:
                fetch.refused.append((asked, Read(error_code)))
        reads = self._read_all(fetch)
        fetch.waits_for = [asked for asked, read in reads if read.preferred_read_replica == NO_NODE]
        if self._is_answer_due(fetch, reads) or self._is_satisfied(fetch):
            self._answer(fetch, reads)
            return
        fetch.timer.action = lambda: self._on_woken(fetch)
        self._parked[fetch] = None
        self._timers.set(fetch.timer, fetch.expires_ms)

    def on_replica_changed(self, topic_partition: TopicPartition) -> None:
        """Wake who waits for this topic-partition; whether that helps is looked at then."""
        for fetch in self._parked:
            if any(topic_partition == each.location for each in fetch.waits_for):
                self._timers.hasten(fetch.timer, self._timers.now_ms)

    def stop(self) -> None:
        """Forget what was not answered."""
        for fetch in self._parked:
            fetch.timer.due_ms = None
        self._parked.clear()

    def _on_woken(self, fetch: ParkedFetch) -> None:
        if self._timers.now_ms < fetch.expires_ms and not self._is_satisfied(fetch):
            self._timers.set(fetch.timer, fetch.expires_ms)
            return
        del self._parked[fetch]
        self._answer(fetch, self._read_all(fetch))

    # ------------------------------------------------------------------------------------------------ when to answer

    def _is_answer_due(self, fetch: ParkedFetch, reads: Sequence[Answer]) -> bool:
        """Tell whether the first read is answered at once."""
        return (
            not reads
            or fetch.plan.max_wait_ms <= 0
            or any(read.error_code or read.diverging_epoch != NO_EPOCH or read.is_remote for _, read in reads)
            or (len(fetch.waits_for) < len(reads) and not self._settings.holds_redirects)
            or sum(len(read.records) for _, read in reads) >= fetch.plan.min_bytes
        )

    def _is_satisfied(self, fetch: ParkedFetch) -> bool:
        """Tell whether a request need not wait any longer (``DelayedFetch.tryComplete``)."""
        available = 0
        for asked in fetch.waits_for:
            replica = self._replica(fetch, asked)
            if isinstance(replica, int):
                return True
            fetch_offset, end_offset = asked.request.fetch_offset, end_of(replica.log, fetch.isolation)
            if fetch_offset > end_offset:
                return True
            if fetch_offset < end_offset:
                found = replica.log.bytes_between(fetch_offset, end_offset)
                available += min(found, asked.request.partition_max_bytes)
        return available >= fetch.plan.min_bytes

    # --------------------------------------------------------------------------------------------------------- read

    def _refusal(self, asked: CachedPartition) -> int:
        """Return the error code of what this broker has never heard of, before anything is read."""
        if asked.location is NOWHERE:
            return codes.UNKNOWN_TOPIC_ID
        return codes.NONE if asked.location in self._broker.partitions else codes.UNKNOWN_TOPIC_OR_PARTITION

    def _read_all(self, fetch: ParkedFetch) -> list[Answer]:
        """Read in order, within the request's size and the broker's.

        The first topic-partition with records gives one batch at least, whatever the limits. Of those that need the
        remote log only the first is served (KIP-405).
        """
        budget = min(fetch.plan.max_bytes, self._settings.fetch_max_bytes)
        must_give_one, is_remote_used = True, False
        reads = []
        for asked in fetch.readable:
            read = self._read(fetch, asked, budget, must_give_one)
            if read.is_remote and is_remote_used:
                read = read._replace(records=EMPTY, aborted_transactions=())
            is_remote_used |= read.is_remote
            must_give_one &= not read.records
            budget = max(0, budget - len(read.records))
            reads.append((asked, read))
        return reads

    def _read(self, fetch: ParkedFetch, asked: CachedPartition, budget: int, must_give_one: bool) -> Read:
        """Read one topic-partition: first whether that may be, then whether elsewhere, and only then its log."""
        replica = self._replica(fetch, asked)
        if isinstance(replica, int):
            return Read(replica)
        preferred = self._preferred_replica(replica, fetch, asked.request.fetch_offset)
        if preferred != NO_NODE:
            log = replica.log
            state = Read(codes.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
            return state._replace(preferred_read_replica=preferred)
        return read_replica(
            replica,
            asked.request,
            fetch.isolation,
            self._settings,
            max_bytes=min(budget, asked.request.partition_max_bytes),
            must_give_one=must_give_one,
        )

    def _replica(self, fetch: ParkedFetch, asked: CachedPartition) -> Replica | int:
        """Return the replica to read, or the error code: is it here, under this topic id, in this leader epoch."""
        replica = self._broker.lookup(asked.location)
        if isinstance(replica, int):
            return replica
        if fetch.context.topic_id(asked) not in (NO_TOPIC_ID, replica.topic_id):
            return codes.INCONSISTENT_TOPIC_ID
        return replica.check(fetch.epoch_of(asked), needs_leader=fetch.is_leader_only) or replica

    def _preferred_replica(self, leader: Replica, fetch: ParkedFetch, fetch_offset: int) -> int:
        """Return whom the leader names instead of itself, or `NO_NODE`.

        Candidates are in sync (KAFKA-14372), have reported that they hold the offset, and are alive by this broker's
        own knowledge (KAFKA-15390).

        Spec: KIP-392. Counterpart: ``ReplicaManager.findPreferredReadReplica``.
        """
        if fetch.is_leader_only or not leader.is_leader:
            return NO_NODE
        now_ms, racks, own_id = self._timers.now_ms, self._settings.racks, self._broker.broker_id
        candidates = [ReplicaView(own_id, racks[own_id - 1], leader.log.log_end_offset, 0)]
        for each, state in leader.followers.items():
            is_in_sync = self._settings.redirects_to_lagging or each in leader.image.isr_ids
            holds_it = state.log_start_offset <= fetch_offset <= state.log_end_offset
            if is_in_sync and holds_it and each in self._broker.alive_ids:
                view = ReplicaView(each, racks[each - 1], state.log_end_offset, now_ms - state.caught_up_ms)
                candidates.append(view)
        chosen = self._selector(fetch.plan.rack, candidates)
        return NO_NODE if chosen == own_id else chosen

    # ------------------------------------------------------------------------------------------------------- answer

    def _answer(self, fetch: ParkedFetch, reads: Sequence[Answer]) -> None:
        if fetch.version < FIRST_VERSION_WITH_ZSTD:
            reads = [(asked, self._without_zstd(asked, read)) for asked, read in reads]
        error_code, session_id, told = fetch.context.finish([*reads, *fetch.refused], self._timers.now_ms)
        hints = fetch.version >= FIRST_VERSION_WITH_LEADER_HINTS
        replies = tuple(self._partition_reply(fetch, asked, read, hints=hints) for asked, read in told)
        leader_ids = {each.current_leader_id for each in replies if each.current_leader_id != NO_NODE}
        nodes = tuple(self._broker.node(each) for each in sorted(leader_ids & self._broker.alive_ids))
        fetch.deliver(FetchReply(0, error_code, session_id, replies, nodes))

    def _without_zstd(self, asked: CachedPartition, read: Read) -> Read:
        """Refuse what was read to a client that can't decompress it, by the topic's setting alone (KIP-110)."""
        is_zstd = self._broker.compression_types.get(asked.location.topic) == "zstd"
        return Read(codes.UNSUPPORTED_COMPRESSION_TYPE) if is_zstd and read.error_code == codes.NONE else read

    def _partition_reply(
        self, fetch: ParkedFetch, asked: CachedPartition, read: Read, *, hints: bool
    ) -> PartitionReply:
        leader_id, leader_epoch = NO_NODE, NO_EPOCH
        if hints and read.error_code in _HINTED and asked.location in self._broker.partitions:
            leader_id, leader_epoch = self._broker.partitions[asked.location][:2]
        return PartitionReply(
            asked.topic_partition,
            read.error_code,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            read.preferred_read_replica,
            read.records,
            leader_id,
            leader_epoch,
            read.diverging_epoch,
            read.diverging_end_offset,
            read.aborted_transactions,
            fetch.context.topic_id(asked),
        )
