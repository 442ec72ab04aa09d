"""Records that were fetched beyond the end of a range, and are used for the next one; and what a delivery holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from connector.fetch.tails import Tail, Tails
from connector.model import NO_EPOCH, READ_COMMITTED, ClusterView, FetchReply, OffsetRange, TopicPartition
from tests.unit.fetch.fetch_driver import EPOCH, LEADER, OTHER, T0, TOPIC_ID, Driver, Said, positions, spans, view


def tail(size_bytes: int, start_offset: int = 0) -> Tail:
    return Tail(start_offset, start_offset + 10, memoryview(bytes(size_bytes)), EPOCH, EPOCH, TOPIC_ID)


def test_tails_are_given_up_oldest_first() -> None:
    tails = Tails(100)
    names = [TopicPartition("t", each) for each in range(4)]
    for name in names[:3]:
        tails.on_kept(name, tail(40))
    assert [tails.take(each) is not None for each in names[:3]] == [False, True, True]
    for name in names:
        tails.on_kept(name, tail(40))
    tails.on_kept(names[0], tail(101))
    assert [tails.take(each) is not None for each in names] == [False, False, True, True], (
        "one too large drives out none"
    )


def test_a_tail_replaces_the_one_before() -> None:
    tails = Tails(100)
    for start_offset in (0, 10, 20):
        tails.on_kept(T0, tail(60, start_offset))
    kept = tails.take(T0)
    assert kept is not None
    assert kept.start_offset == 20
    assert tails.take(T0) is None


def with_tail(**given: Any) -> Driver:
    """Offsets 0 to 50 were fetched for the range that ends at 20."""
    driver = Driver(OffsetRange(T0, 0, 20), **given)
    driver.answer(driver.fetch(), next_offset=50)
    assert driver.engine.is_finished
    return driver


def test_records_beyond_the_end_of_a_range_are_kept_for_the_next_ones() -> None:
    driver = with_tail()
    for start_offset in (20, 35):
        assert spans(driver.start(OffsetRange(T0, start_offset, start_offset + 15))) == [
            (T0, start_offset, start_offset + 15)
        ]
        assert driver.engine.is_finished
    driver.start(OffsetRange(T0, 50, 60))
    assert positions(driver.fetch()) == {T0: 50}


def test_a_range_that_a_tail_does_not_fill_goes_on_behind_it() -> None:
    driver = with_tail()
    events = driver.start(OffsetRange(T0, 20, 100, EPOCH))
    assert spans(events) == [(T0, 20, 50)]
    assert positions(driver.fetch()) == {T0: 50}


def test_a_kept_answer_outlives_the_reply_that_it_came_in() -> None:
    driver = Driver(OffsetRange(T0, 0, 20))
    frame = bytearray(b"r" * 1_000)
    said = Said(next_offset=50)
    reply = FetchReply(0, 0, 0, (replace(said.reply(T0), records=memoryview(frame)),))
    driver.engine.on_fetch_reply(driver.fetch(), reply, {T0: said.scan()}, driver.now_ms)
    frame[:] = b"x" * 1_000
    (delivery,) = driver.start(OffsetRange(T0, 20, 50)).deliveries
    assert bytes(delivery.records) == b"r" * 1_000


@pytest.mark.parametrize(
    ("next_range", "cluster", "is_used"),
    [
        pytest.param(OffsetRange(T0, 20, 50), view(), True, id="nothing changed"),
        pytest.param(OffsetRange(T0, 20, 50), view(topic_id=None), True, id="no topic id is told"),
        pytest.param(OffsetRange(T0, 21, 50), view(), False, id="another offset"),
        pytest.param(OffsetRange(T0, 20, 50), view(leader=OTHER, epoch=6), False, id="another leader"),
        pytest.param(OffsetRange(T0, 20, 50), view(epoch=6), False, id="another leader epoch"),
        pytest.param(OffsetRange(T0, 20, 50, NO_EPOCH, UUID(int=9)), view(), False, id="another topic"),
    ],
)
def test_a_tail_is_used_only_for_what_it_holds(next_range: OffsetRange, cluster: ClusterView, is_used: bool) -> None:
    driver = with_tail()
    driver.metadata(cluster)
    assert bool(driver.start(next_range).deliveries) is is_used
    assert driver.engine.is_finished is is_used


def test_a_tail_that_was_not_used_is_not_kept() -> None:
    driver = with_tail()
    driver.start(OffsetRange(T0, 25, 50))
    assert driver.start(OffsetRange(T0, 20, 50)).deliveries == ()


def test_a_tail_that_the_leader_of_by_now_gave_settles_the_position() -> None:
    # The planner knew an older epoch; the records came under the one that leads.
    driver = with_tail()
    assert spans(driver.start(OffsetRange(T0, 20, 100, 4))) == [(T0, 20, 50)]
    sent = driver.fetch()
    assert (sent.plan.node_id, positions(sent)) == (LEADER, {T0: 50})


def test_a_tail_of_a_part_of_a_transactions_answer_is_not_kept() -> None:
    # 7: which transactions were aborted is known per answer.
    driver = Driver(OffsetRange(T0, 0, 20), isolation_level=READ_COMMITTED)
    events = driver.answer(driver.fetch(), next_offset=50, aborted=((7, 3),))
    assert [each.aborted_transactions for each in events.deliveries] == [((7, 3),)]
    assert driver.start(OffsetRange(T0, 20, 50)).deliveries == ()


def test_aborted_transactions_are_those_of_the_same_answer() -> None:
    # FetcherTest.testReadCommittedWithCompactedTopic.
    driver = Driver(OffsetRange(T0, 0, 20), isolation_level=READ_COMMITTED)
    driver.answer(driver.fetch(), next_offset=10, aborted=((7, 3),))
    events = driver.answer(driver.fetch(), next_offset=20, aborted=((8, 12),))
    assert [each.aborted_transactions for each in events.deliveries] == [((8, 12),)]


def test_without_room_nothing_is_kept() -> None:
    driver = with_tail(tail_bytes=999)
    assert driver.start(OffsetRange(T0, 20, 50)).deliveries == ()
