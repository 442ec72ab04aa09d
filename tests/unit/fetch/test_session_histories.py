"""The client's half of a fetch session against the broker's (`tests/model/session_cache.py`), over random histories.

Whatever was lost, evicted or restarted: what the broker reads for an incremental request is what the client wants.
"""

from __future__ import annotations

import random
from enum import Enum, auto
from uuid import UUID

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from hypothesis.strategies import lists, sampled_from, tuples

from connector.fetch.session import SessionState, decide_session, plan_session, session_after_failure
from connector.model import NO_TOPIC_ID, FetchPlan, FetchReply, PartitionFetch, TopicPartition
from connector.wire import error_codes as codes
from tests.model.reading import Read
from tests.model.session_cache import FetchContext, SessionCache
from tests.model.settings import ModelSettings
from tests.unit.fetch.fetch_driver import Said

PARTITIONS = [TopicPartition(topic, each) for topic in "tu" for each in range(2)]


class Change(Enum):
    """What happens to one topic-partition, or its topic, between two requests."""

    WANTED = auto()
    MOVED = auto()
    DROPPED = auto()
    """Read to its end, paused or redirected."""
    RECREATED = auto()
    ID_LOST = auto()
    """The broker that was asked for metadata tells no topic ids."""


class Fate(Enum):
    """What becomes of a request."""

    NO_NEWS = auto()
    NEWS = auto()
    RECORDS = auto()
    THROTTLED = auto()
    ANSWER_LOST = auto()
    REQUEST_LOST = auto()
    EVICTED = auto()
    """The session's slot went to another client before."""
    RESTARTED = auto()
    """The broker restarted before."""


class SessionHistory(RuleBasedStateMachine):
    """One client and one broker. `is_forgotten` says that the broker may have forgotten the session."""

    def __init__(self) -> None:
        super().__init__()
        self.state = SessionState()
        self.wanted: dict[TopicPartition, PartitionFetch] = {}
        self.ids = {"t": UUID(int=1), "u": UUID(int=2)}
        self.topic_names = {topic_id: name for name, topic_id in self.ids.items()}
        self.high_watermark = 0
        self.is_forgotten = False
        self.unknown_session_count = 0

    @initialize(slots=sampled_from([8, 8, 8, 1, 0]))
    def start(self, slots: int) -> None:
        """Start the broker: with room for sessions, for one, for none."""
        self.settings = ModelSettings(session_slots=slots, session_shards=1)
        self.cache = SessionCache(self.settings, random.Random(7))

    @rule(
        changed=lists(tuples(sampled_from(PARTITIONS), sampled_from([*Change] + [Change.WANTED] * 3)), max_size=4),
        fate=sampled_from([*Fate] + [Fate.NO_NEWS, Fate.NEWS, Fate.RECORDS] * 3),
    )
    def round_trip(self, changed: list[tuple[TopicPartition, Change]], fate: Fate) -> None:
        """Change what is wanted, and send a request if there is one to send."""
        for name, change in changed:
            self.change(name, change)
        if not self.wanted and not self.state.is_live:
            return
        if fate is Fate.EVICTED:
            self.cache.remove(self.state.session_id)
        elif fate is Fate.RESTARTED:
            self.cache, self.unknown_session_count = SessionCache(self.settings, random.Random(8)), 0
        self.is_forgotten |= fate in (Fate.EVICTED, Fate.RESTARTED)
        if fate is not Fate.REQUEST_LOST:
            self.ask(fate)
        else:
            self.state = session_after_failure(self.state)

    def change(self, name: TopicPartition, change: Change) -> None:
        """Change what is wanted."""
        if change is Change.DROPPED:
            self.wanted.pop(name, None)
            return
        if change in (Change.RECREATED, Change.ID_LOST):
            topic_id = UUID(int=len(self.topic_names) + 1) if change is Change.RECREATED else NO_TOPIC_ID
            self.ids[name.topic], self.topic_names[topic_id] = topic_id, name.topic
        fetch_offset = self.high_watermark if change is Change.MOVED else 0
        again = {each for each in self.wanted if each.topic == name.topic and change is Change.RECREATED}
        for each in again | {name}:
            self.wanted[each] = PartitionFetch(each, fetch_offset, 1_000, 5, self.ids[each.topic])

    def ask(self, fate: Fate) -> None:
        """Send what is wanted, and take the answer or lose it."""
        request = plan_session(self.state, tuple(self.wanted.values()))
        plan = FetchPlan(
            node_id=1, rack="", max_wait_ms=0, min_bytes=1, max_bytes=1, isolation_level=0, **request._asdict()
        )
        named = {each.topic_id for each in self.wanted.values()} | {each.topic_id for each in plan.forgotten}
        context = self.accept(plan, 12 if NO_TOPIC_ID in named else 16)
        reply = self.answer(context, fate)
        if fate is Fate.ANSWER_LOST:
            self.state = session_after_failure(self.state)
            self.unknown_session_count += reply.session_id not in (0, plan.session_id)
            return
        verdict = decide_session(plan, tuple(self.wanted.values()), reply)
        assert verdict.rule.is_data_used or reply.error_code != codes.NONE or fate is Fate.THROTTLED
        self.state = verdict.next_state
        if self.state.is_live:
            session = self.cache.get(self.state.session_id)
            assert session is not None
            assert session.session_epoch == self.state.session_epoch
            self.is_forgotten = False
        assert len(self.cache.all()) <= 1 + self.unknown_session_count, "a session that is left is dropped"

    def accept(self, plan: FetchPlan, version: int) -> FetchContext:
        """Let the broker take a request; it may refuse what it forgot, and names where it was told ids."""
        session = self.cache.get(plan.session_id)
        context = FetchContext(self.cache, plan, version, self.topic_names, 0)
        if context.error_code == codes.FETCH_SESSION_ID_NOT_FOUND:
            assert self.is_forgotten
        elif context.error_code == codes.FETCH_SESSION_TOPIC_ID_ERROR:
            assert session is not None
            assert session.uses_ids == (version == 12)
        else:
            assert context.error_code == codes.NONE
            assert {each.topic_partition: each.request for each in context.asked} == self.wanted
        return context

    def answer(self, context: FetchContext, fate: Fate) -> FetchReply:
        """Return what the broker says: an incremental answer tells only news."""
        if fate is Fate.THROTTLED and context.error_code == codes.NONE:
            return FetchReply(100, codes.NONE, context.throttled_session_id, ())
        self.high_watermark += fate is not Fate.NO_NEWS
        records = memoryview(b"r" * (fate is Fate.RECORDS))
        read = Read(high_watermark=self.high_watermark, log_start_offset=0, records=records)
        error_code, session_id, told = context.finish([(each, read) for each in context.asked], 0)
        partitions = tuple(Said().reply(each.topic_partition) for each, _ in told)
        return FetchReply(0, error_code, session_id, partitions)


SessionHistory.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestSessionHistory = SessionHistory.TestCase
