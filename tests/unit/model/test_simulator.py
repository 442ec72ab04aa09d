"""The simulator: repeatable, able to find what is planted, and with checks that can each fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from connector.errors import DataLossError, LogTruncated, OffsetsAgedOut, RangeTimedOut, TopicRecreated
from connector.fetch.actions import Action, Delivery, FetchEvents, SendFetch, SendListOffsets, SendMetadata
from connector.fetch.engine import FetchEngine
from connector.fetch.outcome import Asked, LookUpOffsets, ReturnToLeader
from connector.fetch.session import SessionState
from connector.model import (
    EARLIEST_TIMESTAMP,
    ClusterView,
    FetchPlan,
    OffsetQuery,
    PartitionFetch,
    PartitionInfo,
    ReplicaChange,
    TopicPartition,
)
from connector.wire import error_codes
from tests.model import checks
from tests.model.checks import Violation
from tests.model.cluster import ModelCluster, ModelSettings
from tests.model.histories import Kind, draw_history
from tests.model.shrink import shrink, shrunken
from tests.model.simulator import simulate
from tests.model.tracing import trace_lines
from tests.model.truth import Losses, Mark, marks_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
A, B, C = Mark(0, 4, 1, 0), Mark(5, 9, 2, 0), Mark(10, 14, 3, 1)
OTHER_B = Mark(5, 9, 7, 1)


def delivery(start: int, end: int, aborted: tuple[tuple[int, int], ...] = ()) -> Delivery:
    return Delivery(T0, memoryview(b""), start, end, aborted)


def fetch_at(fetch_offset: int, wanted_offset: int) -> SendFetch:
    asked = Asked(topic_partition=T0, fetch_offset=fetch_offset, end_offset=20, node="1", from_leader=True)
    return SendFetch(FetchPlan(1, (), "", 0, 0, 0), None, {T0: asked}, (PartitionFetch(T0, wanted_offset, 100),))


def exactly(*found: Mark, may_lack_batches: bool = False, is_lossy: bool = False) -> None:
    checks.delivers_exactly_what_is_there(
        delivery(0, 15), found, (A, B, C), may_lack_batches=may_lack_batches, is_lossy=lambda: is_lossy
    )


def one_history(last_read: Mark, before: Mark, *, may_lack_batches: bool = False) -> None:
    checks.reads_one_history(T0, last_read, before, may_lack_batches=may_lack_batches)


def live_session(*names: TopicPartition) -> SessionState:
    return SessionState(5, 2, {each: PartitionFetch(each, 0, 100) for each in names})


LOSSES = Losses(log_start_offsets={T0: 10}, truncated={T1}, replaced_topics={"gone"})
AGED_OUT, NOT_AGED_OUT = OffsetsAgedOut("t-0", 9, 10, "1"), OffsetsAgedOut("t-0", 10, 10, "1")


def true_reason(error: DataLossError | RangeTimedOut) -> None:
    checks.ends_only_for_a_true_reason(error, (T0, T1), LOSSES)


def skip_to(next_offset: int) -> None:
    checks.skips_only_what_is_lost(T0, 9, next_offset, AGED_OUT, LOSSES)


def aborted(listed: tuple[tuple[int, int], ...], needed: tuple[tuple[int, int], ...] = ()) -> None:
    checks.aborted_transactions_are_those_of_the_answer(delivery(0, 15, listed), [((7, 3),), ()], needed)


def requested(*instants_ms: int) -> None:
    checks.pauses_without_progress(1, instants_ms, window_ms=1_000, limit=2)


BACK = ReturnToLeader(ReplicaChange.FOLLOWER_BEHIND, "")


def question(*, from_leader: bool) -> SendListOffsets:
    asked = Asked(topic_partition=T0, fetch_offset=0, end_offset=1, node="1", from_leader=from_leader)
    return SendListOffsets(1, (OffsetQuery(T0, EARLIEST_TIMESTAMP),), asked={T0: asked})


def view(leader_epoch: int) -> ClusterView:
    return ClusterView(partitions={T0: PartitionInfo(T0, 0, 1, leader_epoch, (1,), (1,), ())})


CHECKS: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
    (
        "a busy broker is asked",
        lambda: checks.one_request_at_a_time(1, {2}, (T0,), {T1}),
        lambda: checks.one_request_at_a_time(1, {1}, (T0,), {T1}),
    ),
    (
        "a topic-partition is asked of two brokers",
        lambda: checks.one_request_at_a_time(1, {2}, (T0,), {T1}),
        lambda: checks.one_request_at_a_time(1, {2}, (T0, T1), {T1}),
    ),
    (
        "a request is not at the position",
        lambda: checks.asks_at_the_position(fetch_at(5, 5), {T0: (5, 20)}),
        lambda: checks.asks_at_the_position(fetch_at(6, 6), {T0: (5, 20)}),
    ),
    (
        "a finished range is asked for",
        lambda: checks.asks_at_the_position(fetch_at(5, 5), {T0: (5, 20)}),
        lambda: checks.asks_at_the_position(fetch_at(5, 5), {T0: (5, 5)}),
    ),
    (
        "the broker is to read from elsewhere than is asked",
        lambda: checks.asks_at_the_position(fetch_at(5, 5), {T0: (5, 20)}),
        lambda: checks.asks_at_the_position(fetch_at(5, 6), {T0: (5, 20)}),
    ),
    (
        "a record at the high watermark is sent",
        lambda: checks.nothing_above_what_is_visible(T0, (A, B), 10),
        lambda: checks.nothing_above_what_is_visible(T0, (A, B), 9),
    ),
    (
        "a delivery leaves offsets out",
        lambda: checks.delivers_in_order_without_gaps(delivery(5, 10), 5, 10),
        lambda: checks.delivers_in_order_without_gaps(delivery(6, 10), 5, 10),
    ),
    (
        "a delivery comes twice",
        lambda: checks.delivers_in_order_without_gaps(delivery(5, 10), 5, 10),
        lambda: checks.delivers_in_order_without_gaps(delivery(5, 10), 10, 20),
    ),
    (
        "a delivery goes beyond the range",
        lambda: checks.delivers_in_order_without_gaps(delivery(5, 10), 5, 10),
        lambda: checks.delivers_in_order_without_gaps(delivery(5, 11), 5, 10),
    ),
    ("a batch is lost", lambda: exactly(A, B, C), lambda: exactly(A, C)),
    ("a batch is foreign", lambda: exactly(A, OTHER_B, C, is_lossy=True), lambda: exactly(A, OTHER_B, C)),
    (
        "a batch is foreign where compaction was",
        lambda: exactly(A, C, may_lack_batches=True),
        lambda: exactly(A, OTHER_B, C, may_lack_batches=True),
    ),
    ("batches are out of order", lambda: exactly(A, B, C), lambda: exactly(B, A, C, is_lossy=True)),
    ("a batch comes twice", lambda: exactly(A, B, C), lambda: exactly(A, B, B, C, is_lossy=True)),
    (
        "another history goes on where one was read",
        lambda: one_history(B, B),
        lambda: one_history(B, OTHER_B, may_lack_batches=True),
    ),
    (
        "a batch before the position was never read",
        lambda: one_history(A, B, may_lack_batches=True),
        lambda: one_history(A, B),
    ),
    (
        "lost records are delivered though the new leader is known",
        lambda: checks.delivers_no_false_history(T0, ()),
        lambda: checks.delivers_no_false_history(T0, (B,)),
    ),
    ("aborted transactions are of another answer", lambda: aborted(((7, 3),)), lambda: aborted(((8, 3),))),
    (
        "an aborted transaction is missing",
        lambda: aborted(((7, 3),), needed=((7, 9),)),
        lambda: aborted((), needed=((7, 9),)),
    ),
    (
        "a session epoch that the broker does not expect",
        lambda: checks.session_request_is_valid(FetchPlan(1, (), "", 0, 0, 0), error_codes.FETCH_SESSION_ID_NOT_FOUND),
        lambda: checks.session_request_is_valid(FetchPlan(1, (), "", 0, 0, 0), error_codes.INVALID_FETCH_SESSION_EPOCH),
    ),
    (
        "a session holds what the client has forgotten",
        lambda: checks.session_agrees(1, live_session(T0, T1), [T1, T0]),
        lambda: checks.session_agrees(1, live_session(T0), [T0, T1]),
    ),
    (
        "sessions pile up",
        lambda: checks.sessions_are_bounded(1, open_count=2, orphan_count=1, limit=1),
        lambda: checks.sessions_are_bounded(1, open_count=2, orphan_count=0, limit=1),
    ),
    ("a broker is asked again and again", lambda: requested(0, 1, 1_000), lambda: requested(0, 1, 999)),
    (
        "a broker that throttles is asked",
        lambda: checks.waits_while_throttled(1, 10, 10),
        lambda: checks.waits_while_throttled(1, 9, 10),
    ),
    (
        "a follower is asked where the leader's log ends",
        lambda: checks.asks_leaders_about_logs(question(from_leader=True)),
        lambda: checks.asks_leaders_about_logs(question(from_leader=False)),
    ),
    (
        "a lease is left without a reason",
        lambda: checks.reads_where_it_was_told(T0, 2, 10, told_id=2, until_ms=10),
        lambda: checks.reads_where_it_was_told(T0, 1, 10, told_id=2, until_ms=10),
    ),
    (
        "a lease outlives its end",
        lambda: checks.reads_where_it_was_told(T0, 1, 11, told_id=2, until_ms=10),
        lambda: checks.reads_where_it_was_told(T0, 2, 11, told_id=2, until_ms=10),
    ),
    (
        "who did not answer is read again",
        lambda: checks.leaves_who_did_not_answer(T0, 1, 2),
        lambda: checks.leaves_who_did_not_answer(T0, 2, 2),
    ),
    (
        "the leader may name the follower that was late",
        lambda: checks.finishes_at_the_leader(T0, True),
        lambda: checks.finishes_at_the_leader(T0, False),
    ),
    (
        "a leader's answer sends to the leader",
        lambda: checks.judges_by_who_was_asked(T0, BACK, from_leader=False),
        lambda: checks.judges_by_who_was_asked(T0, BACK, from_leader=True),
    ),
    (
        "a follower's answer is taken for the leader's word",
        lambda: checks.judges_by_who_was_asked(T0, LookUpOffsets(""), from_leader=True),
        lambda: checks.judges_by_who_was_asked(T0, LookUpOffsets(""), from_leader=False),
    ),
    (
        "an older leader epoch is believed",
        lambda: checks.view_never_goes_back(view(5), view(5)),
        lambda: checks.view_never_goes_back(view(5), view(4)),
    ),
    (
        "a read stands still",
        lambda: checks.finishes_in_time(9, {}),
        lambda: checks.finishes_in_time(9, {T0: (3, 5)}),
    ),
    ("a read ends early", lambda: checks.finishes_all({}), lambda: checks.finishes_all({T0: (3, 5)})),
    (
        "planning has an effect",
        lambda: checks.plans_without_effect((SendMetadata(("t",)),), (SendMetadata(("t",)),)),
        lambda: checks.plans_without_effect((SendMetadata(("t",)),), ()),
    ),
    (
        "a far replica is read for good",
        lambda: checks.reads_nearby(T0, [1, 2], [2, 3]),
        lambda: checks.reads_nearby(T0, [2, 1], [2, 3]),
    ),
    ("a skip goes back", lambda: skip_to(10), lambda: skip_to(8)),
    ("an offset is called aged out that is not", lambda: true_reason(AGED_OUT), lambda: true_reason(NOT_AGED_OUT)),
    (
        "a log is called truncated that is not",
        lambda: true_reason(LogTruncated("t-1", 9, 5, 0, "1")),
        lambda: true_reason(LogTruncated("t-0", 9, 5, 0, "1")),
    ),
    (
        "a topic is called recreated that is not",
        lambda: true_reason(TopicRecreated("gone", "a", "b")),
        lambda: true_reason(TopicRecreated("t", "a", "b")),
    ),
    (
        "patience ends though nothing is lost",
        lambda: true_reason(RangeTimedOut("t-1", 1, 2, 3, "")),
        lambda: true_reason(RangeTimedOut("t-0", 1, 2, 3, "")),
    ),
]


@pytest.mark.parametrize(("keeps", "violates"), [case[1:] for case in CHECKS], ids=[case[0] for case in CHECKS])
def test_a_check_fires_when(keeps: Callable[[], None], violates: Callable[[], None]) -> None:
    keeps()
    with pytest.raises(Violation):
        violates()


def test_every_check_has_a_violation_made_by_hand() -> None:
    called = {name for case in CHECKS for name in _names_of(case[2])}
    defined = {name for name in checks.__all__ if callable(getattr(checks, name)) and name.islower()}
    assert defined <= called


def _names_of(function: Callable[[], None]) -> set[str]:
    """Return the names that a function uses, and those that this module's functions use which it calls."""
    names = set(function.__code__.co_names)
    for each in tuple(names):
        code = getattr(globals().get(each), "__code__", None)
        names |= set(code.co_names) if code is not None else set()
    return names


def test_marks_are_read_from_what_the_model_sends() -> None:
    cluster = ModelCluster(ModelSettings(racks=("az-a",)), Random(1))
    cluster.create_topic("t", 1, [[1]])
    cluster.advance(1_000)
    batches = [cluster.produce(T0, count) for count in (3, 1, 20)]
    sent = b"".join(batch.encoded for batch in batches if batch is not None)
    marks = [Mark(each.base_offset, each.last_offset, each.uid, each.leader_epoch) for each in batches if each]
    assert marks_of(memoryview(sent)) == marks
    assert marks_of(memoryview(sent[:-1])) == marks[:-1], "a cut tail is no batch"


def traced(seed: int) -> list[str]:
    return trace_lines(simulate(draw_history(seed)).trace)


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_gives_the_same_history_each_time(seed: int) -> None:
    first = traced(seed)
    assert len(first) > 20
    assert traced(seed) == first


def test_a_history_does_not_depend_on_the_order_of_hashes() -> None:
    """Sets of names are iterated in another order in each process."""
    program = (
        "import hashlib; from tests.unit.model.test_simulator import traced; "
        "print(hashlib.sha256(repr([traced(seed) for seed in range(12)]).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[3],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_different_seeds_give_different_histories() -> None:
    assert len({draw_history(seed) for seed in range(50)}) == 50


def test_the_engine_keeps_its_promises_in_fifty_histories() -> None:
    reports = [simulate(draw_history(seed)) for seed in range(50)]
    assert [f"seed {report.history.seed}: {report.violation}" for report in reports if report.violation] == []
    assert sum(report.delivery_count for report in reports) > 2_000


@pytest.mark.parametrize("needed", [(3,), (0, 9), (2, 3, 7), tuple(range(10))], ids=str)
def test_shrinking_finds_the_parts_that_are_needed(needed: tuple[int, ...]) -> None:
    assert shrink(range(10), lambda parts: set(needed) <= set(parts), try_limit=1_000) == needed


def test_shrinking_ends_after_so_many_tries() -> None:
    tried: list[tuple[int, ...]] = []

    def is_failing(parts: tuple[int, ...]) -> bool:
        tried.append(parts)
        return len(parts) > 90

    smallest = shrink(range(100), is_failing, try_limit=5)
    assert len(tried) == 5
    assert is_failing(smallest)


class EngineThatGoesOn(FetchEngine):
    """Keeps a broken session epoch: a request that got no answer is taken for one that was never sent."""

    def on_node_failed(self, sent: Action, problem: str, now_ms: int) -> FetchEvents:
        if not isinstance(sent, SendFetch):
            return super().on_node_failed(sent, problem, now_ms)
        node = self._state.on_node_met(sent.plan.node_id)
        session = node.session
        events = super().on_node_failed(sent, problem, now_ms)
        node.session = session
        return events


@pytest.mark.parametrize("seed", [11, 34], ids=str)
def test_a_planted_bug_is_found_and_its_history_shrinks_to_the_event_that_matters(seed: int) -> None:
    report = simulate(draw_history(seed), EngineThatGoesOn)
    assert report.violation is not None
    assert report.violation.check == "session_request_is_valid"
    (event,) = shrunken(report, EngineThatGoesOn).history.events
    assert event.kind is Kind.LOSE_ANSWER
    assert simulate(draw_history(seed)).violation is None, "the engine as it is does not do that"


class EngineThatBreaks(FetchEngine):
    """Raises what no engine should."""

    def on_node_failed(self, sent: Action, problem: str, now_ms: int) -> FetchEvents:
        raise KeyError(sent, problem, now_ms)


def test_an_error_that_is_a_bug_is_a_violation_with_its_traceback() -> None:
    history = draw_history(11)
    history = replace(history, events=tuple(each for each in history.events if each.kind is Kind.LOSE_ANSWER))
    violation = simulate(history, EngineThatBreaks).violation
    assert violation is not None
    assert violation.check == "no_crash"
    assert "in on_node_failed" in violation.problem
