"""Incremental fetch sessions: what a broker remembers of a client's Fetch requests, and whom it forgets.

A session begins with a full request of epoch 0 and goes on with requests of epoch 1, 2 ..., which only tell changes;
the answers only tell news. The broker counts the epoch up when it accepts a request, before it reads anything.

Spec: KIP-227; KIP-516 (topic ids). Counterpart: ``FetchSession.scala`` (``FetchManager``, ``FetchContext``,
``FetchSessionCacheShard``).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from connector.model import (
    NO_EPOCH,
    NO_NODE,
    NO_TOPIC_ID,
    FetchPlan,
    ForgottenPartition,
    PartitionFetch,
    TopicPartition,
)
from connector.wire import error_codes as codes
from tests.model.reading import Read
from tests.model.settings import ModelSettings

__all__ = ["NOWHERE", "Answer", "CachedPartition", "FetchContext", "Session", "SessionCache"]

FIRST_VERSION_WITH_IDS: Final = 13
LAST_SESSION_EPOCH: Final = (1 << 31) - 1
NOT_TOLD: Final = -1
NOWHERE: Final = TopicPartition("", -1)

Key: TypeAlias = tuple[UUID | str, int]


class CachedPartition:
    """What is asked of one topic-partition, and what its session told of it last.

    `topic_partition` is the client's name for it. `location` is the broker's: resolved from the topic id as soon as
    that is known, and kept then, whatever becomes of the topic.
    """

    __slots__ = ("high_watermark", "key", "location", "log_start_offset", "request", "topic_partition")

    def __init__(self, request: PartitionFetch, *, uses_ids: bool) -> None:
        self.topic_partition: TopicPartition = request.topic_partition
        self.key: Key = (
            request.topic_id if uses_ids else request.topic_partition.topic,
            self.topic_partition.partition,
        )
        self.request = request
        self.location = NOWHERE
        self.high_watermark = self.log_start_offset = NOT_TOLD

    def resolve(self, names: Mapping[UUID, str], *, uses_ids: bool) -> None:
        """Find out which topic-partition is meant, unless that is known."""
        if self.location is NOWHERE:
            topic_name = names.get(self.request.topic_id) if uses_ids else self.topic_partition.topic
            if topic_name is not None:
                self.location = TopicPartition(topic_name, self.topic_partition.partition)

    def is_news(self, read: Read) -> bool:
        """Tell whether an incremental answer must name this topic-partition, and take down what it is told.

        A changed last stable offset alone is no news. After an error the next answer is news again.

        Counterpart: ``CachedPartition.maybeUpdateResponseData``.
        """
        is_error = read.error_code != codes.NONE
        is_changed = read.high_watermark != self.high_watermark or read.log_start_offset != self.log_start_offset
        self.high_watermark = NOT_TOLD if is_error else read.high_watermark
        self.log_start_offset = read.log_start_offset
        is_told_always = (
            bool(read.records) or read.preferred_read_replica != NO_NODE or read.diverging_epoch != NO_EPOCH
        )
        return is_changed or is_error or is_told_always


Answer: TypeAlias = tuple[CachedPartition, Read]


class Session:
    """One session. `size` is the number of topic-partitions when it was last used, which eviction goes by."""

    def __init__(self, session_id: int, partitions: Iterable[CachedPartition], now_ms: int) -> None:
        self.session_id = session_id
        self.session_epoch = 1
        self.partitions: dict[Key, CachedPartition] = {each.key: each for each in partitions}
        self.uses_ids = False
        self.is_privileged = False
        self.created_ms = self.last_used_ms = now_ms
        self.size = len(self.partitions)

    def update(self, requests: Iterable[CachedPartition], forgotten: Iterable[Key]) -> None:
        """Take down what an incremental request adds, changes and forgets, in this order."""
        for each in requests:
            known = self.partitions.setdefault(each.key, each)
            known.request = each.request
        for key in forgotten:
            self.partitions.pop(key, None)


class SessionCache:
    """A broker's sessions, in shards that are filled in turn and evict among themselves (since Kafka 3.8)."""

    def __init__(self, settings: ModelSettings, rng: random.Random) -> None:
        self._slots = settings.session_slots // settings.session_shards
        self._min_idle_ms = settings.min_session_idle_ms
        self._rng = rng
        self._shards: list[dict[int, Session]] = [{} for _ in range(settings.session_shards)]
        self._next_shard = 0

    def get(self, session_id: int) -> Session | None:
        """Return a session that is still known."""
        return next((shard[session_id] for shard in self._shards if session_id in shard), None)

    def remove(self, session_id: int) -> None:
        """Forget a session; one that is not known is no error."""
        for shard in self._shards:
            shard.pop(session_id, None)

    def all(self) -> Mapping[int, Sequence[TopicPartition]]:
        """Return what each session holds, in its order."""
        sessions = (session for shard in self._shards for session in shard.values())
        return {each.session_id: [held.topic_partition for held in each.partitions.values()] for each in sessions}

    def create(
        self, partitions: Sequence[CachedPartition], now_ms: int, *, uses_ids: bool, is_privileged: bool = False
    ) -> Session | None:
        """Make a session, if there is room or one that may be evicted."""
        shard = self._shards[self._next_shard]
        self._next_shard = (self._next_shard + 1) % len(self._shards)
        if len(shard) >= self._slots:
            victim = self._victim(shard, is_privileged, len(partitions), now_ms)
            if victim is None:
                return None
            del shard[victim.session_id]
        session_id = self._rng.randrange(1, LAST_SESSION_EPOCH)
        while self.get(session_id) is not None:
            session_id = self._rng.randrange(1, LAST_SESSION_EPOCH)
        session = shard[session_id] = Session(session_id, partitions, now_ms)
        session.uses_ids, session.is_privileged = uses_ids, is_privileged
        return session

    def _victim(self, shard: dict[int, Session], is_privileged: bool, size: int, now_ms: int) -> Session | None:
        """Choose whom a new session replaces (KIP-227, "Fetch Session Caching").

        First who has not been used for long. Else the least valuable of those that may be looked at, when it is
        worth strictly less than the new one: followers are worth more than consumers, then size counts. A consumer
        looks at sessions that have existed for long, a follower at all consumers' as well.
        """
        if not shard:
            return None
        oldest = min(shard.values(), key=lambda each: (each.last_used_ms, each.session_id))
        if now_ms - oldest.last_used_ms > self._min_idle_ms:
            return oldest
        candidates = [
            each
            for each in shard.values()
            if each.last_used_ms - each.created_ms > self._min_idle_ms or (is_privileged and not each.is_privileged)
        ]
        least = min(candidates, key=lambda each: (each.is_privileged, each.size, each.session_id), default=None)
        return least if least is not None and (least.is_privileged, least.size) < (is_privileged, size) else None


class FetchContext:
    """How one Fetch request is to be understood: what it asks for in all, and what its answer does to a session.

    Attributes
    ----------
    error_code : int
        Not 0: the request as a whole is refused.
    asked : list of CachedPartition
        Everything to be read, in order.
    """

    def __init__(
        self, cache: SessionCache, plan: FetchPlan, version: int, names: Mapping[UUID, str], now_ms: int
    ) -> None:
        self._cache = cache
        self._session: Session | None = None
        self._is_new_wanted = plan.session_epoch == 0
        self._uses_ids = version >= FIRST_VERSION_WITH_IDS
        self._expected_epoch = 0
        self.error_code = codes.NONE
        requests = [CachedPartition(each, uses_ids=self._uses_ids) for each in plan.partitions]
        self.asked = self._join_session(plan, requests, now_ms)
        for each in self.asked:
            each.resolve(names, uses_ids=self._uses_ids)

    def _join_session(self, plan: FetchPlan, requests: list[CachedPartition], now_ms: int) -> list[CachedPartition]:
        cache = self._cache
        if plan.session_epoch <= 0:
            cache.remove(plan.session_id)
            return requests
        session = cache.get(plan.session_id)
        self.error_code = self._refusal(session, plan.session_epoch)
        if session is None or self.error_code:
            return []
        told = (*plan.forgotten, *plan.replaced) if self._uses_ids else plan.forgotten
        session.update(requests, map(self._forgotten_key, told))
        if not session.partitions:  # a session without topic-partitions ends, and the answer says so by id 0
            cache.remove(plan.session_id)
            return requests
        session.last_used_ms, session.size = now_ms, len(session.partitions)
        session.session_epoch = plan.session_epoch % LAST_SESSION_EPOCH + 1  # counted up on arrival; after the last, 1
        self._session, self._expected_epoch = session, session.session_epoch
        return list(session.partitions.values())

    def _forgotten_key(self, forgotten: ForgottenPartition) -> Key:
        topic_partition, topic_id = forgotten
        return (topic_id if self._uses_ids else topic_partition.topic, topic_partition.partition)

    def _refusal(self, session: Session | None, session_epoch: int) -> int:
        if session is None:
            return codes.FETCH_SESSION_ID_NOT_FOUND
        if session.session_epoch != session_epoch:
            return codes.INVALID_FETCH_SESSION_EPOCH
        return codes.NONE if session.uses_ids == self._uses_ids else codes.FETCH_SESSION_TOPIC_ID_ERROR

    def topic_id(self, asked: CachedPartition) -> UUID:
        """Return the topic id that the client asked with, which a request by name can't tell."""
        return asked.request.topic_id if self._uses_ids else NO_TOPIC_ID

    @property
    def throttled_session_id(self) -> int:
        """The session id of an answer that only tells to wait: no session is made for it."""
        return self._session.session_id if self._session else 0

    def finish(self, answers: Sequence[Answer], now_ms: int) -> tuple[int, int, Sequence[Answer]]:
        """Return error code, session id and what is told; the session takes that down.

        In an incremental answer only news is told, and who got records goes to the back (KAFKA-12330). A request
        that came twice while this one waited has moved the session's epoch: then nothing is told.
        """
        session = self._session
        if session is None:
            if self._is_new_wanted:
                session = self._cache.create(self.asked, now_ms, uses_ids=self._uses_ids)
                for asked, read in answers:
                    asked.is_news(read)
            return self.error_code, session.session_id if session else 0, answers
        if session.session_epoch != self._expected_epoch:
            return codes.INVALID_FETCH_SESSION_EPOCH, session.session_id, ()
        told = [answer for answer in answers if answer[0].is_news(answer[1])]
        for asked, read in told:
            if read.records and asked.key in session.partitions:
                session.partitions[asked.key] = session.partitions.pop(asked.key)
        return codes.NONE, session.session_id, told
