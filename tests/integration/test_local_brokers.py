"""Single brokers of the laptop cluster, hurt and healed: killed, stopped, restarted, paused, out of sync."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined] # its stubs leave them out

from streaming_app.local.broker import BrokerDied, LocalBroker
from streaming_app.local.cluster_view import ClusterViewer
from streaming_app.local.errors import LocalClusterError
from streaming_app.local.kafka import LocalKafka
from tests.integration.plain_clients import consume_values, log_bounds, produce_values
from tests.waiting import LONG_ENOUGH_S

pytestmark = pytest.mark.integration

SETTINGS = {
    "broker.session.timeout.ms": "4000",  # a third less to wait for a death to be noticed
    "max.incremental.fetch.session.cache.slots": "2",
    "replica.lag.time.max.ms": "4000",
}
TopicNames = Callable[..., str]


@pytest.fixture(scope="module")
def hurt_cluster(kafka_class_path: str) -> Iterator[LocalKafka]:
    with LocalKafka(broker_config=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def cluster(hurt_cluster: LocalKafka) -> LocalKafka:
    """Three brokers in health; a test need not heal what it hurts."""
    hurt_cluster.heal()
    return hurt_cluster


@pytest.fixture(scope="module")
def lone_cluster(kafka_class_path: str) -> Iterator[LocalKafka]:
    with LocalKafka(("az-a",)) as cluster:
        yield cluster


def listens(broker: LocalBroker) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((broker.host, broker.port)) == 0


def test_settings_of_ones_own_reach_every_broker(cluster: LocalKafka) -> None:
    admin = cluster.admin()
    for broker in cluster.brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker.node_id))
        (answer,) = admin.describe_configs([resource]).values()
        entries = answer.result(LONG_ENOUGH_S)
        assert {name: entries[name].value for name in SETTINGS} == SETTINGS


def test_a_killed_broker_comes_back_with_its_port_and_data(cluster: LocalKafka, topic: TopicNames) -> None:
    name, alone = topic(), topic()
    cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    cluster.create_topic(alone, replica_assignment=[[1]])
    produce_values(cluster, alone, [b"kept"])
    broker = cluster.broker(1)
    port = broker.port
    broker.kill()
    assert not broker.is_running
    assert not listens(broker)
    cluster.wait_until(lambda: cluster.leaders(name)[0] in {2, 3}, "another broker leads", LONG_ENOUGH_S)
    broker.start()
    broker.wait_ready()
    cluster.wait_for_isr(name, {1, 2, 3})
    assert broker.port == port
    assert consume_values(cluster, alone, 1) == [b"kept"]
    cluster.elect_leaders(name)
    cluster.wait_until(lambda: cluster.leaders(name) == {0: 1}, "the preferred replica leads again", LONG_ENOUGH_S)
    cluster.elect_leaders(name)  # with nothing left to do it is no error


def test_a_stopped_broker_comes_back(cluster: LocalKafka, topic: TopicNames) -> None:
    name = topic()
    cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    broker, port = cluster.broker(1), cluster.broker(1).port
    broker.stop()
    cluster.wait_for_isr(name, {2, 3})
    broker.start()
    broker.wait_ready()
    cluster.wait_for_isr(name, {1, 2, 3})
    assert broker.port == port


def test_a_restarted_broker_is_another_process_with_the_same_data(cluster: LocalKafka, topic: TopicNames) -> None:
    alone = topic()
    cluster.create_topic(alone, replica_assignment=[[3]])
    produce_values(cluster, alone, [b"kept"])
    broker = cluster.broker(3)
    pid = broker.running_process().pid
    broker.restart()
    assert broker.running_process().pid != pid
    cluster.wait_for_leaders(alone, 1)
    assert consume_values(cluster, alone, 1) == [b"kept"]


def test_a_paused_broker_is_silent_until_it_is_resumed(cluster: LocalKafka, topic: TopicNames) -> None:
    name = topic()
    cluster.create_topic(name, replica_assignment=[[2, 1, 3]])
    broker = cluster.broker(2)
    broker.pause()
    assert listens(broker)
    with pytest.raises(KafkaException):
        ClusterViewer(f"{broker.host}:{broker.port}").partitions(name, timeout_s=1.0)
    cluster.wait_until(lambda: cluster.leaders(name)[0] in {1, 3}, "another broker leads", LONG_ENOUGH_S)
    cluster.wait_for_isr(name, {1, 3})
    broker.resume()
    broker.wait_ready()
    cluster.wait_for_isr(name, {1, 2, 3})


def test_an_unclean_election_loses_what_only_the_dead_leader_had(cluster: LocalKafka, topic: TopicNames) -> None:
    name = topic()
    cluster.create_topic(name, replica_assignment=[[1, 2]], config={"min.insync.replicas": "1"})
    produce_values(cluster, name, [b"kept"] * 5)
    cluster.broker(2).kill()
    cluster.wait_for_isr(name, {1})
    produce_values(cluster, name, [b"lost"] * 5)
    cluster.broker(1).kill()
    cluster.broker(2).start()
    cluster.broker(2).wait_ready()
    cluster.wait_until(lambda: cluster.leaders(name) == {0: -1}, "nobody leads", LONG_ENOUGH_S)
    cluster.elect_leaders(name, is_unclean=True)
    cluster.wait_until(lambda: cluster.leaders(name) == {0: 2}, "broker 2 leads", LONG_ENOUGH_S)
    assert consume_values(cluster, name, 5) == [b"kept"] * 5
    assert log_bounds(cluster, name) == (0, 5)
    cluster.heal()
    cluster.wait_for_isr(name, {1, 2})
    assert log_bounds(cluster, name) == (0, 5)


def test_without_a_majority_a_broker_is_never_ready(cluster: LocalKafka) -> None:
    for broker in cluster.brokers:
        broker.kill()
    cluster.brokers[0].start()
    with pytest.raises(LocalClusterError, match=r"Broker 1 \(az-a\) is not ready in time, .*most brokers must run"):
        cluster.brokers[0].wait_ready(timeout_s=5.0)


def test_a_broker_killed_by_others_is_told_when_it_is_needed(lone_cluster: LocalKafka) -> None:
    lone_cluster.heal()
    broker = lone_cluster.brokers[0]
    process = broker.running_process()
    os.kill(process.pid, signal.SIGKILL)
    process.wait(LONG_ENOUGH_S)
    for use in (broker.wait_ready, broker.pause):
        with pytest.raises(BrokerDied, match="ended by itself with exit code 137"):
            use()
    with pytest.raises(LocalClusterError, match="No broker of the local cluster can answer"):
        lone_cluster.leaders("any")


def test_waiting_for_a_broker_nobody_started_says_so(lone_cluster: LocalKafka) -> None:
    lone_cluster.brokers[0].kill()
    with pytest.raises(BrokerDied, match="is not running: start it first"):
        lone_cluster.brokers[0].wait_ready()
