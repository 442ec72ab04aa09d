"""Options: what is accepted, what each bad one is told, and that all problems come at once."""

from __future__ import annotations

import pickle

import pytest

from connector.config import (
    OPTIONS,
    Assign,
    PartitionOffsets,
    ReplicaSelection,
    SessionUse,
    Subscribe,
    WholeLog,
    parse_options,
)
from connector.errors import ConfigError
from connector.model import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition

REQUIRED = {"kafka.bootstrap.servers": "a:9092", "subscribe": "orders"}


def problems(**given: str) -> list[str]:
    """Return the refused options and reasons; names have dots, so they come through a mapping."""
    return problems_of(given)


def problems_of(given: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse_options(REQUIRED | given)
    return [str(problem) for problem in raised.value.problems]


def test_defaults_are_those_of_the_declarations() -> None:
    config = parse_options(REQUIRED)
    assert config.client.bootstrap_servers == (("a", 9092),)
    assert config.subscription == Subscribe(("orders",))
    assert config.starting_offsets is None
    assert config.ending_offsets is None
    assert config.max_offsets_per_trigger is None
    assert config.include_headers is False
    assert config.client.replica_selection is ReplicaSelection.BROKER
    assert config.client.follower_wait_ms == 700
    assert config.warnings == ()


def test_names_are_compared_without_case_as_spark_lowers_them() -> None:
    lowered = {
        "kafka.bootstrap.servers": "a:1",
        "SUBSCRIBE": "t",
        "maxoffsetspertrigger": "5",
        "IncludeHeaders": "TRUE",
    }
    config = parse_options(lowered)
    assert config.max_offsets_per_trigger == 5
    assert config.include_headers is True


def test_what_the_engine_does_with_losses_transactions_sessions_and_replicas_is_an_option() -> None:
    default = parse_options(REQUIRED).client
    assert (default.is_data_loss_fatal, default.isolation_level) == (True, READ_UNCOMMITTED)
    assert (default.replica_selection, default.session_use) == (ReplicaSelection.BROKER, SessionUse.AUTO)
    assert (default.local_log_ms, default.local_log_bytes) == (0, 0)
    given = {
        "failOnDataLoss": "false",
        "kafka.isolation.level": "read_committed",
        "replicaSelection": "client",
        "sessions": "never",
        "localLogMs": "600000",
        "localLogBytes": "1073741824",
    }
    config = parse_options(REQUIRED | given).client
    assert (config.is_data_loss_fatal, config.isolation_level) == (False, READ_COMMITTED)
    assert (config.replica_selection, config.session_use) == (ReplicaSelection.CLIENT, SessionUse.NEVER)
    assert (config.local_log_ms, config.local_log_bytes) == (600_000, 1_073_741_824)


def test_servers_are_split_and_ipv6_keeps_its_colons() -> None:
    config = parse_options(REQUIRED | {"kafka.bootstrap.servers": " a:1 , [::1]:9093,b.example:65535 "})
    assert config.client.bootstrap_servers == (("a", 1), ("::1", 9093), ("b.example", 65535))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("orders", ("orders",)),
        (" b , a ,, a ", ("a", "b")),
    ],
)
def test_subscribe_is_trimmed_and_sorted(given: str, expected: tuple[str, ...]) -> None:
    assert parse_options(REQUIRED | {"subscribe": given}).subscription == Subscribe(expected)


def test_assign_names_topic_partitions() -> None:
    options = {"kafka.bootstrap.servers": "a:1", "assign": '{"b":[1,0],"a":[2]}'}
    expected = (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))
    assert parse_options(options).subscription == Assign(expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("earliest", WholeLog.EARLIEST),
        ("LATEST", WholeLog.LATEST),
        (
            '{"t":{"0":23,"1":-1,"2":-2}}',
            PartitionOffsets(
                ((TopicPartition("t", 0), 23), (TopicPartition("t", 1), -1), (TopicPartition("t", 2), -2))
            ),
        ),
    ],
)
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offset_bounds(option: str, given: str, expected: object) -> None:
    config = parse_options(REQUIRED | {option: given})
    assert (config.starting_offsets if option == "startingOffsets" else config.ending_offsets) == expected


@pytest.mark.parametrize(
    "given",
    [
        "earlest",
        "{",
        "[]",
        '{"t":[0]}',
        '{"t":{"0":"5"}}',
        '{"t":{"x":5}}',
        '{"t":{"0":-3}}',
        '{"t":{"0":1.5}}',
        '{"t":{"0":true}}',
        '{"t":5}',
    ],
)
def test_bad_offset_bounds_say_what_is_expected(given: str) -> None:
    (problem,) = problems(startingOffsets=given)
    assert problem.startswith("startingOffsets")
    assert "expected earliest, latest or JSON" in problem


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"assign": '{"t":[0]}'}, "only one of them"),
        ({"subscribe": " , "}, "no topic named"),
        ({"kafka.bootstrap.servers": "a"}, "is not host:port"),
        ({"kafka.bootstrap.servers": "a:0"}, "is not host:port"),
        ({"kafka.bootstrap.servers": "a:99999"}, "is not host:port"),
        ({"kafka.bootstrap.servers": " "}, "required"),
        ({"maxOffsetsPerTrigger": "0"}, "whole number of at least 1"),
        ({"maxOffsetsPerTrigger": "1_000"}, "whole number"),
        ({"maxOffsetsPerTrigger": "5.0"}, "whole number"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"followerWaitMs": "-1"}, "from 0 to"),
        ({"replicaSelection": "nearest"}, "broker, client, leader"),
    ],
)
def test_bad_values_are_refused(given: dict[str, str], part: str) -> None:
    assert any(part in problem for problem in problems_of(given))


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("subscibe", "subscribe"),
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.client.racks", "kafka.client.rack"),
        ("includeHeader", "includeHeaders"),
    ],
)
def test_a_near_misspelling_is_refused_with_the_nearest_name(name: str, suggestion: str) -> None:
    (problem,) = problems_of({name: "x"})
    assert f"did you mean {suggestion}?" in problem


@pytest.mark.parametrize(
    "name",
    ["minPartitions", "groupIdPrefix", "kafka.max.poll.records", "kafka.send.buffer.bytes", "kafka.session.timeout.ms"],
)
def test_what_has_no_effect_here_warns_as_spark_ignores_it(name: str) -> None:
    config = parse_options(REQUIRED | {name: "7"})
    assert config.warnings == (f"option {name} has no effect on kafka_follower",)


def test_an_unknown_option_warns_and_strict_options_refuses_it() -> None:
    assert parse_options(REQUIRED | {"whatever": "1"}).warnings
    (problem,) = problems_of({"whatever": "1", "strictOptions": "true"})
    assert "strictOptions is true" in problem


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "checkpoint"),
        ({"kafka.key.deserializer": "x"}, "always binary"),
        ({"kafka.security.protocol": "SASL_SSL"}, "only PLAINTEXT"),
        ({"kafka.sasl.jaas.config": "secret"}, "only PLAINTEXT"),
        ({"startingTimestamp": "5"}, "use startingOffsets"),
        ({"subscribePattern": "t.*"}, "name the topics"),
    ],
)
def test_what_would_change_rows_or_security_is_refused_not_ignored(given: dict[str, str], part: str) -> None:
    (problem,) = problems_of(given)
    assert part in problem
    assert "secret" not in problem


def test_all_problems_come_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_options({"maxOffsetsPerTrigger": "x", "includeHeaders": "y", "subscibe": "t"})
    text = str(raised.value)
    for name in ("maxOffsetsPerTrigger", "includeHeaders", "subscibe", "kafka.bootstrap.servers", "subscribe / assign"):
        assert name in text


def test_a_configuration_pickles_and_compares_by_value() -> None:
    config = parse_options(REQUIRED)
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config.client) == hash(parse_options(REQUIRED | {"includeHeaders": "true"}).client)


def test_every_default_is_valid_for_its_own_option() -> None:
    for spec in OPTIONS:
        if spec.default is not None:
            parse_options(REQUIRED | {spec.name: spec.default})
