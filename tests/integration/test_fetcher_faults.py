"""Brokers that fail in the middle of a read: every row arrives, once and in order, or an error says what is stuck.

One cluster of its own, hurt by each test and healed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from connector.errors import RangeTimedOut
from connector.metrics.catalog import FETCH_BYTES, READ_REPLICA_CHANGES
from connector.model import OffsetRange, TopicPartition
from streaming_app.local.kafka import LocalKafka
from tests.integration.reading import CountingRecorder, fetcher_in, numbers, produce

pytestmark = pytest.mark.integration

RECORDS = 40_000


@pytest.fixture(scope="module")
def cluster(kafka_class_path: str) -> Iterator[LocalKafka]:
    with LocalKafka(broker_config={"replica.lag.time.max.ms": "5000"}) as cluster:
        cluster.create_topic("t", replica_assignment=[[1, 2, 3]])
        produce(cluster, "t", RECORDS)
        yield cluster


def is_follower_read(cluster: LocalKafka) -> bool:
    """Tell whether leader and metadata agree on the follower: after the last test's fault they need a moment."""
    recorder = CountingRecorder()
    with fetcher_in(cluster, "az-b", "fault-test-probe") as fetcher:
        fetcher.use_recorder(recorder)
        list(fetcher.read([OffsetRange(TopicPartition("t", 0), 0, 100)], None, include_headers=False))
    return recorder.counts[FETCH_BYTES.name, "t", "az-b", "local"] > 0


def read_with_fault(
    cluster: LocalKafka, hurt: Callable[[], None], **options: str
) -> tuple[list[int], CountingRecorder]:
    """Read everything from az-b; `hurt` happens after the first rows."""
    cluster.wait_until(lambda: is_follower_read(cluster), "az-b is read from its follower again", 60)
    recorder = CountingRecorder()
    one = OffsetRange(TopicPartition("t", 0), 0, RECORDS)
    with fetcher_in(cluster, "az-b", "fault-test", **options) as fetcher:
        fetcher.use_recorder(recorder)
        rows = fetcher.read([one], None, include_headers=False)
        batches = [next(rows)]
        assert recorder.counts[FETCH_BYTES.name, "t", "az-b", "local"] > 0, "the follower must be in use"
        hurt()
        batches.extend(rows)
    return numbers(batches), recorder


def test_follower_killed_in_mid_read_the_leader_goes_on(cluster: LocalKafka) -> None:
    follower = cluster.broker(2)
    try:
        found, recorder = read_with_fault(cluster, follower.kill)
    finally:
        follower.start()
        follower.wait_ready()
    assert found == list(range(RECORDS))
    assert recorder.counts[READ_REPLICA_CHANGES.name, "broker_down"] >= 1
    assert recorder.counts[FETCH_BYTES.name, "t", "az-a", "remote"] > 0
    cluster.wait_for_isr("t", [1, 2, 3])


def test_follower_silent_in_mid_read_the_leader_goes_on(cluster: LocalKafka) -> None:
    follower = cluster.broker(2)
    try:
        found, recorder = read_with_fault(cluster, follower.pause)
    finally:
        follower.resume()
    assert found == list(range(RECORDS))
    assert recorder.counts[READ_REPLICA_CHANGES.name, "broker_down"] >= 1
    cluster.wait_for_isr("t", [1, 2, 3], timeout_s=60)


def test_leader_and_follower_killed_in_mid_read_the_new_leader_goes_on(cluster: LocalKafka) -> None:
    # Two of three voters are needed for an election: the follower comes back before the leader goes.
    def hurt() -> None:
        cluster.broker(2).kill()
        cluster.broker(2).start()
        cluster.broker(2).wait_ready()
        cluster.wait_for_isr("t", [1, 2, 3], timeout_s=60)
        cluster.broker(1).kill()

    try:
        found, _ = read_with_fault(cluster, hurt)
    finally:
        cluster.broker(1).start()
        cluster.broker(1).wait_ready()
    assert found == list(range(RECORDS))


def test_no_broker_left_ends_in_an_error_that_says_what_is_stuck(cluster: LocalKafka) -> None:
    def hurt() -> None:
        for broker in cluster.brokers:
            broker.pause()

    def heal() -> None:
        for broker in cluster.brokers:
            broker.resume()

    timer = threading.Timer(30, heal)
    timer.start()
    options = {"kafkaConsumer.pollTimeoutMs": "6000", "kafka.request.timeout.ms": "2000"}
    try:
        with pytest.raises(RangeTimedOut, match=r"t-0: no progress at offset \d+ .*no answer to"):
            read_with_fault(cluster, hurt, **options)
    finally:
        timer.cancel()
        heal()
