"""Histories: what kind of cluster, what is read, and what goes wrong when, all drawn from one seed.

A history is a frozen value without any state of a run, so it prints, compares and runs again. Which offsets a read
is about is not part of it: its planner asks the cluster when its time comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final, Literal

from connector.config.settings import ReplicaSelection, SessionUse
from connector.fetch.actions import EngineSettings
from connector.fetch.progress import Backoff
from connector.model import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from tests.model.network import NetworkSettings
from tests.model.selector import ReplicaView
from tests.model.settings import ModelSettings

__all__ = [
    "FOREVER_MS",
    "START_MS",
    "Event",
    "History",
    "Kind",
    "PlannerView",
    "ReadPlan",
    "TopicPlan",
    "Writes",
    "draw_history",
]

START_MS: Final = 2_000
"""When the first read begins: until then what was written at 0 is everywhere."""
READ_INTERVAL_MS: Final = 2_000
"""From read to read, if they do not take longer."""
FOREVER_MS: Final = 1_000_000_000
"""Duration of what never heals."""


class Kind(StrEnum):
    """What can happen. Comments tell which fields of `Event` count, besides `at_ms`."""

    # Between client and brokers:
    CUT = "cut"  # node_id
    REFUSE = "refuse"  # node_id, duration_ms
    HOLD = "hold"  # node_id, duration_ms
    SLOW = "slow"  # node_id, duration_ms, amount: milliseconds
    LOSE_REQUEST = "lose_request"  # node_id, duration_ms: how long it waits for one
    LOSE_ANSWER = "lose_answer"  # node_id, duration_ms: how long it waits for one
    # In the client:
    PAUSE_CONSUMER = "pause_consumer"  # duration_ms
    # In the cluster:
    STOP = "stop"  # node_id, duration_ms
    CRASH = "crash"  # node_id, duration_ms
    THROTTLE = "throttle"  # node_id, duration_ms
    CROWD = "crowd"  # node_id, amount: sessions that other clients begin
    PAUSE_REPLICATION = "pause_replication"  # topic_partition, node_id: the follower, duration_ms
    ELECT = "elect"  # topic_partition, node_id: the leader
    REASSIGN = "reassign"  # topic_partition, node_id: the replica that goes, amount: the one that comes
    PRODUCE = "produce"  # topic_partition, amount: records
    TRANSACTION = "transaction"  # topic_partition, duration_ms: while it is open, amount: 0 abort, 1 commit
    COMPACT = "compact"  # topic_partition
    EXPIRE_LOCAL = "expire_local"  # topic_partition, node_id: on whose disks, amount: percent of the log
    # What loses data:
    DELETE_RECORDS = "delete_records"  # topic_partition, amount: percent of the log
    ELECT_UNCLEAN = "elect_unclean"  # topic_partition, node_id: the leader
    DIVERGE = "diverge"  # topic_partition, node_id: who falls behind, duration_ms: until it leads, amount: records
    DELETE_TOPIC = "delete_topic"  # topic_partition: any of it
    RECREATE_TOPIC = "recreate_topic"  # topic_partition: any of it, duration_ms: between deletion and creation


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens, and for how long it lasts where it does. `Kind` tells what the fields mean."""

    at_ms: int
    kind: Kind
    node_id: int = -1
    topic_partition: TopicPartition | None = None
    duration_ms: int = 0
    amount: int = 0

    def __str__(self) -> str:
        """Return the event with the fields that count."""
        what = f" {self.topic_partition}" if self.topic_partition else ""
        node = f" broker {self.node_id}" if self.node_id >= 0 else ""
        lasting = f" for {self.duration_ms} ms" if self.duration_ms else ""
        return f"{self.at_ms:>6} ms  {self.kind}{what}{node}{lasting}{f' ({self.amount})' if self.amount else ''}"


class PlannerView(StrEnum):
    """What view of the cluster a planner ships with its ranges."""

    NONE = "none"
    FIRST = "first"
    """As it was before anything happened."""
    WITHOUT_IDS = "without ids"
    """As it is, without topic ids: from a broker or a planner that does not tell them."""
    FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic, and the replicas of each of its partitions, the first one to lead first."""

    name: str
    assignments: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Writes:
    """Record batches that are written to a topic-partition at once: how many, of how many records and bytes each."""

    topic_partition: TopicPartition
    batch_count: int
    record_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One read, and what is written ahead of it.

    Attributes
    ----------
    at_ms : int
        When it begins, if the one before has ended.
    gap_ms : int
        Between the writes and the read: what was written may not be everywhere by then.
    offset_limit : int
        A range is no longer than this.
    knows_epoch, knows_topic_id : bool
        Whether ranges carry them.
    abandon_after_ms : int
        The read is given up after so long and tried again; 0 is never.
    """

    writes: tuple[Writes, ...]
    topic_partitions: tuple[TopicPartition, ...]
    at_ms: int
    gap_ms: int
    view: PlannerView
    offset_limit: int
    knows_epoch: bool
    knows_topic_id: bool
    abandon_after_ms: int = 0

    def __str__(self) -> str:
        """Return the read in one line."""
        written = ", ".join(
            f"{each.topic_partition} {each.batch_count}x{each.record_count} ({each.size_bytes} B)"
            for each in self.writes
        )
        read = " ".join(map(str, self.topic_partitions))
        known = [name for name in ("knows_epoch", "knows_topic_id") if getattr(self, name)]
        given_up = f", given up after {self.abandon_after_ms} ms" if self.abandon_after_ms else ""
        return (
            f"{self.at_ms:>6} ms  read {read}; limit {self.offset_limit}, view {self.view}, "
            f"{' '.join(known)}{given_up}; {self.gap_ms} ms before: {written}"
        )


@dataclass(frozen=True, slots=True)
class History:
    """All that a run depends on."""

    seed: int
    cluster: ModelSettings
    network: NetworkSettings
    engine: EngineSettings
    topics: tuple[TopicPlan, ...]
    reads: tuple[ReadPlan, ...]
    events: tuple[Event, ...] = field(default=())


def draw_history(seed: int) -> History:
    """Return the history of a seed."""
    rng = Random(seed)
    cluster = _draw_cluster(rng)
    topics = _draw_topics(rng, len(cluster.racks))
    topic_partitions = tuple(TopicPartition(topic.name, at) for topic in topics for at in range(len(topic.assignments)))
    reads = tuple(
        _draw_read(rng, topic_partitions, START_MS + at * READ_INTERVAL_MS) for at in range(rng.randint(1, 5))
    )
    kinds = rng.sample(_KINDS_BY_THEME[_draw_theme(rng)], k=rng.randint(1, 4))
    events = [
        _draw_event(rng, rng.choice(kinds), _draw_instant(rng, reads), topics)
        for _ in range(rng.choice((0, 1, 3, 6, 10, 16)))
    ]
    return History(
        seed=seed,
        cluster=cluster,
        network=_draw_network(rng),
        engine=_draw_engine(rng, cluster),
        topics=topics,
        reads=reads,
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
    )


_K = Kind
_KINDS_BY_THEME: Final = {
    "network": (_K.CUT, _K.REFUSE, _K.HOLD, _K.SLOW, _K.LOSE_REQUEST, _K.LOSE_ANSWER, _K.PAUSE_CONSUMER),
    "replicas": (_K.STOP, _K.CRASH, _K.PAUSE_REPLICATION, _K.ELECT, _K.REASSIGN, _K.PRODUCE, _K.THROTTLE),
    "leaders": (_K.ELECT, _K.ELECT, _K.PRODUCE, _K.STOP, _K.HOLD),
    "logs": (_K.PRODUCE, _K.TRANSACTION, _K.COMPACT, _K.EXPIRE_LOCAL, _K.PAUSE_REPLICATION, _K.ELECT),
    "sessions": (_K.CROWD, _K.LOSE_ANSWER, _K.LOSE_REQUEST, _K.CUT, _K.ELECT, _K.RECREATE_TOPIC, _K.CRASH),
    "mixed": (_K.LOSE_ANSWER, _K.HOLD, _K.CUT, _K.STOP, _K.ELECT, _K.PAUSE_REPLICATION, _K.TRANSACTION),
    "loss": (_K.DELETE_RECORDS, _K.EXPIRE_LOCAL, _K.ELECT_UNCLEAN, _K.RECREATE_TOPIC, _K.LOSE_ANSWER, _K.CRASH),
    "truncation": (_K.DIVERGE, _K.DIVERGE, _K.ELECT, _K.PRODUCE, _K.PAUSE_CONSUMER),
}
_THEME_WEIGHTS: Final = (4, 4, 2, 2, 2, 3, 2, 3)


def _draw_theme(rng: Random) -> str:
    return rng.choices(tuple(_KINDS_BY_THEME), weights=_THEME_WEIGHTS)[0]


SELECTORS: Final[tuple[Literal["rack_aware", "leader", "custom"], ...]] = ("rack_aware", "leader", "custom")


def select_nobody(_: str, candidates: Sequence[ReplicaView]) -> int:
    """Name a broker that does not exist."""
    return 10 * len(candidates)


def _draw_cluster(rng: Random) -> ModelSettings:
    racks = rng.choice(
        (("az-a", "az-b", "az-c"), ("az-a", "az-b", "az-c"), ("az-a", "az-b"), ("az-a", "az-b", "az-b", "az-c"))
    )
    selector = rng.choices(SELECTORS, weights=(12, 1, 1))[0]
    is_tiered = rng.random() < 0.1
    return ModelSettings(
        racks=racks,
        selector=selector,
        custom_selector=select_nobody if selector == "custom" else None,
        answers_offset_not_available=rng.random() < 0.15,
        fills_offsets_on_error=rng.random() < 0.15,
        redirects_to_lagging=rng.random() < 0.15,
        holds_redirects=rng.random() < 0.1,
        wakes_parked_on_followers=rng.random() < 0.85,
        max_fetch_version=rng.choices((16, 15, 13, 12, 11), weights=(10, 2, 2, 3, 2))[0],
        session_slots=rng.choices((1_000, 8, 1, 0), weights=(7, 1, 1, 1))[0],
        session_shards=rng.choice((1, 8)),
        min_session_idle_ms=rng.choice((120_000, 100)),
        replica_lag_time_max_ms=rng.choice((300, 1_000, 10_000)),
        broker_session_ms=rng.choice((500, 3_000)),
        metadata_lag_ms=rng.choice(((0, 40), (0, 0), (0, 500))),
        local_log_bytes=rng.choice((-1, 2_000)) if is_tiered else -1,
        unclean_leader_election=rng.random() < 0.1,
        tiered=is_tiered,
    )


def _draw_topics(rng: Random, broker_count: int) -> tuple[TopicPlan, ...]:
    brokers = range(1, broker_count + 1)

    def assignment() -> tuple[int, ...]:
        replication = min(broker_count, rng.choices((1, 2, 3), weights=(1, 3, 8))[0])
        return tuple(rng.sample(brokers, replication))

    return tuple(
        TopicPlan(name, tuple(assignment() for _ in range(rng.randint(1, 4))))
        for name in ("orders", "events")[: rng.randint(1, 2)]
    )


def _draw_read(rng: Random, topic_partitions: tuple[TopicPartition, ...], at_ms: int) -> ReadPlan:
    wanted = tuple(sorted(rng.sample(topic_partitions, rng.randint(1, len(topic_partitions)))))
    writes = tuple(
        Writes(each, rng.randint(1, 10), rng.randint(1, 20), rng.choice((80, 400, 2_000))) for each in topic_partitions
    )
    return ReadPlan(
        writes=writes,
        topic_partitions=wanted,
        at_ms=at_ms,
        gap_ms=rng.choice((0, 5, 50, 1_000)),
        view=rng.choice(tuple(PlannerView)),
        offset_limit=rng.choice((10, 1_000, 1_000)),
        knows_epoch=rng.random() < 0.5,
        knows_topic_id=rng.random() < 0.5,
        abandon_after_ms=rng.randint(10, 400) if rng.random() < 0.15 else 0,
    )


def _draw_instant(rng: Random, reads: tuple[ReadPlan, ...]) -> int:
    """Return a moment shortly before a read, or while it is likely to be on."""
    return max(START_MS + 1, rng.choice(reads).at_ms - 50 + int(rng.expovariate(1 / 200)))


def _draw_network(rng: Random) -> NetworkSettings:
    return NetworkSettings(
        shortest_delay_ms=rng.choice((0, 1, 5)),
        longest_delay_ms=rng.choice((5, 20, 60, 150)),
        request_timeout_ms=rng.choice((3_000, 10_000)),
    )


def _draw_engine(rng: Random, cluster: ModelSettings) -> EngineSettings:
    selection = rng.choices(tuple(ReplicaSelection), weights=(7, 3, 1))[0]
    return EngineSettings(
        rack=rng.choices((cluster.racks[-1], cluster.racks[0], "az-x", ""), weights=(6, 3, 1, 1))[0],
        replica_selection=selection,
        session_use=rng.choices(tuple(SessionUse), weights=(5, 4, 2))[0],
        isolation_level=rng.choice((READ_COMMITTED, READ_UNCOMMITTED)),
        is_data_loss_fatal=rng.random() < 0.5,
        follower_wait_ms=rng.choice((0, 100, 700)),
        progress_timeout_ms=PROGRESS_TIMEOUT_MS,
        metadata_max_age_ms=rng.choice((1_000, 5_000, 30_000)),
        leader_only_ms=rng.choice((500, 3_000)),
        topic_patience_ms=rng.choice((500, 5_000)),
        session_refused_ms=rng.choice((1_000, 60_000)),
        local_log_bytes=cluster.local_log_bytes if selection is ReplicaSelection.CLIENT else 0,
        tail_bytes=rng.choice((0, 500, 1_000_000)),
        error_backoff=Backoff(rng.choice((20, 100)), 1_000),
        fetch_max_bytes=rng.choice((500, 3_000, 50_000)),
        partition_max_bytes=rng.choice((100, 1_000, 20_000)),
        fetch_max_wait_ms=rng.choice((0, 100, 500)),
        fetch_min_bytes=rng.choice((1, 1, 5_000)),
    )


PROGRESS_TIMEOUT_MS: Final = 120_000
"""Longer than any fault lasts: a read that is given up for want of progress was stuck."""


def _draw_event(rng: Random, kind: Kind, at_ms: int, topics: tuple[TopicPlan, ...]) -> Event:
    topic = rng.choice(topics)
    at = rng.randrange(len(topic.assignments))
    replicas = topic.assignments[at]
    brokers = sorted({each for plan in topics for replicas in plan.assignments for each in replicas})
    topic_partition = TopicPartition(topic.name, at)
    duration_ms = rng.choice((30, 200, 1_000, 4_000))
    if kind in _ABOUT_NODES:
        amount = {Kind.SLOW: rng.choice((20, 300, 2_000)), Kind.CROWD: rng.randint(1, 8)}.get(kind, 0)
        if kind in (Kind.STOP, Kind.CRASH) and rng.random() < 0.1:
            duration_ms = FOREVER_MS
        return Event(at_ms, kind, rng.choice(brokers), None, 0 if kind in _MOMENTARY else duration_ms, amount)
    if kind is Kind.PAUSE_CONSUMER:
        return Event(at_ms, kind, duration_ms=duration_ms)
    if kind is Kind.RECREATE_TOPIC and rng.random() < 0.1:
        kind = Kind.DELETE_TOPIC
    amount = rng.choice((30, 60, 100))
    if kind is Kind.DIVERGE:
        duration_ms = rng.choice((600, 1_500, 2_500))
    elif kind is Kind.REASSIGN:
        amount = rng.choice(brokers)
    elif kind is Kind.TRANSACTION:
        amount = rng.randint(0, 1)
    node_id = rng.choice(replicas) if kind in _ABOUT_REPLICAS else -1
    is_lasting = kind in _LASTING
    return Event(
        at_ms, kind, node_id, topic_partition, duration_ms if is_lasting else 0, 0 if kind in _PLAIN else amount
    )


_ABOUT_NODES: Final = frozenset(
    {_K.CUT, _K.REFUSE, _K.HOLD, _K.SLOW, _K.LOSE_REQUEST, _K.LOSE_ANSWER, _K.STOP, _K.CRASH, _K.THROTTLE, _K.CROWD}
)
_MOMENTARY: Final = frozenset({_K.CUT, _K.CROWD})
_ABOUT_REPLICAS: Final = frozenset(
    {_K.PAUSE_REPLICATION, _K.ELECT, _K.ELECT_UNCLEAN, _K.DIVERGE, _K.EXPIRE_LOCAL, _K.REASSIGN}
)
_LASTING: Final = frozenset({_K.PAUSE_REPLICATION, _K.DIVERGE, _K.TRANSACTION, _K.RECREATE_TOPIC})
_PLAIN: Final = frozenset({_K.PAUSE_REPLICATION, _K.ELECT, _K.ELECT_UNCLEAN, _K.RECREATE_TOPIC, _K.DELETE_TOPIC})
"""Without an amount."""
