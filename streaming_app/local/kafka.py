"""Three Kafka brokers in three racks on this machine (Apache Kafka in KRaft mode, no Docker).

Kafka comes from KAFKA_HOME when that is set, else from Maven artifacts that are fetched once
(`streaming_app.local.artifacts`).
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streaming_app.local.artifacts import kafka_jars
from streaming_app.local.broker import LocalBroker
from streaming_app.local.broker_config import BrokerAddress
from streaming_app.local.class_archive import ClassArchive
from streaming_app.local.cluster_view import ClusterViewer, PartitionView, TopicView, quiet_admin
from streaming_app.local.errors import LocalClusterError
from streaming_app.local.java import JavaHome, find_java
from streaming_app.local.kafka_version import VERSION_VARIABLE, kafka_version
from streaming_app.local.leftovers import CLUSTER_MARKER
from streaming_app.local.ports import free_ports, start_on_free_ports
from streaming_app.local.storage import format_storage

__all__ = ["LocalKafka", "kafka_class_path"]

RECORDED_ARCHIVE: Final = "classes.jsa"
STOP_GRACE_S: Final = 10.0
TOPIC_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05


def kafka_class_path(environ: Mapping[str, str] | None = None) -> str:
    """Return the Java class path of Kafka: KAFKA_HOME's jars, else the fetched ones.

    Raises
    ------
    LocalClusterError
        KAFKA_HOME is no Kafka 4 or not of the wanted version, or the jars can't be fetched.
    """
    values = os.environ if environ is None else environ
    home = values.get("KAFKA_HOME")
    if home:
        libraries = Path(home) / "libs"
        if not list(libraries.glob("kafka_2.13-*.jar")) or not list(libraries.glob("log4j-core-2*.jar")):
            raise LocalClusterError(
                f"KAFKA_HOME={home} is no Apache Kafka 4 (no libs/kafka_2.13-*.jar with log4j-core): "
                "set it to an unpacked Kafka 4, or unset it to have Kafka fetched."
            )
        if values.get(VERSION_VARIABLE) and not (libraries / f"kafka_2.13-{kafka_version(values)}.jar").exists():
            raise LocalClusterError(
                f"KAFKA_HOME={home} is not the Kafka that {VERSION_VARIABLE}={values[VERSION_VARIABLE]} asks for: "
                "unset one of the two."
            )
        return str(libraries / "*")
    return os.pathsep.join(map(str, kafka_jars()))


class LocalKafka:
    """A cluster of brokers, one per rack, as processes of this machine; use it as a context manager.

    Parameters
    ----------
    racks
        ``broker.rack`` of each broker; the first has node id 1.
    selector
        Whether brokers redirect consumers to the replica of their rack (``RackAwareReplicaSelector``).
    data_folder
        Where data and logs live, and stay: started again on the same folder, the cluster has its topics back.
        None means a temporary folder that is removed by `stop`.
    broker_config
        Broker properties of your own; they win over the cluster's.
    heap_mb
        Java heap of each broker, in MiB; thousands of partitions want more.
    request_log
        Whether brokers log every request with its answer (`streaming_app.local.request_log`).
    """

    def __init__(
        self,
        racks: Sequence[str] = ("az-a", "az-b", "az-c"),
        *,
        selector: bool = True,
        data_folder: Path | None = None,
        broker_config: Mapping[str, str] | None = None,
        request_log: bool = False,
        heap_mb: int = 256,
    ) -> None:
        self.racks = tuple(racks)
        self.brokers: tuple[LocalBroker, ...] = ()
        self.folder: Path | None = None
        self._selector = selector
        self._wanted_folder = data_folder
        self._broker_config = dict(broker_config or {})
        self.request_log = request_log
        self._heap_options = (f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m")
        self._recorded_archive: ClassArchive | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, for clients."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    def broker(self, node_id: int) -> LocalBroker:
        """Return a broker by its node id."""
        return next(broker for broker in self.brokers if broker.node_id == node_id)

    def broker_in(self, rack: str) -> LocalBroker:
        """Return the (first) broker of a rack."""
        return next(broker for broker in self.brokers if broker.rack == rack)

    def start(self) -> None:
        """Start all brokers and block until each is ready; ports that were taken meanwhile are chosen anew.

        Raises
        ------
        LocalClusterError
            One sentence that says what to do, with the end of the log that shows why. Nothing is left running.
        """
        if self.brokers:
            return
        java, class_path = find_java(), kafka_class_path()
        archive = ClassArchive.of(java, class_path)
        folder = (self._wanted_folder or Path(tempfile.mkdtemp(prefix="kafka-follower-"))).resolve()
        self.folder = folder

        def start_brokers() -> None:
            self.brokers = self._make_brokers(folder, java, class_path, archive)
            self._start_brokers(archive)

        with ExitStack() as undo:
            undo.callback(self.stop)
            start_on_free_ports(start_brokers, lambda: self._end_brokers(is_urgent=True))
            undo.pop_all()
        self._recorded_archive = archive if archive.is_missing else None

    def stop(self) -> None:
        """End all brokers; a temporary data folder is removed."""
        if self._recorded_archive is not None and self.brokers[0].is_running and not self.brokers[0].is_paused:
            self.brokers[0].stop()
            self._recorded_archive.adopt(self.brokers[0].folder / RECORDED_ARCHIVE)
        self._recorded_archive = None
        self._end_brokers(is_urgent=self._wanted_folder is None)
        self.brokers = ()
        if self._wanted_folder is None and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def heal(self) -> None:
        """Start what is down and resume what is paused of the brokers, and block until every one is ready."""
        for broker in self.brokers:
            if broker.is_paused:
                broker.resume()
            broker.start()
        for broker in self.brokers:
            broker.wait_ready()

    def log_tail(self, line_count: int = 10) -> str:
        """Return the end of every broker's log."""
        return "\n".join(f"[broker {broker.node_id}]\n{broker.log_tail(line_count)}" for broker in self.brokers)

    def admin(self) -> AdminClient:
        """Return a new confluent-kafka admin client of the brokers that can answer now."""
        return quiet_admin(self._answering_servers())

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 3,
        *,
        replica_assignment: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and block until every broker that can answer knows a leader for each partition.

        Parameters
        ----------
        replica_assignment
            Node ids per partition, the preferred leader first; it replaces `partitions` and `replication_factor`.
        config
            Topic configuration, such as ``{"retention.ms": "1000"}``.
        """
        if replica_assignment is None:
            topic = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        else:
            assignment = [list(replicas) for replicas in replica_assignment]
            topic = NewTopic(name, len(assignment), replica_assignment=assignment, config=dict(config or {}))
        admin = self.admin()  # it must outlive the request
        admin.create_topics([topic], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
        self.wait_for_leaders(name, topic.num_partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and block until no broker that can answer knows it, so that its name is free again."""
        admin = self.admin()
        admin.delete_topics([name], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
        for broker in self._answering_brokers():
            viewer = ClusterViewer(f"{broker.host}:{broker.port}")

            def has_forgotten(viewer: ClusterViewer = viewer) -> bool:
                return not viewer.partitions(name)

            self.wait_until(has_forgotten, f"broker {broker.node_id} has forgotten {name}", TOPIC_TIMEOUT_S)

    def delete_records(self, topic: str, before_offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete the records before an offset in some partitions, and return the partitions' first offsets then.

        It returns when every replica has done so: with a broker that is down or paused it waits for that broker.
        """
        admin = self.admin()
        wanted = [ClientTopicPartition(topic, partition, before) for partition, before in before_offsets.items()]
        requests = admin.delete_records(wanted, operation_timeout=TOPIC_TIMEOUT_S)
        return {each.partition: answer.result(TOPIC_TIMEOUT_S).low_watermark for each, answer in requests.items()}

    def elect_leaders(self, topic: str, partitions: Collection[int] = (0,), *, is_unclean: bool = False) -> None:
        """Have the preferred replicas lead; or, with `is_unclean`, any replica that lives where no in-sync one does.

        An unclean election loses the records that only the in-sync replicas had. With
        ``unclean.leader.election.enable=true`` brokers hold one by themselves, but those of Kafka 3.3 never do.
        """
        kind = ElectionType.UNCLEAN if is_unclean else ElectionType.PREFERRED
        admin = self.admin()
        wanted = [ClientTopicPartition(topic, partition) for partition in partitions]
        answers = admin.elect_leaders(kind, wanted).result(TOPIC_TIMEOUT_S)  # confluent-kafka 2.16 takes no time-out
        for problem in answers.values():
            if problem is not None and problem.code() != KafkaError.ELECTION_NOT_NEEDED:
                raise KafkaException(problem)

    def describe_topic(self, name: str) -> TopicView:
        """Return a topic's id and partitions; `KafkaException` when there is none of that name."""
        return ClusterViewer(self._answering_servers()).topic(name)

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        """Return leader, replicas and in-sync replicas of a topic's partitions."""
        return ClusterViewer(self._answering_servers()).partitions(topic)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader's node id of each partition; -1 where there is none."""
        return {number: view.leader for number, view in self.partitions(topic).items()}

    def wait_for_leaders(self, topic: str, partition_count: int, timeout_s: float = TOPIC_TIMEOUT_S) -> None:
        """Block until every broker that can answer knows a running leader for each partition of a topic."""
        ready = {broker.node_id for broker in self._answering_brokers()}
        for broker in self._answering_brokers():
            viewer = ClusterViewer(f"{broker.host}:{broker.port}")

            def has_leaders(viewer: ClusterViewer = viewer) -> bool:
                views = viewer.partitions(topic)
                return len(views) == partition_count and all(view.leader in ready for view in views.values())

            self.wait_until(has_leaders, f"broker {broker.node_id} knows the leaders of {topic}", timeout_s)

    def wait_for_isr(self, topic: str, node_ids: Collection[int], timeout_s: float = TOPIC_TIMEOUT_S) -> None:
        """Block until the in-sync replicas of every partition of a topic are exactly `node_ids`."""
        wanted = set(node_ids)
        viewer = ClusterViewer(self._answering_servers())

        def is_wanted() -> bool:
            views = viewer.partitions(topic)
            return bool(views) and all(set(view.isr) == wanted for view in views.values())

        self.wait_until(is_wanted, f"the in-sync replicas of {topic} are {sorted(wanted)}", timeout_s)

    def wait_until(self, condition: Callable[[], bool], description: str, timeout_s: float) -> None:
        """Block until `condition` holds; while a broker it asks does not answer, it does not hold.

        Raises
        ------
        LocalClusterError
            It did not hold in time; `description` says what, and the brokers' logs are attached.
        """
        deadline = time.monotonic() + timeout_s
        silence: KafkaException | None = None
        while True:
            try:
                if condition():
                    return
            except KafkaException as error:
                silence = error
            if time.monotonic() > deadline:
                problem = f"Waited {timeout_s:g} s in vain until {description}."
                raise LocalClusterError(problem, self.log_tail()) from silence
            time.sleep(POLL_S)

    def _answering_brokers(self) -> list[LocalBroker]:
        return [broker for broker in self.brokers if broker.is_running and not broker.is_paused]

    def _answering_servers(self) -> str:
        answering = self._answering_brokers()
        if not answering:
            raise LocalClusterError("No broker of the local cluster can answer: start it first.", self.log_tail())
        return ",".join(f"{broker.host}:{broker.port}" for broker in answering)

    def _make_brokers(
        self, folder: Path, java: JavaHome, class_path: str, archive: ClassArchive
    ) -> tuple[LocalBroker, ...]:
        ports = free_ports(2 * len(self.racks))
        quorum = [
            BrokerAddress(node_id, rack, ports.pop(), ports.pop()) for node_id, rack in enumerate(self.racks, start=1)
        ]
        brokers = []
        for address in quorum:
            own_folder = folder / f"broker-{address.node_id}"
            own_folder.mkdir(parents=True, exist_ok=True)
            records_classes = archive.is_missing and address is quorum[0]
            archive_options = (
                archive.record_options(own_folder / RECORDED_ARCHIVE) if records_classes else archive.use_options()
            )
            broker = LocalBroker(
                address,
                own_folder,
                java,
                class_path,
                jvm_options=(*self._heap_options, *archive_options),
                environment={CLUSTER_MARKER: str(folder)},
                request_log=self.request_log,
                is_folder_temporary=self._wanted_folder is None,
                peers=lambda: self.brokers,
            )
            broker.write_properties(quorum, selector=self._selector, overrides=self._broker_config)
            brokers.append(broker)
        return tuple(brokers)

    def _start_brokers(self, archive: ClassArchive) -> None:
        format_storage(self.brokers, archive.use_options())
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait_ready()

    def _end_brokers(self, *, is_urgent: bool) -> None:
        for broker in self.brokers:
            if broker.process is not None:
                broker.process.send_signal(signal.SIGKILL if is_urgent else signal.SIGTERM)
        for broker in self.brokers:
            broker.stop(STOP_GRACE_S)
