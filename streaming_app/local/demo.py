"""The demonstration behind ``make run``: ``python -m streaming_app.local.demo``.

Three brokers and three Spark workers in three racks; order events are produced while the job of ``conf/demo.toml``
writes them to Parquet. It ends by itself, with a report of what was asked of files, executors and brokers independently
of each other, and with an exit code that is 0 only when every row is there exactly once and the bytes stayed in their
racks.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, TopicPartition

from connector.errors import ConnectorError
from connector.metrics.endpoint import list_endpoints
from streaming_app.local.artifacts import spark_home
from streaming_app.local.demo_report import DemoResult, find_problems, render_report
from streaming_app.local.display import Display
from streaming_app.local.errors import LocalClusterError
from streaming_app.local.java import find_java
from streaming_app.local.kafka import LocalKafka
from streaming_app.local.ports import HOST, free_ports
from streaming_app.local.produce_orders import ProducedOrders, read_report
from streaming_app.local.rack_bytes import RackBytes, counted_bytes, leader_only_bytes, served_bytes
from streaming_app.local.request_log import ServedFetch, read_served_fetches
from streaming_app.local.row_check import LogBounds, check_rows, read_row_offsets
from streaming_app.local.scrape import QueryReading, parse_query_reading, scrape
from streaming_app.local.spark import LocalSpark
from streaming_app.local.supervise import SupervisedProcess
from streaming_app.manifest import committed_files
from streaming_app.settings import AppConfig, load_settings

__all__ = ["main"]

PROJECT: Final = Path(__file__).resolve().parents[2]
RACKS: Final = ("az-a", "az-b", "az-c")
PARTITION_COUNT: Final = 12
SEED: Final = 2026
DRIVER_READY_TIMEOUT_S: Final = 120.0
STALL_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 130.0
REQUEST_LOG_TIMEOUT_S: Final = 10.0
BROKER_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.3
CONSUMER: Final = -1


class Demo:
    """One run; `folder` is emptied at its beginning and keeps everything worth looking at."""

    def __init__(self, folder: Path, config_path: Path, event_count: int, display: Display) -> None:
        self._folder = folder
        self._config_path = config_path
        self._event_count = event_count
        self._display = display
        self._metrics_url = f"http://{HOST}:{free_ports(1)[0]}/metrics"

    def run(self) -> DemoResult:
        """Run it all; nothing is left running, however it ends."""
        config = load_settings(self._config_path, self._overrides(bootstrap_servers="not yet started"))
        topic = config.source.options.get("subscribe")
        if not topic:
            raise LocalClusterError(f"{self._config_path} must name the demo's topic as `subscribe`.")
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        with ExitStack() as running:
            self._display.step("starting three Kafka brokers, one in each rack")
            kafka = running.enter_context(LocalKafka(RACKS, data_folder=self._folder / "kafka", request_log=True))
            kafka.create_topic(topic, replica_assignment=plan_replicas([broker.node_id for broker in kafka.brokers]))
            self._display.step("starting Spark: a master and three workers, one in each rack")
            spark = running.enter_context(
                LocalSpark(RACKS, environment=self._python_environment(), data_folder=self._folder / "spark")
            )
            self._display.step("starting the query with spark-submit")
            query_start_s = self._display.elapsed_s
            query = running.enter_context(self._query(kafka, spark))
            self._await_query(query)
            self._display.step(f"producing {self._event_count:,} orders while the query reads")
            producer = running.enter_context(self._producer(kafka, topic))
            produced, reading = self._await_end(query, producer)
            query_s = self._display.elapsed_s - query_start_s
            counted = self._save_metrics(topic)
            self._display.step("stopping the query with SIGTERM, then checking every row")
            stop_exit_code = stop_query(query)
            fetches = consumer_fetches(kafka, topic, counted.total_bytes)
            files = committed_files(Path(config.sink.path))
            return DemoResult(
                wanted_count=self._event_count,
                acknowledged_count=produced.acknowledged_count,
                rows=check_rows(read_row_offsets(files, topic), log_bounds(kafka, topic)),
                malformed_count=count_malformed(files),
                racks=RACKS,
                counted=counted,
                served=served_bytes(fetches),
                leader_only=leader_only_bytes(fetches, leader_racks(kafka, topic)),
                batch_count=reading.batch_count,
                lag_records=reading.lag_records,
                stop_exit_code=stop_exit_code,
                query_s=query_s,
                total_s=self._display.elapsed_s,
                places=self._places(config),
            )

    def _overrides(self, bootstrap_servers: str) -> dict[str, str]:
        """Return the environment of the job: what the file can't know, because each run chooses it."""
        return {
            **os.environ,
            **self._python_environment(),
            "STREAMING_APP_SOURCE_OPTIONS_KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
            "STREAMING_APP_SINK_PATH": str(self._folder / "orders"),
            "STREAMING_APP_SINK_CHECKPOINT": str(self._folder / "checkpoint"),
            "STREAMING_APP_METRICS_HOST": HOST,
            "STREAMING_APP_METRICS_PORT": self._metrics_url.rpartition(":")[2].removesuffix("/metrics"),
        }

    def _python_environment(self) -> dict[str, str]:
        """Return what lets drivers and workers find the packages, and us their metrics."""
        path = os.environ.get("PYTHONPATH")
        return {
            "PYTHONPATH": f"{PROJECT}{os.pathsep}{path}" if path else str(PROJECT),
            "KAFKA_FOLLOWER_METRICS_DIR": str(self._folder / "executors"),
        }

    @contextmanager
    def _query(self, kafka: LocalKafka, spark: LocalSpark) -> Iterator[SupervisedProcess]:
        settings = {**spark.driver_conf, "spark.ui.enabled": "false", "spark.driver.memory": "768m"}
        command = [
            str(spark_home() / "bin" / "spark-submit"),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *(str(PROJECT / "streaming_app" / "main.py"), "--config", str(self._config_path)),
        ]
        environment = {
            **self._overrides(kafka.bootstrap_servers),
            "JAVA_HOME": str(find_java().folder),
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
        }
        with supervised(command, "The query", self._folder / "query.log", environment) as process:
            yield process

    @contextmanager
    def _producer(self, kafka: LocalKafka, topic: str) -> Iterator[SupervisedProcess]:
        command = [
            *(sys.executable, "-m", "streaming_app.local.produce_orders"),
            *("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic),
            *("--events", str(self._event_count), "--seed", str(SEED), "--report", str(self._report_path)),
        ]
        environment = {**os.environ, **self._python_environment()}
        with supervised(command, "The producer", self._folder / "producer.log", environment) as process:
            yield process

    @property
    def _report_path(self) -> Path:
        return self._folder / "produced.json"

    def _await_query(self, query: SupervisedProcess) -> None:
        deadline_s = time.monotonic() + DRIVER_READY_TIMEOUT_S
        while self._read_query() is None:
            check_runs(query)
            if time.monotonic() > deadline_s:
                raise LocalClusterError(
                    f"The query did not start within {DRIVER_READY_TIMEOUT_S:.0f} s: is the machine overloaded?",
                    query.log_tail(),
                )
            self._display.update("waiting for the driver and its executors")
            time.sleep(POLL_S)

    def _read_query(self) -> QueryReading | None:
        exposition = scrape(self._metrics_url)
        return None if exposition is None else parse_query_reading(exposition)

    def _await_end(self, query: SupervisedProcess, producer: SupervisedProcess) -> tuple[ProducedOrders, QueryReading]:
        """Block until everything produced has been read.

        A lag of 0 alone may be old: it is told with each micro-batch, as of that micro-batch.
        """
        seen: tuple[object, ...] = ()
        moved_s = time.monotonic()
        while True:
            produced, reading = read_report(self._report_path), self._read_query()
            check_runs(query)
            check_runs(producer, may_have_ended=True)
            if reading is not None:
                if produced.is_done and reading.lag_records == 0 and reading.row_count >= produced.acknowledged_count:
                    return produced, reading
                self._display.update(self._progress(produced, reading))
            if (produced, reading) != seen:
                seen, moved_s = (produced, reading), time.monotonic()
            elif time.monotonic() > moved_s + STALL_TIMEOUT_S:
                raise LocalClusterError(
                    f"Nothing moved for {STALL_TIMEOUT_S:.0f} s after {produced.acknowledged_count:,} orders were "
                    f"produced and {reading.row_count if reading else 0:,} rows were read; {query.log_path} says why.",
                    query.log_tail(),
                )
            time.sleep(POLL_S)

    def _progress(self, produced: ProducedOrders, reading: QueryReading) -> str:
        return (
            f"produced {produced.acknowledged_count:>9,} of {self._event_count:,}   "
            f"read {reading.row_count:>9,}   batches {reading.batch_count}"
        )

    def _save_metrics(self, topic: str) -> RackBytes:
        """Keep what each process serves now, since it is gone with the process, and add up the executors' bytes."""
        folder = self._folder / "metrics"
        folder.mkdir()
        (folder / "driver.prom").write_text(scrape(self._metrics_url) or "", encoding="utf-8")
        expositions = []
        for number, endpoint in enumerate(list_endpoints(self._folder / "executors"), start=1):
            exposition = scrape(endpoint.url)
            if exposition is None:
                raise LocalClusterError(f"The executor at {endpoint.url} does not show its metrics.")
            (folder / f"executor-{number}.prom").write_text(exposition, encoding="utf-8")
            expositions.append(exposition)
        return counted_bytes(expositions, topic)

    def _places(self, config: AppConfig) -> tuple[tuple[str, str], ...]:
        shown = os.path.relpath(self._folder)
        return (
            ("Parquet", os.path.relpath(config.sink.path)),
            ("driver's metrics", f"{shown}/metrics/driver.prom"),
            ("", f"(while it ran: {self._metrics_url})"),
            ("executors' metrics", f"{shown}/metrics/executor-*.prom"),
            ("logs", f"{shown}/query.log, {shown}/kafka, {shown}/spark"),
            ("this report", f"{shown}/report.txt"),
        )


@contextmanager
def supervised(
    command: Sequence[str], name: str, log_path: Path, environment: Mapping[str, str]
) -> Iterator[SupervisedProcess]:
    """Run a program for as long as the context is open."""
    process = SupervisedProcess.start(command, name=name, log_path=log_path, env=environment, cwd=PROJECT)
    try:
        yield process
    finally:
        process.kill()


def check_runs(process: SupervisedProcess, *, may_have_ended: bool = False) -> None:
    """Raise `LocalClusterError` when a program has ended that should not have, or has failed."""
    code = process.poll()
    if code is None or (may_have_ended and code == 0):
        return
    raise LocalClusterError(
        f"{process.name} ended with exit code {code}: the end of {process.log_path} says why.", process.log_tail()
    )


def stop_query(query: SupervisedProcess) -> int | None:
    """Send SIGTERM to spark-submit's JVM alone, as a cluster manager does; return its exit code."""
    os.kill(query.pid, signal.SIGTERM)
    try:
        return query.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None


def plan_replicas(node_ids: Sequence[int]) -> list[list[int]]:
    """Return the replicas of each partition, its leader first; each broker leads as many as the others.

    Neighbours have the same leader. Spark gives tasks to executors in turns; were leaders given out in turns as well,
    one executor would meet one leader every time, and the share of local leaders would be all or nothing.
    """
    per_leader = PARTITION_COUNT // len(node_ids)
    turns = [partition // per_leader for partition in range(PARTITION_COUNT)]
    return [[*node_ids[turn:], *node_ids[:turn]] for turn in turns]


def consumer_fetches(kafka: LocalKafka, topic: str, expected_bytes: int) -> list[ServedFetch]:
    """Return what brokers logged of consumers' fetches, once they logged all of it: they do so after they answered."""
    deadline_s = time.monotonic() + REQUEST_LOG_TIMEOUT_S
    while True:
        fetches = [
            fetch for fetch in read_served_fetches(kafka) if fetch.replica_id == CONSUMER and fetch.topic == topic
        ]
        if served_bytes(fetches).total_bytes >= expected_bytes or time.monotonic() > deadline_s:
            return fetches
        time.sleep(POLL_S)


def log_bounds(kafka: LocalKafka, topic: str) -> dict[int, LogBounds]:
    """Return what brokers hold of each partition."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "demo-check"})
    try:
        return {
            partition: LogBounds(*consumer.get_watermark_offsets(TopicPartition(topic, partition), BROKER_TIMEOUT_S))
            for partition in range(PARTITION_COUNT)
        }
    finally:
        consumer.close()


def leader_racks(kafka: LocalKafka, topic: str) -> dict[int, str]:
    """Return the rack of each partition's leader."""
    return {partition: kafka.broker(node_id).rack for partition, node_id in kafka.leaders(topic).items()}


def count_malformed(files: Sequence[Path]) -> int:
    """Return how many rows lie in files of the partition ``malformed=true``."""
    return sum(pq.ParquetFile(file).metadata.num_rows for file in files if "malformed=true" in file.parts)


@contextmanager
def only_one(lock_path: Path) -> Iterator[None]:
    """Hold a lock, so that a second demo does not empty the folder of the first."""
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with lock_path.open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalClusterError("The demo is running here already: wait for it, or end it with Ctrl-C.") from None
        yield


def main(argv: Sequence[str] | None = None, *, folder: Path = PROJECT / "target" / "demo") -> int:
    """Run the demo; 0 when the report has nothing to complain of, 1 when it has or could not be made.

    `folder` belongs to the demo: whatever is in it is deleted.
    """
    parser = argparse.ArgumentParser(prog="python -m streaming_app.local.demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000, metavar="N", help="orders to produce")
    parser.add_argument("--config", type=Path, default=PROJECT / "conf" / "demo.toml", metavar="FILE", help="job file")
    arguments = parser.parse_args(argv)
    display = Display(sys.stdout)
    try:
        with only_one(folder.with_suffix(".lock")):
            result = Demo(folder, arguments.config.resolve(), arguments.events, display).run()
            report = render_report(result)
            (folder / "report.txt").write_text(report, encoding="utf-8")
    except KeyboardInterrupt:
        display.end_line()
        sys.stderr.write("Interrupted; everything that was started has ended.\n")
        return 130
    except (LocalClusterError, ConnectorError, KafkaException) as error:
        display.end_line()
        sys.stderr.write(f"{error}\n")
        return 1
    display.end_line()
    sys.stdout.write(f"\n{report}")
    return 1 if find_problems(result) else 0


if __name__ == "__main__":
    sys.exit(main())
