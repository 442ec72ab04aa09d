"""Fetch sessions, kept tails, transactions and our own choice of replicas, on real brokers in three racks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from connector.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetQuery,
    OffsetRange,
    TopicPartition,
)
from connector.net.clock import monotonic_ms
from connector.net.connection import Answer, ConnectionLimits, Exchange
from connector.net.network import Network
from connector.net.transport import TcpTransports
from connector.wire import describe_log_dirs, list_offsets
from connector.wire.versions import Api
from streaming_app.local.kafka import LocalKafka
from streaming_app.local.kafka_version import kafka_version, release_of
from tests.integration.reading import VALUE_BYTES, fetcher_in, fetches, numbers, produce, served

pytestmark = pytest.mark.integration

PARTITIONS = 6


@pytest.fixture(scope="module")
def crowded_cluster(kafka_class_path: str) -> Iterator[LocalKafka]:
    """Brokers with so few session slots that most sessions are refused or evicted, and without a selector."""
    slots = {"max.incremental.fetch.session.cache.slots": "2"}
    with LocalKafka(broker_config=slots, selector=False, request_log=True) as cluster:
        cluster.create_topic("many", replica_assignment=[[1, 2, 3]] * PARTITIONS)
        produce_everywhere(cluster, "many", 600)
        yield cluster


def produce_everywhere(cluster: LocalKafka, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "batch.size": 8_000})
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, f"{number:0{VALUE_BYTES}d}", partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def read_everything(cluster: LocalKafka, client_id: str, rack: str | None, count: int, **options: str) -> list[int]:
    ranges = [OffsetRange(TopicPartition("many", each), 0, count) for each in range(PARTITIONS)]
    with fetcher_in(cluster, rack, client_id, **options) as fetcher:
        return numbers(list(fetcher.read(ranges, None, include_headers=False)))


@pytest.mark.parametrize("use", ["always", "auto", "never"])
def test_brokers_without_a_free_session_slot_are_read_all_the_same(crowded_cluster: LocalKafka, use: str) -> None:
    # The brokers' own replica fetchers hold the two slots, which no consumer may take from them.
    options = {"sessions": use, "kafka.max.partition.fetch.bytes": "20000"}
    found = read_everything(crowded_cluster, f"crowded-{use}", None, 600, **options)
    assert sorted(found) == sorted(list(range(600)) * PARTITIONS)


def test_client_selection_reads_our_rack_without_a_selector_on_the_brokers(crowded_cluster: LocalKafka) -> None:
    found = read_everything(crowded_cluster, "client-selection", "az-b", 600, replicaSelection="client")
    assert len(found) == 600 * PARTITIONS
    assert served(crowded_cluster, "client-selection", "many").keys() == {2}


def test_local_log_limits_rank_but_never_exclude(crowded_cluster: LocalKafka) -> None:
    options = {"replicaSelection": "client", "localLogMs": "3600000", "localLogBytes": "1000000000"}
    found = read_everything(crowded_cluster, "local-log", "az-b", 600, **options)
    assert len(found) == 600 * PARTITIONS
    assert served(crowded_cluster, "local-log", "many").keys() == {2}


def ask(cluster: LocalKafka, node_id: int, api: Api, encode: Any, decode: Any) -> Any:
    broker = cluster.broker(node_id)
    network = Network(TcpTransports(-1), "asking-test", ConnectionLimits(10_000), monotonic_ms)
    try:
        network.submit((broker.host, broker.port), str(node_id), Exchange(api, encode, decode, None, 10_000))
        deadline_ms = monotonic_ms() + 20_000
        while monotonic_ms() < deadline_ms:
            for event in network.wait_events(1_000):
                assert isinstance(event, Answer), event
                return event.value
    finally:
        network.close()
    raise AssertionError(f"broker {node_id} did not answer")


def test_a_follower_tells_its_own_log_to_the_debug_replica_id(crowded_cluster: LocalKafka) -> None:
    # What `localLogMs` and `localLogBytes` are decided on; consumers (replica id -1) get only the leader's word.
    one = TopicPartition("many", 0)
    bounds = {}
    knows_local = release_of(kafka_version()) >= (3, 5, 0)
    local = [EARLIEST_LOCAL_TIMESTAMP] if knows_local else []
    for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, 0, 4_000_000_000_000, *local):
        encode = partial(list_offsets.encode_request, [OffsetQuery(one, timestamp)], isolation_level=0, replica_id=-2)
        (answer,) = ask(crowded_cluster, 2, Api.LIST_OFFSETS, encode, list_offsets.decode_reply)
        assert answer.error_code == 0
        bounds[timestamp] = answer.log_offset
    expected = {EARLIEST_TIMESTAMP: 0, LATEST_TIMESTAMP: 600, 0: 0, 4_000_000_000_000: -1}
    assert bounds == expected | dict.fromkeys(local, 0)
    encode = partial(describe_log_dirs.encode_request, [one])
    (size,) = ask(crowded_cluster, 2, Api.DESCRIBE_LOG_DIRS, encode, describe_log_dirs.decode_reply)
    assert size.topic_partition == one
    assert size.size_bytes > 600 * VALUE_BYTES


def test_consecutive_small_ranges_fetch_hardly_more_than_they_deliver(
    kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic("small-ranges")
    kafka_cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    produce(kafka_cluster, name, 4_000)
    found: list[int] = []
    with fetcher_in(kafka_cluster, "az-b", name, **{"kafka.max.partition.fetch.bytes": "4194304"}) as fetcher:
        for start in range(0, 4_000, 200):
            one = OffsetRange(TopicPartition(name, 0), start, start + 200)
            found += numbers(list(fetcher.read([one], None, include_headers=False)))
    assert found == list(range(4_000))
    fetched_bytes = sum(served(kafka_cluster, name, name).values())
    assert fetched_bytes / (4_000 * VALUE_BYTES) <= 1.2


def test_sessions_are_kept_over_reads_and_closed_at_the_end(
    kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic("kept-sessions")
    kafka_cluster.create_topic(name, replica_assignment=[[1, 2, 3]] * PARTITIONS)
    produce_everywhere(kafka_cluster, name, 600)
    options = {"sessions": "auto", "kafka.max.partition.fetch.bytes": "20000"}
    with fetcher_in(kafka_cluster, "az-b", name, **options) as fetcher:
        for start in (0, 300):
            ranges = [OffsetRange(TopicPartition(name, each), start, start + 300) for each in range(PARTITIONS)]
            assert len(numbers(list(fetcher.read(ranges, None, include_headers=False)))) == 300 * PARTITIONS
        ((node_id, session_id),) = {
            (each.node_id, each.session_id) for each in fetches(kafka_cluster, name) if each.session_id
        }
        assert node_id == 2, "one session, at the replica that is read"
    # A closing request names the session with epoch -1.
    closing = f'"sessionId":{session_id},"sessionEpoch":-1'
    kafka_cluster.wait_until(
        lambda: closing in kafka_cluster.broker(2).request_log_path.read_text(encoding="utf-8"),
        "the session is closed",
        10,
    )


def test_read_committed_gives_what_a_transactional_consumer_gives(
    kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic("transactions")
    kafka_cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    write_transactions(kafka_cluster, name)
    expected = consumed(kafka_cluster, name, "read_committed")
    everything = consumed(kafka_cluster, name, "read_uncommitted")
    assert 0 < len(expected) < len(everything)
    end_offset = everything[-1] + 2  # the last marker is behind the last record
    one = OffsetRange(TopicPartition(name, 0), 0, end_offset)
    for level, wanted in (("read_committed", expected), ("read_uncommitted", everything)):
        client_id = f"{name}-{level}"
        with fetcher_in(kafka_cluster, "az-b", client_id, **{"kafka.isolation.level": level}) as fetcher:
            batches = list(fetcher.read([one], None, include_headers=False))
        assert [each for batch in batches for each in batch.column("offset").to_pylist()] == wanted
        assert served(kafka_cluster, client_id, name).keys() <= {1, 2}


def write_transactions(cluster: LocalKafka, topic: str) -> None:
    """Write committed and aborted transactions of two producers, one within the time of the other."""
    producers = [
        Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{topic}-{each}", "linger.ms": 0}
        )
        for each in range(2)
    ]
    for producer in producers:
        producer.init_transactions(30)
    for turn in range(12):
        for producer in producers:
            producer.begin_transaction()
        for number in range(20):
            for producer in producers:
                producer.produce(topic, f"{turn}-{number}".encode() * 50, partition=0)
            if number % 7 == 0:
                for producer in producers:
                    producer.flush(30)
        for each, producer in enumerate(producers):
            producer.flush(30)
            if (turn + each) % 3 == 0:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)


def consumed(cluster: LocalKafka, topic: str, isolation_level: str) -> list[int]:
    """Return the offsets that librdkafka's consumer sees: another implementation."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "oracle",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ClientTopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "no end within 30 s"
            if message.error() is not None:
                return offsets
            log_offset = message.offset()
            assert log_offset is not None
            offsets.append(log_offset)
    finally:
        consumer.close()
