"""Errors cross processes: each one pickles, keeps its text, and says whether retrying can help."""

from __future__ import annotations

import pickle

import pytest

from connector import errors
from connector.errors import ConfigError, ConfigProblem, ConnectorError, DataLossError, LossReason

SAMPLES: list[ConnectorError] = [
    ConfigError((ConfigProblem("a", "1", "is bad"), ConfigProblem("b", None, "is missing"))),
    errors.SourceOffsetError("not ours"),
    errors.ConnectFailed("1 (h:9)", "refused"),
    errors.ConnectionLost("1 (h:9)", "reset"),
    errors.RequestTimedOut("1 (h:9)", "no answer"),
    errors.AuthFailed("1 (h:9)", "wrong password"),
    errors.BrokerError(3, "UNKNOWN_TOPIC_OR_PARTITION", "topic t", "1 (h:9)", "Create it."),
    errors.LocalViolation("ours"),
    errors.RemoteViolation("theirs"),
    errors.UnsupportedApi("no version of FETCH in common"),
    errors.CorruptBatch("t-0", 100, 61, "CRC"),
    errors.UnsupportedFeature("t-0", 100, 0, "magic 1"),
    errors.OffsetsAgedOut("t-0", 5, 10, "1 (h:9)"),
    errors.LogTruncated("t-0", 100, 90, 4, "1 (h:9)"),
    errors.TopicRecreated("t", "id-before", "id-after"),
    errors.TopicDeleted("t", 5_000),
    errors.RangeTimedOut("t-0", 5, 9, 1_000, "silence"),
    errors.KernelMissing("connector.records.kernels", "plain Python"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_text(error: ConnectorError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_every_error_of_the_tree_has_a_sample() -> None:
    tree = [each for name in errors.__all__ if issubclass(each := getattr(errors, name), ConnectorError)]
    leaves = {each for each in tree if not any(other is not each and issubclass(other, each) for other in tree)}
    assert leaves <= {type(error) for error in SAMPLES} <= set(tree)


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        pytest.param(
            errors.OffsetsAgedOut("t-0", 5, 10, "1 (h:9)"),
            LossReason.AGED_OUT,
            ["t-0", "offset 5", "begins at 10", "1 (h:9)", "longer retention", "failOnDataLoss"],
            id="aged out",
        ),
        pytest.param(
            errors.LogTruncated("t-0", 100, 90, 4, "1 (h:9)"),
            LossReason.TRUNCATED,
            ["t-0", "offset 100", "leader epoch 4", "ends at 90", "1 (h:9)", "new checkpoint", "failOnDataLoss"],
            id="truncated",
        ),
        pytest.param(
            errors.LogTruncated("t-0", 100, -1, -1, "1 (h:9)"),
            LossReason.TRUNCATED,
            ["offset 100:", "an offset that it does not tell"],
            id="truncated, and nothing more is known",
        ),
        pytest.param(
            errors.TopicRecreated("t", "id-before", "id-after"),
            LossReason.TOPIC_RECREATED,
            ["topic t ", "id-before was planned", "id-after", "new checkpoint"],
            id="re-created",
        ),
        pytest.param(
            errors.TopicDeleted("t", 5_000),
            LossReason.TOPIC_DELETED,
            ["topic t ", "5000 ms", "subscription"],
            id="deleted",
        ),
    ],
)
def test_a_loss_says_what_is_lost_and_what_to_do(error: DataLossError, reason: LossReason, words: list[str]) -> None:
    assert error.reason is reason
    assert not error.retriable
    assert [each for each in words if each not in str(error)] == []


def test_a_broker_without_a_common_version_is_not_asked_again() -> None:
    assert errors.RemoteViolation.retriable
    assert not errors.UnsupportedApi.retriable


def test_all_problems_of_a_configuration_are_in_its_text() -> None:
    assert "a = '1': is bad" in str(SAMPLES[0])
    assert "b: is missing" in str(SAMPLES[0])
