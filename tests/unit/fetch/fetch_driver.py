"""Drives the fetch engine in virtual time: carries out what it plans, and answers what a test's broker says.

One topic ``t`` of three partitions, led by broker 1, with replicas on brokers 1, 2 and 3 in az-a, az-b and az-c; we are
in az-b. Jitter is in the middle, so pauses are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from uuid import UUID

from connector.fetch.actions import (
    Action,
    EngineSettings,
    FetchEvents,
    SendFetch,
    SendListOffsets,
    SendMetadata,
    SendOffsetForLeaderEpoch,
)
from connector.fetch.engine import FetchEngine
from connector.fetch.progress import Backoff
from connector.model import (
    NO_EPOCH,
    NO_NODE,
    ClusterView,
    EpochAnswer,
    FetchReply,
    Node,
    OffsetAnswer,
    OffsetRange,
    PartitionInfo,
    PartitionReply,
    RecordsScan,
    ReplicaChange,
    TopicPartition,
)

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))
LEADER, FOLLOWER, OTHER = 1, 2, 3
EPOCH: Final = 5
TOPIC_ID: Final = UUID(int=70)
SETTINGS: Final = EngineSettings(
    rack="az-b",
    follower_wait_ms=700,
    progress_timeout_ms=120_000,
    metadata_max_age_ms=300_000,
    error_backoff=Backoff(100, 1_000),
    fetch_max_bytes=50_000_000,
    partition_max_bytes=1_000_000,
    fetch_max_wait_ms=500,
    fetch_min_bytes=1,
)
NODES: Final = {each: Node(each, f"h{each}", 9000 + each, f"az-{'abc'[each - 1]}") for each in (1, 2, 3)}

_Kind = TypeVar("_Kind", bound=Action)


def info(
    topic_partition: TopicPartition = T0,
    leader: int = LEADER,
    epoch: int = EPOCH,
    *,
    code: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] | None = None,
    offline: tuple[int, ...] = (),
) -> PartitionInfo:
    """What metadata says of one topic-partition."""
    return PartitionInfo(topic_partition, code, leader, epoch, replicas, replicas if isr is None else isr, offline)


def view(
    *changed: PartitionInfo,
    leader: int = LEADER,
    epoch: int = EPOCH,
    nodes: Mapping[int, Node] = NODES,
    topic_id: UUID | None = TOPIC_ID,
) -> ClusterView:
    """Metadata of the topic: its three partitions alike, but for those that are given."""
    infos = {each: info(each, leader, epoch) for each in (T0, T1, T2)} | {
        each.topic_partition: each for each in changed
    }
    return ClusterView(nodes=dict(nodes), partitions=infos, topic_ids={} if topic_id is None else {"t": topic_id})


@dataclass(frozen=True)
class Said:
    """What a broker says of one topic-partition. `next_offset` stands for record batches up to there.

    An error leaves high watermark, last stable offset and log start at -1, as brokers do (reference 3.3).
    """

    next_offset: int = -1
    code: int = 0
    high_watermark: int = 1_000
    last_stable_offset: int | None = None
    preferred: int = NO_NODE
    leader: tuple[int, int] = (NO_NODE, NO_EPOCH)
    diverging: tuple[int, int] = (NO_EPOCH, -1)
    batch_epoch: int = EPOCH
    size_bytes: int = 1_000
    aborted: tuple[tuple[int, int], ...] = ()

    def reply(self, topic_partition: TopicPartition) -> PartitionReply:
        """Return the answer for a topic-partition."""
        stable = self.high_watermark if self.last_stable_offset is None else self.last_stable_offset
        offsets = (-1, -1, -1) if self.code else (self.high_watermark, stable, 0)
        records = memoryview(b"r" * (self.size_bytes if self.next_offset >= 0 else 0))
        return PartitionReply(
            topic_partition, self.code, *offsets, self.preferred, records, *self.leader, *self.diverging, self.aborted
        )

    def scan(self) -> RecordsScan:
        """Return what the headers of the records tell."""
        return RecordsScan(self.next_offset, 1, 10, self.size_bytes, self.batch_epoch)


class Driver:
    """Carries out what the engine plans, in virtual time, and hands it the answers of a test.

    Parameters
    ----------
    shipped : ClusterView or None
        The planner's view of the cluster.
    """

    def __init__(
        self,
        *ranges: OffsetRange,
        settings: EngineSettings = SETTINGS,
        shipped: ClusterView | None = None,
        jitter: float = 0.5,
        **changed: Any,
    ) -> None:
        self.now_ms = 1_000
        self.settings = replace(settings, **changed)
        self.engine = FetchEngine(self.settings, lambda: jitter, unix_ms_at_zero=1_000_000)
        self.metadata_count = 0
        self.start(*ranges, shipped=view() if shipped is None else shipped)

    def start(self, *ranges: OffsetRange, shipped: ClusterView | None = None) -> FetchEvents:
        """Begin a read."""
        return self.engine.on_read_started(ranges, shipped, self.now_ms)

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass."""
        self.now_ms += duration_ms

    def actions(self) -> tuple[Action, ...]:
        """Send all that is due at this moment."""
        actions = self.engine.plan(self.now_ms)
        assert actions == self.engine.plan(self.now_ms), "plan changes nothing"
        for action in actions:
            self.engine.on_sent(action, self.now_ms)
            self.metadata_count += isinstance(action, SendMetadata)
        return actions

    def only(self, kind: type[_Kind]) -> _Kind:
        """Send what is due, and return the one action of a kind in it, which is all but for Metadata."""
        (action,) = [each for each in self.actions() if not isinstance(each, SendMetadata)]
        assert isinstance(action, kind)
        return action

    def fetch(self) -> SendFetch:
        """Return the one Fetch that is due at this moment."""
        return self.only(SendFetch)

    def fetches(self) -> dict[int, SendFetch]:
        """Return the Fetch requests that are due at this moment, by node."""
        return {each.plan.node_id: each for each in self.actions() if isinstance(each, SendFetch)}

    def next_action(self, truth: ClusterView | None = None, *, within_ms: int = 60_000) -> Action:
        """Go from one instant of the engine's to the next until something but Metadata is due, and return it.

        `truth` is what Metadata requests on the way are answered with; without it they stay unanswered.
        """
        deadline_ms = self.now_ms + within_ms
        while self.now_ms <= deadline_ms:
            actions = self.actions()
            others = [each for each in actions if not isinstance(each, SendMetadata)]
            if len(others) < len(actions) and truth is not None:
                self.metadata(truth)
            if others:
                (action,) = others
                return action
            if not actions or truth is None:
                wake_ms = self.engine.wake_at_ms(self.now_ms)
                assert wake_ms > self.now_ms, "waking at once again would be a busy loop"
                self.now_ms = wake_ms
        raise AssertionError(f"nothing is asked within {within_ms} ms")

    def next_due(self, kind: type[_Kind], truth: ClusterView | None = None, *, within_ms: int = 60_000) -> _Kind:
        """Go on until something but Metadata is due, which is of this kind, and return it."""
        action = self.next_action(truth, within_ms=within_ms)
        assert isinstance(action, kind)
        return action

    def next_fetch(self, truth: ClusterView | None = None, *, within_ms: int = 60_000) -> SendFetch:
        """Go on until a Fetch is due, and return it."""
        return self.next_due(SendFetch, truth, within_ms=within_ms)

    def to_follower(self) -> SendFetch:
        """Be redirected to the follower, and return the first Fetch that is sent there."""
        self.answer(self.fetch(), preferred=FOLLOWER)
        sent = self.fetch()
        assert sent.plan.node_id == FOLLOWER
        return sent

    def answer(
        self,
        sent: SendFetch,
        parts: Mapping[TopicPartition, Said] | None = None,
        *,
        error_code: int = 0,
        session_id: int = 0,
        throttle_ms: int = 0,
        nodes: Iterable[Node] = (),
        unknown_ids: Iterable[UUID] = (),
        **said: Any,
    ) -> FetchEvents:
        """Answer a Fetch: as `parts` say, or every topic-partition alike; a request that fails as a whole has none."""
        if parts is None:
            parts = {} if error_code else dict.fromkeys(sent.asked, Said(**said))
        reply = FetchReply(
            throttle_ms=throttle_ms,
            error_code=error_code,
            session_id=session_id,
            partitions=tuple(part.reply(each) for each, part in parts.items()),
            nodes=tuple(nodes),
            unknown_topic_ids=tuple(unknown_ids),
        )
        scans = {each: part.scan() for each, part in parts.items() if part.next_offset >= 0}
        return self.engine.on_fetch_reply(sent, reply, scans, self.now_ms)

    def metadata(self, cluster: ClusterView) -> FetchEvents:
        """Take a Metadata answer."""
        return self.engine.on_metadata(cluster, self.now_ms)

    def fail(self, sent: Action, problem: str = "no answer") -> FetchEvents:
        """Let a request go without an answer."""
        return self.engine.on_node_failed(sent, problem, self.now_ms)

    def offsets(self, sent: SendListOffsets, log_offset: int, code: int = 0) -> FetchEvents:
        """Answer every query of a ListOffsets alike."""
        answers = [OffsetAnswer(each.topic_partition, code, -1 if code else log_offset) for each in sent.queries]
        return self.engine.on_offsets(sent, answers, self.now_ms)

    def epoch_ends(self, sent: SendOffsetForLeaderEpoch, epoch: int, end_offset: int, code: int = 0) -> FetchEvents:
        """Answer every query of an OffsetForLeaderEpoch alike."""
        answers = [EpochAnswer(each.topic_partition, code, epoch, end_offset) for each in sent.queries]
        return self.engine.on_epoch_end_offsets(sent, answers, self.now_ms)

    def preferred(self, topic_partition: TopicPartition = T0) -> int:
        """Return the replica under lease, or -1."""
        return self.engine.preferred_replica(topic_partition, self.now_ms)


def where(sent: SendFetch) -> tuple[int, int | None]:
    """Return which node is asked, and in which version at most: 10 is the form that a leader never redirects."""
    return sent.plan.node_id, sent.max_version


def token(sent: SendFetch) -> tuple[int, int]:
    """Return session id and epoch of a Fetch."""
    return sent.plan.session_id, sent.plan.session_epoch


def positions(sent: SendFetch) -> dict[TopicPartition, int]:
    """Return what a Fetch tells, in the order in which it tells it."""
    return {each.topic_partition: each.fetch_offset for each in sent.plan.partitions}


def changes(events: FetchEvents) -> list[ReplicaChange | None]:
    """Return why topic-partitions are read elsewhere, in the order of the decisions."""
    return [each.change for each in events.decisions]


def spans(events: FetchEvents) -> list[tuple[TopicPartition, int, int]]:
    """Return what is delivered, as topic-partition, first and end offset."""
    return [(each.topic_partition, each.start_offset, each.end_offset) for each in events.deliveries]
