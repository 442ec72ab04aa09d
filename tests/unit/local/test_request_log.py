"""Lines of a real Apache Kafka 4.4.0 request log, read into `ServedFetch`."""

from pathlib import Path

import pytest

from streaming_app.local.errors import LocalClusterError
from streaming_app.local.kafka import LocalKafka
from streaming_app.local.request_log import ServedFetch, TopicNames, parse_served_fetches, read_served_fetches

LINES = Path(__file__).with_name("requests_of_broker_1.log").read_bytes().splitlines(keepends=True)


def served() -> list[ServedFetch]:
    return list(
        parse_served_fetches(LINES, node_id=1, broker_rack="az-a", name_of=lambda topic_id: f"name of {topic_id}")
    )


def test_a_redirect_has_no_bytes_and_names_the_replica() -> None:
    redirect = served()[0]
    assert redirect == ServedFetch(
        node_id=1,
        broker_rack="az-a",
        client_id="by-name",
        client_rack="az-b",
        replica_id=-1,
        topic="t",
        partition=0,
        record_bytes=0,
        preferred_read_replica=2,
        error_code=0,
        api_version=12,
        fetch_offset=0,
        session_id=904765342,
    )


def test_an_incremental_request_without_the_partition_keeps_the_position_sent_before() -> None:
    full, incremental = served()[1:3]
    assert (full.fetch_offset, full.record_bytes) == (0, 170)
    assert (incremental.fetch_offset, incremental.record_bytes) == (1, 118)


def test_a_position_sent_before_the_log_began_is_unknown() -> None:
    last_of_session = [LINES[4]]
    assert b'"sessionEpoch":2' in LINES[4]
    rows = list(parse_served_fetches(last_of_session, node_id=1, broker_rack="az-a", name_of=str))
    assert [(row.record_bytes, row.fetch_offset) for row in rows] == [(118, -1)]


def test_topics_are_named_by_id_from_version_13_on() -> None:
    by_id = [row for row in served() if row.api_version == 16]
    assert {row.client_rack for row in by_id} == {"az-c"}
    assert {row.topic for row in by_id} == {"name of lCcW2XnNTjabFyNVc_uhFQ"}
    assert [(row.partition, row.record_bytes) for row in by_id] == [(1, 1048576), (0, 1048576)]


def test_a_replica_fetcher_is_told_from_a_consumer() -> None:
    replicas = [row for row in served() if row.replica_id >= 0]
    assert [(row.client_id, row.replica_id, row.client_rack, row.api_version) for row in replicas] == [
        ("broker-2-fetcher-0", 2, "", 18)
    ]


def test_other_requests_the_controllers_and_a_half_line_are_passed_over() -> None:
    assert any(b'"METADATA"' in line for line in LINES)
    assert any(b'"listener":"CONTROLLER"' in line and b'"FETCH"' in line for line in LINES)
    assert not LINES[-1].endswith(b"\n")
    assert len(served()) == 6


def test_topic_names_come_from_the_data_folders_of_any_broker(tmp_path: Path) -> None:
    for broker, folder, topic_id in [
        ("one", "orders-eu-0", "AAAAAAAAAAAAAAAAAAAAAA"),
        ("two", "gone-3.0123456789abcdef0123456789abcdef-delete", "BBBBBBBBBBBBBBBBBBBBBB"),
    ]:
        (tmp_path / broker / folder).mkdir(parents=True)
        (tmp_path / broker / folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    names = TopicNames([tmp_path / "one", tmp_path / "two"])
    assert names.name_of("AAAAAAAAAAAAAAAAAAAAAA") == "orders-eu"
    assert names.name_of("BBBBBBBBBBBBBBBBBBBBBB") == "gone"
    assert names.name_of("CCCCCCCCCCCCCCCCCCCCCC") == "CCCCCCCCCCCCCCCCCCCCCC"


def test_a_topic_created_after_the_first_look_is_found(tmp_path: Path) -> None:
    names = TopicNames([tmp_path])
    assert names.name_of("A") == "A"
    (tmp_path / "late-0").mkdir()
    (tmp_path / "late-0" / "partition.metadata").write_text("version: 0\ntopic_id: B")
    assert names.name_of("B") == "late"


def test_a_cluster_without_request_log_says_how_to_have_one() -> None:
    with pytest.raises(LocalClusterError, match="request_log=True"):
        next(read_served_fetches(LocalKafka()))
