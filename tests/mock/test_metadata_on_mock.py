"""librdkafka's mock tests of metadata (0146), with our fetcher on the same mock cluster."""

from __future__ import annotations

import pytest

from connector.model import OffsetRange
from connector.wire import error_codes
from connector.wire.versions import Api
from tests.mock.mock_cluster import MockCluster
from tests.mock.mock_reading import FIRST, SECOND, TOPIC, asked, fetcher_on, meanwhile, produce, read, read_ranges


@pytest.fixture
def cluster(cluster: MockCluster) -> MockCluster:
    """Broker 1 leads the first partition, broker 2 the second."""
    cluster.create_topic(TOPIC, [1, 2])
    return cluster


def test_an_error_without_a_change_of_the_leader_asks_for_metadata_once(cluster: MockCluster) -> None:
    produce(cluster, 100)
    cluster.push_errors(1, Api.FETCH, [0, error_codes.KAFKA_STORAGE_ERROR])
    cluster.push_errors(1, Api.FETCH, [0] * 8, delay_ms=50)
    cluster.clear_requests()
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 100) == list(range(100))
    assert len(asked(cluster, Api.METADATA)) == 2
    assert asked(cluster, Api.FETCH) == [1] * 11


def test_metadata_that_fails_is_asked_for_again_after_pauses_until_it_heals(cluster: MockCluster) -> None:
    produce(cluster, 20)
    cluster.set_topic_error(TOPIC, error_codes.KAFKA_STORAGE_ERROR)
    cluster.clear_requests()
    with (
        fetcher_on(cluster) as fetcher,
        meanwhile(
            cluster, Api.METADATA, lambda: cluster.set_topic_error(TOPIC, error_codes.NONE), broker_id=1, count=6
        ),
    ):
        assert read(fetcher, 0, 20) == list(range(20))
    times_ms = [each.received_ms for each in cluster.requests() if each.api_key == Api.METADATA]
    # Pauses of 20 and 40 ms, then 50, each up to a fifth shorter.
    assert times_ms[5] - times_ms[0] > 150


def test_metadata_that_fails_does_not_keep_us_from_a_leader_we_know(cluster: MockCluster) -> None:
    produce(cluster, 100)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        cluster.set_topic_error(TOPIC, error_codes.KAFKA_STORAGE_ERROR)
        cluster.push_errors(1, Api.FETCH, [error_codes.KAFKA_STORAGE_ERROR])
        cluster.clear_requests()
        assert read(fetcher, 10, 100) == list(range(10, 100))
    assert len(asked(cluster, Api.METADATA)) >= 1


@pytest.mark.parametrize("leader_ids", [(3, 2), (3, 4)], ids=["one leader", "both leaders"])
def test_leaders_that_errors_name_are_read_at_once(cluster: MockCluster, leader_ids: tuple[int, int]) -> None:
    produce(cluster, 10)
    produce(cluster, 10, SECOND)
    # Any pause would be longer than a range may stand still.
    patient = {"kafka.retry.backoff.ms": "30000", "kafka.retry.backoff.max.ms": "30000"}
    with fetcher_on(cluster, **patient) as fetcher:
        read_ranges(fetcher, [OffsetRange(FIRST, 0, 10), OffsetRange(SECOND, 0, 10)])
        for topic_partition, leader_id in zip((FIRST, SECOND), leader_ids, strict=True):
            if leader_id != 2:
                cluster.set_leader(topic_partition, leader_id)
            produce(cluster, 20, topic_partition, first=10)
        cluster.clear_requests()
        rows = read_ranges(fetcher, [OffsetRange(FIRST, 10, 30), OffsetRange(SECOND, 10, 30)])
    assert rows == {FIRST: list(range(10, 30)), SECOND: list(range(10, 30))}
    assert asked(cluster, Api.FETCH).count(1) == 1
    for leader_id in leader_ids:
        assert asked(cluster, Api.FETCH).count(leader_id) == 2
