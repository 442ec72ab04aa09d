"""Positions against the leader's log: leader epochs, truncation (KIP-320), and leaders that errors name (KIP-951).

Cases of reference 5.2 and 10.6, and of librdkafka's 0139 and 0146 (10.5); `test_engine_bounds` has out-of-range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connector.config.settings import ReplicaSelection
from connector.errors import BrokerError, LogTruncated, LossReason
from connector.fetch.actions import SendFetch, SendOffsetForLeaderEpoch
from connector.fetch.outcome import Discard, RefreshMetadata, Skip
from connector.model import NO_EPOCH, NO_NODE, EpochAnswer, EpochQuery, Node, OffsetRange
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import (
    FOLLOWER,
    LEADER,
    OTHER,
    T0,
    T1,
    Driver,
    Said,
    info,
    positions,
    spans,
    view,
    where,
)

NEXT_LEADER = view(leader=OTHER, epoch=6)


def planned(start_epoch: int = 4, **given: Any) -> Driver:
    """A range whose planner knew the epoch of the record before its start."""
    return Driver(OffsetRange(T0, 100, 200, start_epoch), **given)


def validating(driver: Driver) -> SendOffsetForLeaderEpoch:
    return driver.only(SendOffsetForLeaderEpoch)


# ------------------------------------------------------------------------------------------- what is in doubt, and when


def test_a_position_of_an_older_epoch_is_checked_at_the_leader_before_anything_is_read() -> None:
    driver = planned(4)
    sent = validating(driver)
    assert (sent.node_id, sent.queries) == (LEADER, (EpochQuery(T0, 4, 5),))
    driver.epoch_ends(sent, 4, 100)
    assert positions(driver.fetch()) == {T0: 100}


@pytest.mark.parametrize("selection", [ReplicaSelection.BROKER, ReplicaSelection.CLIENT])
def test_only_the_leader_is_asked_also_while_a_replica_is_read(selection: ReplicaSelection) -> None:
    # 5.1: OffsetForLeaderEpoch is leader-only.
    driver = Driver(OffsetRange(T0, 0, 100), replica_selection=selection)
    driver.answer(driver.to_follower() if selection is ReplicaSelection.BROKER else driver.fetch(), next_offset=100)
    driver.start(OffsetRange(T0, 100, 200, 4))
    sent = validating(driver)
    assert sent.node_id == LEADER
    driver.epoch_ends(sent, 4, 100)
    assert driver.fetch().plan.node_id == FOLLOWER


@pytest.mark.parametrize("start_epoch", [5, NO_EPOCH])
def test_a_position_of_the_leaders_own_epoch_or_of_none_is_read_at_once(start_epoch: int) -> None:
    # librdkafka 0139: "no validation when epoch is unchanged or -1".
    assert positions(planned(start_epoch).fetch()) == {T0: 100}


def test_where_the_leaders_epoch_is_not_known_nothing_is_checked() -> None:
    # 5.2: "needs both the offset epoch and the current epoch; otherwise straight to fetching".
    assert positions(planned(4, shipped=view(epoch=NO_EPOCH)).fetch()) == {T0: 100}


def test_a_change_of_leader_puts_the_position_in_doubt() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.fetch(), next_offset=110, batch_epoch=5)
    driver.metadata(NEXT_LEADER)
    sent = validating(driver)
    assert (sent.node_id, sent.queries) == (OTHER, (EpochQuery(T0, 5, 6),))
    driver.epoch_ends(sent, 5, 110)
    assert (driver.fetch().plan.node_id, driver.engine.is_finished) == (OTHER, False)


def test_the_positions_epoch_is_that_of_the_batch_last_read() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.fetch(), next_offset=110, batch_epoch=3)
    driver.answer(driver.fetch(), next_offset=120, batch_epoch=4)
    driver.metadata(NEXT_LEADER)
    assert validating(driver).queries == (EpochQuery(T0, 4, 6),)


def test_after_a_batch_without_an_epoch_the_position_has_none() -> None:
    # 5.2: "partition leader epoch of the batch last consumed, -1/none if unknown"; an old log's first format (8.4).
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.fetch(), next_offset=110, batch_epoch=4)
    driver.answer(driver.fetch(), next_offset=120, batch_epoch=NO_EPOCH)
    driver.metadata(NEXT_LEADER)
    assert positions(driver.fetch()) == {T0: 120}


def test_a_bumped_epoch_of_the_same_leader_puts_the_position_in_doubt() -> None:
    driver = planned(5)
    driver.metadata(view(epoch=6))
    assert validating(driver).queries == (EpochQuery(T0, 5, 6),)


def test_a_position_is_checked_once_for_each_epoch_of_the_leader() -> None:
    driver = planned(4)
    driver.epoch_ends(validating(driver), 4, 150)
    driver.metadata(view())
    driver.answer(driver.fetch(), next_offset=110, batch_epoch=4)
    driver.metadata(view())
    assert positions(driver.fetch()) == {T0: 110}, "the leader that gave the records knows them"


def test_two_changes_of_leader_in_a_row_are_no_endless_loop() -> None:
    # librdkafka 0139; 10.6: a late answer is ignored.
    driver = planned(5)
    driver.metadata(NEXT_LEADER)
    late = validating(driver)
    driver.metadata(view(leader=FOLLOWER, epoch=7))
    assert driver.actions() == (), "the first question is under way"
    assert driver.epoch_ends(late, 5, 40).decisions == (), "no truncation: that leader has no word any more"
    sent = validating(driver)
    assert (sent.node_id, sent.queries) == (FOLLOWER, (EpochQuery(T0, 5, 7),))
    driver.epoch_ends(sent, 5, 100)
    assert driver.fetch().plan.node_id == FOLLOWER


def test_an_older_leader_in_metadata_does_not_win_while_the_position_is_checked() -> None:
    # librdkafka 0146: "stale leader in metadata during validation must not win".
    driver = planned(5)
    driver.metadata(NEXT_LEADER)
    sent = validating(driver)
    driver.metadata(view())
    driver.epoch_ends(sent, 5, 100)
    assert driver.fetch().plan.node_id == OTHER


def test_metadata_of_an_older_epoch_is_ignored() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.metadata(view(leader=OTHER, epoch=4))
    assert where(driver.fetch()) == (LEADER, None)


def test_metadata_that_is_older_than_the_position_is_not_believed() -> None:
    driver = planned(7)
    assert driver.actions() != (), "metadata is asked for"
    assert (driver.fetches(), driver.metadata_count) == ({}, 1)
    driver.metadata(view(leader=OTHER, epoch=7))
    assert driver.fetch().plan.node_id == OTHER


# ------------------------------------------------------------------------------------------------ answers that are late


def test_records_that_arrive_while_the_position_is_in_doubt_are_discarded() -> None:
    # librdkafka 0139: "no duplicates when a fetch response arrives during validation".
    driver = planned(5)
    sent = driver.fetch()
    driver.metadata(NEXT_LEADER)
    assert driver.actions() == (), "nobody else is asked before the first answer is in"
    events = driver.answer(sent, next_offset=150)
    assert [type(each.outcome) for each in events.decisions] == [Discard]
    assert events.deliveries == ()
    driver.epoch_ends(validating(driver), 5, 100)
    assert positions(driver.fetch()) == {T0: 100}


@pytest.mark.parametrize("said", [{"preferred": FOLLOWER}, {"code": codes.OFFSET_OUT_OF_RANGE}], ids=str)
def test_nothing_else_of_such_an_answer_counts_either(said: dict[str, Any]) -> None:
    driver = planned(5)
    sent = driver.fetch()
    driver.metadata(NEXT_LEADER)
    driver.answer(sent, **said)
    assert driver.preferred() == NO_NODE
    assert isinstance(validating(driver), SendOffsetForLeaderEpoch)


def test_records_of_the_old_leader_put_the_position_in_doubt_when_they_bring_its_epoch() -> None:
    # 5.2: the position (150, epoch 5) is of another leader epoch than metadata's 6, whichever was heard of first.
    driver = Driver(OffsetRange(T0, 100, 200))
    sent = driver.fetch()
    driver.metadata(NEXT_LEADER)
    assert spans(driver.answer(sent, next_offset=150, batch_epoch=5)) == [(T0, 100, 150)]
    sent_next = validating(driver)
    assert (sent_next.node_id, sent_next.queries) == (OTHER, (EpochQuery(T0, 5, 6),))


# ---------------------------------------------------------------------------------------------------------- truncation


@pytest.mark.parametrize(
    ("epoch", "end_offset", "divergent_offset"), [(3, 90, 90), (4, 99, 99), (-1, -1, -1)], ids=["older", "same", "none"]
)
def test_a_truncated_log_is_an_error(epoch: int, end_offset: int, divergent_offset: int) -> None:
    driver = planned(4)
    with pytest.raises(
        LogTruncated, match=r"t-0: the log was truncated before offset 100 \(leader epoch 4\)"
    ) as raised:
        driver.epoch_ends(validating(driver), epoch, end_offset)
    assert (raised.value.divergent_offset, raised.value.reason) == (divergent_offset, LossReason.TRUNCATED)


def test_where_loss_is_not_fatal_it_is_counted_and_offsets_count_on_in_the_log_that_there_is() -> None:
    driver = planned(4, is_data_loss_fatal=False)
    events = driver.epoch_ends(validating(driver), 3, 90)
    (decision,) = events.decisions
    assert isinstance(decision.outcome, Skip)
    assert (decision.outcome.next_offset, decision.outcome.skipped_count) == (100, 10)
    assert positions(driver.fetch()) == {T0: 100}
    driver.metadata(NEXT_LEADER)
    assert driver.actions() == ()
    # The epoch was of the log that is gone: asking for it again would count the same loss twice.


def test_a_question_that_is_refused_is_asked_again_with_pauses_and_nothing_is_reset() -> None:
    # librdkafka 0139: "permanent validation error retried, no reset".
    driver = planned(4)
    pauses = []
    for code in (6, 74, 75, 78, 3, -1):
        began_ms = driver.now_ms
        sent = driver.next_due(SendOffsetForLeaderEpoch, view())
        pauses.append(driver.now_ms - began_ms)
        (decision,) = driver.epoch_ends(sent, -1, -1, code).decisions
        assert isinstance(decision.outcome, RefreshMetadata)
    assert pauses == [0, 100, 200, 400, 800, 1_000]
    assert driver.metadata_count == 5
    driver.epoch_ends(driver.next_due(SendOffsetForLeaderEpoch, view()), 4, 100)
    assert positions(driver.fetch()) == {T0: 100}


def test_a_missing_right_to_ask_is_raised() -> None:
    driver = planned(4)
    with pytest.raises(BrokerError, match="Grant DESCRIBE"):
        driver.epoch_ends(validating(driver), -1, -1, codes.TOPIC_AUTHORIZATION_FAILED)


def test_a_leader_that_does_not_know_the_question_is_read_without_it() -> None:
    # 5.1, 10.6: "leader without v3: skipped".
    driver = planned(4)
    driver.epoch_ends(validating(driver), -1, -1, codes.UNSUPPORTED_VERSION)
    assert positions(driver.fetch()) == {T0: 100}


def test_a_question_without_an_answer_is_asked_again() -> None:
    driver = planned(4)
    driver.fail(validating(driver))
    assert driver.next_due(SendOffsetForLeaderEpoch, view()).queries == (EpochQuery(T0, 4, 5),)


def test_each_topic_partition_of_an_answer_counts_for_itself() -> None:
    # 10.6: "partial success per partition".
    driver = Driver(OffsetRange(T0, 100, 200, 4), OffsetRange(T1, 100, 200, 4))
    sent = validating(driver)
    assert len(sent.queries) == 2
    driver.engine.on_epoch_end_offsets(sent, [EpochAnswer(T0, 0, 4, 100)], driver.now_ms)
    assert positions(driver.fetch()) == {T0: 100}
    assert driver.metadata_count == 1, "an answer that leaves one out proves nothing about it"


@pytest.mark.parametrize(
    "follow_up", [lambda driver: driver.fetch(), lambda driver: driver.to_follower()], ids=["leader", "follower"]
)
def test_a_diverging_epoch_is_asked_about_at_the_leader(follow_up: Callable[[Driver], SendFetch]) -> None:
    # 5.4: brokers tell it only who sends a last fetched epoch, and a follower that lags tells a false one.
    driver = planned(5)
    sent = follow_up(driver)
    driver.answer(sent, diverging=(5, 90))
    if sent.plan.node_id == FOLLOWER:
        assert positions(driver.fetch()) == {T0: 100}
        return
    sent_next = validating(driver)
    with pytest.raises(LogTruncated, match="ends at 90"):
        driver.epoch_ends(sent_next, 5, 90)


# ----------------------------------------------------------------------------------- leaders that errors name (KIP-951)

NODE_4 = Node(4, "h4", 9004, "az-d")


@pytest.mark.parametrize("code", [codes.NOT_LEADER_OR_FOLLOWER, codes.FENCED_LEADER_EPOCH])
def test_a_newer_leader_that_an_error_names_is_asked_at_once(code: int) -> None:
    # 10.1: "metadata gets node and leader, position follows"; librdkafka 0146.
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.fetch(), code=code, leader=(4, 6), nodes=[NODE_4])
    sent = driver.fetch()
    assert (where(sent), sent.plan.partitions[0].current_leader_epoch) == ((4, None), 6)
    assert driver.metadata_count == 1, "metadata is asked for all the same (2.3)"


def test_a_newer_leader_that_an_error_names_puts_the_position_in_doubt() -> None:
    driver = planned(5)
    driver.answer(driver.fetch(), code=codes.NOT_LEADER_OR_FOLLOWER, leader=(4, 6), nodes=[NODE_4])
    sent = validating(driver)
    assert (sent.node_id, sent.queries) == (4, (EpochQuery(T0, 5, 6),))


@pytest.mark.parametrize(
    ("leader", "nodes"),
    [
        pytest.param((4, 5), [NODE_4], id="the same epoch"),
        pytest.param((4, 4), [NODE_4], id="an older epoch"),
        pytest.param((4, 6), [], id="an unknown address"),
        pytest.param((-1, 6), [NODE_4], id="no leader"),
        pytest.param((4, -1), [NODE_4], id="no epoch"),
    ],
)
def test_a_leader_that_is_not_news_or_can_not_be_found_is_ignored(leader: tuple[int, int], nodes: list[Node]) -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.fetch(), code=codes.NOT_LEADER_OR_FOLLOWER, leader=leader, nodes=nodes)
    assert driver.fetches() == {}
    assert driver.metadata_count == 1
    assert where(driver.next_fetch(view())) == (LEADER, None)


def test_metadata_that_has_not_heard_of_such_a_leader_does_not_take_it_back() -> None:
    driver = Driver(OffsetRange(T0, 100, 200))
    driver.answer(driver.fetch(), code=codes.NOT_LEADER_OR_FOLLOWER, leader=(4, 6), nodes=[NODE_4])
    driver.metadata(view())
    assert driver.fetch().plan.node_id == 4, "nor its address"


def test_only_the_topic_partition_that_it_is_about_loses_its_replica() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    driver.answer(driver.fetch(), preferred=FOLLOWER)
    sent = driver.fetch()
    named = Said(code=codes.NOT_LEADER_OR_FOLLOWER, leader=(4, 6))
    driver.answer(sent, {T0: named, T1: Said(next_offset=110)}, nodes=[NODE_4])
    assert (driver.preferred(T0), driver.preferred(T1)) == (NO_NODE, FOLLOWER)
    assert {node: positions(sent) for node, sent in driver.fetches().items()} == {4: {T0: 100}, FOLLOWER: {T1: 110}}


def test_an_error_that_names_nobody_keeps_the_leader_and_the_rest_of_the_answer() -> None:
    # 10.1: "old leader kept, other partition of the response still delivered and keeps its preferred".
    driver = Driver(OffsetRange(T0, 100, 200), OffsetRange(T1, 100, 200))
    driver.answer(driver.fetch(), preferred=FOLLOWER)
    events = driver.answer(driver.fetch(), {T0: Said(code=codes.FENCED_LEADER_EPOCH), T1: Said(next_offset=110)})
    assert spans(events) == [(T1, 100, 110)]
    assert (driver.preferred(T0), driver.preferred(T1)) == (NO_NODE, FOLLOWER)
    assert set(driver.fetches()) == {LEADER, FOLLOWER}
    assert driver.metadata_count == 1


def test_an_election_without_a_leader_is_waited_for() -> None:
    driver = Driver(OffsetRange(T0, 100, 200), shipped=view(info(leader=NO_NODE, code=codes.LEADER_NOT_AVAILABLE)))
    assert driver.fetches() == {}
    assert driver.metadata_count == 1
    driver.metadata(NEXT_LEADER)
    assert driver.fetch().plan.node_id == OTHER
