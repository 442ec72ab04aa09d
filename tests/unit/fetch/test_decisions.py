"""What an answer means: one row per case, named after where it comes from ("2.4" is a section of the reference)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from connector.errors import BrokerError, CorruptBatch, LogTruncated, OffsetsAgedOut, RemoteViolation
from connector.fetch.decisions import (
    ERROR_RULES,
    decide,
    decide_bounds,
    decide_epoch_end,
    decide_question_error,
    visible_end_offset,
)
from connector.fetch.outcome import (
    AskAgain,
    Asked,
    Deliver,
    Fail,
    LookUpOffsets,
    Outcome,
    ReadFromReplica,
    RefreshMetadata,
    ReturnToLeader,
    Skip,
    ValidateEpoch,
    Wait,
)
from connector.model import READ_COMMITTED, READ_UNCOMMITTED, EpochAnswer, PartitionReply, RecordsScan, ReplicaChange
from connector.wire import error_codes as codes
from tests.unit.fetch.fetch_driver import T0, Said

NOTHING = RecordsScan(-1, 0, 0, 0)
LEADERS = Asked(
    topic_partition=T0,
    fetch_offset=100,
    end_offset=200,
    node="1 (h:9)",
    from_leader=True,
    leader_epoch=5,
    follower_wait_ms=700,
    not_yet_limit=5,
)
FOLLOWERS = replace(LEADERS, from_leader=False)


def said(**given: Any) -> PartitionReply:
    return Said(**given).reply(T0)


def error_from(asked: Asked, code: int) -> Outcome:
    return decide(said(code=code), NOTHING, asked)


# ------------------------------------------------------------------------------------- error codes (1.3, 2.4, 10.1)


@dataclass(frozen=True)
class Case:
    """What a code means: from the leader, and from a follower that is waited for no more."""

    name: str
    code: int
    at_leader: type[Outcome]
    reason: ReplicaChange | None = ReplicaChange.FOLLOWER_ERROR
    refreshes: bool = False
    keeps_lease: bool = False
    waits: bool = False


BEHIND = ReplicaChange.FOLLOWER_BEHIND
ERRORS = [
    Case("NOT_LEADER_OR_FOLLOWER: Java clears and learns (KAFKA-14379)", 6, RefreshMetadata, refreshes=True),
    Case("REPLICA_NOT_AVAILABLE: librdkafka #2988", 9, RefreshMetadata, refreshes=True),
    Case("KAFKA_STORAGE_ERROR", 56, RefreshMetadata, refreshes=True),
    Case("FENCED_LEADER_EPOCH", 74, RefreshMetadata, refreshes=True),
    Case("UNKNOWN_TOPIC_OR_PARTITION", 3, RefreshMetadata, refreshes=True),
    Case("UNKNOWN_TOPIC_ID", 100, RefreshMetadata, refreshes=True),
    Case("INCONSISTENT_TOPIC_ID: franz-go #1426", 103, RefreshMetadata, refreshes=True),
    Case("LEADER_NOT_AVAILABLE: as for questions (5.2)", 5, RefreshMetadata, refreshes=True),
    Case("OFFSET_NOT_AVAILABLE: Redpanda #31580", 78, RefreshMetadata, BEHIND, refreshes=True, waits=True),
    Case("OFFSET_OUT_OF_RANGE: a follower may only lag", 1, LookUpOffsets, ReplicaChange.OUT_OF_RANGE),
    Case("UNKNOWN_LEADER_EPOCH: the broker is behind our metadata", 75, Wait, BEHIND, keeps_lease=True, waits=True),
    Case("UNKNOWN_SERVER_ERROR: of a selector, too (3.2)", -1, Wait, BEHIND, keeps_lease=True, waits=True),
    Case("CORRUPT_MESSAGE: of one replica's disk", 2, Fail, keeps_lease=True),
    Case("UNSUPPORTED_VERSION", 35, Fail, keeps_lease=True),
    Case("UNSUPPORTED_COMPRESSION_TYPE: zstd below v10", 76, Fail, keeps_lease=True),
    Case("TOPIC_AUTHORIZATION_FAILED: nobody forgives a missing right", 29, Fail, None),
    Case("a code that nobody knows", 9999, Fail, keeps_lease=True),
]


def test_every_code_of_the_table_has_a_case() -> None:
    assert {each.code for each in ERRORS} == {*ERROR_RULES, 9999}


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.name)
def test_error_from_the_leader(case: Case) -> None:
    outcome = error_from(LEADERS, case.code)
    assert type(outcome) is case.at_leader
    if isinstance(outcome, Fail):
        assert isinstance(outcome.error, BrokerError)
        assert outcome.error.code == case.code
        assert "t-0 at offset 100: broker 1 (h:9) answered" in str(outcome.error)


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.name)
def test_the_same_error_from_a_follower_only_means_read_at_the_leader(case: Case) -> None:
    outcome = error_from(replace(FOLLOWERS, waited_ms=700), case.code)
    if case.reason is None:
        assert isinstance(outcome, Fail)
        return
    assert isinstance(outcome, ReturnToLeader)
    assert (outcome.reason, outcome.refresh_metadata) == (case.reason, case.refreshes)
    assert outcome.is_lease_kept is case.keeps_lease


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.name)
def test_a_follower_that_may_still_come_after_is_asked_again_and_others_are_left_at_once(case: Case) -> None:
    outcome = error_from(replace(FOLLOWERS, waited_ms=699, not_yet_count=4), case.code)
    assert isinstance(outcome, Wait) is case.waits
    assert not isinstance(outcome, Wait) or outcome.is_not_yet


@pytest.mark.parametrize("code", [each.code for each in ERRORS if each.waits])
@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"not_yet_count": 5}, id="asked often enough"),
        pytest.param({"waited_ms": 700}, id="waited long enough"),
        pytest.param({"follower_wait_ms": 0}, id="no wait is wanted"),
    ],
)
def test_patience_with_a_follower_ends(code: int, given: dict[str, Any]) -> None:
    assert isinstance(error_from(replace(FOLLOWERS, **given), code), ReturnToLeader)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (codes.TOPIC_AUTHORIZATION_FAILED, "Grant READ and DESCRIBE on the topic"),
        (codes.CORRUPT_MESSAGE, "check the broker's disk"),
        (codes.UNSUPPORTED_COMPRESSION_TYPE, "the broker must be 2.1 or newer"),
    ],
)
def test_an_error_says_what_to_do(code: int, advice: str) -> None:
    outcome = error_from(LEADERS, code)
    assert isinstance(outcome, Fail)
    assert advice in str(outcome.error)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"offset_epoch": 4}, ValidateEpoch),
        ({"offset_epoch": 4, "is_validated": True}, LookUpOffsets),
        ({"offset_epoch": -1}, LookUpOffsets),
        ({"offset_epoch": 4, "leader_epoch": -1}, LookUpOffsets),
    ],
    ids=["the epoch is known and unchecked", "the leader knows the epoch", "no epoch is known", "nor the leader's"],
)
def test_an_offset_that_the_leader_refuses_is_checked_by_epoch_before_bounds(
    given: dict[str, Any], expected: type[Outcome]
) -> None:
    assert type(error_from(replace(LEADERS, **given), codes.OFFSET_OUT_OF_RANGE)) is expected


# --------------------------------------------------------------------------------------- no error (3.3, 2.3, 9.1)

SCAN = RecordsScan(next_offset=120, batch_count=1, record_count=20, complete_bytes=9, last_leader_epoch=4)
DATA, REDIRECT = {"next_offset": 120}, {"preferred": 2}


@dataclass(frozen=True)
class Answer:
    """An answer to a fetch at offset 100, and what it means."""

    name: str
    said: dict[str, Any]
    then: Outcome | type[Outcome]
    waited_ms: int = 0
    from_leader: bool = True
    is_budget_spent: bool = False
    isolation_level: int = READ_UNCOMMITTED


def at_follower(name: str, said: dict[str, Any], then: Outcome | type[Outcome], **given: Any) -> Answer:
    return Answer(f"follower, {name}", said, then, from_leader=False, **given)


def hw(high_watermark: int, last_stable_offset: int | None = None) -> dict[str, Any]:
    return {"high_watermark": high_watermark, "last_stable_offset": last_stable_offset}


COMMITTED: dict[str, Any] = {"isolation_level": READ_COMMITTED}
ANSWERS = [
    Answer("below HW: data (3.3)", DATA, Deliver(120, 4)),
    Answer("= HW: empty after the long poll (3.3)", hw(100), Wait),
    Answer("HW < o <= LEO: empty at once (3.3)", hw(90), Wait),
    Answer("= LSO: empty after the long poll (3.3)", hw(500, 100), Wait, **COMMITTED),
    Answer("LSO < o: empty at once (3.3)", hw(500, 90), Wait, **COMMITTED),
    Answer("empty below HW: every record is compacted away (8.2)", hw(500), Wait),
    Answer("empty below HW: others filled the answer (KIP-74)", hw(500), AskAgain(), is_budget_spent=True),
    Answer("empty at HW while others got records", hw(100), Wait, is_budget_spent=True),
    Answer("empty below LSO while others got records", hw(500, 101), AskAgain(), is_budget_spent=True, **COMMITTED),
    Answer("empty at LSO while others got records", hw(500, 100), Wait, is_budget_spent=True, **COMMITTED),
    Answer("redirect without records (KIP-392)", REDIRECT, ReadFromReplica(2)),
    Answer("records and a redirect: both count (Java, 9.1)", DATA | REDIRECT, Deliver(120, 4, 2)),
    at_follower("below its HW: data, and its -1 says nothing (sarama #2071)", DATA, Deliver(120, 4)),
    at_follower("below its HW: a redirect of a broker before 3.3 counts", DATA | REDIRECT, Deliver(120, 4, 2)),
    at_follower("redirect of a broker before 3.3 (pull 11965)", REDIRECT, ReadFromReplica(2)),
    at_follower("= its HW (3.3)", hw(100), Wait, waited_ms=699),
    at_follower("its HW < o <= LEO: empty at once (3.3)", hw(90), Wait, waited_ms=699),
    at_follower("its LSO < o", hw(500, 90), Wait, waited_ms=699, **COMMITTED),
    at_follower("late for too long", hw(100), ReturnToLeader, waited_ms=700),
    at_follower("silent below its HW for too long", hw(500), ReturnToLeader, waited_ms=700),
    at_follower("others filled the answer (KIP-74)", hw(500), AskAgain(), waited_ms=900, is_budget_spent=True),
    at_follower("at its HW while others got records", hw(100), ReturnToLeader, waited_ms=900, is_budget_spent=True),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.name)
def test_answer_without_error(answer: Answer) -> None:
    asked = replace(
        LEADERS,
        from_leader=answer.from_leader,
        waited_ms=answer.waited_ms,
        is_budget_spent=answer.is_budget_spent,
        isolation_level=answer.isolation_level,
    )
    outcome = decide(said(**answer.said), SCAN if "next_offset" in answer.said else NOTHING, asked)
    if isinstance(answer.then, type):
        assert type(outcome) is answer.then
    else:
        assert outcome == answer.then
    if isinstance(outcome, ReturnToLeader):
        assert (outcome.reason, outcome.is_lease_kept) == (ReplicaChange.FOLLOWER_BEHIND, True)


@pytest.mark.parametrize(
    ("scan", "error"),
    [
        pytest.param(RecordsScan(100, 1, 20, 9), RemoteViolation, id="batches below the fetch offset only"),
        pytest.param(RecordsScan(-1, 0, 0, 0), CorruptBatch, id="no complete batch (2.3)"),
    ],
)
def test_records_that_lead_nowhere_fail_at_the_leader_and_a_follower_is_left(
    scan: RecordsScan, error: type[Exception]
) -> None:
    records = said(next_offset=100)
    at_leader = decide(records, scan, LEADERS)
    assert isinstance(at_leader, Fail)
    assert type(at_leader.error) is error
    assert "t-0" in str(at_leader.error)
    assert "1 (h:9)" in str(at_leader.error)
    at_replica = decide(records, scan, FOLLOWERS)
    assert isinstance(at_replica, ReturnToLeader)
    assert at_replica.reason is ReplicaChange.FOLLOWER_ERROR


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(replace(FOLLOWERS, offset_epoch=5), ReturnToLeader, id="of a follower, which may only lag"),
        pytest.param(replace(LEADERS, offset_epoch=5), ValidateEpoch, id="of the leader"),
        pytest.param(
            replace(LEADERS, offset_epoch=5, is_validated=True),
            LookUpOffsets,
            id="of the leader, which knows the epoch",
        ),
        pytest.param(replace(LEADERS, offset_epoch=5, leader_epoch=-1), LookUpOffsets, id="of a leader without epoch"),
        pytest.param(LEADERS, LookUpOffsets, id="of the leader, and no epoch is known"),
    ],
)
def test_a_diverging_epoch_is_a_hint_and_no_proof(asked: Asked, expected: type[Outcome]) -> None:
    # 5.4: on a follower that lags, the end of the latest epoch is its own log end.
    assert type(decide(said(diverging=(4, 90)), NOTHING, asked)) is expected


@pytest.mark.parametrize(("isolation_level", "expected"), [(READ_UNCOMMITTED, 500), (READ_COMMITTED, 400)])
def test_up_to_where_a_broker_shows_records_goes_by_isolation(isolation_level: int, expected: int) -> None:
    assert visible_end_offset(said(high_watermark=500, last_stable_offset=400), isolation_level) == expected


# --------------------------------------------------------------------- the leader's word on an epoch (5.2, 10.6)

POSITION = replace(LEADERS, offset_epoch=4)


def epoch_end(epoch: int, end_offset: int, code: int = 0, asked: Asked = POSITION) -> Outcome:
    return decide_epoch_end(EpochAnswer(T0, code, epoch, end_offset), asked)


@pytest.mark.parametrize(
    ("epoch", "end_offset"),
    [(4, 101), (4, 100), (3, 100)],
    ids=["beyond the position", "at the position", "of an older epoch, at the position (the planner's wrote nothing)"],
)
def test_an_epoch_that_reaches_the_position_settles_it(epoch: int, end_offset: int) -> None:
    assert epoch_end(epoch, end_offset) == AskAgain()


@pytest.mark.parametrize(
    ("epoch", "end_offset", "divergent_offset", "skipped_count"),
    [(4, 99, 99, 1), (3, 40, 40, 60), (-1, -1, -1, 0), (-1, 500, -1, 0), (4, -1, -1, 0)],
    ids=["one short", "of an older epoch", "both undefined", "undefined epoch", "undefined end"],
)
def test_an_epoch_that_ends_before_the_position_is_truncation(
    epoch: int, end_offset: int, divergent_offset: int, skipped_count: int
) -> None:
    # OffsetsForLeaderEpochUtils; OffsetFetcherTest.testOffsetValidation...
    outcome = epoch_end(epoch, end_offset)
    assert isinstance(outcome, Fail)
    assert isinstance(outcome.error, LogTruncated)
    assert (outcome.error.divergent_offset, outcome.error.expected_epoch) == (divergent_offset, 4)
    going_on = epoch_end(epoch, end_offset, asked=replace(POSITION, is_loss_fatal=False))
    assert isinstance(going_on, Skip)
    assert isinstance(going_on.error, LogTruncated)
    assert (going_on.next_offset, going_on.skipped_count) == (100, skipped_count)


@pytest.mark.parametrize(("end_offset", "divergent_offset"), [(500, -1), (100, -1), (99, 99)])
def test_a_lower_epoch_than_that_of_a_record_is_another_history(end_offset: int, divergent_offset: int) -> None:
    # Java compares the end alone (5.2); a leader that has the record answers its epoch, or one between (5.1).
    outcome = epoch_end(3, end_offset, asked=replace(POSITION, is_epoch_of_record=True))
    assert isinstance(outcome, Fail)
    assert isinstance(outcome.error, LogTruncated)
    assert outcome.error.divergent_offset == divergent_offset
    assert epoch_end(4, 100, asked=replace(POSITION, is_epoch_of_record=True)) == AskAgain()


RETRIED = [6, 9, 56, 78, 5, 74, 75, 3, -1, 9999]
"""5.2 and section 6: retried after a pause, with a look at metadata."""


@pytest.mark.parametrize("code", RETRIED)
def test_a_question_that_the_leader_refuses_is_asked_again_and_proves_nothing(code: int) -> None:
    assert isinstance(epoch_end(-1, -1, code), RefreshMetadata)
    outcome = decide_question_error("ListOffsets", code, LEADERS)
    assert isinstance(outcome, RefreshMetadata)
    assert codes.error_name(code) in outcome.problem


def test_a_missing_right_to_ask_is_raised() -> None:
    for outcome in (epoch_end(-1, -1, 29), decide_question_error("ListOffsets", 29, LEADERS)):
        assert isinstance(outcome, Fail)
        assert "Grant DESCRIBE" in str(outcome.error)


def test_a_leader_that_does_not_know_the_question_is_read_without_it() -> None:
    # 5.1: Java skips validation below OffsetForLeaderEpoch v3.
    assert epoch_end(-1, -1, codes.UNSUPPORTED_VERSION) == AskAgain()


# --------------------------------------------------------------------------------- the leader's bounds (section 6)


@pytest.mark.parametrize("bounds", [(100, 100), (0, 100), (100, 500)])
def test_an_offset_that_is_back_in_range_is_asked_for_again_after_a_pause(bounds: tuple[int, int]) -> None:
    assert isinstance(decide_bounds(LEADERS, *bounds), Wait)


@pytest.mark.parametrize(
    ("bounds", "error", "next_offset"),
    [
        pytest.param((101, 500), OffsetsAgedOut, 101, id="the log begins above"),
        pytest.param((300, 500), OffsetsAgedOut, 200, id="the log begins above the whole range"),
        pytest.param((0, 99), LogTruncated, 200, id="the log ends below"),
    ],
)
def test_bounds_tell_too_old_from_too_new(bounds: tuple[int, int], error: type[Exception], next_offset: int) -> None:
    outcome = decide_bounds(LEADERS, *bounds)
    assert isinstance(outcome, Fail)
    assert type(outcome.error) is error
    assert "offset 100" in str(outcome.error)
    going_on = decide_bounds(replace(LEADERS, is_loss_fatal=False), *bounds)
    assert isinstance(going_on, Skip)
    assert type(going_on.error) is error
    assert (going_on.next_offset, going_on.skipped_count) == (next_offset, next_offset - 100)
