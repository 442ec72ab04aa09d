"""Reading with a fetcher of one's own, and what the brokers' request logs say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from confluent_kafka import Producer

from connector.config import ClientConfig, parse_options
from connector.metrics.catalog import MetricSpec
from connector.net.fetcher import Fetcher
from streaming_app.local.kafka import LocalKafka
from streaming_app.local.request_log import ServedFetch, read_served_fetches

VALUE_BYTES = 400


class CountingRecorder:
    """Keeps sums, for tests."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}

    def count(self, spec: MetricSpec, amount: float, /, *label_values: str) -> None:
        self.counts[spec.name, *label_values] += int(amount)

    def gauge(self, spec: MetricSpec, value: float, /, *label_values: str) -> None:
        self.gauges[spec.name, *label_values] = value


def client_config(cluster: LocalKafka, client_id: str, **options: str) -> ClientConfig:
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "any",
        "kafka.client.id": client_id,
        # Small answers: a read takes many requests, so that a fault meets it in the middle.
        "kafka.max.partition.fetch.bytes": "60000",
    }
    return parse_options(given | options).client


@contextmanager
def fetcher_in(cluster: LocalKafka, rack: str | None, client_id: str, **options: str) -> Iterator[Fetcher]:
    fetcher = Fetcher(client_config(cluster, client_id, **options), rack)
    try:
        yield fetcher
    finally:
        fetcher.close()


def produce(cluster: LocalKafka, topic: str, count: int, first: int = 0) -> None:
    """Write numbered values to partition 0, in small record batches."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "batch.size": 8_000})
    for number in range(first, first + count):
        producer.produce(topic, f"{number:0{VALUE_BYTES}d}", partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def numbers(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def served(cluster: LocalKafka, client_id: str, topic: str) -> dict[int, int]:
    """Return record bytes by serving broker, from the brokers' request logs."""
    bytes_by_node: Counter[int] = Counter()
    for each in fetches(cluster, client_id):
        if each.topic == topic:
            bytes_by_node[each.node_id] += each.record_bytes
    return {node_id: total for node_id, total in bytes_by_node.items() if total}


def fetches(cluster: LocalKafka, client_id: str) -> list[ServedFetch]:
    return [each for each in read_served_fetches(cluster) if each.client_id == client_id]
