"""The laptop cluster: brokers and workers as they should be, hurt and healed, and gone when they should be gone."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConsumerPartition

from streaming_app.local import artifacts, kafka, ports
from streaming_app.local.broker import BrokerDied, LocalBroker
from streaming_app.local.cluster_view import ClusterViewer
from streaming_app.local.errors import LocalClusterError
from streaming_app.local.kafka import LocalKafka
from streaming_app.local.leftovers import CLUSTER_MARKER, leftover_processes, wait_nothing_left
from streaming_app.local.request_log import ServedFetch, read_served_fetches
from streaming_app.local.supervise import SupervisedProcess

pytestmark = pytest.mark.integration

NOTHING_LEFT_WITHIN_S = 30.0
WAIT_S = 60.0
QUIET = {"log_level": 0}
ClusterFactory = Callable[..., LocalKafka]


def wait_until(condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produce(cluster: LocalKafka, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **QUIET})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def consume(cluster: LocalKafka, topic: str, count: int, **config: str) -> list[bytes]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, **QUIET}
    consumer = Consumer(settings | {key.replace("_", "."): value for key, value in config.items()})
    consumer.assign([ConsumerPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count:
        assert time.monotonic() < deadline
        values += [message.value() or b"" for message in consumer.consume(count, 0.5) if message.error() is None]
    consumer.close()
    return values


def commands_of(marker: str) -> list[str]:
    """Return the whole command lines of the processes with a marker in their environment."""
    pids = ",".join(str(left.pid) for left in leftover_processes(marker))
    return subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", pids], capture_output=True, text=True
    ).stdout.splitlines()


def is_listening(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def listens(broker: LocalBroker) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((broker.host, broker.port)) == 0


def test_brokers_advertise_their_racks(kafka_cluster: LocalKafka) -> None:
    admin = kafka_cluster.admin()
    nodes = admin.describe_cluster(request_timeout=WAIT_S).result().nodes
    expected = {(1, "az-a"), (2, "az-b"), (3, "az-c")}
    assert {(node.id, node.rack) for node in nodes} == expected
    assert {(broker.node_id, broker.rack) for broker in kafka_cluster.brokers} == expected
    assert {f"{node.host}:{node.port}" for node in nodes} == set(kafka_cluster.bootstrap_servers.split(","))
    assert kafka_cluster.broker_in("az-b") is kafka_cluster.broker(2)


def test_replicas_go_where_they_are_assigned(kafka_cluster: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic()
    kafka_cluster.create_topic(name, replica_assignment=[[2, 3], [3, 1], [1, 2]])
    assert kafka_cluster.leaders(name) == {0: 2, 1: 3, 2: 1}
    assert {number: view.replicas for number, view in kafka_cluster.partitions(name).items()} == {
        0: (2, 3),
        1: (3, 1),
        2: (1, 2),
    }


def test_an_unknown_topic_has_no_partitions_and_is_not_created(
    kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic()
    assert kafka_cluster.partitions(name) == {}
    assert kafka_cluster.partitions(name) == {}


def test_the_request_log_tells_that_the_follower_of_the_rack_served(
    kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    values = [os.urandom(1000) for _ in range(500)]
    produce(kafka_cluster, name, values)
    kafka_cluster.wait_for_isr(name, {1, 2, 3})

    def served() -> list[ServedFetch]:
        return [row for row in read_served_fetches(kafka_cluster, client_id=name) if row.topic == name]

    assert consume(kafka_cluster, name, 500, client_rack="az-c", client_id=name) == values
    wait_until(lambda: sum(row.record_bytes for row in served()) >= 500 * 1000)
    rows = served()
    assert {row.node_id for row in rows if row.record_bytes} == {3}
    assert {(row.broker_rack, row.client_rack, row.replica_id) for row in rows if row.record_bytes} == {
        ("az-c", "az-c", -1)
    }
    assert {row.preferred_read_replica for row in rows if row.node_id == 1} == {3}
    assert sum(row.record_bytes for row in rows) < 1.2 * 500 * 1000
    replicated = {
        row.replica_id for row in read_served_fetches(kafka_cluster) if row.topic == name and row.replica_id > 0
    }
    assert replicated == {2, 3}


def test_a_killed_broker_comes_back_with_its_port_and_data(
    private_kafka_cluster: ClusterFactory, topic: Callable[..., str]
) -> None:
    cluster = private_kafka_cluster()
    name, alone = topic(), topic()
    cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    cluster.create_topic(alone, replica_assignment=[[1]])
    produce(cluster, alone, [b"kept"])
    broker = cluster.broker(1)
    port = broker.port
    broker.kill()
    assert not broker.is_running
    assert not listens(broker)
    cluster.wait_until(lambda: cluster.leaders(name)[0] in {2, 3}, "another broker leads", WAIT_S)
    broker.start()
    broker.wait_ready()
    cluster.wait_for_isr(name, {1, 2, 3})
    assert broker.port == port
    assert consume(cluster, alone, 1) == [b"kept"]


def test_a_stopped_broker_hands_its_leadership_over_first(
    private_kafka_cluster: ClusterFactory, topic: Callable[..., str]
) -> None:
    # A session time-out this long can't be what moves the leadership.
    cluster = private_kafka_cluster(broker_config={"broker.session.timeout.ms": "600000"})
    name = topic()
    cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    cluster.broker(1).stop()
    assert not listens(cluster.broker(1))
    cluster.wait_until(lambda: cluster.leaders(name) == {0: 2}, "broker 2 leads", WAIT_S)


def test_a_stopped_broker_comes_back(private_kafka_cluster: ClusterFactory, topic: Callable[..., str]) -> None:
    cluster = private_kafka_cluster()
    name = topic()
    cluster.create_topic(name, replica_assignment=[[1, 2, 3]])
    broker, port = cluster.broker(1), cluster.broker(1).port
    broker.stop()
    cluster.wait_for_isr(name, {2, 3})
    broker.start()
    broker.wait_ready()
    cluster.wait_for_isr(name, {1, 2, 3})
    assert broker.port == port


def test_a_paused_broker_is_silent_until_it_is_resumed(
    private_kafka_cluster: ClusterFactory, topic: Callable[..., str]
) -> None:
    cluster = private_kafka_cluster()
    name = topic()
    cluster.create_topic(name, replica_assignment=[[2, 1, 3]])
    broker = cluster.broker(2)
    broker.pause()
    assert listens(broker)
    with pytest.raises(KafkaException):
        ClusterViewer(f"{broker.host}:{broker.port}").partitions(name, timeout_s=1.0)
    cluster.wait_until(lambda: cluster.leaders(name)[0] in {1, 3}, "another broker leads", WAIT_S)
    cluster.wait_for_isr(name, {1, 3})
    broker.resume()
    broker.wait_ready()
    cluster.wait_for_isr(name, {1, 2, 3})


def test_a_paused_cluster_can_be_stopped(kafka_class_path: str) -> None:
    with LocalKafka(("az-a", "az-b")) as cluster:
        folder = cluster.folder
        for broker in cluster.brokers:
            broker.pause()
    assert folder is not None
    assert wait_nothing_left(folder, NOTHING_LEFT_WITHIN_S) == []
    assert not folder.exists()


def test_nothing_is_left_after_a_normal_end(kafka_class_path: str) -> None:
    with LocalKafka() as cluster:
        brokers, folder = cluster.brokers, cluster.folder
        assert folder is not None
        assert len(leftover_processes(folder)) == 6  # three brokers, three supervisors
    assert leftover_processes(folder) == []
    assert not folder.exists()
    assert not any(map(listens, brokers))


def test_a_data_folder_keeps_topics_and_takes_any_rack_name(kafka_class_path: str, tmp_path: Path) -> None:
    racks = ("zone ü \\ #1: a=b",)
    cluster = LocalKafka(racks, data_folder=tmp_path)
    with cluster:
        cluster.create_topic("kept", 2, 1)
        admin = cluster.admin()
        assert [node.rack for node in admin.describe_cluster(request_timeout=WAIT_S).result().nodes] == list(racks)
        produce(cluster, "kept", [b"value"])
    with cluster:
        assert cluster.leaders("kept") == {0: 1, 1: 1}
        assert consume(cluster, "kept", 1) == [b"value"]
    assert leftover_processes(tmp_path) == []


def test_a_taken_port_is_given_up_for_another(kafka_class_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        (port,) = ports.free_ports(1)
        taken.bind((ports.HOST, port))
        taken.listen()
        first_choice = [[port, *ports.free_ports(1)]]
        monkeypatch.setattr(
            kafka, "free_ports", lambda count: first_choice.pop() if first_choice else ports.free_ports(count)
        )
        with LocalKafka(("az-a",)) as cluster:
            assert first_choice == []
            assert port not in {cluster.brokers[0].port, cluster.brokers[0].address.controller_port}


def test_ports_are_free_distinct_and_outside_the_range_of_outgoing_connections() -> None:
    with socket.socket() as outgoing:
        outgoing.bind((ports.HOST, 0))
        assert outgoing.getsockname()[1] > ports.LAST_PORT
    found = ports.free_ports(200)
    assert len(set(found)) == 200
    assert all(ports.FIRST_PORT <= port < ports.LAST_PORT for port in found)


def test_refused_properties_are_told_by_kafkas_own_words(kafka_class_path: str) -> None:
    with pytest.raises(LocalClusterError) as caught:
        LocalKafka(broker_config={"log.retention.hours": "many"}).start()
    assert "correct what broker_config sets" in caught.value.sentence
    assert "Invalid value many for configuration log.retention.hours" in caught.value.log_tail


def test_a_broker_that_dies_at_start_is_told_with_the_end_of_its_log(
    kafka_class_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalKafka(broker_config={"authorizer.class.name": "no.such.Authorizer"})
    folders: list[Path] = []
    make_brokers = cluster._make_brokers

    def remembering(folder: Path, *others: object) -> tuple[LocalBroker, ...]:
        folders.append(folder)
        return make_brokers(folder, *others)  # type: ignore[arg-type] # passed through

    monkeypatch.setattr(cluster, "_make_brokers", remembering)
    with pytest.raises(BrokerDied) as caught:
        cluster.start()
    assert re.match(r"Broker 1 \(az-a\) ended by itself with exit code 1: ", caught.value.sentence)
    assert "ClassNotFoundException: no.such.Authorizer" in caught.value.log_tail
    assert len(folders) == 1
    assert leftover_processes(folders[0]) == []
    assert not folders[0].exists()


def test_a_broker_killed_by_others_is_told_when_it_is_needed(private_kafka_cluster: ClusterFactory) -> None:
    cluster = private_kafka_cluster(("az-a",))
    process = cluster.brokers[0].running_process()
    os.kill(process.pid, signal.SIGKILL)
    process.wait(WAIT_S)
    for use in (cluster.brokers[0].wait_ready, cluster.brokers[0].pause):
        with pytest.raises(BrokerDied, match="ended by itself with exit code 137"):
            use()
    with pytest.raises(LocalClusterError, match="No broker of the local cluster can answer"):
        cluster.leaders("any")


def test_waiting_for_a_broker_nobody_started_says_so(private_kafka_cluster: ClusterFactory) -> None:
    cluster = private_kafka_cluster(("az-a",))
    cluster.brokers[0].kill()
    with pytest.raises(BrokerDied, match="is not running: start it first"):
        cluster.brokers[0].wait_ready()


def test_without_a_majority_a_broker_is_never_ready(private_kafka_cluster: ClusterFactory) -> None:
    cluster = private_kafka_cluster()
    for broker in cluster.brokers:
        broker.kill()
    cluster.brokers[0].start()
    with pytest.raises(LocalClusterError, match=r"Broker 1 \(az-a\) is not ready in time, .*most brokers must run"):
        cluster.brokers[0].wait_ready(timeout_s=5.0)


def test_a_waited_for_condition_that_never_holds_names_itself(kafka_cluster: LocalKafka) -> None:
    with pytest.raises(LocalClusterError, match=r"Waited 0\.1 s in vain until pigs fly\."):
        kafka_cluster.wait_until(lambda: False, "pigs fly", 0.1)


def test_no_way_to_the_repository_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (closed,) = ports.free_ports(1)
    mirror = f"http://{ports.HOST}:{closed}/maven"
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_FOLLOWER_MAVEN_REPO", mirror)
    with pytest.raises(LocalClusterError) as caught:
        kafka.kafka_class_path()
    sentence = caught.value.sentence
    assert sentence.startswith(f"The jars of kafka-4.4.0 can't be fetched from {mirror} ")
    for advice in ("check the network", "KAFKA_FOLLOWER_MAVEN_REPO", "KAFKA_HOME"):
        assert advice in sentence
    assert f"{mirror}/org/apache/kafka/kafka_2.13/{artifacts.KAFKA_VERSION}/" in caught.value.log_tail
    assert not list(tmp_path.rglob("*.jar"))


@pytest.fixture
def own_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kafka_class_path: str) -> Path:
    """Have everything fetched from a repository of our own, into a cache of our own; return the one jar it has."""
    folder = tmp_path / "repository" / "group" / "thing" / "1.0"
    folder.mkdir(parents=True)
    (folder / "thing-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>group</groupId><artifactId>thing</artifactId><version>1.0</version></project>"
    )
    layout = f"{tmp_path}/repository/[organisation]/[module]/[revision]/[module]-[revision]"
    settings = tmp_path / "settings.xml"
    settings.write_text(
        f'<ivysettings><settings defaultResolver="own"/><caches defaultCacheDir="{tmp_path}/ivy"/>'
        f'<resolvers><filesystem name="own" m2compatible="true">'
        f'<ivy pattern="{layout}.pom"/><artifact pattern="{layout}.[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KAFKA_FOLLOWER_IVY_SETTINGS", str(settings))
    jar = folder / "thing-1.0.jar"
    jar.write_bytes(b"a jar")
    return jar


def test_an_own_ivy_settings_file_is_used_and_once_is_enough(own_repository: Path) -> None:
    (fetched,) = artifacts.fetch("thing", ["group:thing:1.0"], transitive=False)
    assert fetched.read_bytes() == b"a jar"
    own_repository.unlink()
    assert artifacts.fetch("thing", ["group:thing:1.0"], transitive=False) == [fetched]


def test_two_that_want_the_same_jars_fetch_them_once(own_repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_ivy, runs = artifacts.run_ivy, []

    def counted(set_name: str, download: Path) -> None:
        runs.append(download)
        run_ivy(set_name, download)

    monkeypatch.setattr(artifacts, "run_ivy", counted)
    with ThreadPoolExecutor(2) as pool:  # each opens the lock file itself, as two processes do
        one, two = pool.map(lambda _: artifacts.fetch("thing", ["group:thing:1.0"]), range(2))
    assert one == two
    assert len(runs) == 1


def test_what_a_killed_download_left_is_cleared_away(own_repository: Path) -> None:
    (fetched,) = artifacts.fetch("thing", ["group:thing:1.0"])
    (fetched.parent.parent / f".{fetched.parent.name}-abandoned").mkdir()
    (fetched.parent / "complete.json").unlink()
    assert artifacts.fetch("thing", ["group:thing:1.0"]) == [fetched]
    names = {path.name for path in fetched.parent.parent.iterdir()}
    assert names == {fetched.parent.name, f"{fetched.parent.name}.lock"}


def test_kafka_home_is_used_when_set(kafka_class_path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    libraries = tmp_path / "libs"
    libraries.mkdir()
    for jar in artifacts.kafka_jars():
        (libraries / jar.name).symlink_to(jar)
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    assert kafka.kafka_class_path() == str(libraries / "*")
    with LocalKafka(("az-a",)) as cluster:
        assert any(f" {libraries}/*" in command for command in commands_of(str(cluster.folder)))


def test_a_kafka_home_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(LocalClusterError, match=r"is no Apache Kafka 4 .*unset it"):
        LocalKafka().start()


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_brokers_and_spark_after(
    sent: signal.Signals, kafka_class_path: str, tmp_path: Path
) -> None:
    marker = f"{tmp_path}/everything"
    flags = tmp_path / "flags"
    flags.mkdir()
    holder = SupervisedProcess.start(
        [sys.executable, str(Path(__file__).with_name("local_cluster_holder.py")), str(flags)],
        name="The holder",
        log_path=tmp_path / "log",
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "HOLDER_MARKER": marker},
    )
    try:
        wait_until((flags / "ready").exists, timeout_s=200.0)
        kafka_folder, spark_folder, servers, master_url = (flags / "ready").read_text().split()
        commands = commands_of(marker)
        brokers = [command for command in commands if " kafka.Kafka " in command and "lifeline.py" not in command]
        executors = [command for command in commands if " --executor-id " in command]
        assert (len(brokers), len(executors)) == (3, 3)
        assert sum("lifeline.py" in command for command in commands) == 1 + 3 + 4
        assert sum("pyspark.daemon" in command for command in commands) >= 3 + 3  # each with a busy worker
        if sent == signal.SIGINT:
            holder.send_signal(sent)  # a terminal's Ctrl-C goes to the whole group
        else:
            os.kill(holder.pid, sent)
        holder.wait(WAIT_S)
        assert wait_nothing_left(marker, NOTHING_LEFT_WITHIN_S) == []
    finally:
        holder.kill()
    assert not is_listening(servers.split(",")[0])
    assert not is_listening(master_url.removeprefix("spark://"))
    wait_until(lambda: not Path(kafka_folder).exists() and not Path(spark_folder).exists())


def test_processes_of_a_cluster_are_found_by_its_folder(private_kafka_cluster: ClusterFactory) -> None:
    cluster = private_kafka_cluster(("az-a",))
    process = cluster.brokers[0].running_process()
    assert process.pid in {left.pid for left in leftover_processes(str(cluster.folder))}
    assert cluster.brokers[0].environment == {CLUSTER_MARKER: str(cluster.folder)}
