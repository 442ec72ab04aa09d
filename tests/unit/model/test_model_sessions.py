"""The model's fetch sessions (KIP-227), by the scenarios of Kafka's FetchSessionTest."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest

from connector.model import FetchReply, ForgottenPartition, PartitionFetch, TopicPartition
from connector.wire import error_codes as codes
from tests.model.session_cache import LAST_SESSION_EPOCH, CachedPartition, Session, SessionCache
from tests.model.settings import ModelSettings
from tests.unit.model.model_driver import T0, T1, T2, Driver


def told(reply: FetchReply) -> list[TopicPartition]:
    return [each.topic_partition for each in reply.partitions]


def opened(driver: Driver, *fetch_offsets: int, version: int = 16) -> int:
    reply = driver.fetch(1, driver.ask(*fetch_offsets), session=(0, 0), version=version)
    assert len(reply.partitions) == len(fetch_offsets)
    assert reply.session_id > 0
    return reply.session_id


def test_a_session_begins_with_epoch_0_and_counts_up() -> None:
    driver = Driver(partition_count=2)
    assert driver.fetch(1, driver.ask(0, 0)).session_id == 0, "sessionless"
    session_id = opened(driver, 0, 0)
    assert driver.cluster.open_sessions(1) == {session_id: [T0, T1]}
    for epoch in (1, 2, 3):
        reply = driver.fetch(1, session=(session_id, epoch))
        assert (reply.error_code, reply.session_id, reply.partitions) == (codes.NONE, session_id, ())


def test_after_the_last_epoch_comes_1() -> None:
    driver = Driver()
    session_id = opened(driver, 0)
    session = driver.cluster._brokers[1].sessions.get(session_id)
    assert session is not None
    session.session_epoch = LAST_SESSION_EPOCH
    assert driver.fetch(1, session=(session_id, LAST_SESSION_EPOCH)).error_code == codes.NONE
    assert driver.fetch(1, session=(session_id, 1)).error_code == codes.NONE


def test_wrong_epoch_and_unknown_session_are_refused_as_a_whole() -> None:
    driver = Driver()
    session_id = opened(driver, 0)
    wrong = driver.fetch(1, session=(session_id, 5), wait_ms=500)
    assert (wrong.error_code, wrong.session_id, wrong.partitions) == (codes.INVALID_FETCH_SESSION_EPOCH, 0, ())
    unknown = driver.fetch(1, session=(session_id + 1, 1), wait_ms=500)
    assert (unknown.error_code, unknown.session_id) == (codes.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert driver.fetch(2, session=(session_id, 1)).error_code == codes.FETCH_SESSION_ID_NOT_FOUND, "one broker's only"
    assert driver.fetch(1, session=(session_id, 1)).error_code == codes.NONE, "neither harmed it"


def test_a_request_that_came_twice_gets_nothing_but_an_error() -> None:
    driver = Driver()
    session_id = opened(driver, 0)
    first = driver.send(1, (), session=(session_id, 1), wait_ms=500)
    driver.send(1, (), session=(session_id, 2), wait_ms=500)
    assert driver.fetch(1, session=(session_id, 1)).error_code == codes.INVALID_FETCH_SESSION_EPOCH
    assert driver.answered_after_ms(first) == 500
    assert (first[0].error_code, first[0].partitions) == (codes.INVALID_FETCH_SESSION_EPOCH, ())


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12), (16, 11)])
def test_names_and_ids_do_not_mix_in_a_session(first: int, then: int) -> None:
    driver = Driver()
    session_id = opened(driver, 0, version=first)
    assert driver.fetch(1, session=(session_id, 1), version=then).error_code == codes.FETCH_SESSION_TOPIC_ID_ERROR
    assert driver.fetch(1, session=(session_id, 1), version=first).error_code == codes.NONE


@pytest.mark.parametrize(("epoch", "session_count"), [(0, 1), (-1, 0)])
def test_a_full_request_ends_its_session(epoch: int, session_count: int) -> None:
    driver = Driver()
    session_id = opened(driver, 0)
    reply = driver.fetch(1, driver.ask(0), session=(session_id, epoch))
    assert (reply.session_id > 0) is (epoch == 0)
    assert reply.session_id != session_id
    assert len(driver.cluster.open_sessions(1)) == session_count
    assert driver.fetch(1, session=(session_id + 1, -1), wait_ms=500).error_code == codes.NONE, "closing none is fine"


@pytest.mark.parametrize("version", [12, 16])
def test_a_session_without_topic_partitions_ends(version: int) -> None:
    driver = Driver(partition_count=2)
    session_id = opened(driver, 0, 0, version=version)
    forgotten = tuple(ForgottenPartition(each, driver.topic_id) for each in (T0, T1))
    reply = driver.fetch(1, session=(session_id, 1), forgotten=forgotten[:1], version=version)
    assert reply.session_id == session_id
    assert driver.cluster.open_sessions(1) == {session_id: [T1]}
    reply = driver.fetch(1, session=(session_id, 2), forgotten=forgotten[1:], version=version)
    assert (reply.error_code, reply.session_id) == (codes.NONE, 0)
    assert driver.cluster.open_sessions(1) == {}


def test_only_news_is_told() -> None:
    driver = Driver(partition_count=3)
    session_id = opened(driver, 0, 0, 0)
    driver.produce(5, tp=T1)
    reply = driver.fetch(1, session=(session_id, 1))
    assert told(reply) == [T1]
    assert told(driver.fetch(1, session=(session_id, 2))) == [T1], "records are told again until the offset moves"
    moved = replace(driver.ask(0, 5)[1], fetch_offset=5)
    assert told(driver.fetch(1, (moved,), session=(session_id, 3))) == []
    assert told(driver.fetch(1, session=(session_id, 4))) == []


def test_a_high_watermark_or_log_start_alone_is_news_a_last_stable_offset_is_not() -> None:
    driver = Driver()
    driver.produce(1)
    driver.produce(4, producer_id=1, transactional=True)
    reply = driver.fetch(1, driver.ask(5), session=(0, 0))
    session_id = reply.session_id
    session = driver.cluster._brokers[1].sessions.get(session_id)
    assert session is not None
    driver.cluster.delete_records(T0, 1)
    reply = driver.fetch(1, session=(session_id, 1))
    assert [(each.log_start_offset, len(each.records)) for each in reply.partitions] == [(1, 0)]
    beyond = replace(driver.ask(5)[0], fetch_offset=6)
    driver.cluster.abort(T0, 1)
    assert told(driver.fetch(1, (beyond,), session=(session_id, 2))) == []
    driver.pass_ms(2)
    reply = driver.fetch(1, session=(session_id, 3))
    assert [(each.high_watermark, each.last_stable_offset, len(each.records)) for each in reply.partitions] == [
        (6, 6, 0)
    ]
    driver.cluster._brokers[1].replicas[T0].log._open[9] = 5
    assert told(driver.fetch(1, session=(session_id, 4))) == []


def test_after_an_error_that_told_the_high_watermark_it_is_news_again() -> None:
    driver = Driver(fills_offsets_on_error=True)
    driver.produce(5)
    session_id = driver.fetch(1, driver.ask(5), session=(0, 0)).session_id
    reply = driver.fetch(1, driver.ask(9), session=(session_id, 1))
    assert [(each.error_code, each.high_watermark) for each in reply.partitions] == [(codes.OFFSET_OUT_OF_RANGE, 5)]
    assert told(driver.fetch(1, driver.ask(5), session=(session_id, 2))) == [T0]
    assert told(driver.fetch(1, session=(session_id, 3))) == []


def test_an_error_is_news_each_time_and_its_end_is_once() -> None:
    driver = Driver()
    driver.produce(5)
    session_id = driver.fetch(1, driver.ask(5), session=(0, 0)).session_id
    driver.cluster.bump_epoch(T0)
    ahead = replace(driver.ask(5)[0], current_leader_epoch=2)
    reply = driver.fetch(1, (ahead,), session=(session_id, 1))
    assert [each.error_code for each in reply.partitions] == [codes.UNKNOWN_LEADER_EPOCH]
    assert told(driver.fetch(1, session=(session_id, 2))) == [T0]
    driver.cluster.bump_epoch(T0)
    reply = driver.fetch(1, session=(session_id, 3))
    assert [(each.error_code, each.high_watermark) for each in reply.partitions] == [(codes.NONE, 5)]
    assert told(driver.fetch(1, session=(session_id, 4))) == []


def test_a_preferred_replica_is_always_told() -> None:
    driver = Driver()
    driver.produce(5)
    session_id = driver.fetch(1, driver.ask(5), session=(0, 0)).session_id
    for epoch in (1, 2):
        reply = driver.fetch(1, session=(session_id, epoch), rack="az-b", wait_ms=500)
        assert [each.preferred_read_replica for each in reply.partitions] == [2]


def test_above_the_high_watermark_the_answer_is_empty_and_immediate() -> None:
    driver = Driver()
    driver.cluster.pause_replication(T0, 2)
    driver.produce(5, settle=False)
    session_id = opened(driver, 3)
    reply = driver.fetch(1, session=(session_id, 1), wait_ms=500)
    assert (reply.error_code, reply.partitions) == (codes.NONE, ())


def test_who_got_records_goes_to_the_back_of_the_order() -> None:
    driver = Driver(partition_count=3)
    session_id = opened(driver, 0, 0, 0)
    for each in (T0, T1):
        driver.produce(1, tp=each, size_bytes=100)
    reply = driver.fetch(1, session=(session_id, 1), max_bytes=100)
    assert [(each.topic_partition, len(each.records)) for each in reply.partitions] == [(T0, 100), (T1, 0)]
    assert driver.cluster.open_sessions(1)[session_id] == [T1, T2, T0]
    reply = driver.fetch(1, session=(session_id, 2), max_bytes=100)
    assert [(each.topic_partition, len(each.records)) for each in reply.partitions] == [(T1, 100)]
    assert driver.cluster.open_sessions(1)[session_id] == [T2, T0, T1]


def test_a_topic_partition_that_is_added_is_told_and_one_that_is_forgotten_is_not() -> None:
    driver = Driver(partition_count=2)
    session_id = opened(driver, 0)
    reply = driver.fetch(1, driver.ask(0, 0)[1:], session=(session_id, 1))
    assert told(reply) == [T1]
    driver.fetch(1, session=(session_id, 2), forgotten=(ForgottenPartition(T0, driver.topic_id),))
    driver.produce(1)
    assert told(driver.fetch(1, session=(session_id, 3))) == []


def test_an_unknown_id_heals_by_itself() -> None:
    driver = Driver(metadata_lag_ms=(50, 50))
    driver.topic_id = driver.cluster.create_topic("u", 1, [(1, 2, 3)])
    asked = (PartitionFetch(TopicPartition("u", 0), 0, 1_000, topic_id=driver.topic_id),)
    reply = driver.fetch(2, asked, session=(0, 0), wait_ms=500)
    assert reply.partitions[0].error_code == codes.UNKNOWN_TOPIC_ID
    driver.pass_ms(50)
    reply = driver.fetch(2, session=(reply.session_id, 1))
    assert [(each.error_code, each.high_watermark) for each in reply.partitions] == [(codes.NONE, 0)]


def test_a_topic_made_anew_is_inconsistent_in_a_session_and_unknown_outside() -> None:
    driver = Driver()
    session_id = opened(driver, 0)
    old = driver.ask(0)
    driver.cluster.delete_topic("t")
    reply = driver.fetch(1, session=(session_id, 1))
    assert reply.partitions[0].error_code == codes.UNKNOWN_TOPIC_OR_PARTITION, "the session keeps the name"
    new_id = driver.cluster.create_topic("t", 1, [(1, 2, 3)])
    for epoch in (2, 3):
        reply = driver.fetch(1, session=(session_id, epoch), wait_ms=500)
        assert reply.partitions[0].error_code == codes.INCONSISTENT_TOPIC_ID
    assert driver.fetch(1, old, session=(0, -1)).partitions[0].error_code == codes.UNKNOWN_TOPIC_ID
    new = replace(old[0], topic_id=new_id)
    plan_forgotten = (ForgottenPartition(T0, old[0].topic_id),)
    reply = driver.fetch(1, (new,), session=(session_id, 4), forgotten=plan_forgotten)
    assert [(each.error_code, each.topic_id) for each in reply.partitions] == [(codes.NONE, new_id)]
    assert driver.cluster.open_sessions(1)[session_id] == [T0]


@pytest.mark.parametrize("version", [12, 16])
def test_a_replaced_id_is_forgotten_by_id_and_never_by_name(version: int) -> None:
    driver = Driver()
    session_id = opened(driver, 0, version=version)
    new = replace(driver.ask(0)[0], topic_id=UUID(int=8))
    replaced = (ForgottenPartition(T0, driver.topic_id),)
    reply = driver.fetch(1, (new,), session=(session_id, 1), replaced=replaced, version=version)
    assert reply.session_id == session_id
    assert driver.cluster.open_sessions(1)[session_id] == [T0]
    assert told(reply) == ([T0] if version == 16 else [])


def test_a_broker_that_restarts_knows_no_session() -> None:
    driver = Driver()
    session_id = driver.fetch(2, driver.ask(0), session=(0, 0)).session_id
    driver.cluster.stop_broker(2)
    driver.cluster.start_broker(2)
    assert driver.fetch(2, session=(session_id, 1)).error_code == codes.FETCH_SESSION_ID_NOT_FOUND


# ------------------------------------------------------------------------------------------------------- eviction


def cached(size: int) -> list[CachedPartition]:
    requests = (PartitionFetch(TopicPartition("t", each), 0, 1, topic_id=UUID(int=1)) for each in range(size))
    return [CachedPartition(each, uses_ids=True) for each in requests]


def create(cache: SessionCache, size: int, now_ms: int, *, is_privileged: bool = False) -> Session | None:
    return cache.create(cached(size), now_ms, uses_ids=True, is_privileged=is_privileged)


LIMIT_MS = 120_000
MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("age_ms", "idle_ms", "size", "is_privileged", "new_size", "new_is_privileged", "is_evicted"),
    [
        pytest.param(LIMIT_MS, LIMIT_MS, 9, False, 99, False, False, id="idle for exactly the limit"),
        pytest.param(LIMIT_MS + 1, LIMIT_MS + 1, 9, False, 1, False, True, id="idle for longer, however large"),
        pytest.param(LIMIT_MS + 1, LIMIT_MS + 1, 9, True, 1, False, True, id="idle for longer, a follower's too"),
        pytest.param(MINUTE_MS, 0, 1, False, 9, False, False, id="young and small"),
        pytest.param(200_000, 0, 1, False, 9, False, True, id="old and small"),
        pytest.param(200_000, 0, 9, False, 9, False, False, id="old, as large"),
        pytest.param(200_000, 0, 10, False, 9, False, False, id="old, larger"),
        pytest.param(MINUTE_MS, 0, 9, False, 1, True, True, id="a follower's evicts a consumer's at any time"),
        pytest.param(200_000, 0, 1, True, 9, False, False, id="a consumer's does not evict a follower's"),
        pytest.param(200_000, 0, 1, True, 9, True, True, id="a follower's, an old and smaller follower's"),
        pytest.param(MINUTE_MS, 0, 1, True, 9, True, False, id="not a young one"),
    ],
)
def test_eviction(
    age_ms: int,
    idle_ms: int,
    size: int,
    is_privileged: bool,
    new_size: int,
    new_is_privileged: bool,
    is_evicted: bool,
) -> None:
    cache = SessionCache(ModelSettings(session_slots=1, session_shards=1), random.Random(1))
    old = create(cache, size, 0, is_privileged=is_privileged)
    assert old is not None
    old.last_used_ms = age_ms - idle_ms
    new = create(cache, new_size, age_ms, is_privileged=new_is_privileged)
    assert (new is not None, cache.get(old.session_id) is None) == (is_evicted, is_evicted)


def test_the_longest_unused_goes_first_and_the_smallest_of_the_old_ones() -> None:
    cache = SessionCache(ModelSettings(session_slots=3, session_shards=1), random.Random(1))
    sessions = [create(cache, size, 0) for size in (5, 3, 4)]
    for each, used_ms in zip(sessions, (300_000, 310_000, 305_000), strict=True):
        assert each is not None
        each.last_used_ms = used_ms
    assert create(cache, 9, 320_000) is not None
    assert [cache.get(each.session_id) is None for each in sessions if each] == [False, True, False], "smallest"
    assert create(cache, 1, 425_001) is not None
    assert [cache.get(each.session_id) is None for each in sessions if each] == [True, True, False], "idle the longest"


def test_use_keeps_a_session_and_its_size_counts_as_of_then() -> None:
    driver = Driver(partition_count=3, session_slots=1, session_shards=1)
    session_id = opened(driver, 0)
    driver.pass_ms(100_000)
    driver.fetch(1, driver.ask(0, 0, 0)[1:], session=(session_id, 1))
    driver.pass_ms(LIMIT_MS)
    assert driver.fetch(1, driver.ask(0, 0, 0), session=(0, 0)).session_id == 0, "not idle for longer, not old at use"
    driver.fetch(1, session=(session_id, 2))
    assert driver.fetch(1, driver.ask(0, 0), session=(0, 0)).session_id == 0, "old, but larger"
    assert driver.cluster.open_sessions(1) == {session_id: [T0, T1, T2]}


def test_shards_are_filled_in_turn_and_evict_among_themselves() -> None:
    cache = SessionCache(ModelSettings(session_slots=4, session_shards=2), random.Random(1))
    assert all(create(cache, 1, 0) for _ in range(4))
    assert create(cache, 1, 0) is None
    cache.remove(next(iter(cache.all())))  # the first shard's first
    assert create(cache, 1, 0) is None, "it is the second shard's turn"
    assert create(cache, 1, 0) is not None


@pytest.mark.parametrize("slots", [0, 1])
def test_without_a_slot_the_answer_carries_session_id_0(slots: int) -> None:
    driver = Driver(session_slots=slots, session_shards=1)
    replies = [driver.fetch(1, driver.ask(0), session=(0, 0)) for _ in range(2)]
    assert [each.session_id > 0 for each in replies] == [slots == 1, False]
    assert [told(each) for each in replies] == [[T0], [T0]]


def test_the_victim_notices_by_its_session_not_being_found() -> None:
    driver = Driver(session_slots=1, session_shards=1)
    session_id = opened(driver, 0)
    driver.pass_ms(LIMIT_MS + 1)
    opened(driver, 0)
    assert driver.fetch(1, session=(session_id, 1)).error_code == codes.FETCH_SESSION_ID_NOT_FOUND
