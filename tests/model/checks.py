"""What must hold in every history, one named function each; all raise `Violation`.

They are given values, not the simulator, so that each is shown to fire on a violation made by hand
(`tests/unit/model/test_simulator.py`). The truth they compare with is the model cluster's own logs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from connector.errors import (
    ConnectorError,
    DataLossError,
    LogTruncated,
    OffsetsAgedOut,
    RangeTimedOut,
    TopicDeleted,
    TopicRecreated,
)
from connector.fetch.actions import Action, Delivery, SendFetch, SendListOffsets, SendOffsetForLeaderEpoch
from connector.fetch.outcome import LookUpOffsets, Outcome, ReturnToLeader, ValidateEpoch
from connector.fetch.session import SessionState
from connector.model import ClusterView, FetchPlan, TopicPartition
from connector.wire import error_codes
from tests.model.truth import Losses, Mark

__all__ = [
    "Violation",
    "aborted_transactions_are_those_of_the_answer",
    "asks_at_the_position",
    "asks_leaders_about_logs",
    "delivers_exactly_what_is_there",
    "delivers_in_order_without_gaps",
    "delivers_no_false_history",
    "ends_only_for_a_true_reason",
    "finishes_all",
    "finishes_at_the_leader",
    "finishes_in_time",
    "judges_by_who_was_asked",
    "leaves_who_did_not_answer",
    "nothing_above_what_is_visible",
    "one_request_at_a_time",
    "pauses_without_progress",
    "plans_without_effect",
    "reads_nearby",
    "reads_one_history",
    "reads_where_it_was_told",
    "session_agrees",
    "session_request_is_valid",
    "sessions_are_bounded",
    "skips_only_what_is_lost",
    "view_never_goes_back",
    "waits_while_throttled",
]


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, check: str, problem: str) -> None:
        super().__init__(check, problem)
        self.check = check
        self.problem = problem

    def __str__(self) -> str:
        """Return which, and what was seen."""
        return f"{self.check}: {self.problem}"


def one_request_at_a_time(
    node_id: int, busy_nodes: Collection[int], asked: Iterable[TopicPartition], busy: Collection[TopicPartition]
) -> None:
    """A node has one request under way, and a topic-partition is asked of one node: or rows would come twice."""
    if node_id in busy_nodes:
        raise Violation("one_request_at_a_time", f"broker {node_id} is asked while it owes an answer")
    twice = [str(each) for each in asked if each in busy]
    if twice:
        raise Violation("one_request_at_a_time", f"{', '.join(twice)} asked of broker {node_id} and of another one")


def asks_at_the_position(sent: SendFetch, positions: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """A request is about unfinished ranges, at their positions; what the broker is to read is what is asked."""
    for topic_partition, asked in sent.asked.items():
        position, end_offset = positions[topic_partition]
        if asked.fetch_offset != position or position >= end_offset:
            raise Violation(
                "asks_at_the_position",
                f"{topic_partition} asked at {asked.fetch_offset}; the range stands at {position} of {end_offset}",
            )
    wanted = {each.topic_partition: each.fetch_offset for each in sent.wanted}
    if wanted != {each: asked.fetch_offset for each, asked in sent.asked.items()}:
        raise Violation("asks_at_the_position", f"asked is {list(sent.asked)}, but the broker is to read {wanted}")


def nothing_above_what_is_visible(
    topic_partition: TopicPartition, marks: Sequence[Mark], visible_end_offset: int
) -> None:
    """Nobody is sent what the serving replica does not know to be committed (or stable)."""
    if marks and marks[-1].last_offset >= visible_end_offset:
        raise Violation(
            "nothing_above_what_is_visible",
            f"{topic_partition}: up to {marks[-1].last_offset} was sent, visible is what is below {visible_end_offset}",
        )


def delivers_in_order_without_gaps(delivery: Delivery, position: int, end_offset: int) -> None:
    """Each delivery begins where the one before it ended (or a skip led to), and ends within the range."""
    if delivery.start_offset != position or not position < delivery.end_offset <= end_offset:
        raise Violation(
            "delivers_in_order_without_gaps",
            f"{delivery.topic_partition}: [{delivery.start_offset}, {delivery.end_offset}) was delivered, "
            f"the range stands at {position} of {end_offset}",
        )


def delivers_exactly_what_is_there(
    delivery: Delivery,
    found: Sequence[Mark],
    planned: Sequence[Mark],
    *,
    may_lack_batches: bool,
    is_lossy: Callable[[], bool],
) -> None:
    """The batches of a delivery are those that the planned log has in its window: none lost, foreign or twice.

    Batches may be missing where compaction was. A log that lost its end, or its topic, is another one than planned:
    only then `is_lossy`, which is looked at last.
    """
    start, end = delivery.start_offset, delivery.end_offset
    expected = [mark for mark in planned if mark.last_offset >= start and mark.base_offset < end]
    if found == expected:
        return
    foreign = [mark for mark in found if mark not in expected]
    lost = [mark for mark in expected if mark not in found]
    is_ordered = all(one.last_offset < other.base_offset for one, other in pairwise(found))
    if is_ordered and not foreign and (may_lack_batches or not lost):
        return
    if not is_ordered or not is_lossy():
        raise Violation(
            "delivers_exactly_what_is_there",
            f"{delivery.topic_partition} [{start}, {end}): lost {lost}, foreign {foreign}; delivered {found}",
        )


def reads_one_history(
    topic_partition: TopicPartition,
    last_read: Mark | None,
    before: Mark | None,
    *,
    may_lack_batches: bool,
) -> None:
    """The log that serves a range holds what was read of it before: a truncated one is found out (KIP-320).

    Parameters
    ----------
    last_read : Mark or None
        The last batch that was read; None when a loss was announced since, or nothing is known.
    before : Mark or None
        The batch before the position in the log of the replica that served, when it did; None at the log's start.
    may_lack_batches : bool
        Compaction was here: one replica may have batches that another lost.
    """
    if last_read is None or before is None or last_read.uid == before.uid:
        return
    if may_lack_batches and last_read.base_offset != before.base_offset:
        return
    raise Violation(
        "reads_one_history", f"{topic_partition}: {last_read} was read, then came a log with {before} before there"
    )


def delivers_no_false_history(topic_partition: TopicPartition, gone: Sequence[Mark]) -> None:
    """Nothing is delivered that the leader has lost, once its leader epoch is known; `gone` is what it lacks."""
    if gone:
        raise Violation("delivers_no_false_history", f"{topic_partition}: the leader's log does not have {list(gone)}")


def aborted_transactions_are_those_of_the_answer(
    delivery: Delivery, served: Iterable[tuple[tuple[int, int], ...]], needed: Iterable[tuple[int, int]]
) -> None:
    """A delivery carries the list of the answer its records came in: all aborted transactions that it has data of.

    Parameters
    ----------
    served : iterable
        The lists of the answers that held these records.
    needed : iterable of (producer id, last offset of a batch)
        Batches of the delivery that belong to aborted transactions.
    """
    if delivery.aborted_transactions not in served:
        raise Violation(
            "aborted_transactions_are_those_of_the_answer",
            f"{delivery.topic_partition}: {delivery.aborted_transactions} was in no answer with these records",
        )
    for producer_id, last_offset in needed:
        if not any(each == producer_id and first <= last_offset for each, first in delivery.aborted_transactions):
            raise Violation(
                "aborted_transactions_are_those_of_the_answer",
                f"{delivery.topic_partition}: the aborted transaction of producer {producer_id} at {last_offset} "
                f"is not in {delivery.aborted_transactions}",
            )


def session_request_is_valid(plan: FetchPlan, error_code: int) -> None:
    """No request has an epoch that the broker does not expect: what got no answer is never continued."""
    if error_code == error_codes.INVALID_FETCH_SESSION_EPOCH:
        raise Violation(
            "session_request_is_valid",
            f"broker {plan.node_id} did not expect epoch {plan.session_epoch} of session {plan.session_id}",
        )


def session_agrees(node_id: int, believed: SessionState, held: Collection[TopicPartition] | None) -> None:
    """While nothing is under way, the broker remembers what the client believes it does."""
    if not believed.is_live or held is None:
        return
    if set(believed.partitions) != set(held):
        raise Violation(
            "session_agrees",
            f"session {believed.session_id} of broker {node_id} holds {sorted(held)}; "
            f"the client believes {sorted(believed.partitions)}",
        )


def sessions_are_bounded(node_id: int, open_count: int, orphan_count: int, limit: int) -> None:
    """A broker keeps one session for a client (none when it has closed), besides those whose answer never came."""
    if open_count > limit + orphan_count:
        raise Violation(
            "sessions_are_bounded", f"broker {node_id} keeps {open_count} sessions; {orphan_count} answers were lost"
        )


def pauses_without_progress(node_id: int, instants_ms: Sequence[int], window_ms: int, limit: int) -> None:
    """Without progress a broker is not asked again and again: at most `limit` times within `window_ms`.

    `instants_ms` are those of the requests since records were last delivered, the newest last.
    """
    if len(instants_ms) > limit and instants_ms[-1] - instants_ms[-1 - limit] < window_ms:
        raise Violation(
            "pauses_without_progress",
            f"broker {node_id} was asked {limit + 1} times in {instants_ms[-1] - instants_ms[-1 - limit]} ms "
            "without any records",
        )


def waits_while_throttled(node_id: int, now_ms: int, until_ms: int) -> None:
    """A broker that throttles is not asked before its time is over (KIP-219)."""
    if now_ms < until_ms:
        raise Violation(
            "waits_while_throttled", f"broker {node_id} is asked at {now_ms} ms, throttled until {until_ms}"
        )


def asks_leaders_about_logs(action: SendListOffsets | SendOffsetForLeaderEpoch) -> None:
    """Only leaders know where logs begin, end and part; a replica is only asked about its own."""
    others = [str(each) for each, asked in action.asked.items() if not asked.from_leader]
    if others:
        raise Violation("asks_leaders_about_logs", f"broker {action.node_id} does not lead {', '.join(others)}")


def reads_where_it_was_told(
    topic_partition: TopicPartition, node_id: int, now_ms: int, told_id: int, until_ms: int
) -> None:
    """What a leader named is read until the lease ends, and not after, as long as nothing speaks against it."""
    if (node_id == told_id) is (now_ms > until_ms):
        raise Violation(
            "reads_where_it_was_told",
            f"{topic_partition} is read at broker {node_id} at {now_ms} ms; {told_id} was named until {until_ms}",
        )


def leaves_who_did_not_answer(topic_partition: TopicPartition, node_id: int, left_id: int) -> None:
    """A replica whose broker did not answer is not read before a leader names it again (KAFKA-14379)."""
    if node_id == left_id:
        raise Violation("leaves_who_did_not_answer", f"{topic_partition} is read again at broker {node_id}")


def finishes_at_the_leader(topic_partition: TopicPartition, is_leader_only: bool) -> None:
    """What a follower was too late with is asked of the leader so that it does not name that follower again."""
    if not is_leader_only:
        raise Violation("finishes_at_the_leader", f"{topic_partition} is asked for in a form that may be redirected")


def judges_by_who_was_asked(topic_partition: TopicPartition, outcome: Outcome, *, from_leader: bool) -> None:
    """Whether an answer is the leader's word is settled when it is asked, whoever leads by then."""
    if isinstance(outcome, ReturnToLeader) if from_leader else isinstance(outcome, LookUpOffsets | ValidateEpoch):
        raise Violation(
            "judges_by_who_was_asked",
            f"{topic_partition}: {outcome} of an answer from {'the leader' if from_leader else 'a follower'}",
        )


def view_never_goes_back(before: ClusterView, after: ClusterView) -> None:
    """A leader epoch that is known is not given up for an older one, unless the topic is another."""
    for topic_partition, info in after.partitions.items():
        known = before.partitions.get(topic_partition)
        topic = topic_partition.topic
        is_same = before.topic_ids.get(topic) == after.topic_ids.get(topic)
        if known is not None and is_same and info.leader_epoch < known.leader_epoch:
            raise Violation(
                "view_never_goes_back", f"{topic_partition}: epoch {known.leader_epoch}, then {info.leader_epoch}"
            )


def finishes_in_time(now_ms: int, stuck: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """A read ends within a bound after the last fault has healed, unless nobody leads or its records are lost."""
    if stuck:
        raise Violation("finishes_in_time", f"at {now_ms} ms, with all healed, these stand still: {_told(stuck)}")


def finishes_all(unfinished: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """A read is over when all its ranges are at their ends, and not before."""
    if unfinished:
        raise Violation("finishes_all", f"the read is over, and these are not: {_told(unfinished)}")


def plans_without_effect(first: Sequence[Action], second: Sequence[Action]) -> None:
    """Planning changes nothing: the same moment gives the same plan."""
    if first != second:
        raise Violation("plans_without_effect", f"first {first}, then {second}")


def reads_nearby(topic_partition: TopicPartition, serving: Sequence[int], nearest: Collection[int]) -> None:
    """Some time after all is well, the replica that is chosen for us serves a range to its end."""
    if serving and serving[-1] not in nearest:
        raise Violation(
            "reads_nearby", f"{topic_partition} was read at brokers {list(serving)}; nearest are {list(nearest)}"
        )


def _told(positions: Mapping[TopicPartition, tuple[int, int]]) -> str:
    return ", ".join(f"{each} at {position} of {end_offset}" for each, (position, end_offset) in positions.items())


def skips_only_what_is_lost(
    topic_partition: TopicPartition, position: int, next_offset: int, error: DataLossError, losses: Losses
) -> None:
    """A position moves without records only forward, and only over what is truly lost."""
    if next_offset < position:
        raise Violation("skips_only_what_is_lost", f"{topic_partition}: back from {position} to {next_offset}")
    ends_only_for_a_true_reason(error, (topic_partition,), losses)


def ends_only_for_a_true_reason(error: ConnectorError, read: Collection[TopicPartition], losses: Losses) -> None:
    """A read fails only when data is gone, and says of what kind the loss is."""
    if _is_true(error, read, losses):
        return
    raise Violation("ends_only_for_a_true_reason", f"{type(error).__name__}: {error}")


def _is_true(error: ConnectorError, read: Collection[TopicPartition], losses: Losses) -> bool:
    named = [each for each in read if str(each) == getattr(error, "topic_partition", None)]
    match error:
        case OffsetsAgedOut():
            starts = (
                losses.log_start_offsets.get(each, 0) for each in named if each.topic not in losses.replaced_topics
            )
            return all(start > error.fetch_offset for start in starts)
        case LogTruncated():
            return any(losses.is_lossy(each) for each in named)
        case TopicRecreated() | TopicDeleted():
            return error.topic in losses.replaced_topics
        case RangeTimedOut():
            return any(losses.is_lossy(each) or each in losses.unreachable for each in named)
        case _:
            return False
