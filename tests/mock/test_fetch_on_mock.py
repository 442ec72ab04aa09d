"""librdkafka's mock tests of fetching from followers (0104, 8001), with our fetcher on the same mock cluster.

Where librdkafka resets its position by policy, we have none: a range is read to its end, or the loss is told.
Where it stays without records although the leader has them, we read the leader.
"""

from __future__ import annotations

import pytest

from connector.errors import OffsetsAgedOut
from connector.metrics.catalog import SKIPPED_OFFSETS
from connector.model import OffsetRange
from connector.wire import error_codes
from connector.wire.versions import Api
from tests.integration.reading import CountingRecorder
from tests.mock.mock_cluster import MockCluster
from tests.mock.mock_reading import FIRST, SECOND, TOPIC, asked, fetcher_on, meanwhile, produce, read, read_ranges

NO_SUCH_BROKER = 19


@pytest.fixture
def cluster(cluster: MockCluster) -> MockCluster:
    """Broker 1 leads, and names broker 2 as the replica to read of the first partition."""
    cluster.create_topic(TOPIC, [1, 1])
    cluster.set_follower(FIRST, 2)
    return cluster


def test_out_of_range_at_a_follower_in_sync_loses_nothing(cluster: MockCluster) -> None:
    produce(cluster, 100)
    cluster.push_errors(2, Api.FETCH, [0, error_codes.OFFSET_OUT_OF_RANGE])
    cluster.clear_requests()
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 100) == list(range(100))
        assert asked(cluster, Api.FETCH) == [1, 2, 2, 1, *[2] * 9]
        produce(cluster, 50, first=100)
        assert read(fetcher, 100, 150) == list(range(100, 150))
    assert asked(cluster, Api.FETCH)[13:] == [2] * 5
    assert asked(cluster, Api.LIST_OFFSETS) == []


@pytest.mark.parametrize("is_fatal", [True, False])
def test_offsets_that_the_leader_lacks_too_are_looked_up_at_the_leader_alone(
    cluster: MockCluster, is_fatal: bool
) -> None:
    produce(cluster, 100)
    recorder = CountingRecorder()
    with fetcher_on(cluster, failOnDataLoss=str(is_fatal)) as fetcher:
        fetcher.use_recorder(recorder)
        assert read(fetcher, 0, 20) == list(range(20))
        cluster.delete_records(FIRST, 50)
        cluster.clear_requests()
        if is_fatal:
            with pytest.raises(OffsetsAgedOut, match=r"offset 20 was deleted.*begins at 50"):
                read(fetcher, 20, 100)
        else:
            assert read(fetcher, 20, 100) == list(range(50, 100))
            assert recorder.counts[SKIPPED_OFFSETS.name, TOPIC, OffsetsAgedOut.reason] == 30
    assert asked(cluster, Api.FETCH)[:2] == [2, 1]
    assert asked(cluster, Api.LIST_OFFSETS) == [1, 1]


def test_what_a_lagging_follower_lacks_comes_from_the_leader(cluster: MockCluster) -> None:
    produce(cluster, 10, batch_records=1)
    cluster.set_follower_last_offset(FIRST, 6)
    cluster.clear_requests()
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
    fetches = asked(cluster, Api.FETCH)
    assert fetches[:8] == [1, *[2] * 7]
    assert fetches[-3:] == [1, 1, 1]
    assert len(fetches) <= 20
    assert asked(cluster, Api.LIST_OFFSETS) == []


def test_a_lagging_follower_that_catches_up_serves_the_rest(cluster: MockCluster) -> None:
    produce(cluster, 10, batch_records=1)
    cluster.set_follower_last_offset(FIRST, 6)
    cluster.clear_requests()
    with (
        fetcher_on(cluster, **{"kafka.fetch.max.wait.ms": "500"}) as fetcher,
        # The eighth answer is the refusal of offset 7, which the mock holds for 500 ms.
        meanwhile(cluster, Api.FETCH, lambda: cluster.set_follower_last_offset(FIRST, -1), broker_id=2, count=8),
    ):
        assert read(fetcher, 0, 10) == list(range(10))
    assert asked(cluster, Api.FETCH) == [1, *[2] * 8, 1, *[2] * 3]
    assert asked(cluster, Api.LIST_OFFSETS) == []


def test_a_redirect_to_a_broker_that_does_not_exist_leaves_the_leader_to_read(cluster: MockCluster) -> None:
    produce(cluster, 100)
    cluster.set_follower(FIRST, NO_SUCH_BROKER)
    cluster.clear_requests()
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 100) == list(range(100))
    assert asked(cluster, Api.FETCH) == [1] * 13
    assert len(asked(cluster, Api.METADATA)) <= 4


def test_a_redirect_that_is_corrected_is_followed(cluster: MockCluster) -> None:
    produce(cluster, 100)
    cluster.set_follower(FIRST, NO_SUCH_BROKER)
    cluster.clear_requests()
    slow_retry = {"kafka.retry.backoff.ms": "500", "kafka.retry.backoff.max.ms": "500"}
    with (
        fetcher_on(cluster, **slow_retry) as fetcher,
        meanwhile(cluster, Api.FETCH, lambda: cluster.set_follower(FIRST, 3), broker_id=1, count=1),
    ):
        assert read(fetcher, 0, 100) == list(range(100))
    assert asked(cluster, Api.FETCH) == [1, 1, *[3] * 10]


@pytest.mark.parametrize(
    "error_code",
    [error_codes.REPLICA_NOT_AVAILABLE, error_codes.OFFSET_NOT_AVAILABLE],
    ids=error_codes.error_name,
)
def test_a_leader_that_only_fails_is_left_when_another_leads(cluster: MockCluster, error_code: int) -> None:
    cluster.set_follower(FIRST, -1)
    produce(cluster, 100)
    cluster.push_errors(1, Api.FETCH, [error_code] * 200)
    cluster.clear_requests()
    with (
        fetcher_on(cluster) as fetcher,
        meanwhile(cluster, Api.FETCH, lambda: cluster.set_leader(FIRST, 2), broker_id=1, count=3),
    ):
        assert read(fetcher, 0, 100) == list(range(100))
    assert asked(cluster, Api.FETCH)[-10:] == [2] * 10


def test_a_replica_that_is_removed_sends_us_to_the_leader(cluster: MockCluster) -> None:
    produce(cluster, 10)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        cluster.set_follower(FIRST, -1)
        produce(cluster, 100, first=10)
        cluster.clear_requests()
        assert read(fetcher, 10, 110) == list(range(10, 110))
    assert asked(cluster, Api.FETCH) == [2, *[1] * 10]


def test_a_replica_that_went_down_between_reads_is_replaced(cluster: MockCluster) -> None:
    produce(cluster, 10)
    with fetcher_on(cluster) as fetcher:
        assert read(fetcher, 0, 10) == list(range(10))
        produce(cluster, 100, first=10)
        cluster.set_down(2)
        cluster.set_follower(FIRST, 3)
        cluster.clear_requests()
        assert read(fetcher, 10, 110) == list(range(10, 110))
    assert asked(cluster, Api.FETCH) == [1, *[3] * 10]


def test_a_replica_that_goes_down_in_mid_read_is_replaced(cluster: MockCluster) -> None:
    def fail() -> None:
        cluster.set_down(2)
        cluster.set_follower(FIRST, 3)

    produce(cluster, 1_000)
    # Slow enough that most of the range is left when the fault comes.
    cluster.push_errors(2, Api.FETCH, [0] * 100, delay_ms=10)
    cluster.clear_requests()
    with fetcher_on(cluster) as fetcher, meanwhile(cluster, Api.FETCH, fail, broker_id=2, count=5):
        assert read(fetcher, 0, 1_000) == list(range(1_000))
    assert asked(cluster, Api.FETCH)[-50:] == [3] * 50


def test_a_lease_that_ends_while_offsets_are_looked_up_does_no_harm(cluster: MockCluster) -> None:
    cluster.set_follower(SECOND, 2)
    cluster.set_follower(FIRST, -1)
    produce(cluster, 100)
    produce(cluster, 200, SECOND)
    cluster.delete_records(FIRST, 50)
    cluster.push_errors(1, Api.LIST_OFFSETS, [0, 0], delay_ms=150)
    cluster.push_errors(2, Api.FETCH, [0] * 20, delay_ms=20)
    cluster.clear_requests()
    # Leases last as long as metadata. The leader, which must be asked again, is busy with the other question.
    short_lease = {"kafka.metadata.max.age.ms": "100", "failOnDataLoss": "false"}
    with fetcher_on(cluster, **short_lease) as fetcher:
        rows = read_ranges(fetcher, [OffsetRange(FIRST, 20, 100), OffsetRange(SECOND, 0, 200)])
    assert rows == {FIRST: list(range(50, 100)), SECOND: list(range(200))}
    assert asked(cluster, Api.LIST_OFFSETS) == [1, 1]
    requests = cluster.requests()
    first, second = (place for place, each in enumerate(requests) if each.api_key == Api.LIST_OFFSETS)
    fetches_meanwhile = [each.broker_id for each in requests[first:second] if each.api_key == Api.FETCH]
    assert len(fetches_meanwhile) <= 5, "an answer takes 20 ms and the lease 100 ms"
