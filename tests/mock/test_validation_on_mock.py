"""librdkafka's mock tests of offset validation (0139, and the seek of 0104), with our fetcher on the same mock cluster.

The leader epoch of a topic that was just made is 1, and each change of the leader adds one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from connector.errors import LogTruncated
from connector.metrics.catalog import SKIPPED_OFFSETS
from connector.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, EpochQuery
from connector.net.cluster_client import ClusterClient
from connector.wire import error_codes, offset_for_leader_epoch, versions
from connector.wire.frames import encode_frame
from connector.wire.messages import request_schema
from connector.wire.versions import SUPPORTED, Api
from tests.integration.reading import CountingRecorder
from tests.mock.mock_cluster import MockCluster
from tests.mock.mock_reading import FIRST, TOPIC, asked, client_config, fetcher_on, meanwhile, produce, read

LOCAL_SSL_ERROR, LOCAL_RESOLVE_ERROR = -181, -193
"""Codes that librdkafka uses inside itself, which no Kafka protocol has."""


@pytest.fixture
def cluster(cluster: MockCluster) -> MockCluster:
    """Broker 1 leads."""
    cluster.create_topic(TOPIC, [1])
    return cluster


@pytest.fixture
def validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client speak OffsetForLeaderEpoch 2, which is all that the mock has.

    Against brokers it begins at version 3, because of the rights that 2 wants; the only field that 3 adds is the
    replica id.
    """

    def encode_request(queries: Sequence[EpochQuery], *, version: int, correlation_id: int, client_id: str) -> bytes:
        schema = request_schema(Api.OFFSET_FOR_LEADER_EPOCH, version)
        partitions = tuple(
            schema.OffsetForLeaderPartition(
                partition=query.topic_partition.partition,
                current_leader_epoch=query.current_leader_epoch,
                leader_epoch=query.leader_epoch,
            )
            for query in queries
        )
        topic = schema.OffsetForLeaderTopic(topic=TOPIC, partitions=partitions)
        body = schema.OffsetForLeaderEpochRequest(topics=(topic,))
        return encode_frame(Api.OFFSET_FOR_LEADER_EPOCH, version, correlation_id, client_id, body)

    spoken = {**SUPPORTED, Api.OFFSET_FOR_LEADER_EPOCH: (2, 4)}
    monkeypatch.setattr(versions, "SUPPORTED", spoken)
    monkeypatch.setattr(offset_for_leader_epoch, "encode_request", encode_request)


def put_two_epochs(cluster: MockCluster) -> None:
    """Write 20 records in leader epoch 1, and 20 more in epoch 2, which broker 2 leads."""
    produce(cluster, 20)
    cluster.set_leader(FIRST, 2)
    produce(cluster, 20, first=20)
    cluster.clear_requests()


@pytest.mark.usefixtures("validation")
def test_a_position_beyond_the_end_of_its_epoch_is_a_truncated_log(cluster: MockCluster) -> None:
    put_two_epochs(cluster)
    with fetcher_on(cluster) as fetcher, pytest.raises(LogTruncated, match="truncated before offset 30") as raised:
        read(fetcher, 30, 40, start_epoch=1)
    assert raised.value.divergent_offset == 20
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == [2]
    assert asked(cluster, Api.FETCH) == []


@pytest.mark.usefixtures("validation")
def test_a_truncated_log_is_skipped_to_the_position_when_loss_is_not_fatal(cluster: MockCluster) -> None:
    put_two_epochs(cluster)
    recorder = CountingRecorder()
    with fetcher_on(cluster, failOnDataLoss="false") as fetcher:
        fetcher.use_recorder(recorder)
        # The offsets before the range are not read again: to Spark they are committed.
        assert read(fetcher, 30, 40, start_epoch=1) == list(range(30, 40))
    assert recorder.counts[SKIPPED_OFFSETS.name, TOPIC, LogTruncated.reason] == 10
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == [2]


def test_a_leader_without_version_3_is_not_asked_about_epochs(cluster: MockCluster) -> None:
    put_two_epochs(cluster)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 30, 40, start_epoch=1) == list(range(30, 40))
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == []


@pytest.mark.usefixtures("validation")
def test_an_answer_that_comes_while_the_position_is_in_doubt_gives_no_row_twice(cluster: MockCluster) -> None:
    def move() -> None:
        cluster.set_leader(FIRST, 3)
        cluster.set_follower(FIRST, -1)

    cluster.set_follower(FIRST, 2)
    produce(cluster, 40)
    # The second answer of broker 2 is under way while metadata, which is soon old, shows another leader.
    cluster.push_errors(2, Api.FETCH, [0])
    cluster.push_errors(2, Api.FETCH, [0], delay_ms=1_000)
    cluster.clear_requests()
    with (
        fetcher_on(cluster, **{"kafka.metadata.max.age.ms": "500"}) as fetcher,
        meanwhile(cluster, Api.FETCH, move, broker_id=2, count=2),
    ):
        assert read(fetcher, 0, 40) == list(range(40))
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == [3]
    assert asked(cluster, Api.FETCH) == [1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("error_code", [LOCAL_SSL_ERROR, LOCAL_RESOLVE_ERROR])
@pytest.mark.usefixtures("validation")
def test_a_validation_that_fails_is_repeated_and_skips_nothing(cluster: MockCluster, error_code: int) -> None:
    put_two_epochs(cluster)
    cluster.push_errors(2, Api.OFFSET_FOR_LEADER_EPOCH, [error_code])
    recorder = CountingRecorder()
    with fetcher_on(cluster, failOnDataLoss="false") as fetcher:
        fetcher.use_recorder(recorder)
        assert read(fetcher, 20, 40, start_epoch=1) == list(range(20, 40))
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == [2, 2]
    assert recorder.counts[SKIPPED_OFFSETS.name, TOPIC, LogTruncated.reason] == 0


@pytest.mark.usefixtures("validation")
def test_a_second_change_of_the_leader_during_validation_ends_in_no_loop(cluster: MockCluster) -> None:
    produce(cluster, 40)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        cluster.set_leader(FIRST, 2)
        cluster.push_errors(2, Api.OFFSET_FOR_LEADER_EPOCH, [error_codes.KAFKA_STORAGE_ERROR, 0], delay_ms=100)
        cluster.clear_requests()
        with meanwhile(
            cluster, Api.OFFSET_FOR_LEADER_EPOCH, lambda: cluster.set_leader(FIRST, 1), broker_id=2, count=1
        ):
            assert read(fetcher, 10, 40, start_epoch=1) == list(range(10, 40))
    questions = asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH)
    assert questions[0] == 2
    assert questions[-1] == 1
    assert len(questions) <= 4


@pytest.mark.usefixtures("validation")
def test_metadata_of_a_past_leader_is_not_believed_during_validation(cluster: MockCluster) -> None:
    def forget_the_change() -> None:
        for _ in range(10):
            cluster.push_leader_answer(FIRST, 1, 1)

    produce(cluster, 20)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        cluster.set_leader(FIRST, 2)
        cluster.push_errors(2, Api.OFFSET_FOR_LEADER_EPOCH, [error_codes.KAFKA_STORAGE_ERROR], delay_ms=100)
        cluster.clear_requests()
        with meanwhile(cluster, Api.OFFSET_FOR_LEADER_EPOCH, forget_the_change, broker_id=2, count=1):
            assert read(fetcher, 10, 20, start_epoch=1) == list(range(10, 20))
    assert asked(cluster, Api.METADATA)
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == [2, 2]
    assert asked(cluster, Api.FETCH) == [1, 2]


@pytest.mark.usefixtures("validation")
def test_another_leader_of_the_same_epoch_needs_no_validation(cluster: MockCluster) -> None:
    produce(cluster, 20)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        # Broker 1 begins epoch 2, but first metadata says that broker 2 does.
        cluster.set_leader(FIRST, 1)
        cluster.push_leader_answer(FIRST, 2, 2)
        cluster.clear_requests()
        assert read(fetcher, 10, 20, start_epoch=1) == list(range(10, 20))
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == [2]
    assert asked(cluster, Api.FETCH)[-1] == 1


@pytest.mark.usefixtures("validation")
def test_another_leader_without_an_epoch_needs_no_validation(cluster: MockCluster) -> None:
    produce(cluster, 20)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        cluster.set_leader(FIRST, 2)
        for _ in range(200):
            cluster.push_leader_answer(FIRST, 2, -1)
        cluster.clear_requests()
        assert read(fetcher, 10, 20, start_epoch=1) == list(range(10, 20))
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == []
    assert asked(cluster, Api.FETCH) == [1, 2]


@pytest.mark.usefixtures("validation")
def test_a_topic_that_metadata_misses_for_a_moment_is_validated_once_and_read(cluster: MockCluster) -> None:
    produce(cluster, 20)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        cluster.push_errors(1, Api.FETCH, [error_codes.UNKNOWN_TOPIC_OR_PARTITION])
        cluster.set_topic_error(TOPIC, error_codes.UNKNOWN_TOPIC_OR_PARTITION)
        cluster.set_leader(FIRST, 2)
        cluster.clear_requests()
        with meanwhile(
            cluster, Api.METADATA, lambda: cluster.set_topic_error(TOPIC, error_codes.NONE), broker_id=1, count=1
        ):
            assert read(fetcher, 10, 20, start_epoch=1) == list(range(10, 20))
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == [2]
    assert asked(cluster, Api.FETCH)[-1] == 2


@pytest.mark.usefixtures("validation")
def test_a_validation_that_fails_while_metadata_misses_the_topic_is_completed(cluster: MockCluster) -> None:
    produce(cluster, 20)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        cluster.push_errors(2, Api.OFFSET_FOR_LEADER_EPOCH, [error_codes.UNKNOWN_TOPIC_OR_PARTITION] * 3)
        cluster.set_topic_error(TOPIC, error_codes.UNKNOWN_TOPIC_OR_PARTITION)
        cluster.set_leader(FIRST, 2)
        cluster.clear_requests()
        with meanwhile(
            cluster,
            Api.OFFSET_FOR_LEADER_EPOCH,
            lambda: cluster.set_topic_error(TOPIC, error_codes.NONE),
            broker_id=2,
            count=2,
        ):
            assert read(fetcher, 10, 20, start_epoch=1) == list(range(10, 20))
    assert asked(cluster, Api.OFFSET_FOR_LEADER_EPOCH) == [2] * 4
    assert asked(cluster, Api.FETCH) == [1, 2]


@pytest.mark.parametrize(("timestamp", "log_offset"), [(EARLIEST_TIMESTAMP, 0), (LATEST_TIMESTAMP, 20)])
def test_offsets_asked_for_while_the_leader_changes_come_from_the_next_one(
    cluster: MockCluster, timestamp: int, log_offset: int
) -> None:
    produce(cluster, 20)
    client = ClusterClient(client_config(cluster))
    try:
        client.describe([TOPIC])
        cluster.set_leader(FIRST, 2)
        assert client.log_offsets({FIRST: timestamp}) == {FIRST: log_offset}
    finally:
        client.close()
    assert asked(cluster, Api.LIST_OFFSETS) == [1, 2]
