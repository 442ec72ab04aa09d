"""Fetch sessions in the engine (KIP-227): when they are used, what requests tell, and what ends them.

What a request tells and what an answer means for the next one is in `test_session`.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from connector.config.settings import ReplicaSelection, SessionUse
from connector.fetch.actions import LEADER_ONLY_VERSION, SendOffsetForLeaderEpoch
from connector.fetch.outcome import AskAgain, RefreshMetadata, ReturnToLeader, Wait
from connector.model import ForgottenPartition, OffsetRange, TopicPartition
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import (
    FOLLOWER,
    LEADER,
    SETTINGS,
    T0,
    T1,
    T2,
    TOPIC_ID,
    Driver,
    Said,
    positions,
    spans,
    token,
    view,
    where,
)

ALWAYS = replace(SETTINGS, session_use=SessionUse.ALWAYS)
SESSIONLESS, ASKS_FOR_ONE = (0, -1), (0, 0)
BOTH = (OffsetRange(T0, 0, 1_000), OffsetRange(T1, 0, 1_000))


def opened(*ranges: OffsetRange) -> Driver:
    """Session 123 at the leader, whose first answer brought offsets 0 to 10 of everything."""
    driver = Driver(*(ranges or BOTH), settings=ALWAYS)
    sent = driver.fetch()
    assert token(sent) == ASKS_FOR_ONE
    driver.answer(sent, next_offset=10, session_id=123)
    return driver


# ------------------------------------------------------------------------------------------------ when they are used


def test_never_means_sessionless_always() -> None:
    driver = Driver(*BOTH, session_use=SessionUse.NEVER)
    for next_offset in (10, 20):
        sent = driver.fetch()
        assert token(sent) == SESSIONLESS
        driver.answer(sent, next_offset=next_offset)


def test_always_asks_for_a_session_with_the_first_request_and_for_one_topic_partition() -> None:
    driver = opened(OffsetRange(T0, 0, 1_000))
    sent = driver.fetch()
    assert (token(sent), positions(sent)) == ((123, 1), {T0: 10})


def test_auto_asks_for_a_session_with_the_second_request_of_a_read_to_a_node() -> None:
    driver = Driver(*BOTH)
    sent = driver.fetch()
    assert token(sent) == SESSIONLESS
    driver.answer(sent, next_offset=10)
    sent = driver.fetch()
    assert token(sent) == ASKS_FOR_ONE
    driver.answer(sent, next_offset=20, session_id=123)
    assert token(driver.fetch()) == (123, 1)


def test_auto_asks_for_none_for_one_topic_partition() -> None:
    driver = Driver(OffsetRange(T0, 0, 1_000))
    for next_offset in (10, 20, 30):
        sent = driver.fetch()
        assert token(sent) == SESSIONLESS
        driver.answer(sent, next_offset=next_offset)


def test_auto_counts_the_requests_of_one_read() -> None:
    # Short reads, as micro-batches are, never get to a session: 1,000 slots are for a whole cluster of clients (4.5).
    driver = Driver(*BOTH)
    for start_offset in (0, 10, 20):
        driver.start(OffsetRange(T0, start_offset, start_offset + 10), OffsetRange(T1, start_offset, start_offset + 10))
        sent = driver.fetch()
        assert token(sent) == SESSIONLESS
        driver.answer(sent, next_offset=start_offset + 10)


def test_a_session_that_is_there_is_used_by_the_next_read_also_for_one_topic_partition() -> None:
    driver = Driver(*BOTH)
    driver.answer(driver.fetch(), next_offset=10)
    driver.answer(driver.fetch(), next_offset=1_000, session_id=123)
    driver.start(OffsetRange(T0, 1_000, 2_000))
    sent = driver.fetch()
    assert token(sent) == (123, 1)
    assert sent.plan.forgotten == (ForgottenPartition(T1, TOPIC_ID),)


def test_the_leader_only_form_leaves_the_session_alone() -> None:
    # It speaks version 10, and a session of names or ids another (4.5: FETCH_SESSION_TOPIC_ID_ERROR).
    driver = opened()
    sent = driver.fetch()
    driver.answer(sent, {T0: Said(preferred=FOLLOWER), T1: Said(next_offset=20)}, session_id=123)
    fetches = driver.fetches()
    assert (token(fetches[LEADER]), positions(fetches[LEADER])) == ((123, 2), {T1: 20})
    driver.answer(fetches[FOLLOWER], code=codes.CORRUPT_MESSAGE)
    driver.answer(fetches[LEADER], next_offset=1_000, session_id=123)
    sent = driver.fetch()
    assert (where(sent), token(sent)) == ((LEADER, LEADER_ONLY_VERSION), SESSIONLESS)
    driver.answer(sent, next_offset=20)
    driver.pass_ms(SETTINGS.leader_only_ms)
    driver.start(OffsetRange(T1, 1_000, 2_000))
    assert token(driver.fetch()) == (123, 3)


def test_leader_selection_may_use_sessions_since_all_its_requests_speak_one_version() -> None:
    driver = Driver(*BOTH, settings=ALWAYS, replica_selection=ReplicaSelection.LEADER)
    driver.answer(driver.fetch(), next_offset=10, session_id=123)
    sent = driver.fetch()
    assert (where(sent), token(sent)) == ((LEADER, LEADER_ONLY_VERSION), (123, 1))


# ----------------------------------------------------------------------------------------------- what requests tell


def test_answers_that_leave_a_topic_partition_out_leave_it_where_it_was() -> None:
    # 10.2: "first full with one partition's data; then empty incremental; then data for the other only".
    driver = Driver(*BOTH, settings=ALWAYS)
    driver.answer(
        driver.fetch(), {T0: Said(next_offset=10, high_watermark=10), T1: Said(high_watermark=0)}, session_id=123
    )
    driver.pass_ms(20)
    sent = driver.fetch()
    assert positions(sent) == {T0: 10}, "what did not move is not told again"
    driver.answer(sent, {}, session_id=123)
    driver.pass_ms(40)
    sent = driver.fetch()
    assert (token(sent), positions(sent)) == ((123, 2), {})
    events = driver.answer(sent, {T1: Said(next_offset=5, high_watermark=5)}, session_id=123)
    assert spans(events) == [(T1, 0, 5)]
    driver.pass_ms(80)
    sent = driver.fetch()
    assert (token(sent), positions(sent)) == ((123, 3), {T1: 5})


def test_an_empty_incremental_answer_is_paced_when_the_offset_is_above_what_the_broker_shows() -> None:
    # 3.3: "in an incremental session such an answer contains no partition at all, back to back".
    driver = opened(OffsetRange(T0, 0, 1_000))
    driver.answer(driver.fetch(), {T0: Said(high_watermark=5)}, session_id=123)
    pauses = []
    for _ in range(4):
        began_ms = driver.now_ms
        sent = driver.next_fetch()
        pauses.append(driver.now_ms - began_ms)
        driver.answer(sent, {}, session_id=123)
    assert pauses == [20, 40, 80, 160]


def test_a_redirected_topic_partition_is_forgotten_at_the_leader() -> None:
    # 4.6, platformatic/kafka #321: else its data comes from a frozen offset again and again.
    driver = opened()
    driver.answer(driver.fetch(), {T0: Said(preferred=FOLLOWER)}, session_id=123)
    driver.pass_ms(20)
    fetches = driver.fetches()
    assert fetches[LEADER].plan.forgotten == (ForgottenPartition(T0, TOPIC_ID),)
    assert (token(fetches[FOLLOWER]), positions(fetches[FOLLOWER])) == (ASKS_FOR_ONE, {T0: 10})


def test_a_leader_without_anything_wanted_is_left_alone() -> None:
    # 4.6: "the leader's session idles with a stale entry until reused: harmless".
    driver = opened(OffsetRange(T0, 0, 1_000))
    driver.answer(driver.fetch(), preferred=FOLLOWER, session_id=123)
    assert set(driver.fetches()) == {FOLLOWER}


def test_each_node_has_its_own_session() -> None:
    driver = opened()
    driver.answer(driver.fetch(), {T0: Said(preferred=FOLLOWER), T1: Said(next_offset=20)}, session_id=123)
    fetches = driver.fetches()
    driver.answer(fetches[FOLLOWER], next_offset=20, session_id=77)
    driver.answer(fetches[LEADER], next_offset=30, session_id=123)
    assert {node: token(sent) for node, sent in driver.fetches().items()} == {LEADER: (123, 3), FOLLOWER: (77, 1)}


# --------------------------------------------------------------------------------------------------- what ends them


def test_a_node_that_grants_no_session_is_not_asked_for_one_for_a_while() -> None:
    driver = Driver(*BOTH, settings=ALWAYS)
    driver.answer(driver.fetch(), next_offset=10, session_id=0)
    refused_ms = driver.now_ms
    sent = driver.fetch()
    assert token(sent) == SESSIONLESS
    driver.now_ms = refused_ms + SETTINGS.session_refused_ms - 1
    driver.answer(sent, next_offset=20)
    sent = driver.fetch()
    assert token(sent) == SESSIONLESS
    driver.pass_ms(1)
    driver.answer(sent, next_offset=30)
    assert token(driver.fetch()) == ASKS_FOR_ONE


@pytest.mark.parametrize(
    ("code", "then", "metadata_count"),
    [
        (codes.FETCH_SESSION_ID_NOT_FOUND, (0, 0), 0),
        (codes.INVALID_FETCH_SESSION_EPOCH, (123, 0), 0),
        (codes.FETCH_SESSION_TOPIC_ID_ERROR, (123, 0), 1),
    ],
)
def test_a_session_that_the_broker_refuses_begins_anew_at_once(
    code: int, then: tuple[int, int], metadata_count: int
) -> None:
    driver = opened()
    events = driver.answer(driver.fetch(), error_code=code)
    assert events.session_reset is not None
    assert {type(each.outcome) for each in events.decisions} == {AskAgain}
    sent = driver.fetch()
    assert (token(sent), positions(sent)) == (then, {T0: 10, T1: 10})
    assert driver.metadata_count == metadata_count
    assert not driver.answer(sent, next_offset=20, session_id=124).session_reset


def test_a_broker_that_goes_on_refusing_is_given_time() -> None:
    # platformatic/kafka #315, sarama #1644: a session for each request.
    driver = opened()
    sent = driver.fetch()
    pauses = []
    for _ in range(4):
        driver.answer(sent, error_code=codes.FETCH_SESSION_ID_NOT_FOUND)
        began_ms = driver.now_ms
        sent = driver.next_fetch()
        pauses.append(driver.now_ms - began_ms)
    assert pauses == [0, 20, 40, 80]


@pytest.mark.parametrize("said", [{T0: Said(next_offset=20)}, {}], ids=["one left out", "none"])
def test_a_full_answer_that_lacks_something_is_not_used(said: dict[TopicPartition, Said]) -> None:
    driver = Driver(*BOTH, settings=ALWAYS)
    events = driver.answer(driver.fetch(), said, session_id=9)
    assert (events.deliveries, events.session_reset is None) == ((), False)
    sent = driver.fetch()
    assert (token(sent), positions(sent)) == ((9, 0), {T0: 0, T1: 0})


def test_an_incremental_answer_with_something_unasked_for_is_not_used() -> None:
    driver = opened()
    events = driver.answer(driver.fetch(), {T0: Said(next_offset=20), T2: Said(next_offset=20)}, session_id=123)
    assert events.deliveries == ()
    sent = driver.fetch()
    assert (token(sent), positions(sent)) == ((123, 0), {T0: 10, T1: 10})


def test_an_answer_about_a_topic_id_that_nobody_asked_for_is_not_used() -> None:
    driver = opened()
    events = driver.answer(driver.fetch(), {T0: Said(next_offset=20)}, session_id=123, unknown_ids=[UUID(int=9)])
    assert events.deliveries == ()
    assert token(driver.fetch()) == (123, 0)


def test_a_sessionless_answer_that_lacks_something_ends_no_session() -> None:
    driver = Driver(*BOTH, session_use=SessionUse.NEVER)
    driver.answer(driver.fetch(), {T0: Said(next_offset=20)})
    assert token(driver.fetch()) == SESSIONLESS


@pytest.mark.parametrize(
    ("error_code", "node", "outcome"),
    [
        (codes.UNKNOWN_TOPIC_ID, LEADER, RefreshMetadata),
        (codes.UNKNOWN_SERVER_ERROR, LEADER, Wait),
        (codes.UNKNOWN_TOPIC_ID, FOLLOWER, ReturnToLeader),
    ],
)
def test_a_request_that_fails_as_a_whole_fails_for_each_topic_partition(
    error_code: int, node: int, outcome: type[object]
) -> None:
    # 1.3: at v13+ the code stands at the top only. 10.2: "top-level UNKNOWN_TOPIC_ID in an incremental: (123, 0)".
    driver = opened()
    if node == FOLLOWER:
        driver.answer(driver.fetch(), preferred=FOLLOWER, session_id=123)
    events = driver.answer(driver.fetch(), error_code=error_code, session_id=123)
    assert [type(each.outcome) for each in events.decisions] == [outcome, outcome]
    again = driver.engine.session(node)
    assert (again.session_id, again.session_epoch) == ((123, 0) if node == LEADER else (0, 0))


@pytest.mark.parametrize(
    ("is_first", "then"), [(True, (0, 0)), (False, (123, 2))], ids=["full (not an error, 4.3)", "incremental"]
)
def test_a_throttled_answer_without_topic_partitions(is_first: bool, then: tuple[int, int]) -> None:
    driver = Driver(*BOTH, settings=ALWAYS) if is_first else opened()
    events = driver.answer(driver.fetch(), {}, throttle_ms=3_000, session_id=0 if is_first else 123)
    assert events.session_reset is None
    began_ms = driver.now_ms
    assert token(driver.next_fetch()) == then
    assert driver.now_ms - began_ms == 3_000


def test_a_request_without_an_answer_used_its_epoch_all_the_same() -> None:
    driver = opened()
    driver.fail(driver.fetch())
    sent = driver.next_fetch(view())
    assert (token(sent), positions(sent)) == ((123, 0), {T0: 10, T1: 10})


def test_a_question_without_an_answer_ends_no_session() -> None:
    driver = opened(OffsetRange(T0, 0, 1_000))
    driver.answer(driver.fetch(), code=codes.OFFSET_OUT_OF_RANGE, session_id=123)
    driver.fail(driver.only(SendOffsetForLeaderEpoch))
    assert driver.engine.session(LEADER).session_epoch == 2


def test_a_read_that_ends_with_a_request_under_way_leaves_the_session_in_doubt() -> None:
    # The broker counts the epoch when it takes the request (4.1), whoever reads the answer.
    driver = opened()
    driver.fetch()
    driver.start(*BOTH)
    sent = driver.fetch()
    assert (token(sent), positions(sent)) == ((123, 0), {T0: 0, T1: 0})


def test_a_read_that_ends_with_a_sessionless_request_under_way_leaves_the_session_alone() -> None:
    driver = opened(OffsetRange(T0, 0, 1_000))
    driver.answer(driver.fetch(), preferred=FOLLOWER, session_id=123)
    driver.answer(driver.fetch(), code=codes.CORRUPT_MESSAGE)
    assert token(driver.fetch()) == SESSIONLESS
    driver.start(OffsetRange(T1, 0, 1_000))
    assert token(driver.fetch()) == (123, 2)


# ----------------------------------------------------------------------------------------------------------- closing


def test_closing_asks_each_node_that_has_a_session_once() -> None:
    # 4.4, FetchSessionHandlerTest: "close: one request (id, -1) with no partitions per reachable node".
    driver = opened()
    driver.answer(driver.fetch(), {T0: Said(preferred=FOLLOWER), T1: Said(next_offset=20)}, session_id=123)
    fetches = driver.fetches()
    driver.answer(fetches[FOLLOWER], next_offset=20, session_id=77)
    closing = driver.engine.plan_close()
    assert {each.plan.node_id: token(each) for each in closing} == {LEADER: (123, -1), FOLLOWER: (77, -1)}
    assert all(each.plan.partitions == () and each.plan.max_wait_ms == 0 for each in closing)


def test_a_second_close_does_nothing() -> None:
    driver = opened()
    (closing,) = driver.engine.plan_close()
    driver.engine.on_read_ended()
    driver.engine.on_sent(closing, driver.now_ms)
    driver.answer(closing)
    assert driver.engine.plan_close() == ()


def test_nodes_without_a_session_and_nodes_that_are_gone_are_not_asked() -> None:
    driver = Driver(*BOTH)
    driver.answer(driver.fetch(), next_offset=10)
    assert driver.engine.plan_close() == ()
    driver = opened(OffsetRange(T0, 0, 10))
    gone = {FOLLOWER: view().nodes[FOLLOWER]}
    driver.metadata(view(leader=FOLLOWER, epoch=6, nodes=gone))
    assert driver.engine.plan_close() == ()
