"""Fetch sessions (KIP-227, KIP-516): what a request tells, and what an answer means for the next one.

Cases of Kafka's FetchSessionHandlerTest (reference 10.2) and of the table of reference 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from connector.fetch.session import (
    SESSION_RULES,
    SESSIONLESS,
    SessionEvent,
    SessionRequest,
    SessionState,
    SessionVerdict,
    decide_session,
    plan_close,
    plan_session,
    session_after_failure,
)
from connector.model import NO_TOPIC_ID, FetchPlan, FetchReply, ForgottenPartition, PartitionFetch, TopicPartition
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import T0, T1, T2, Said

ID, ANOTHER_ID = UUID(int=1), UUID(int=2)
LAST_EPOCH = (1 << 31) - 1


def want(topic_partition: TopicPartition, fetch_offset: int = 0, topic_id: UUID = ID) -> PartitionFetch:
    return PartitionFetch(topic_partition, fetch_offset, 1_000, 5, topic_id)


def planned(request: SessionRequest) -> FetchPlan:
    return FetchPlan(
        node_id=1, rack="", max_wait_ms=0, min_bytes=0, max_bytes=0, isolation_level=0, **request._asdict()
    )


def reply(*answered: TopicPartition, session_id: int = 0, **given: Any) -> FetchReply:
    partitions = tuple(Said().reply(each) for each in answered)
    return FetchReply(
        **({"throttle_ms": 0, "error_code": 0} | given),
        session_id=session_id,
        partitions=partitions,
    )


def verdict(state: SessionState, wanted: Sequence[PartitionFetch], answer: FetchReply) -> SessionVerdict:
    return decide_session(planned(plan_session(state, wanted)), wanted, answer)


def opened(*wanted: PartitionFetch, session_id: int = 123) -> SessionState:
    """The state after a full request that was granted a session."""
    given = verdict(SessionState(), wanted, reply(*(each.topic_partition for each in wanted), session_id=session_id))
    assert given.event is SessionEvent.GRANTED
    return given.next_state


def token(request: SessionRequest | SessionState) -> tuple[int, int]:
    return request.session_id, request.session_epoch


# -------------------------------------------------------------------------------- what a request tells (4.2, 10.2)


def test_the_first_request_tells_everything_and_asks_for_a_session() -> None:
    wanted = (want(T1), want(T0, 5))
    assert plan_session(SessionState(), wanted) == SessionRequest(0, 0, wanted)


def test_without_a_session_every_request_is_full() -> None:
    wanted = (want(T0), want(T1))
    refused = verdict(SessionState(), wanted, reply(T0, T1))
    assert plan_session(refused.next_state, wanted) == SessionRequest(0, 0, wanted)


def test_a_session_is_told_what_is_added_and_what_changed_and_holds_all() -> None:
    state = opened(want(T0), want(T1))
    wanted = (want(T0), want(T1, 20), want(T2))
    request = plan_session(state, wanted)
    assert token(request) == (123, 1)
    assert {each.topic_partition for each in request.partitions} == {T1, T2}
    assert request.forgotten == ()
    after = verdict(state, wanted, reply(session_id=123)).next_state
    assert token(after) == (123, 2)
    assert plan_session(after, wanted) == SessionRequest(123, 2, ())


@pytest.mark.parametrize(
    "change",
    [
        {"fetch_offset": 1},
        {"partition_max_bytes": 2_000},
        {"current_leader_epoch": 6},
        {"topic_id": NO_TOPIC_ID},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_changed_field_is_told(change: dict[str, Any]) -> None:
    changed = replace(want(T0), **change)
    assert plan_session(opened(want(T0)), [changed]) == SessionRequest(123, 1, (changed,))


def test_what_is_not_wanted_any_more_is_forgotten_under_its_id() -> None:
    state = opened(want(T0), want(T1), want(T2, topic_id=NO_TOPIC_ID))
    request = plan_session(state, [want(T0)])
    assert request == SessionRequest(
        123, 1, (), forgotten=(ForgottenPartition(T1, ID), ForgottenPartition(T2, NO_TOPIC_ID))
    )


def test_what_was_forgotten_is_told_again_when_it_is_wanted_again() -> None:
    # platformatic/kafka #321 never forgot; the other half is never to believe that the broker remembers.
    state = verdict(opened(want(T0), want(T1)), [want(T0)], reply(session_id=123)).next_state
    assert plan_session(state, [want(T0), want(T1)]) == SessionRequest(123, 2, (want(T1),))


def test_a_topic_of_the_same_name_replaces_the_one_before() -> None:
    # FetchSessionHandlerTest: "same name, other id, both known".
    again = want(T0, topic_id=ANOTHER_ID)
    request = plan_session(opened(want(T0)), [again])
    assert request == SessionRequest(123, 1, (again,), replaced=(ForgottenPartition(T0, ID),))


@pytest.mark.parametrize(("before", "after"), [(NO_TOPIC_ID, ID), (ID, NO_TOPIC_ID)], ids=["appears", "disappears"])
def test_an_id_that_appears_or_disappears_changes_the_entry_and_replaces_none(before: UUID, after: UUID) -> None:
    again = want(T0, topic_id=after)
    assert plan_session(opened(want(T0, topic_id=before)), [again]) == SessionRequest(123, 1, (again,))


def test_everything_dropped_then_an_empty_answer_then_a_topic_of_another_id() -> None:
    state = opened(want(T0))
    assert plan_session(state, ()) == SessionRequest(123, 1, (), forgotten=(ForgottenPartition(T0, ID),))
    state = verdict(state, (), reply(session_id=123)).next_state
    again = want(T0, topic_id=ANOTHER_ID)
    assert plan_session(state, [again]) == SessionRequest(123, 2, (again,)), "the same session, nothing to replace"


def test_a_plan_that_was_not_sent_leaves_no_trace() -> None:
    state = opened(want(T0))
    before = plan_session(state, [want(T0, 7)])
    assert plan_session(state, [want(T0, 7)]) == before
    assert token(state) == (123, 1)


def test_without_a_session_to_leave_behind_all_is_told() -> None:
    assert plan_session(SESSIONLESS, [want(T0)]) == SessionRequest(0, -1, (want(T0),))


def test_a_session_is_closed_by_id_and_what_has_none_is_not() -> None:
    assert plan_close(opened(want(T0))) == SessionRequest(123, -1, ())
    assert plan_close(SessionState(123)) == SessionRequest(123, -1, ()), "also one that a full request would drop"
    assert plan_close(SessionState()) is None


# --------------------------------------------------------------------------------- what an answer means (4.3, 10.2)

TOPIC_IDS = {"unknown_topic_ids": (ANOTHER_ID,)}


@dataclass(frozen=True)
class Case:
    """An answer to a request for T0 and T1, full under a session to drop (77, 0) or incremental (123, 1)."""

    name: str
    is_full: bool
    answer: FetchReply
    event: SessionEvent
    then: tuple[int, int]
    is_used: bool
    is_reset: bool = True
    is_refresh_wanted: bool = False


def full(name: str, answer: FetchReply, event: SessionEvent, then: tuple[int, int], used: bool, **more: Any) -> Case:
    return Case(f"full: {name}", True, answer, event, then, used, **more)


def incremental(
    name: str, answer: FetchReply, event: SessionEvent, then: tuple[int, int], used: bool, **more: Any
) -> Case:
    return Case(f"incremental: {name}", False, answer, event, then, used, **more)


E = SessionEvent
CASES = [
    full("a session is given", reply(T0, T1, session_id=9), E.GRANTED, (9, 1), True, is_reset=False),
    full("none is given", reply(T0, T1), E.REFUSED, (0, 0), True, is_reset=False),
    full("throttled, no partitions", reply(throttle_ms=50), E.THROTTLED_EMPTY, (0, 0), False, is_reset=False),
    full("no partitions", reply(session_id=9), E.MALFORMED_FULL, (9, 0), False),
    full("one is missing", reply(T0, session_id=9), E.MALFORMED_FULL, (9, 0), False),
    full("one is missing though throttled", reply(T0, throttle_ms=50), E.MALFORMED_FULL, (0, 0), False),
    full("one too many", reply(T0, T1, T2, session_id=9), E.MALFORMED_FULL, (9, 0), False),
    full("unknown id", reply(T0, T1, session_id=9, **TOPIC_IDS), E.MALFORMED_FULL, (9, 0), False),
    incremental("all", reply(T0, T1, session_id=123), E.CONTINUED, (123, 2), True, is_reset=False),
    incremental("some", reply(T1, session_id=123), E.CONTINUED, (123, 2), True, is_reset=False),
    incremental("none", reply(session_id=123), E.CONTINUED, (123, 2), True, is_reset=False),
    incremental("throttled", reply(session_id=123, throttle_ms=50), E.CONTINUED, (123, 2), True, is_reset=False),
    incremental("the broker closed it", reply(T0), E.CLOSED, (0, 0), True),
    incremental("one too many", reply(T2, session_id=123), E.MALFORMED_INCREMENTAL, (123, 0), False),
    incremental("one too many, closed", reply(T2), E.MALFORMED_INCREMENTAL, (123, 0), False),
    incremental("unknown id", reply(session_id=123, **TOPIC_IDS), E.MALFORMED_INCREMENTAL, (123, 0), False),
    incremental("another session's", reply(session_id=9), E.MALFORMED_INCREMENTAL, (123, 0), False),
]
for _code, _event, _keeps_id, _refreshes in [
    (codes.FETCH_SESSION_ID_NOT_FOUND, E.ID_NOT_FOUND, False, False),
    (codes.INVALID_FETCH_SESSION_EPOCH, E.TOP_LEVEL_ERROR, True, False),
    (codes.FETCH_SESSION_TOPIC_ID_ERROR, E.TOPIC_ID_ERROR, True, True),
    (codes.UNKNOWN_TOPIC_ID, E.TOP_LEVEL_ERROR, True, False),
    (codes.UNKNOWN_SERVER_ERROR, E.TOP_LEVEL_ERROR, True, False),
]:
    for _is_full in (True, False):
        _then = (0 if not _keeps_id else 77 if _is_full else 123, 0)
        _name = f"{'full' if _is_full else 'incremental'}: {codes.error_name(_code)}"
        CASES.append(Case(_name, _is_full, reply(error_code=_code), _event, _then, False, is_refresh_wanted=_refreshes))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_an_answer_means(case: Case) -> None:
    wanted = (want(T0), want(T1))
    given = verdict(SessionState(77) if case.is_full else opened(*wanted), wanted, case.answer)
    assert given.event is case.event
    assert token(given.next_state) == case.then
    assert given.rule.is_data_used is case.is_used
    assert given.rule.is_reset is case.is_reset
    assert given.rule.is_refresh_wanted is case.is_refresh_wanted


@pytest.mark.parametrize("state", [SessionState(), SessionState(77), SessionState(123, 9)], ids=str)
def test_a_request_without_an_answer_used_its_epoch_all_the_same(state: SessionState) -> None:
    # 4.1: the broker counts on when it accepts a request. A broker that lost the session takes (old id, 0), too.
    assert session_after_failure(state) == SessionState(state.session_id, 0)
    assert SESSION_RULES[E.NO_ANSWER].is_reset


def test_every_way_to_end_a_request_has_a_case() -> None:
    assert {each.event for each in CASES} | {E.NO_ANSWER} == set(SESSION_RULES) == set(SessionEvent)


def test_after_the_last_epoch_comes_1() -> None:
    state = replace(opened(want(T0)), session_epoch=LAST_EPOCH)
    assert token(plan_session(state, [want(T0)])) == (123, LAST_EPOCH)
    assert token(verdict(state, [want(T0)], reply(session_id=123)).next_state) == (123, 1)


def test_after_a_reset_all_is_told_again() -> None:
    wanted = (want(T0), want(T1))
    state = verdict(
        opened(*wanted), wanted, reply(error_code=codes.INVALID_FETCH_SESSION_EPOCH, session_id=123)
    ).next_state
    assert plan_session(state, wanted) == SessionRequest(123, 0, wanted)
