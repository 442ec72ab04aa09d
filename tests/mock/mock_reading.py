"""Reading from the mock cluster with the real fetcher, and changing the cluster in the middle of a read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer

from connector.config import ClientConfig, parse_options
from connector.model import NO_EPOCH, OffsetRange, TopicPartition
from connector.net.fetcher import Fetcher
from connector.wire.versions import Api
from tests.integration.reading import numbers
from tests.mock.mock_cluster import MockCluster
from tests.waiting import wait_for

TOPIC: Final = "mocked"
FIRST: Final = TopicPartition(TOPIC, 0)
SECOND: Final = TopicPartition(TOPIC, 1)
BATCH_RECORDS: Final = 10
"""How many records `produce` puts into a record batch, which is all that the mock puts into an answer."""

_OPTIONS: Final = {
    "subscribe": TOPIC,
    "kafka.client.id": "mock-test",
    # The mock holds every answer without records for this long.
    "kafka.fetch.max.wait.ms": "20",
    "kafka.retry.backoff.ms": "20",
    "kafka.retry.backoff.max.ms": "50",
    "followerWaitMs": "100",
    # What stands still fails before metadata grows old.
    "kafkaConsumer.pollTimeoutMs": "10000",
    "kafka.metadata.max.age.ms": "60000",
}


def client_config(cluster: MockCluster, **options: str) -> ClientConfig:
    return parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers} | _OPTIONS | options).client


@contextmanager
def fetcher_on(cluster: MockCluster, **options: str) -> Iterator[Fetcher]:
    fetcher = Fetcher(client_config(cluster, **options), "any-rack")
    try:
        yield fetcher
    finally:
        fetcher.close()


def produce(
    cluster: MockCluster,
    record_count: int,
    topic_partition: TopicPartition = FIRST,
    *,
    first: int = 0,
    batch_records: int = BATCH_RECORDS,
) -> None:
    """Append numbered records, from `first` on, in full record batches."""
    assert record_count % batch_records == 0, "the last record batch would wait for more records"
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": batch_records, "linger.ms": 60_000}
    )
    for number in range(first, first + record_count):
        producer.produce(topic_partition.topic, str(number), partition=topic_partition.partition)

    def is_delivered() -> bool:
        producer.poll(0.01)
        return len(producer) == 0

    # Not flush, which would send what there is at that moment: a record batch may be less than full then.
    wait_for(is_delivered, f"{record_count} records to be produced", 10, poll_s=0)


def read(
    fetcher: Fetcher,
    start_offset: int,
    end_offset: int,
    topic_partition: TopicPartition = FIRST,
    *,
    start_epoch: int = NO_EPOCH,
) -> list[int]:
    """Return the numbers in a range."""
    one = OffsetRange(topic_partition, start_offset, end_offset, start_epoch)
    return numbers(list(fetcher.read([one], None, include_headers=False)))


def read_ranges(fetcher: Fetcher, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, list[int]]:
    """Return the numbers in each range of one read."""
    found: dict[TopicPartition, list[int]] = {each.topic_partition: [] for each in ranges}
    for arrow_batch in fetcher.read(ranges, None, include_headers=False):
        for row in arrow_batch.select(["topic", "partition", "value"]).to_pylist():
            found[TopicPartition(row["topic"], row["partition"])].append(int(row["value"]))
    return found


def asked(cluster: MockCluster, api: Api) -> list[int]:
    """Return the brokers that received requests of an API, in the order of the requests."""
    return [each.broker_id for each in cluster.requests() if each.api_key == api]


@contextmanager
def meanwhile(
    cluster: MockCluster, api: Api, change: Callable[[], object], *, broker_id: int, count: int
) -> Iterator[None]:
    """Carry out a change in another thread as soon as a broker has received so many requests of an API.

    The requests are counted from the last `clear_requests` on.
    """

    def wait_and_change() -> None:
        what = f"{count} {api.name} at broker {broker_id}"
        wait_for(lambda: asked(cluster, api).count(broker_id) >= count, what, 10, poll_s=0.001)
        change()

    with ThreadPoolExecutor(1) as thread:
        changed = thread.submit(wait_and_change)
        yield
        changed.result()
