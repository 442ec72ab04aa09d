"""The laptop cluster in health: racks, replicas, topics, and what its request log tells."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from streaming_app.local import ports
from streaming_app.local.errors import LocalClusterError
from streaming_app.local.kafka import LocalKafka
from streaming_app.local.kafka_version import kafka_version
from streaming_app.local.leftovers import CLUSTER_MARKER, leftover_processes
from streaming_app.local.request_log import ServedFetch, read_served_fetches
from tests.integration.plain_clients import consume_values, log_bounds, produce_values
from tests.waiting import LONG_ENOUGH_S, wait_for

pytestmark = pytest.mark.integration

TopicNames = Callable[..., str]


def test_brokers_advertise_their_racks(kafka_cluster: LocalKafka) -> None:
    admin = kafka_cluster.admin()
    nodes = admin.describe_cluster(request_timeout=LONG_ENOUGH_S).result().nodes
    expected = {(1, "az-a"), (2, "az-b"), (3, "az-c")}
    assert {(node.id, node.rack) for node in nodes} == expected
    assert {(broker.node_id, broker.rack) for broker in kafka_cluster.brokers} == expected
    assert {f"{node.host}:{node.port}" for node in nodes} == set(kafka_cluster.bootstrap_servers.split(","))
    assert kafka_cluster.broker_in("az-b") is kafka_cluster.broker(2)


def test_brokers_are_of_the_wanted_version(kafka_cluster: LocalKafka) -> None:
    for broker in kafka_cluster.brokers:
        assert f"Kafka version: {kafka_version()} " in (broker.folder / "broker.log").read_text(encoding="utf-8")


def test_replicas_go_where_they_are_assigned(kafka_cluster: LocalKafka, topic: TopicNames) -> None:
    name = topic()
    kafka_cluster.create_topic(name, replica_assignment=[[2, 3], [3, 1], [1, 2]])
    assert kafka_cluster.leaders(name) == {0: 2, 1: 3, 2: 1}
    assert {number: view.replicas for number, view in kafka_cluster.partitions(name).items()} == {
        0: (2, 3),
        1: (3, 1),
        2: (1, 2),
    }


def test_an_unknown_topic_has_no_partitions_and_is_not_created(kafka_cluster: LocalKafka, topic: TopicNames) -> None:
    name = topic()
    assert kafka_cluster.partitions(name) == {}
    assert kafka_cluster.partitions(name) == {}
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        kafka_cluster.describe_topic(name)


def test_a_topic_created_again_has_another_id_and_no_records(kafka_cluster: LocalKafka, topic: TopicNames) -> None:
    name = topic()
    kafka_cluster.create_topic(name, replica_assignment=[[2, 3]])
    produce_values(kafka_cluster, name, [b"of the first"])
    first = kafka_cluster.describe_topic(name)
    kafka_cluster.delete_topic(name)
    assert kafka_cluster.partitions(name) == {}
    kafka_cluster.create_topic(name, replica_assignment=[[2, 3]])
    second = kafka_cluster.describe_topic(name)
    assert (first.topic_id.version, second.topic_id.version) == (4, 4)
    assert first.topic_id != second.topic_id
    assert second.partitions == kafka_cluster.partitions(name)
    assert log_bounds(kafka_cluster, name) == (0, 0)


def test_records_are_deleted_up_to_an_offset(kafka_cluster: LocalKafka, topic: TopicNames) -> None:
    name = topic()
    kafka_cluster.create_topic(name, replica_assignment=[[1, 2, 3], [2, 3, 1]])
    produce_values(kafka_cluster, name, [b"value"] * 10)
    assert kafka_cluster.delete_records(name, {0: 7, 1: 0}) == {0: 7, 1: 0}
    assert log_bounds(kafka_cluster, name) == (7, 10)


def test_the_request_log_tells_that_the_follower_of_the_rack_served(
    kafka_cluster: LocalKafka, topic: TopicNames
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    values = [os.urandom(1000) for _ in range(500)]
    produce_values(kafka_cluster, name, values)
    kafka_cluster.wait_for_isr(name, {1, 2, 3})

    def served() -> list[ServedFetch]:
        return [row for row in read_served_fetches(kafka_cluster, client_id=name) if row.topic == name]

    assert consume_values(kafka_cluster, name, 500, client_rack="az-c", client_id=name) == values
    wait_for(lambda: sum(row.record_bytes for row in served()) >= 500 * 1000, "the brokers' account")
    rows = served()
    assert {row.node_id for row in rows if row.record_bytes} == {3}
    assert {(row.broker_rack, row.client_rack, row.replica_id) for row in rows if row.record_bytes} == {
        ("az-c", "az-c", -1)
    }
    assert {row.preferred_read_replica for row in rows if row.node_id == 1} == {3}
    assert sum(row.record_bytes for row in rows) < 1.2 * 500 * 1000
    replicated = {
        row.replica_id for row in read_served_fetches(kafka_cluster) if row.topic == name and row.replica_id > 0
    }
    assert replicated == {2, 3}


def test_processes_of_a_cluster_are_found_by_its_folder(kafka_cluster: LocalKafka) -> None:
    found = {left.pid for left in leftover_processes(str(kafka_cluster.folder))}
    assert {broker.running_process().pid for broker in kafka_cluster.brokers} <= found
    assert kafka_cluster.brokers[0].environment == {CLUSTER_MARKER: str(kafka_cluster.folder)}


def test_a_waited_for_condition_that_never_holds_names_itself(kafka_cluster: LocalKafka) -> None:
    with pytest.raises(LocalClusterError, match=r"Waited 0\.1 s in vain until pigs fly\."):
        kafka_cluster.wait_until(lambda: False, "pigs fly", 0.1)


def test_ports_are_free_distinct_and_outside_the_range_of_outgoing_connections() -> None:
    with socket.socket() as outgoing:
        outgoing.bind((ports.HOST, 0))
        assert outgoing.getsockname()[1] > ports.LAST_PORT
    found = ports.free_ports(200)
    assert len(set(found)) == 200
    assert all(ports.FIRST_PORT <= port < ports.LAST_PORT for port in found)
