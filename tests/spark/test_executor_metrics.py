"""The executor's endpoint under a real Spark in local mode, where the driver's JVM is the executor.

The driver is a process of its own: its JVM must end with it, and its workers must get an environment of ours.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

DRIVER = """
import json, os, sys, urllib.request
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.python.worker.reuse", sys.argv[1])
    .getOrCreate()
)

def task(values):
    import os
    from connector.metrics.catalog import FETCH_BYTES, FETCH_RECORDS
    from connector.metrics.endpoint import executor_recorder
    recorder = executor_recorder(rack="az-b", source="environment")
    recorder.count(FETCH_BYTES, 1_000, "orders", "az-b", "local")
    for _ in values:
        recorder.count(FETCH_RECORDS, 1, "orders", "az-b", "local")
    yield os.getpid(), recorder.slot

def run_job(task_count):
    return spark.sparkContext.parallelize(range(100 * task_count), task_count).mapPartitions(task).collect()

def scrape():
    from connector.metrics.endpoint import list_endpoints
    (endpoint,) = list_endpoints()
    with urllib.request.urlopen(endpoint.url) as answer:
        return {"text": answer.read().decode(), "folder": str(endpoint.folder), "executor_pid": endpoint.executor_pid}

for line in sys.stdin:
    print("ANSWER", json.dumps(eval(line)), flush=True)
spark.stop()
"""


class Driver:
    """A Spark application that does what it is told."""

    def __init__(self, root: Path, *, reuses_workers: bool) -> None:
        self.root = root
        self.reuses_workers = reuses_workers
        self.log = root.with_name("driver.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(reuses_workers).lower()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={
                **os.environ,
                "KAFKA_FOLLOWER_METRICS_DIR": str(root),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.getcwd(),
            },
        )

    def ask(self, expression: str) -> Any:
        """Evaluate an expression in the driver."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        self.log.seek(0)
        raise AssertionError(f"the driver ended: {self.log.read()}")

    def samples(self) -> dict[str, float]:
        """Return the value of each metric, summed over its series."""
        values: dict[str, float] = {}
        for family in text_string_to_metric_families(self.ask("scrape()")["text"]):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
        return values

    def close(self) -> None:
        """End the application; Spark ends its JVM. Closing twice does no harm."""
        if self.log.closed:
            return
        try:
            self.process.communicate(timeout=60)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()


def command_of(pid: int) -> str:
    """Return the name of a process's command, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture(scope="module", params=[True, False], ids=["reused workers", "a worker per task"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = Driver(tmp_path_factory.mktemp("driver") / "metrics", reuses_workers=request.param)
    driver.ask("spark.version")
    yield driver
    driver.close()


def test_counters_outlive_workers(driver: Driver) -> None:
    pids: set[int] = set()
    slots: set[int] = set()
    for job_number in range(1, 4):
        rows = driver.ask("run_job(4)")
        pids |= {pid for pid, _ in rows}
        slots |= {slot for _, slot in rows}
        samples = driver.samples()
        assert samples["kafka_follower_fetch_bytes_total"] == 4_000 * job_number
        assert samples["kafka_follower_fetch_records_total"] == 400 * job_number
        assert samples["kafka_follower_rack_info"] == 1
    assert (len(pids) <= 4) if driver.reuses_workers else (len(pids) == 12)
    assert slots <= {0, 1, 2, 3}
    assert command_of(driver.ask("scrape()")["executor_pid"]) == "java"


def test_a_jvm_killed_or_ended_takes_its_exporter_along(driver: Driver) -> None:
    driver.ask("run_job(2)")
    seen = driver.ask("scrape()")
    asked_s = time.monotonic()
    if driver.reuses_workers:
        os.kill(seen["executor_pid"], signal.SIGKILL)
    else:
        driver.close()
        asked_s = time.monotonic()
    wait_for(lambda: not Path(seen["folder"]).exists(), "the folder to be removed")
    assert time.monotonic() - asked_s < 5
    assert list(driver.root.iterdir()) == []
