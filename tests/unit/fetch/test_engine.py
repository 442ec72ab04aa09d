"""The engine, driven by hand in virtual time: which node is asked, when, and what ends a range."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from connector.errors import BrokerError, OffsetOutOfRange, RangeTimedOut
from connector.fetch.actions import Action, EngineSettings, FetchEvents, SendFetch, SendListOffsets, SendMetadata
from connector.fetch.engine import FetchEngine
from connector.fetch.progress import Backoff
from connector.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_NODE,
    ClusterView,
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
from connector.wire import error_codes as codes

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEADER, FOLLOWER = 1, 2
SETTINGS = EngineSettings(
    rack="az-b",
    is_leader_only=False,
    follower_wait_ms=700,
    progress_timeout_ms=120_000,
    metadata_max_age_ms=300_000,
    leader_only_ms=10_000,
    error_backoff=Backoff(100, 1_000),
    fetch_max_bytes=50_000_000,
    partition_max_bytes=1_000_000,
    fetch_max_wait_ms=500,
    fetch_min_bytes=1,
)


def view(*topic_partitions: TopicPartition, leader: int = LEADER, epoch: int = 5) -> ClusterView:
    nodes = {each: Node(each, f"h{each}", 9000 + each, f"az-{'abc'[each - 1]}") for each in (1, 2, 3)}
    infos = {each: PartitionInfo(each, 0, leader, epoch, (1, 2, 3), (1, 2, 3), ()) for each in topic_partitions}
    return ClusterView(nodes=nodes, partitions=infos)


class Driver:
    """Carries out what the engine plans, in virtual time, and hands it the answers of a test."""

    def __init__(self, *ranges: OffsetRange, settings: EngineSettings = SETTINGS) -> None:
        self.now_ms = 1_000
        self.engine = FetchEngine(settings)
        self.start(*ranges)

    def start(self, *ranges: OffsetRange) -> None:
        self.engine.on_read_started(ranges, view(*(each.topic_partition for each in ranges)), self.now_ms)

    def actions(self) -> tuple[Action, ...]:
        actions = self.engine.plan(self.now_ms)
        assert actions == self.engine.plan(self.now_ms), "plan changes nothing"
        for action in actions:
            self.engine.on_sent(action, self.now_ms)
        return actions

    def fetch(self) -> SendFetch:
        """Return the one Fetch that is due at this moment."""
        (action,) = [each for each in self.actions() if isinstance(each, SendFetch)]
        return action

    def answer(self, sent: SendFetch, **given: int) -> FetchEvents:
        """Answer every topic-partition of a request alike; `next_offset` stands for records up to there."""
        next_offset = given.pop("next_offset", -1)
        records = memoryview(b"r" * 1_000 if next_offset >= 0 else b"")
        replies = tuple(
            PartitionReply(
                each.topic_partition,
                given.get("code", 0),
                given.get("high_watermark", 1_000),
                -1,
                0,
                given.get("preferred", NO_NODE),
                records,
            )
            for each in sent.plan.partitions
        )
        scans = {each.topic_partition: RecordsScan(next_offset, 1, 10, len(records)) for each in sent.plan.partitions}
        reply = FetchReply(given.get("throttle_ms", 0), 0, 0, replies)
        return self.engine.on_fetch_reply(sent, reply, scans if next_offset >= 0 else {}, self.now_ms)

    def sleep_until_due(self, limit_ms: int = 60_000) -> SendFetch:
        """Advance to the engine's next instant until a Fetch is due."""
        deadline_ms = self.now_ms + limit_ms
        while self.now_ms < deadline_ms:
            fetches = [each for each in self.actions() if isinstance(each, SendFetch)]
            if fetches:
                return fetches[0]
            self.now_ms = self.engine.wake_at_ms(self.now_ms)
        raise AssertionError(f"nothing to fetch within {limit_ms} ms")

    def to_follower(self) -> SendFetch:
        """Be redirected to the follower, and return the first Fetch that is sent there."""
        self.answer(self.fetch(), preferred=FOLLOWER)
        sent = self.fetch()
        assert sent.plan.node_id == FOLLOWER
        return sent


def test_a_range_begins_at_the_leader_and_tells_our_rack() -> None:
    sent = Driver(OffsetRange(T0, 100, 200)).fetch()
    assert (sent.plan.node_id, sent.plan.rack, sent.is_redirectable) == (LEADER, "az-b", True)
    assert sent.plan.partitions[0].fetch_offset == 100
    assert sent.plan.partitions[0].current_leader_epoch == 5


def test_the_leaders_redirect_is_obeyed_at_the_same_position() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    events = driver.answer(driver.fetch(), preferred=FOLLOWER)
    assert [each.change for each in events.decisions] == [ReplicaChange.REDIRECT]
    assert events.deliveries == ()
    sent = driver.fetch()
    assert (sent.plan.node_id, sent.plan.partitions[0].fetch_offset) == (FOLLOWER, 100)


def test_a_followers_minus_one_keeps_the_choice() -> None:
    # The flip-flop of sarama #2071 and kafka-python 3.x.
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110, preferred=NO_NODE)
    assert driver.fetch().plan.node_id == FOLLOWER


def test_the_choice_lasts_over_reads_until_its_lease_ends() -> None:
    driver = Driver(OffsetRange(T0, 100, 110))
    first_ms = driver.now_ms
    driver.answer(driver.to_follower(), next_offset=110)
    assert driver.engine.is_finished
    driver.now_ms = first_ms + SETTINGS.metadata_max_age_ms
    driver.start(OffsetRange(T0, 110, 120))
    assert driver.fetch().plan.node_id == FOLLOWER
    driver.now_ms += 1
    driver.start(OffsetRange(T0, 110, 120))
    assert driver.fetch().plan.node_id == LEADER


def test_the_same_redirect_again_does_not_extend_the_lease_and_another_replaces_it() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    first_ms = driver.now_ms
    sent = driver.to_follower()
    driver.now_ms = first_ms + 200_000
    driver.answer(sent, next_offset=110, preferred=FOLLOWER)
    driver.now_ms = first_ms + SETTINGS.metadata_max_age_ms + 1
    assert driver.engine.preferred_replica(T0, driver.now_ms) == NO_NODE
    sent = driver.fetch()
    assert sent.plan.node_id == LEADER
    driver.answer(sent, preferred=3)
    assert driver.engine.preferred_replica(T0, driver.now_ms) == 3


def test_a_range_ends_by_position_not_by_records() -> None:
    # Control batches and compaction holes: the scan says 200 although no record below it may be ours.
    driver = Driver(OffsetRange(T0, 100, 150))
    events = driver.answer(driver.fetch(), next_offset=200)
    assert [(each.start_offset, each.end_offset) for each in events.deliveries] == [(100, 150)]
    assert driver.engine.is_finished


@pytest.mark.parametrize(
    "code", [codes.OFFSET_OUT_OF_RANGE, codes.NOT_LEADER_OR_FOLLOWER, codes.OFFSET_NOT_AVAILABLE, codes.CORRUPT_MESSAGE]
)
def test_after_a_followers_error_the_leader_is_read_in_the_form_it_never_redirects(code: int) -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    driver.answer(sent, code=code, high_watermark=-1)
    again = driver.fetch()
    assert (again.plan.node_id, again.is_redirectable, again.plan.rack) == (LEADER, False, "")
    assert again.plan.partitions[0].fetch_offset == 100


def test_the_leader_is_asked_for_a_replica_again_after_the_leader_only_period() -> None:
    driver = Driver(OffsetRange(T0, 100, 10_000))
    driver.answer(driver.to_follower(), code=codes.NOT_LEADER_OR_FOLLOWER)
    driver.answer(driver.fetch(), next_offset=110)
    driver.now_ms += SETTINGS.leader_only_ms
    sent = driver.fetch()
    assert (sent.plan.node_id, sent.is_redirectable) == (LEADER, True)


def test_a_silent_follower_is_left_for_the_leader_and_metadata_is_asked_for() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.to_follower()
    decisions = driver.engine.on_node_failed(FOLLOWER, "no answer", driver.now_ms)
    assert [each.change for each in decisions] == [ReplicaChange.BROKER_DOWN]
    actions = driver.actions()
    assert any(isinstance(each, SendMetadata) for each in actions)
    (sent,) = [each for each in actions if isinstance(each, SendFetch)]
    assert (sent.plan.node_id, sent.is_redirectable) == (LEADER, False)


def test_a_late_follower_is_waited_for_and_then_the_leader_finishes_the_range() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    started_ms = driver.now_ms
    asked_count = 0
    while sent.plan.node_id == FOLLOWER:
        assert sent.plan.max_wait_ms <= max(0, started_ms + SETTINGS.follower_wait_ms - driver.now_ms)
        driver.answer(sent, high_watermark=90)
        asked_count += 1
        sent = driver.sleep_until_due()
    assert SETTINGS.follower_wait_ms <= driver.now_ms - started_ms <= SETTINGS.follower_wait_ms + 250
    assert asked_count < 15, "answers above the high watermark come at once and must be paced"
    assert (sent.plan.node_id, sent.is_redirectable) == (LEADER, False)
    driver.answer(sent, next_offset=200)
    driver.start(OffsetRange(T0, 200, 300))
    assert driver.fetch().plan.node_id == FOLLOWER, "a follower that was only late is read again"


def test_follower_wait_0_goes_to_the_leader_at_once() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), settings=replace(SETTINGS, follower_wait_ms=0))
    sent = driver.to_follower()
    assert sent.plan.max_wait_ms == 0
    driver.answer(sent, high_watermark=100)
    assert driver.fetch().plan.node_id == LEADER


def test_a_redirect_to_a_node_that_metadata_does_not_know_is_read_at_the_leader() -> None:
    # librdkafka 0104 "unknown follower", franz-go TestAuditPreferredReplicaUnknownBrokerNoStrand.
    driver = Driver(OffsetRange(T0, 100, 200))
    events = driver.answer(driver.fetch(), preferred=19)
    assert [each.change for each in events.decisions] == [ReplicaChange.REPLICA_GONE]
    sent = driver.fetch()
    assert (sent.plan.node_id, sent.is_redirectable) == (LEADER, False)


def test_leader_out_of_range_asks_for_both_bounds_before_it_fails() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE, high_watermark=-1)
    for timestamp, log_offset in ((EARLIEST_TIMESTAMP, 150), (LATEST_TIMESTAMP, 900)):
        (action,) = driver.actions()
        assert isinstance(action, SendListOffsets)
        assert action.node_id == LEADER
        assert [each.timestamp for each in action.queries] == [timestamp]
        answers = [OffsetAnswer(T0, 0, log_offset)]
        if timestamp == LATEST_TIMESTAMP:
            with pytest.raises(OffsetOutOfRange, match=r"offset 100 can't be read.*150 to 900"):
                driver.engine.on_bounds(action, answers, driver.now_ms)
        else:
            driver.engine.on_bounds(action, answers, driver.now_ms)


def test_a_new_leader_takes_over_and_the_old_choice_is_forgotten() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110)
    driver.engine.on_metadata(view(T0, leader=3, epoch=6), driver.now_ms)
    sent = driver.fetch()
    assert sent.plan.node_id == 3
    assert sent.plan.partitions[0].current_leader_epoch == 6


def test_metadata_of_an_older_epoch_is_ignored() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.engine.on_metadata(view(T0, leader=3, epoch=4), driver.now_ms)
    assert driver.fetch().plan.node_id == LEADER


def test_nothing_is_asked_elsewhere_while_a_request_is_under_way() -> None:
    # A leader change while the old follower still owes an answer: asking both would give rows twice.
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    driver.engine.on_metadata(view(T0, leader=3, epoch=6), driver.now_ms)
    assert not [each for each in driver.actions() if isinstance(each, SendFetch)]
    events = driver.answer(sent, next_offset=150)
    assert [each.start_offset for each in events.deliveries] == [100]
    assert driver.fetch().plan.partitions[0].fetch_offset == 150


def test_leader_errors_are_retried_with_growing_pauses_and_end_in_an_error_that_names_the_cause() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch()
    starts: list[int] = []
    with pytest.raises(RangeTimedOut, match=r"t-0.*offset 100.*NOT_LEADER_OR_FOLLOWER"):  # noqa: PT012 - until it ends
        while True:
            starts.append(driver.now_ms)
            driver.answer(sent, code=codes.NOT_LEADER_OR_FOLLOWER)
            driver.engine.on_metadata(view(T0), driver.now_ms)
            sent = driver.sleep_until_due(200_000)
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert pauses[:5] == [100, 200, 400, 800, 1_000]
    assert len(starts) < 130


def test_time_in_which_nobody_took_rows_does_not_count() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch()
    driver.now_ms += 500_000
    driver.engine.on_resumed(500_000)
    driver.answer(sent, next_offset=150)
    assert driver.fetch().plan.partitions[0].fetch_offset == 150


def test_a_throttled_node_is_left_alone_for_as_long_as_it_says() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.fetch(), next_offset=110, throttle_ms=3_000)
    throttled_ms = driver.now_ms
    driver.sleep_until_due()
    assert driver.now_ms - throttled_ms == 3_000


def test_one_request_per_node_carries_all_its_topic_partitions_and_they_take_turns() -> None:
    driver = Driver(OffsetRange(T0, 0, 1_000), OffsetRange(T1, 0, 1_000))
    sent = driver.fetch()
    assert [each.topic_partition for each in sent.plan.partitions] == [T0, T1]
    only_t0 = PartitionReply(T0, 0, 1_000, -1, 0, NO_NODE, memoryview(b"r"))
    empty_t1 = PartitionReply(T1, 0, 1_000, -1, 0, NO_NODE, memoryview(b""))
    driver.engine.on_fetch_reply(
        sent, FetchReply(0, 0, 0, (only_t0, empty_t1)), {T0: RecordsScan(10, 1, 10, 1)}, driver.now_ms
    )
    assert next(each.topic_partition for each in driver.fetch().plan.partitions) == T1


def test_little_is_asked_for_beyond_the_end_of_a_range() -> None:
    driver = Driver(OffsetRange(T0, 0, 20))
    driver.answer(driver.fetch(), next_offset=10)  # 1,000 bytes for 10 offsets
    assert driver.fetch().plan.partitions[0].partition_max_bytes == 10 * 100 + 16_384


def test_a_cold_engine_asks_for_metadata_first() -> None:
    engine = FetchEngine(SETTINGS)
    engine.on_read_started([OffsetRange(T0, 0, 10)], None, 1_000)
    (action,) = engine.plan(1_000)
    assert action == SendMetadata(("t",))
    engine.on_sent(action, 1_000)
    assert engine.plan(1_001) == ()
    engine.on_metadata(view(T0), 1_002)
    (fetch,) = engine.plan(1_002)
    assert isinstance(fetch, SendFetch)


def test_a_topic_that_may_not_be_described_fails_at_once() -> None:
    engine = FetchEngine(SETTINGS)
    engine.on_read_started([OffsetRange(T0, 0, 10)], None, 0)
    forbidden = ClusterView(topic_errors={"t": codes.TOPIC_AUTHORIZATION_FAILED})
    with pytest.raises(BrokerError, match="Grant DESCRIBE"):
        engine.on_metadata(forbidden, 5)


def test_leader_only_selection_never_asks_for_a_redirect() -> None:
    driver = Driver(OffsetRange(T0, 0, 10), settings=replace(SETTINGS, is_leader_only=True))
    sent = driver.fetch()
    assert (sent.plan.node_id, sent.is_redirectable, sent.plan.rack) == (LEADER, False, "")


def test_an_empty_range_is_finished_before_anything_is_asked() -> None:
    driver = Driver(OffsetRange(T0, 7, 7))
    assert driver.engine.is_finished
    assert driver.actions() == ()
