"""Offsets that the leader refuses: what it holds is asked for, and tells lost records from those that are yet to come.

Cases of reference section 6, 10.5 and 10.6.
"""

from __future__ import annotations

from typing import Any

import pytest

from connector.errors import BrokerError, LogTruncated, LossReason, OffsetsAgedOut
from connector.fetch.actions import FetchEvents, SendListOffsets, SendOffsetForLeaderEpoch
from connector.fetch.outcome import LookUpOffsets, RefreshMetadata, Skip, ValidateEpoch, Wait
from connector.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    NO_NODE,
    READ_COMMITTED,
    EpochQuery,
    OffsetAnswer,
    OffsetQuery,
    OffsetRange,
)
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import (
    EPOCH,
    LEADER,
    OTHER,
    T0,
    T1,
    Driver,
    Said,
    positions,
    spans,
    view,
    where,
)


def refused(*ranges: OffsetRange, **given: Any) -> Driver:
    """Ranges that the leader refused, after it was asked for the end of the epoch that is known, if any."""
    driver = Driver(*(ranges or [OffsetRange(T0, 100, 200)]), **given)
    events = driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    if ranges and ranges[0].start_epoch != NO_EPOCH:
        assert {type(each.outcome) for each in events.decisions} == {ValidateEpoch}
        driver.epoch_ends(driver.only(SendOffsetForLeaderEpoch), ranges[0].start_epoch, ranges[0].start_offset)
        events = driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    assert {type(each.outcome) for each in events.decisions} == {LookUpOffsets}
    return driver


def bounds(driver: Driver, log_start_offset: int, log_end_offset: int) -> FetchEvents:
    """Answer both questions; return what the second led to."""
    driver.offsets(driver.only(SendListOffsets), log_start_offset)
    return driver.offsets(driver.only(SendListOffsets), log_end_offset)


def test_with_an_epoch_the_leader_is_asked_for_its_end_before_bounds() -> None:
    # 11.4: OFFSET_OUT_OF_RANGE does not say more; the end of the epoch tells where the histories part.
    driver = Driver(OffsetRange(T0, 100, 200, EPOCH))
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    sent = driver.only(SendOffsetForLeaderEpoch)
    assert (sent.node_id, sent.queries) == (LEADER, (EpochQuery(T0, EPOCH, EPOCH),))
    with pytest.raises(LogTruncated, match="ends at 90"):
        driver.epoch_ends(sent, EPOCH, 90)


def test_the_epoch_is_asked_about_once_for_a_position() -> None:
    driver = refused(OffsetRange(T0, 100, 200, EPOCH))
    bounds(driver, 0, 500)
    driver.answer(driver.next_fetch(view()), next_offset=110)
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    assert driver.only(SendOffsetForLeaderEpoch).queries[0].leader_epoch == EPOCH, "another position"


def test_the_leader_is_asked_for_one_bound_after_the_other() -> None:
    # Section 6: the same topic-partition twice in a request is an error. librdkafka #4616: never a follower.
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.to_follower(), code=codes.OFFSET_OUT_OF_RANGE)
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    for timestamp, log_offset in ((EARLIEST_TIMESTAMP, 0), (LATEST_TIMESTAMP, 500)):
        sent = driver.only(SendListOffsets)
        assert (sent.node_id, sent.replica_id) == (LEADER, NO_NODE)
        assert sent.queries == (OffsetQuery(T0, timestamp, EPOCH),)
        driver.offsets(sent, log_offset)


def test_deleted_offsets_are_an_error_that_names_both() -> None:
    driver = refused()
    with pytest.raises(OffsetsAgedOut, match=r"t-0: offset 100 was deleted.*the log begins at 150") as raised:
        bounds(driver, 150, 900)
    assert raised.value.reason is LossReason.AGED_OUT


def test_offsets_above_the_log_are_an_error_too() -> None:
    driver = refused()
    with pytest.raises(LogTruncated, match=r"truncated before offset 100.*ends at 99"):
        bounds(driver, 0, 99)


@pytest.mark.parametrize(
    ("log_bounds", "next_offset", "skipped_count"),
    [((150, 900), 150, 50), ((300, 900), 200, 100), ((0, 99), 200, 100)],
    ids=["to the log start", "the whole range is deleted", "the log ends below"],
)
def test_where_loss_is_not_fatal_it_is_counted_and_reading_goes_on(
    log_bounds: tuple[int, int], next_offset: int, skipped_count: int
) -> None:
    driver = refused(is_data_loss_fatal=False)
    (decision,) = bounds(driver, *log_bounds).decisions
    assert isinstance(decision.outcome, Skip)
    assert (decision.outcome.next_offset, decision.outcome.skipped_count) == (next_offset, skipped_count)
    if next_offset == 200:
        assert driver.engine.is_finished
        assert driver.actions() == ()
    else:
        assert positions(driver.fetch()) == {T0: next_offset}


def test_after_a_skip_the_position_has_no_epoch() -> None:
    # 5.2: "a position produced by an offset reset has no offset epoch, hence is not validated".
    driver = refused(OffsetRange(T0, 100, 200, EPOCH), is_data_loss_fatal=False)
    bounds(driver, 150, 900)
    driver.metadata(view(leader=OTHER, epoch=6))
    sent = driver.fetch()
    assert (sent.plan.node_id, positions(sent)) == (OTHER, {T0: 150})


@pytest.mark.parametrize("log_bounds", [(0, 500), (100, 100)])
def test_an_offset_that_is_in_range_by_then_is_fetched_again_after_a_growing_pause(log_bounds: tuple[int, int]) -> None:
    driver = refused()
    pauses = []
    for _ in range(4):
        (decision,) = bounds(driver, *log_bounds).decisions
        assert isinstance(decision.outcome, Wait)
        began_ms = driver.now_ms
        sent = driver.next_fetch(view())
        pauses.append(driver.now_ms - began_ms)
        assert positions(sent) == {T0: 100}
        driver.answer(sent, code=codes.OFFSET_OUT_OF_RANGE)
    assert pauses == [20, 40, 80, 160]


def test_a_log_end_is_asked_for_as_what_exists_whatever_the_isolation() -> None:
    driver = refused(isolation_level=READ_COMMITTED)
    bounds(driver, 0, 100)
    sent = driver.next_fetch()
    assert positions(sent) == {T0: 100}, "offset 100 is the end of the log, not above it"
    assert sent.plan.isolation_level == READ_COMMITTED


@pytest.mark.parametrize("refused_at", [EARLIEST_TIMESTAMP, LATEST_TIMESTAMP])
def test_a_bound_that_is_refused_is_asked_for_again_with_pauses(refused_at: int) -> None:
    # 10.6: "retriable codes: backoff + metadata"; librdkafka #4620 looped with a stale epoch.
    driver = refused()
    if refused_at == LATEST_TIMESTAMP:
        driver.offsets(driver.only(SendListOffsets), 0)
    pauses = []
    for code in (6, 9, 56, 78, 5, 74, 75, 3, -1):
        began_ms = driver.now_ms
        sent = driver.next_due(SendListOffsets, view())
        pauses.append(driver.now_ms - began_ms)
        assert [each.timestamp for each in sent.queries] == [refused_at]
        (decision,) = driver.offsets(sent, -1, code).decisions
        assert isinstance(decision.outcome, RefreshMetadata)
        assert codes.error_name(code) in decision.outcome.problem
    assert pauses[:6] == [0, 100, 200, 400, 800, 1_000]
    assert driver.metadata_count == 8


def test_a_missing_right_to_ask_is_raised() -> None:
    driver = refused()
    with pytest.raises(BrokerError, match="Grant DESCRIBE"):
        driver.offsets(driver.only(SendListOffsets), -1, codes.TOPIC_AUTHORIZATION_FAILED)


def test_a_question_without_an_answer_is_asked_again() -> None:
    driver = refused()
    driver.fail(driver.only(SendListOffsets))
    assert driver.next_due(SendListOffsets, view()).node_id == LEADER


def test_an_answer_that_leaves_a_topic_partition_out_proves_nothing() -> None:
    driver = refused(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    sent = driver.only(SendListOffsets)
    assert len(sent.queries) == 2
    driver.engine.on_offsets(sent, [OffsetAnswer(T1, 0, 0)], driver.now_ms)
    sent = driver.only(SendListOffsets)
    assert sent.queries == (OffsetQuery(T1, LATEST_TIMESTAMP, EPOCH),)
    driver.engine.on_offsets(sent, [OffsetAnswer(T1, 0, 500)], driver.now_ms)
    driver.pass_ms(100)
    sent = driver.only(SendListOffsets)
    assert sent.queries == (OffsetQuery(T0, EARLIEST_TIMESTAMP, EPOCH),), "questions go before fetches"


def test_bounds_of_two_kinds_are_asked_for_together() -> None:
    driver = refused(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    answers = [OffsetAnswer(T0, 0, 0), OffsetAnswer(T1, codes.NOT_LEADER_OR_FOLLOWER, -1)]
    driver.engine.on_offsets(driver.only(SendListOffsets), answers, driver.now_ms)
    driver.pass_ms(100)
    sent = driver.only(SendListOffsets)
    assert sent.queries == (OffsetQuery(T0, LATEST_TIMESTAMP, EPOCH), OffsetQuery(T1, EARLIEST_TIMESTAMP, EPOCH))


@pytest.mark.parametrize("first_log_start", [None, 150], ids=["while the start is asked for", "while the end is"])
def test_a_bound_of_a_leader_that_is_none_any_more_is_ignored(first_log_start: int | None) -> None:
    driver = refused()
    if first_log_start is not None:
        driver.offsets(driver.only(SendListOffsets), first_log_start)
    sent = driver.only(SendListOffsets)
    driver.metadata(view(leader=OTHER, epoch=6))
    assert driver.offsets(sent, 150).decisions == ()
    assert driver.only(SendListOffsets).node_id == OTHER


@pytest.mark.parametrize("known_bounds", [0, 1])
def test_with_an_epoch_a_new_leader_is_asked_for_its_end_before_bounds(known_bounds: int) -> None:
    driver = refused(OffsetRange(T0, 100, 200, EPOCH))
    for _ in range(known_bounds):
        driver.offsets(driver.only(SendListOffsets), 150)
    driver.metadata(view(leader=OTHER, epoch=6))
    sent = driver.only(SendOffsetForLeaderEpoch)
    assert sent.node_id == OTHER
    driver.epoch_ends(sent, EPOCH, 100)
    assert where(driver.fetch()) == (OTHER, None), "the new leader may hold what the old one refused"


def test_an_offset_that_the_leader_refuses_although_it_knows_its_epoch_is_settled_by_bounds() -> None:
    driver = Driver(OffsetRange(T0, 100, 200, 4))
    driver.epoch_ends(driver.only(SendOffsetForLeaderEpoch), 4, 100)
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    with pytest.raises(OffsetsAgedOut):
        bounds(driver, 150, 900)


def test_a_leader_whose_epoch_is_not_known_is_asked_for_bounds_and_not_for_an_epoch() -> None:
    # Brokers before 2.4: no epoch in metadata is relied on (1.2), so that there is nothing to validate under (5.2).
    driver = Driver(OffsetRange(T0, 100, 200, 4), shipped=view(epoch=NO_EPOCH))
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE)
    with pytest.raises(OffsetsAgedOut):
        bounds(driver, 150, 900)


def test_a_leader_that_contradicts_itself_is_asked_with_pauses() -> None:
    # 11.2: a round without progress and without a wait is a spin. Here it knows the epoch, and says that logs part.
    driver = Driver(OffsetRange(T0, 100, 200, EPOCH))
    driver.answer(driver.fetch(), diverging=(EPOCH, 90))
    driver.epoch_ends(driver.only(SendOffsetForLeaderEpoch), EPOCH, 100)
    pauses = []
    for _ in range(6):
        began_ms = driver.now_ms
        driver.answer(driver.next_fetch(view()), diverging=(EPOCH, 90))
        pauses.append(driver.now_ms - began_ms)
        bounds(driver, 0, 500)
    assert pauses == [0, 20, 40, 80, 160, 200]


def test_others_are_read_on_while_one_waits_for_its_bounds() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    driver.answer(driver.fetch(), {T0: Said(code=codes.OFFSET_OUT_OF_RANGE), T1: Said(next_offset=110)})
    assert driver.offsets(driver.only(SendListOffsets), 0).decisions
    driver.offsets(driver.only(SendListOffsets), 500)
    sent = driver.fetch()
    assert positions(sent) == {T1: 110}
    assert spans(driver.answer(sent, next_offset=120)) == [(T1, 110, 120)]
