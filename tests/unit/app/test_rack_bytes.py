from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from streaming_app.local.rack_bytes import RackBytes, counted_bytes, leader_only_bytes, served_bytes
from streaming_app.local.request_log import ServedFetch


def exposition(own_rack: str, read: dict[tuple[str, str], int]) -> str:
    """What an executor would serve, by prometheus-client itself."""
    registry = CollectorRegistry()
    Gauge("kafka_follower_rack_info", "-", ["rack", "source"], registry=registry).labels(own_rack, "environment").set(1)
    counter = Counter("kafka_follower_fetch_bytes", "-", ["topic", "broker_rack", "locality"], registry=registry)
    for (topic, broker_rack), bytes_ in read.items():
        locality = "local" if broker_rack == own_rack else "remote"
        counter.labels(topic, broker_rack, locality).inc(bytes_)
    return generate_latest(registry).decode()


FETCH = ServedFetch(
    node_id=1,
    broker_rack="az-a",
    client_id="kafka-follower",
    client_rack="az-a",
    replica_id=-1,
    topic="orders",
    partition=0,
    record_bytes=100,
    preferred_read_replica=-1,
    error_code=0,
    api_version=12,
    fetch_offset=0,
)


def test_counters_of_executors_are_added_up_by_rack_and_other_topics_left_out():
    expositions = [
        exposition("az-a", {("orders", "az-a"): 100, ("orders", "az-b"): 7, ("other", "az-c"): 999}),
        exposition("az-a", {("orders", "az-a"): 50}),
        exposition("az-b", {("orders", "az-b"): 30}),
    ]
    counted = counted_bytes(expositions, "orders")
    assert counted.by_racks == {("az-a", "az-a"): 150, ("az-a", "az-b"): 7, ("az-b", "az-b"): 30}
    assert (counted.total_bytes, counted.local_bytes) == (187, 180)
    assert counted.local_ratio == pytest.approx(180 / 187)


def test_an_executor_without_a_rack_reads_nothing_locally():
    counted = counted_bytes([exposition("", {("orders", ""): 10})], "orders")
    assert counted.by_racks == {("", ""): 10}
    assert counted.local_ratio == 0.0


def test_nothing_read_is_no_local_share():
    assert counted_bytes([], "orders").local_ratio == 0.0


def test_served_bytes_go_by_the_rack_that_the_request_named():
    fetches = [
        FETCH,
        replace(FETCH, record_bytes=20, client_rack="az-b"),
        replace(FETCH, record_bytes=3, broker_rack="az-b", client_rack="az-b"),
    ]
    assert served_bytes(fetches).by_racks == {("az-a", "az-a"): 100, ("az-b", "az-a"): 20, ("az-b", "az-b"): 3}


def test_leader_only_moves_each_read_to_the_rack_of_the_leader():
    fetches = [
        replace(FETCH, partition=0, record_bytes=100),
        replace(FETCH, partition=1, record_bytes=60),
        replace(FETCH, partition=1, record_bytes=40, client_rack="az-b", broker_rack="az-b"),
    ]
    moved = leader_only_bytes(fetches, {0: "az-c", 1: "az-b"})
    assert moved == RackBytes({("az-a", "az-c"): 100, ("az-a", "az-b"): 60, ("az-b", "az-b"): 40})
    assert moved.local_ratio == pytest.approx(0.2)
