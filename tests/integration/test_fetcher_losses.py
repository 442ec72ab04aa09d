"""Logs that lose records under a reader, on real brokers: what is lost is said, and never read wrongly.

The histories are those of real outages: an unclean election, a topic created anew, records deleted ahead of a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from connector.errors import DataLossError, LogTruncated, TopicDeleted, TopicRecreated
from connector.metrics.catalog import SKIPPED_OFFSETS
from connector.model import ClusterView, OffsetRange, TopicPartition
from connector.net.cluster_client import ClusterClient
from streaming_app.local.kafka import LocalKafka
from tests.integration.reading import CountingRecorder, client_config, fetcher_in, numbers, produce

pytestmark = pytest.mark.integration

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture(scope="module")
def cluster(kafka_class_path: str) -> Iterator[LocalKafka]:
    with LocalKafka(broker_config={"replica.lag.time.max.ms": "4000"}) as cluster:
        yield cluster


def planned_view(cluster: LocalKafka, topic: str) -> ClusterView:
    client = ClusterClient(client_config(cluster, "planner"))
    try:
        return client.describe([topic])
    finally:
        client.close()


def test_an_unclean_election_below_our_position_is_found_out(cluster: LocalKafka) -> None:
    # What is written after it may end above our position: then only the leader epoch tells the histories apart.
    written_anew = {"unclean-longer": 300, "unclean-shorter": 20}
    for topic in written_anew:
        cluster.create_topic(topic, replica_assignment=[[1, 2]], config=UNCLEAN)
        produce(cluster, topic, 100)
    try:
        cluster.broker(2).kill()
        for topic in written_anew:
            cluster.wait_for_isr(topic, [1])
            produce(cluster, topic, 100, first=100)
        with fetcher_in(cluster, "az-a", "unclean-test") as fetcher:
            epochs = {}
            for topic in written_anew:
                view = planned_view(cluster, topic)
                one = TopicPartition(topic, 0)
                epochs[topic] = view.partitions[one].leader_epoch
                found = numbers(list(fetcher.read([OffsetRange(one, 0, 150)], view, include_headers=False)))
                assert found == list(range(150))
            cluster.broker(1).kill()
            cluster.broker(2).start()
            cluster.broker(2).wait_ready()
            for topic, record_count in written_anew.items():
                # Kafka 3.3 holds no unclean election by itself, and none while the dead leader seems alive.
                cluster.wait_until(lambda: cluster.leaders(topic)[0] != 1, f"{topic} lost its leader", 60)  # noqa: B023 - called at once
                cluster.elect_leaders(topic, is_unclean=True)
                cluster.wait_until(lambda: cluster.leaders(topic)[0] == 2, f"broker 2 leads {topic}", 60)  # noqa: B023 - called at once
                produce(cluster, topic, record_count, first=1_000)
                # The next micro-batch begins where the last one ended, behind record 149 of the lost history.
                later = OffsetRange(TopicPartition(topic, 0), 150, 200, start_epoch=epochs[topic])
                view = planned_view(cluster, topic)
                with pytest.raises(
                    LogTruncated, match=rf"{topic}-0: the log was truncated before offset 150"
                ) as raised:
                    list(fetcher.read([later], view, include_headers=False))
                assert raised.value.divergent_offset == 100
    finally:
        cluster.heal()


def test_a_topic_created_anew_under_a_planned_range_is_an_error_not_other_rows(cluster: LocalKafka) -> None:
    topic = "recreated"
    cluster.create_topic(topic)
    produce(cluster, topic, 50)
    view = planned_view(cluster, topic)
    planned = OffsetRange(TopicPartition(topic, 0), 10, 50, topic_id=view.topic_ids[topic])
    with fetcher_in(cluster, "az-b", topic) as fetcher:
        assert numbers(list(fetcher.read([planned], view, include_headers=False))) == list(range(10, 50))
        cluster.delete_topic(topic)
        cluster.create_topic(topic)
        produce(cluster, topic, 100, first=5_000)
        later = OffsetRange(TopicPartition(topic, 0), 50, 100, topic_id=view.topic_ids[topic])
        with pytest.raises(TopicRecreated, match="was deleted and created again") as raised:
            list(fetcher.read([later], view, include_headers=False))
    assert raised.value.planned_id == str(view.topic_ids[topic])
    assert raised.value.found_id == str(planned_view(cluster, topic).topic_ids[topic])


def test_a_topic_deleted_under_a_reader_is_a_typed_error(cluster: LocalKafka) -> None:
    topic = "deleted"
    cluster.create_topic(topic)
    produce(cluster, topic, 20)
    view = planned_view(cluster, topic)
    cluster.delete_topic(topic)
    with fetcher_in(cluster, "az-b", topic) as fetcher, pytest.raises(TopicDeleted, match="deleted while it was read"):
        list(fetcher.read([OffsetRange(TopicPartition(topic, 0), 0, 20)], view, include_headers=False))


def test_records_deleted_under_a_running_read_are_an_error_or_a_counted_skip(cluster: LocalKafka) -> None:
    topic = "deleted-records"
    cluster.create_topic(topic, replica_assignment=[[1, 2, 3]])
    produce(cluster, topic, 20_000)
    one = OffsetRange(TopicPartition(topic, 0), 0, 20_000)

    def delete_before(log_offset: int) -> None:
        cluster.delete_records(topic, {0: log_offset})

    def read(delete: Callable[[], None], **options: str) -> tuple[list[int], CountingRecorder]:
        recorder = CountingRecorder()
        with fetcher_in(cluster, "az-b", topic, **options) as fetcher:
            fetcher.use_recorder(recorder)
            rows = fetcher.read([one], None, include_headers=False)
            batches = [next(rows)]
            delete()
            batches.extend(rows)
        return numbers(batches), recorder

    found, recorder = read(lambda: delete_before(15_000), failOnDataLoss="false")
    skipped = recorder.counts[SKIPPED_OFFSETS.name, topic, "aged_out"]
    assert skipped > 0
    assert len(found) + skipped == 20_000
    assert found == sorted(found)
    assert found[-5_000:] == list(range(15_000, 20_000))
    with pytest.raises(DataLossError, match=r"offset 0 was deleted before it was read.*begins at 15000"):
        read(lambda: None)
