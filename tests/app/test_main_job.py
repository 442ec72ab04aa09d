"""`main.py` as spark-submit runs it, on real brokers, with our source and with Spark's own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from streaming_app.local.kafka import LocalKafka
from streaming_app.local.order_events import order_events
from streaming_app.local.ports import free_ports
from streaming_app.local.row_check import LogBounds, check_rows, read_row_offsets
from streaming_app.local.scrape import parse_query_reading, scrape
from streaming_app.local.supervise import SupervisedProcess
from streaming_app.manifest import committed_files
from tests.app.launching import PROJECT, spark_submit, start, wait_for_job

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

MAIN = PROJECT / "streaming_app" / "main.py"
ORDER_COUNT = 4_000
PARTITION_COUNT = 3
NO_ORDER = b"this is no order"


def produce(kafka: LocalKafka, topic: str) -> dict[int, LogBounds]:
    """Fill a new topic with orders and one value that is none; return what brokers hold."""
    kafka.create_topic(topic, PARTITION_COUNT)
    ends = dict.fromkeys(range(PARTITION_COUNT), 0)

    def on_delivery(error, message):
        assert error is None
        ends[message.partition()] += 1

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all", "linger.ms": 20})
    for key, value in order_events(ORDER_COUNT, seed=3):
        producer.produce(topic, value, key, on_delivery=on_delivery)
        producer.poll(0)
    producer.produce(topic, NO_ORDER, b"key", on_delivery=on_delivery)
    assert producer.flush(30) == 0
    return {partition: LogBounds(0, end) for partition, end in ends.items()}


class Job:
    """Runs of one job on one checkpoint."""

    def __init__(self, folder: Path, kafka: LocalKafka, topic: str) -> None:
        self.folder = folder
        self.topic = topic
        self.metrics_port = free_ports(1)[0]
        self.config_path = folder / "job.toml"
        self.config_path.write_text(
            f"""
            [app]
            name = "{topic}"
            [source]
            format = "kafka_follower"
            [source.options]
            kafka.bootstrap.servers = "{kafka.bootstrap_servers}"
            subscribe = "{topic}"
            startingOffsets = "earliest"
            maxOffsetsPerTrigger = 250
            [sink]
            path = "{folder}/orders"
            checkpoint = "{folder}/checkpoint"
            partition_by = ["malformed", "arrival_date"]
            [trigger]
            interval_ms = 0
            [metrics]
            host = "127.0.0.1"
            port = {self.metrics_port}
            """,
            encoding="utf-8",
        )

    def start(self, **environment: str) -> SupervisedProcess:
        command = spark_submit(MAIN, "--config", self.config_path)
        return start(command, self.folder / "job.log", environment)

    def committed_count(self) -> int:
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))


def test_each_record_is_written_once_over_a_stop_and_a_restart(kafka_cluster, topic, tmp_path):
    name = topic("orders")
    held = produce(kafka_cluster, name)
    job = Job(tmp_path, kafka_cluster, name)

    process = job.start()
    try:
        wait_for_job(lambda: job.committed_count() >= 2, "two commits", process, timeout_s=120)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        before = check_rows(read_row_offsets(committed_files(tmp_path / "orders"), name), held)
        assert before.missing_count > 0, "it was to be stopped half-way"
        assert (before.doubled_count, before.stray_count) == (0, 0)
    finally:
        process.kill()

    process = job.start(
        STREAMING_APP_TRIGGER_MODE="available-now", STREAMING_APP_SOURCE_OPTIONS_MAXOFFSETSPERTRIGGER="2000"
    )
    try:
        assert process.wait(180) == 0, process.log_tail(60)
    finally:
        process.kill()
    files = committed_files(tmp_path / "orders")
    after = check_rows(read_row_offsets(files, name), held)
    assert after.is_exact
    assert after.row_count == ORDER_COUNT + 1
    kept = [value for file in files for value in pq.ParquetFile(file).read()["malformed_value"].to_pylist() if value]
    assert kept == [NO_ORDER]
    assert [file.parts[-3] for file in files if file.parts[-3] == "malformed=true"] == ["malformed=true"]


def test_the_driver_serves_batches_rows_and_lag(kafka_cluster, topic, tmp_path):
    name = topic("orders")
    held = produce(kafka_cluster, name)
    row_count = sum(bounds.high_watermark for bounds in held.values())
    job = Job(tmp_path, kafka_cluster, name)
    url = f"http://127.0.0.1:{job.metrics_port}/metrics"

    def has_read_all() -> bool:
        reading = parse_query_reading(scrape(url) or "")
        return reading is not None and (reading.row_count, reading.lag_records) == (row_count, 0)

    process = job.start(STREAMING_APP_SOURCE_OPTIONS_MAXOFFSETSPERTRIGGER="2000")
    try:
        wait_for_job(has_read_all, "all rows in the metrics", process, timeout_s=120)
        exposition = scrape(url) or ""
    finally:
        process.kill()
    assert f'kafka_follower_batch_duration_seconds_count{{phase="triggerExecution",query="{name}"}}' in exposition


@pytest.mark.parametrize(
    "command",
    [[str(MAIN)], ["-m", "streaming_app.main"], ["-m", "streaming_app.cli", "run"]],
    ids=["script", "module", "console-script"],
)
def test_a_job_file_that_cannot_be_used_ends_with_2_and_says_what_to_do(tmp_path, command):
    path = tmp_path / "job.toml"
    path.write_text('[app]\nname = "job"\n[sink]\npaht = "/x"\ncheckpoint = "/c"\n', encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    is_script = command == [str(MAIN)]  # finds its packages from wherever it is run
    done = subprocess.run(
        [sys.executable, *command, "--config", str(path)],
        cwd=tmp_path if is_script else PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"{path} can't be used:",
        "  - sink.path: is required (or STREAMING_APP_SINK_PATH)",
        "  - sink.paht: there is no such setting; did you mean sink.path?",
    ]
