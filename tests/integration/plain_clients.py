"""Reading and writing with confluent-kafka's own clients."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from streaming_app.local.kafka import LocalKafka
from tests.waiting import LONG_ENOUGH_S, wait_for

QUIET = {"log_level": 0}


def produce_values(cluster: LocalKafka, topic: str, values: Sequence[bytes]) -> None:
    """Write values to partition 0; every in-sync replica has them on return."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUIET})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(LONG_ENOUGH_S) == 0


def consume_values(cluster: LocalKafka, topic: str, count: int, **config: str) -> list[bytes]:
    """Read the first values of partition 0; ``client_rack="az-a"`` sets ``client.rack``."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, **QUIET}
    consumer = Consumer(settings | {key.replace("_", "."): value for key, value in config.items()})
    consumer.assign([ClientTopicPartition(topic, 0, 0)])
    values: list[bytes] = []

    def has_all() -> bool:
        values.extend(each.value() or b"" for each in consumer.consume(count, 0.5) if each.error() is None)
        return len(values) >= count

    wait_for(has_all, f"{count} values of {topic}")
    consumer.close()
    return values


def log_bounds(cluster: LocalKafka, topic: str) -> tuple[int, int]:
    """Return the first offset and the high watermark of partition 0."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, **QUIET})
    try:
        low, high = consumer.get_watermark_offsets(ClientTopicPartition(topic, 0), LONG_ENOUGH_S)
    finally:
        consumer.close()
    return low, high
