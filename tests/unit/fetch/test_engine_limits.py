"""Pace and size: throttling, pauses, turns, how many bytes are asked for, and when a range is given up."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from connector.errors import RangeTimedOut
from connector.fetch.actions import LEADER_ONLY_VERSION, SendFetch
from connector.fetch.progress import Backoff, exponential_pause_ms, plan_partition_bytes
from connector.model import FetchReply, OffsetRange
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import (
    FOLLOWER,
    LEADER,
    OTHER,
    SETTINGS,
    T0,
    T1,
    T2,
    Driver,
    Said,
    info,
    positions,
    spans,
    view,
    where,
)

# ---------------------------------------------------------------------------------------------------------- pauses


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(100, 1_000)
    assert [exponential_pause_ms(backoff, count) for count in (1, 2, 3, 4, 5, 6, 1_000)] == [
        100, 200, 400, 800, 1_000, 1_000, 1_000,
    ]  # fmt: skip


@pytest.mark.parametrize(("jitter", "expected"), [(0.0, 80), (0.5, 100), (0.999999, 120)])
def test_pauses_differ_by_a_fifth(jitter: float, expected: int) -> None:
    # Java's ExponentialBackoff: clients that failed together do not come back together.
    assert exponential_pause_ms(Backoff(100, 1_000), 1, lambda: jitter) == expected


def test_a_pause_is_never_none_at_all() -> None:
    assert exponential_pause_ms(Backoff(1, 1), 1, lambda: 0.0) == 1


@pytest.mark.parametrize(("jitter", "pause_ms"), [(0.0, 80), (0.5, 100), (0.999999, 120)])
def test_the_engine_pauses_with_jitter(jitter: float, pause_ms: int) -> None:
    driver = Driver(OffsetRange(T0, 100, 200), jitter=jitter)
    driver.answer(driver.fetch(), code=codes.NOT_LEADER_OR_FOLLOWER)
    began_ms = driver.now_ms
    driver.next_fetch(view())
    assert driver.now_ms - began_ms == pause_ms


def pauses_until_answer(driver: Driver, sent: SendFetch, count: int, **said: Any) -> list[int]:
    """Answer so many requests alike; return the pauses after them."""
    pauses = []
    for _ in range(count):
        driver.answer(sent, **said)
        began_ms = driver.now_ms
        sent = driver.next_fetch(view())
        pauses.append(driver.now_ms - began_ms)
    driver.answer(sent, **said)
    return pauses


@pytest.mark.parametrize("code", [codes.UNKNOWN_LEADER_EPOCH, codes.UNKNOWN_SERVER_ERROR])
def test_errors_that_need_no_metadata_are_paced_all_the_same(code: int) -> None:
    # 2.3: Java retries UNKNOWN_LEADER_EPOCH at round-trip speed.
    driver = Driver(OffsetRange(T0, 100, 200))
    assert pauses_until_answer(driver, driver.fetch(), 5, code=code) == [20, 40, 80, 160, 200]
    assert driver.metadata_count == 0


def test_an_empty_answer_that_comes_at_once_is_paced() -> None:
    # 3.3: between high watermark and log end, at the leader too; franz-go #885.
    driver = Driver(OffsetRange(T0, 100, 200))
    assert pauses_until_answer(driver, driver.fetch(), 6, high_watermark=90) == [20, 40, 80, 160, 200, 200]


def test_progress_makes_pauses_short_again() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    assert pauses_until_answer(driver, driver.fetch(), 3, code=codes.KAFKA_STORAGE_ERROR) == [100, 200, 400]
    driver.answer(driver.next_fetch(view()), next_offset=110)
    sent = driver.fetch()
    assert pauses_until_answer(driver, sent, 2, code=codes.KAFKA_STORAGE_ERROR) == [100, 200]


def test_each_topic_partition_pauses_for_itself() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    driver.answer(driver.fetch(), {T0: Said(code=codes.KAFKA_STORAGE_ERROR), T1: Said(next_offset=110)})
    assert positions(driver.fetch()) == {T1: 110}


def test_a_node_that_does_not_answer_is_left_alone_for_a_growing_while() -> None:
    # 2.2: "node in reconnect backoff: skipped". What it served as a follower is read at the leader meanwhile.
    driver = Driver(OffsetRange(T0, 100, 200))
    pauses = []
    for _ in range(6):
        began_ms = driver.now_ms
        sent = driver.next_fetch(view())
        pauses.append(driver.now_ms - began_ms)
        driver.fail(sent)
    assert pauses == [0, 100, 200, 400, 800, 1_000]


def test_a_node_that_answers_again_is_trusted_again() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    driver.fail(driver.fetch())
    driver.answer(driver.next_fetch(view()), next_offset=110)
    driver.fail(driver.fetch())
    began_ms = driver.now_ms
    driver.next_fetch(view())
    assert driver.now_ms - began_ms == 100


# ------------------------------------------------------------------------------------------------------- throttling


def test_a_throttled_node_is_left_alone_for_as_long_as_it_says() -> None:
    # KIP-219, 3.5: the broker answers at once, and the client holds back.
    driver = Driver(OffsetRange(T0, 100, 200))
    events = driver.answer(driver.fetch(), next_offset=110, throttle_ms=3_000)
    assert spans(events) == [(T0, 100, 110)]
    throttled_ms = driver.now_ms
    driver.next_fetch()
    assert driver.now_ms - throttled_ms == 3_000


def test_other_nodes_are_read_on_meanwhile() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200), shipped=view(info(T1, leader=OTHER)))
    fetches = driver.fetches()
    driver.answer(fetches[LEADER], next_offset=110, throttle_ms=3_000)
    driver.answer(fetches[OTHER], next_offset=110)
    assert set(driver.fetches()) == {OTHER}


def test_a_throttled_follower_is_not_late() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), next_offset=110, throttle_ms=3_000)
    driver.answer(driver.next_fetch(), high_watermark=110)
    assert driver.next_fetch().plan.node_id == FOLLOWER


# ------------------------------------------------------------------------------------------- turns and request pacing


def test_one_request_per_node_carries_all_its_topic_partitions_and_they_take_turns() -> None:
    # KIP-74, KAFKA-12330: brokers fill an answer in request order.
    driver = Driver(*(OffsetRange(each, 0, 1_000) for each in (T0, T1, T2)))
    sent = driver.fetch()
    assert list(positions(sent)) == [T0, T1, T2]
    driver.answer(sent, {T0: Said(next_offset=10), T1: Said(), T2: Said()})
    sent = driver.fetch()
    assert list(positions(sent)) == [T1, T2, T0]
    driver.answer(sent, {T0: Said(next_offset=20), T1: Said(next_offset=10), T2: Said()})
    assert list(positions(driver.fetch())) == [T2, T1, T0]


def test_a_node_has_one_request_under_way_at_a_time() -> None:
    driver = Driver(OffsetRange(T0, 0, 1_000), OffsetRange(T1, 0, 1_000))
    sent = driver.fetch()
    driver.pass_ms(10_000)
    assert driver.actions() == ()
    driver.answer(sent, next_offset=10)
    assert set(driver.fetches()) == {LEADER}


def test_a_topic_partition_that_became_ready_waits_for_the_answer_that_is_under_way() -> None:
    driver = Driver(OffsetRange(T0, 0, 1_000), OffsetRange(T1, 0, 1_000))
    driver.answer(driver.fetch(), {T0: Said(high_watermark=0), T1: Said(next_offset=10)})
    sent = driver.fetch()
    driver.pass_ms(20)
    assert (positions(sent), driver.actions()) == ({T1: 10}, ())
    driver.answer(sent, next_offset=20)
    assert positions(driver.fetch()) == {T0: 0, T1: 20}


def test_the_engine_names_an_instant_to_come_at_which_something_is_due() -> None:
    # pull 23014: a busy loop when no request could be built.
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch()
    assert driver.engine.wake_at_ms(driver.now_ms) > driver.now_ms, "all is under way"
    driver.answer(sent, high_watermark=100)
    assert driver.engine.wake_at_ms(driver.now_ms) == driver.now_ms + 20
    driver.engine.on_read_ended()
    assert driver.engine.wake_at_ms(driver.now_ms) > driver.now_ms, "nothing is wanted"


def test_an_empty_range_is_finished_before_anything_is_asked() -> None:
    driver = Driver(OffsetRange(T0, 7, 7))
    assert driver.engine.is_finished
    assert driver.actions() == ()


def test_what_a_broker_says_twice_in_one_answer_counts_once() -> None:
    # 9.1: franz-go guards against it.
    driver = Driver(OffsetRange(T0, 100, 200))
    first, second = Said(next_offset=110), Said(code=codes.NOT_LEADER_OR_FOLLOWER)
    reply = FetchReply(0, 0, 0, (first.reply(T0), second.reply(T0)))
    events = driver.engine.on_fetch_reply(driver.fetch(), reply, {T0: first.scan()}, driver.now_ms)
    assert spans(events) == [(T0, 100, 110)]


# ------------------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("offset_count", "bytes_per_offset", "expected"),
    [
        pytest.param(10, None, 1_000_000, id="nothing was seen yet"),
        pytest.param(10, 100.0, 1_000 + 16_384, id="what is left, and one usual batch"),
        pytest.param(1_000_000, 100.0, 1_000_000, id="never more than the limit"),
        pytest.param(0, 100.0, 16_384, id="nothing is left"),
    ],
)
def test_so_many_bytes_are_asked_for(offset_count: int, bytes_per_offset: float | None, expected: int) -> None:
    # 13.2: consecutive small ranges fetched up to 20 times what they needed.
    assert plan_partition_bytes(offset_count, bytes_per_offset, 1_000_000) == expected


def test_little_is_asked_for_beyond_the_end_of_a_range() -> None:
    driver = Driver(OffsetRange(T0, 0, 20))
    sent = driver.fetch()
    assert (sent.plan.max_bytes, sent.plan.partitions[0].partition_max_bytes) == (50_000_000, 1_000_000)
    driver.answer(sent, next_offset=10)  # 1,000 bytes for 10 offsets
    assert driver.fetch().plan.partitions[0].partition_max_bytes == 10 * 100 + 16_384


def test_what_was_seen_of_a_topic_partition_counts_in_the_next_read() -> None:
    driver = Driver(OffsetRange(T0, 0, 10))
    driver.answer(driver.fetch(), next_offset=10)
    driver.start(OffsetRange(T0, 10, 12))
    assert driver.fetch().plan.partitions[0].partition_max_bytes == 2 * 100 + 16_384


# --------------------------------------------------------------------------------------------------------- giving up


def test_leader_errors_are_retried_and_end_in_an_error_that_names_the_cause() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch()
    asked_ms: list[int] = []
    with pytest.raises(RangeTimedOut, match=r"t-0.*offset 100.*ends at 200.*NOT_LEADER_OR_FOLLOWER") as raised:  # noqa: PT012 - until it ends
        while True:
            asked_ms.append(driver.now_ms)
            driver.answer(sent, code=codes.NOT_LEADER_OR_FOLLOWER)
            sent = driver.next_fetch(view(), within_ms=200_000)
    assert [after - before for before, after in itertools.pairwise(asked_ms)][:5] == [100, 200, 400, 800, 1_000]
    assert len(asked_ms) < 130
    assert SETTINGS.progress_timeout_ms <= raised.value.waited_ms <= SETTINGS.progress_timeout_ms + 1_000


def test_a_range_is_given_up_although_another_gets_on() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 0, 10_000))
    next_offset = 0
    with pytest.raises(RangeTimedOut, match=r"t-0.*broker 1 .* shows offsets up to 100"):  # noqa: PT012 - until it ends
        while True:
            sent = driver.next_fetch(view())
            next_offset += 1
            said = {T0: Said(high_watermark=100), T1: Said(next_offset=next_offset)}
            driver.pass_ms(500)
            driver.answer(sent, {each: said[each] for each in sent.asked})


def test_without_any_answer_the_error_says_so() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.fetch()
    driver.pass_ms(SETTINGS.progress_timeout_ms)
    with pytest.raises(RangeTimedOut, match="no broker answered"):
        driver.actions()


def test_time_in_which_nobody_took_rows_does_not_count() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch()
    driver.pass_ms(500_000)
    driver.engine.on_resumed(500_000)
    driver.answer(sent, next_offset=150)
    assert positions(driver.fetch()) == {T0: 150}


def test_time_in_which_nobody_took_rows_is_no_lateness_of_a_follower() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.to_follower()
    driver.pass_ms(5_000)
    driver.engine.on_resumed(5_000)
    driver.answer(sent, high_watermark=100)
    sent = driver.next_fetch()
    assert where(sent) != (LEADER, LEADER_ONLY_VERSION)
