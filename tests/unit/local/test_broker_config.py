"""What a local broker is told."""

from pathlib import Path

import pytest

from streaming_app.local.broker_config import BrokerAddress, broker_properties, properties_text

QUORUM = (
    BrokerAddress(1, "az-a", 9001, 9101),
    BrokerAddress(2, "az-b", 9002, 9102),
    BrokerAddress(3, "az-c", 9003, 9103),
)


def properties(**changes: object) -> dict[str, str]:
    arguments: dict[str, object] = {"selector": True, "overrides": {}} | changes
    return broker_properties(QUORUM[1], QUORUM, Path("/data"), **arguments)  # type: ignore[arg-type] # a test's shortcut


def test_a_broker_has_its_rack_its_ports_and_the_whole_quorum() -> None:
    told = properties()
    assert told["node.id"] == "2"
    assert told["broker.rack"] == "az-b"
    assert told["listeners"] == "PLAINTEXT://127.0.0.1:9002,CONTROLLER://127.0.0.1:9102"
    assert told["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9002"
    assert told["controller.quorum.voters"] == "1@127.0.0.1:9101,2@127.0.0.1:9102,3@127.0.0.1:9103"


@pytest.mark.parametrize(("selector", "expected"), [(True, True), (False, False)])
def test_the_rack_aware_selector_can_be_left_out(selector: bool, expected: bool) -> None:
    assert ("replica.selector.class" in properties(selector=selector)) is expected


def test_ones_own_configuration_wins() -> None:
    assert properties(overrides={"broker.rack": "other", "log.dirs": "/x"})["broker.rack"] == "other"


def test_a_single_broker_asks_for_no_more_replicas_than_there_are() -> None:
    told = broker_properties(QUORUM[0], QUORUM[:1], Path("/data"), selector=True, overrides={})
    factors = {value for key, value in told.items() if key.endswith(("replication.factor", "min.isr"))}
    assert factors == {"1"}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain value", "plain value"),
        (" leading blank", "\\ leading blank"),
        ("# no comment", "\\# no comment"),
        ("back\\slash", "back\\\\slash"),
        ("two\nlines\t", "two\\nlines\\t"),
        ("zone-ü", "zone-\\u00fc"),
        ("𝄞", "\\ud834\\udd1e"),
        ("a=b:c", "a=b:c"),
        ("", ""),
    ],
)
def test_values_are_written_as_java_util_properties_reads_them(value: str, written: str) -> None:
    assert properties_text({"key": value}) == f"key={written}\n"


def test_keys_with_separators_are_escaped() -> None:
    assert properties_text({"a b:c=d": "x"}) == "a\\ b\\:c\\=d=x\n"
