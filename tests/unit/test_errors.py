"""Errors cross processes: each one pickles, keeps its text, and says whether retrying can help."""

from __future__ import annotations

import pickle

import pytest

from connector import errors
from connector.errors import ConfigError, ConfigProblem, ConnectorError

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
    errors.CorruptBatch("t-0", 100, 61, "CRC"),
    errors.UnsupportedFeature("t-0", 100, 0, "magic 1"),
    errors.OffsetOutOfRange("t-0", 5, "1 (h:9)", 10, 20),
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
    assert leaves == {type(error) for error in SAMPLES}


def test_all_problems_of_a_configuration_are_in_its_text() -> None:
    assert "a = '1': is bad" in str(SAMPLES[0])
    assert "b: is missing" in str(SAMPLES[0])
