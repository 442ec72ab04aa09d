"""The fetcher on real brokers in three racks: who is read, and what happens when a broker fails in mid-read.

Which broker served how many bytes is told by the brokers' own request logs, not by our counters.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from connector.errors import LogTruncated, OffsetsAgedOut
from connector.metrics.catalog import FETCH_BYTES, FETCH_RECORDS
from connector.model import OffsetRange, TopicPartition
from streaming_app.local.kafka import LocalKafka
from tests.integration.reading import CountingRecorder, fetcher_in, fetches, numbers, produce, served

pytestmark = pytest.mark.integration


@pytest.fixture
def leader_1_topic(kafka_cluster: LocalKafka, topic: Callable[..., str]) -> str:
    """A topic of one partition, led by broker 1 (az-a), with replicas everywhere."""
    name = topic()
    kafka_cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    return name


def test_redirect_is_obeyed_and_all_bytes_come_from_our_rack(kafka_cluster: LocalKafka, leader_1_topic: str) -> None:
    produce(kafka_cluster, leader_1_topic, 2_000)
    recorder = CountingRecorder()
    with fetcher_in(kafka_cluster, "az-b", "redirect-test") as fetcher:
        fetcher.use_recorder(recorder)
        one = OffsetRange(TopicPartition(leader_1_topic, 0), 0, 2_000)
        batches = list(fetcher.read([one], None, include_headers=False))
    assert numbers(batches) == list(range(2_000))
    assert served(kafka_cluster, "redirect-test", leader_1_topic).keys() == {2}
    total = sum(served(kafka_cluster, "redirect-test", leader_1_topic).values())
    assert recorder.counts[FETCH_BYTES.name, leader_1_topic, "az-b", "local"] == total
    assert recorder.counts[FETCH_RECORDS.name, leader_1_topic, "az-b", "local"] == 2_000
    assert recorder.counts[FETCH_BYTES.name, leader_1_topic, "az-a", "remote"] == 0
    assert recorder.gauges["kafka_follower_preferred_read_replica", leader_1_topic, "0"] == 2


def test_the_next_read_goes_straight_to_the_replica(kafka_cluster: LocalKafka, leader_1_topic: str) -> None:
    produce(kafka_cluster, leader_1_topic, 100)
    with fetcher_in(kafka_cluster, "az-c", "warm-test") as fetcher:
        for start in (0, 50):
            one = OffsetRange(TopicPartition(leader_1_topic, 0), start, start + 50)
            assert len(numbers(list(fetcher.read([one], None, include_headers=False)))) == 50
    asked = [each.node_id for each in fetches(kafka_cluster, "warm-test")]
    assert asked[0] == 1
    assert set(asked[1:]) == {3}


@pytest.mark.parametrize("rack", [None, "az-nowhere", "az-a"], ids=["no rack", "unknown rack", "the leader's rack"])
def test_without_a_replica_in_our_rack_the_leader_is_read(
    kafka_cluster: LocalKafka, leader_1_topic: str, rack: str | None
) -> None:
    produce(kafka_cluster, leader_1_topic, 300)
    client_id = f"leader-test-{rack}"
    with fetcher_in(kafka_cluster, rack, client_id) as fetcher:
        one = OffsetRange(TopicPartition(leader_1_topic, 0), 0, 300)
        assert numbers(list(fetcher.read([one], None, include_headers=False))) == list(range(300))
    assert served(kafka_cluster, client_id, leader_1_topic).keys() == {1}


def test_replica_selection_leader_reads_the_leader_whatever_the_rack(
    kafka_cluster: LocalKafka, leader_1_topic: str
) -> None:
    produce(kafka_cluster, leader_1_topic, 300)
    with fetcher_in(kafka_cluster, "az-b", "leader-only-test", replicaSelection="leader") as fetcher:
        one = OffsetRange(TopicPartition(leader_1_topic, 0), 0, 300)
        assert numbers(list(fetcher.read([one], None, include_headers=False))) == list(range(300))
    assert served(kafka_cluster, "leader-only-test", leader_1_topic).keys() == {1}


def test_a_range_in_the_middle_gives_exactly_its_offsets(kafka_cluster: LocalKafka, leader_1_topic: str) -> None:
    produce(kafka_cluster, leader_1_topic, 1_000)
    with fetcher_in(kafka_cluster, "az-b", "middle-test") as fetcher:
        one = OffsetRange(TopicPartition(leader_1_topic, 0), 333, 777)
        batches = list(fetcher.read([one], None, include_headers=False))
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(333, 777))


def test_records_just_committed_at_the_leader_are_waited_for_not_lost(
    kafka_cluster: LocalKafka, leader_1_topic: str
) -> None:
    # The follower learns the high watermark one fetch later: the end of each range is ahead of what it shows.
    with fetcher_in(kafka_cluster, "az-b", "lag-test") as fetcher:
        for start in range(0, 50, 5):
            produce(kafka_cluster, leader_1_topic, 5, first=start)
            one = OffsetRange(TopicPartition(leader_1_topic, 0), start, start + 5)
            batches = list(fetcher.read([one], None, include_headers=False))
            assert numbers(batches) == list(range(start, start + 5))
    request_count = len(fetches(kafka_cluster, "lag-test"))
    assert request_count < 200, "waiting for a follower must not be a spin"


def test_offsets_deleted_before_they_were_read_are_a_typed_error(
    kafka_cluster: LocalKafka, leader_1_topic: str
) -> None:
    produce(kafka_cluster, leader_1_topic, 500)
    admin = kafka_cluster.admin()
    for future in admin.delete_records([ClientTopicPartition(leader_1_topic, 0, 200)]).values():
        future.result(30)
    with fetcher_in(kafka_cluster, "az-b", "aged-out-test") as fetcher:
        one = OffsetRange(TopicPartition(leader_1_topic, 0), 100, 500)
        with pytest.raises(OffsetsAgedOut, match=r"offset 100 was deleted.*begins at 200"):
            list(fetcher.read([one], None, include_headers=False))


def test_offsets_beyond_the_end_are_a_typed_error(kafka_cluster: LocalKafka, leader_1_topic: str) -> None:
    produce(kafka_cluster, leader_1_topic, 10)
    with fetcher_in(kafka_cluster, "az-b", "too-new-test") as fetcher:
        one = OffsetRange(TopicPartition(leader_1_topic, 0), 50, 60)
        with pytest.raises(LogTruncated, match=r"truncated before offset 50.*ends at 10"):
            list(fetcher.read([one], None, include_headers=False))


def test_a_read_given_up_half_way_does_not_disturb_the_next_one(kafka_cluster: LocalKafka, leader_1_topic: str) -> None:
    produce(kafka_cluster, leader_1_topic, 30_000)
    one = OffsetRange(TopicPartition(leader_1_topic, 0), 0, 30_000)
    with fetcher_in(kafka_cluster, "az-b", "cancel-test") as fetcher:
        given_up = fetcher.read([one], None, include_headers=False)
        first = next(given_up)
        given_up.close()  # type: ignore[attr-defined] # a generator has close
        assert first.column("offset")[0].as_py() == 0
        assert numbers(list(fetcher.read([one], None, include_headers=False))) == list(range(30_000))


def test_no_selector_on_the_brokers_means_the_leader(private_kafka_cluster: Callable[..., LocalKafka]) -> None:
    cluster = private_kafka_cluster(selector=False, request_log=True)
    cluster.create_topic("t", replica_assignment=[[1, 2, 3]])
    produce(cluster, "t", 500)
    with fetcher_in(cluster, "az-b", "no-selector-test") as fetcher:
        batches = list(fetcher.read([OffsetRange(TopicPartition("t", 0), 0, 500)], None, include_headers=False))
    assert numbers(batches) == list(range(500))
    assert served(cluster, "no-selector-test", "t").keys() == {1}
