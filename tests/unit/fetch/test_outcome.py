"""What an answer means: one row per case, named after where the case comes from."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from connector.errors import BrokerError, CorruptBatch, OffsetOutOfRange, RemoteViolation
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
    Wait,
    decide,
    decide_out_of_range,
)
from connector.model import NO_NODE, PartitionReply, RecordsScan, ReplicaChange, TopicPartition
from connector.wire import error_codes as codes

TP = TopicPartition("t", 0)
NOTHING = RecordsScan(-1, 0, 0, 0)


def asked(*, from_leader: bool, waited_ms: int = 0, is_budget_spent: bool = False) -> Asked:
    return Asked(TP, 100, "1 (h:9)", from_leader, waited_ms, 700, is_budget_spent)


def reply(
    *, code: int = 0, high_watermark: int = 500, preferred: int = NO_NODE, records: bytes = b""
) -> PartitionReply:
    return PartitionReply(TP, code, high_watermark, high_watermark, 0, preferred, memoryview(records))


@dataclass(frozen=True)
class Case:
    name: str
    code: int
    at_leader: type[Outcome]
    refreshes_after_follower: bool = False


# kafka-fetch-behaviour 2.4 (FetchCollector.handleInitializeErrors) for the leader; KIP-392 for followers.
ERRORS = [
    Case("not leader or follower", codes.NOT_LEADER_OR_FOLLOWER, RefreshMetadata, True),
    Case("fenced leader epoch", codes.FENCED_LEADER_EPOCH, RefreshMetadata, True),
    Case("replica not available", codes.REPLICA_NOT_AVAILABLE, RefreshMetadata, True),
    Case("kafka storage error", codes.KAFKA_STORAGE_ERROR, RefreshMetadata, True),
    Case("unknown topic or partition", codes.UNKNOWN_TOPIC_OR_PARTITION, RefreshMetadata, True),
    Case("unknown topic id", codes.UNKNOWN_TOPIC_ID, RefreshMetadata, True),
    Case("inconsistent topic id", codes.INCONSISTENT_TOPIC_ID, RefreshMetadata, True),
    Case("unknown leader epoch", codes.UNKNOWN_LEADER_EPOCH, Wait),
    Case("offset not available", codes.OFFSET_NOT_AVAILABLE, Wait),
    Case("unknown server error", codes.UNKNOWN_SERVER_ERROR, Wait),
    Case("offset out of range", codes.OFFSET_OUT_OF_RANGE, LookUpOffsets),
    Case("corrupt message", codes.CORRUPT_MESSAGE, Fail),
    Case("unsupported compression type", codes.UNSUPPORTED_COMPRESSION_TYPE, Fail),
    Case("unsupported version", codes.UNSUPPORTED_VERSION, Fail),
    Case("a code nobody knows", 9999, Fail),
]


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.name)
def test_error_from_the_leader(case: Case) -> None:
    outcome = decide(reply(code=case.code, high_watermark=-1), NOTHING, asked(from_leader=True))
    assert type(outcome) is case.at_leader
    if isinstance(outcome, Fail):
        assert isinstance(outcome.error, BrokerError)
        assert "t-0 at offset 100" in str(outcome.error)
        assert "1 (h:9)" in str(outcome.error)


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case.name)
def test_the_same_error_from_a_follower_only_means_read_at_the_leader(case: Case) -> None:
    outcome = decide(reply(code=case.code, high_watermark=-1), NOTHING, asked(from_leader=False))
    assert isinstance(outcome, ReturnToLeader)
    assert outcome.refresh_metadata is case.refreshes_after_follower
    is_range = case.code == codes.OFFSET_OUT_OF_RANGE
    assert outcome.reason is (ReplicaChange.OUT_OF_RANGE if is_range else ReplicaChange.FOLLOWER_ERROR)


@pytest.mark.parametrize("from_leader", [True, False])
def test_no_broker_forgives_a_missing_right(from_leader: bool) -> None:
    outcome = decide(reply(code=codes.TOPIC_AUTHORIZATION_FAILED), NOTHING, asked(from_leader=from_leader))
    assert isinstance(outcome, Fail)
    assert "Grant READ" in str(outcome.error)


SCAN = RecordsScan(next_offset=120, batch_count=1, record_count=20, complete_bytes=9)
BELOW = RecordsScan(next_offset=100, batch_count=1, record_count=20, complete_bytes=9)

ANSWERS = [
    # name, from_leader, waited_ms, budget spent, high watermark, preferred, records, scan, expected
    ("records", True, 0, False, 500, -1, b"x", SCAN, Deliver(120)),
    ("records from a follower, whose -1 says nothing", False, 0, False, 500, -1, b"x", SCAN, Deliver(120)),
    ("records and a redirect: both count (Java)", True, 0, False, 500, 2, b"x", SCAN, Deliver(120, 2)),
    ("redirect without records (KIP-392)", True, 0, False, 500, 2, b"", NOTHING, ReadFromReplica(2)),
    ("leader, nothing there yet", True, 0, False, 100, -1, b"", NOTHING, Wait),
    ("leader, nothing though below its end", True, 0, False, 500, -1, b"", NOTHING, Wait),
    ("leader, others filled the answer (KIP-74)", True, 0, True, 500, -1, b"", NOTHING, AskAgain()),
    ("leader, at its end while others got records", True, 0, True, 100, -1, b"", NOTHING, Wait),
    ("follower at its high watermark", False, 300, False, 100, -1, b"", NOTHING, Wait),
    ("follower below the planned offset", False, 300, False, 90, -1, b"", NOTHING, Wait),
    ("follower late for too long", False, 700, False, 100, -1, b"", NOTHING, ReturnToLeader),
    ("follower below its end but silent for too long", False, 700, False, 500, -1, b"", NOTHING, ReturnToLeader),
    ("follower, others filled the answer", False, 900, True, 500, -1, b"", NOTHING, AskAgain()),
    ("follower's records lead nowhere", False, 0, False, 500, -1, b"x", BELOW, ReturnToLeader),
]


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row[0])
def test_answer_without_error(row: tuple[object, ...]) -> None:
    _, from_leader, waited_ms, spent, high_watermark, preferred, records, scan, expected = row
    outcome = decide(
        reply(high_watermark=high_watermark, preferred=preferred, records=records),  # type: ignore[arg-type] # a row mixes types
        scan,  # type: ignore[arg-type] # as above
        asked(from_leader=from_leader, waited_ms=waited_ms, is_budget_spent=spent),  # type: ignore[arg-type] # as above
    )
    if isinstance(expected, type):
        assert type(outcome) is expected
    else:
        assert outcome == expected
    if isinstance(outcome, ReturnToLeader) and records == b"":
        assert outcome.reason is ReplicaChange.FOLLOWER_BEHIND


def test_leader_records_that_lead_nowhere_fail_rather_than_spin() -> None:
    outcome = decide(reply(records=b"x"), BELOW, asked(from_leader=True))
    assert isinstance(outcome, Fail)
    assert isinstance(outcome.error, RemoteViolation)


def test_leader_records_without_one_complete_batch_fail() -> None:
    outcome = decide(reply(records=b"x"), NOTHING, asked(from_leader=True))
    assert isinstance(outcome, Fail)
    assert isinstance(outcome.error, CorruptBatch)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [((101, 500), "deleted before they were read"), ((0, 99), "shorter than it was")],
)
def test_leader_bounds_tell_too_old_from_too_new(bounds: tuple[int, int], words: str) -> None:
    outcome = decide_out_of_range(asked(from_leader=True), *bounds)
    assert isinstance(outcome, Fail)
    assert isinstance(outcome.error, OffsetOutOfRange)
    assert words in str(outcome.error)
    assert "t-0: offset 100" in str(outcome.error)


@pytest.mark.parametrize("bounds", [(100, 100), (0, 100), (100, 500)])
def test_an_offset_that_is_back_in_range_is_asked_for_again(bounds: tuple[int, int]) -> None:
    assert isinstance(decide_out_of_range(asked(from_leader=True), *bounds), Wait)
