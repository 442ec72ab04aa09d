"""The driver of the mock cluster says what is wrong, instead of ending the process."""

from __future__ import annotations

import _ctypes

import pytest

from connector.model import TopicPartition
from tests.mock.mock_cluster import MockCluster, MockClusterError, MockClusterUnavailable, load_library


def test_a_library_that_is_not_there_is_named() -> None:
    with pytest.raises(MockClusterUnavailable, match=r"/nowhere/librdkafka\.so can't be loaded"):
        load_library("/nowhere/librdkafka.so")


def test_a_library_without_a_function_is_named_with_it() -> None:
    with pytest.raises(MockClusterUnavailable, match=r"_ctypes.* has no rd_kafka_conf_new"):
        load_library(_ctypes.__file__)


def test_a_command_that_is_refused_says_why(cluster: MockCluster) -> None:
    cluster.create_topic("refused", [1])
    with pytest.raises(MockClusterError, match=r"partition_set_leader.*refused.*BROKER_NOT_AVAILABLE"):
        cluster.set_leader(TopicPartition("refused", 0), 19)


def test_a_cluster_that_does_not_run_takes_no_command() -> None:
    stopped = MockCluster()
    with pytest.raises(MockClusterError, match="not running"):
        stopped.clear_requests()
    with stopped:
        stopped.clear_requests()
    with pytest.raises(MockClusterError, match="not running"):
        stopped.clear_requests()
