"""The laptop cluster's beginning and end: what it says when it can't start, and that nothing of it is ever left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_app.local import kafka, ports
from streaming_app.local.broker import BrokerDied, LocalBroker
from streaming_app.local.errors import LocalClusterError
from streaming_app.local.kafka import LocalKafka
from streaming_app.local.leftovers import leftover_processes, wait_nothing_left
from streaming_app.local.supervise import SupervisedProcess
from tests.integration.plain_clients import consume_values, produce_values
from tests.waiting import LONG_ENOUGH_S, wait_for

pytestmark = pytest.mark.integration

NOTHING_LEFT_WITHIN_S = 30.0


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


def test_a_stopped_broker_hands_its_leadership_over_and_nothing_is_left_after_a_normal_end(
    kafka_class_path: str,
) -> None:
    # A session time-out this long can't be what moves the leadership.
    with LocalKafka(broker_config={"broker.session.timeout.ms": "600000"}) as cluster:
        brokers, folder = cluster.brokers, cluster.folder
        assert folder is not None
        assert len(leftover_processes(folder)) == 6  # three brokers, three supervisors
        cluster.create_topic("moves", replica_assignment=[[1, 2, 3]])
        cluster.broker(1).stop()
        assert not is_listening(f"{cluster.broker(1).host}:{cluster.broker(1).port}")
        cluster.wait_until(lambda: cluster.leaders("moves") == {0: 2}, "broker 2 leads", LONG_ENOUGH_S)
    assert leftover_processes(folder) == []
    assert not folder.exists()
    assert not any(is_listening(f"{broker.host}:{broker.port}") for broker in brokers)


def test_a_paused_cluster_can_be_stopped(kafka_class_path: str) -> None:
    with LocalKafka(("az-a", "az-b")) as cluster:
        folder = cluster.folder
        for broker in cluster.brokers:
            broker.pause()
    assert folder is not None
    assert wait_nothing_left(folder, NOTHING_LEFT_WITHIN_S) == []
    assert not folder.exists()


def test_a_data_folder_keeps_topics_and_takes_any_rack_name(kafka_class_path: str, tmp_path: Path) -> None:
    racks = ("zone ü \\ #1: a=b",)
    cluster = LocalKafka(racks, data_folder=tmp_path)
    with cluster:
        cluster.create_topic("kept", 2, 1)
        admin = cluster.admin()
        assert [node.rack for node in admin.describe_cluster(request_timeout=LONG_ENOUGH_S).result().nodes] == list(
            racks
        )
        produce_values(cluster, "kept", [b"value"])
    with cluster:
        assert cluster.leaders("kept") == {0: 1, 1: 1}
        assert consume_values(cluster, "kept", 1) == [b"value"]
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


def test_refused_properties_are_told_by_kafkas_own_words(kafka_class_path: str) -> None:
    with pytest.raises(LocalClusterError) as caught:
        LocalKafka(("az-a",), broker_config={"log.retention.hours": "many"}).start()
    assert "correct what broker_config sets" in caught.value.sentence
    assert "Invalid value many for configuration log.retention.hours" in caught.value.log_tail


def test_a_broker_that_dies_at_start_is_told_with_the_end_of_its_log(
    kafka_class_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalKafka(("az-a", "az-b"), broker_config={"authorizer.class.name": "no.such.Authorizer"})
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
        wait_for((flags / "ready").exists, "brokers and Spark", 200.0, explain=(tmp_path / "log").read_text)
        kafka_folder, spark_folder, servers, master_url = (flags / "ready").read_text().split()
        commands = commands_of(marker)
        brokers = [command for command in commands if " kafka.Kafka " in command and "lifeline.py" not in command]
        executors = [command for command in commands if " --executor-id " in command]
        assert (len(brokers), len(executors)) == (2, 2)
        assert sum("lifeline.py" in command for command in commands) == 1 + 2 + 3
        assert sum("pyspark.daemon" in command for command in commands) >= 2 + 2  # each with a busy worker
        if sent == signal.SIGINT:
            holder.send_signal(sent)  # a terminal's Ctrl-C goes to the whole group
        else:
            os.kill(holder.pid, sent)
        holder.wait(LONG_ENOUGH_S)
        assert wait_nothing_left(marker, NOTHING_LEFT_WITHIN_S) == []
    finally:
        holder.kill()
    assert not is_listening(servers.split(",")[0])
    assert not is_listening(master_url.removeprefix("spark://"))
    wait_for(
        lambda: not Path(kafka_folder).exists() and not Path(spark_folder).exists(), "the removal of their folders"
    )
