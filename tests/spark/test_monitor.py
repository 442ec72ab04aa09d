"""The driver's endpoint on a real Spark: what it shows against what Spark itself reports."""

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from connector.errors import ConfigError
from connector.spark.driver_metrics import DriverMonitor, monitor
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

# Spark's workers can't import tests: ship what is defined here by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # pyspark's has no types


class StepsReader(DataSourceStreamReader):
    """Reads topic ``steps`` with our offsets: partition 0 holds 25 offsets, read 10 a batch up to `last`."""

    def __init__(self, last: int) -> None:
        self.last = last

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's interface
        return {"$kafka_follower": 1, "start": "earliest"}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802, ARG002 - likewise
        return {"$kafka_follower": 1, "offsets": {"steps": {"0": min(_position(start) + 10, self.last)}}}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - likewise
        return {"steps": {"0": 25}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((_position(start), _position(end)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        for value in range(*partition.value):
            yield (value,)


class Steps(DataSource):
    """The source of `StepsReader`."""

    @classmethod
    def name(cls) -> str:
        return "steps"

    def schema(self) -> str:
        return "value bigint"

    def streamReader(self, schema: Any) -> StepsReader:  # noqa: N802, ARG002 - Spark's interface
        return StepsReader(int(self.options["last"]))


def _position(source_offset: dict[str, Any]) -> int:
    position: int = source_offset.get("offsets", {"steps": {"0": 0}})["steps"]["0"]
    return position


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("monitor")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        session.dataSource.register(Steps)
        yield session
        session.stop()


@pytest.fixture
def attached(spark: SparkSession) -> Iterator[DriverMonitor]:
    attached = monitor(spark, host="127.0.0.1")
    yield attached
    attached.close()


@pytest.fixture
def start_query(spark: SparkSession) -> Iterator[Callable[..., StreamingQuery]]:
    started: list[StreamingQuery] = []

    def start(source: str, name: str | None = None, **options: str) -> StreamingQuery:
        writer = spark.readStream.format(source).options(**options).load().writeStream.format("noop")
        started.append((writer.queryName(name) if name else writer).start())
        return started[-1]

    yield start
    for query in started:
        query.stop()


def scrape(served: DriverMonitor) -> list[Sample]:
    """Return all samples of the endpoint."""
    with urllib.request.urlopen(served.url, timeout=10) as answer:
        return [s for family in text_string_to_metric_families(answer.read().decode()) for s in family.samples]


def value(served: DriverMonitor, name: str, **labels: str) -> float | None:
    """Return one sample's value."""
    found = [s.value for s in scrape(served) if s.name == f"kafka_follower_{name}" and s.labels == labels]
    return found[0] if found else None


def test_rows_batches_and_lag_of_our_offsets(attached, start_query):
    query = start_query("steps", "copy", last="20")
    wait_for(lambda: value(attached, "rows_total", query="copy") == 20, "both batches")
    executed = [p for p in query.recentProgress if "addBatch" in p["durationMs"]]
    assert value(attached, "batches_total", query="copy") == len(executed) == 2
    assert sum(p["numInputRows"] for p in executed) == 20
    assert value(attached, "topic_lag_records", query="copy", topic="steps") == 5


def test_lag_that_is_caught_up_is_zero(attached, start_query):
    start_query("steps", "all", last="25")
    wait_for(lambda: value(attached, "rows_total", query="all") == 25, "all rows")
    assert value(attached, "topic_lag_records", query="all", topic="steps") == 0


def test_durations_are_those_that_spark_reports(attached, start_query):
    query = start_query("steps", "timed", last="20")
    wait_for(lambda: value(attached, "batches_total", query="timed") == 2, "both batches")
    executed = [p["durationMs"] for p in query.recentProgress if "addBatch" in p["durationMs"]]
    for phase in executed[0]:
        sums = value(attached, "batch_duration_seconds_sum", query="timed", phase=phase)
        assert sums == pytest.approx(sum(durations[phase] for durations in executed) / 1000)
        assert value(attached, "batch_duration_seconds_count", query="timed", phase=phase) == 2


def test_commit_time_is_the_end_of_the_last_batch(attached, start_query):
    before_s = time.time()
    start_query("steps", "committed", last="10")
    wait_for(lambda: value(attached, "batches_total", query="committed") == 1, "the batch")
    committed_s = value(attached, "last_commit_timestamp_seconds", query="committed")
    assert committed_s is not None
    assert before_s < committed_s < time.time()


def test_any_source_has_batches_and_an_unnamed_query_its_id(attached, start_query):
    query = start_query("rate", rowsPerSecond="5")
    wait_for(lambda: (value(attached, "rows_total", query=str(query.id)) or 0) > 0, "rows")
    names = {s.name for s in scrape(attached) if s.labels["query"] == str(query.id)}
    assert "kafka_follower_batch_duration_seconds_bucket" in names
    assert "kafka_follower_topic_lag_records" not in names


def test_ended_query_keeps_its_counters_and_loses_its_gauges(attached, start_query):
    query = start_query("steps", "ended", last="10")
    wait_for(lambda: value(attached, "rows_total", query="ended") == 10, "the batch")
    query.stop()
    wait_for(lambda: value(attached, "last_commit_timestamp_seconds", query="ended") is None, "the gauges to go")
    assert value(attached, "topic_lag_records", query="ended", topic="steps") is None
    assert value(attached, "rows_total", query="ended") == 10


def test_query_that_ran_before_is_heard(spark, start_query):
    query = start_query("rate", "early", rowsPerSecond="5")
    wait_for(lambda: query.lastProgress, "the first batch")
    late = monitor(spark, host="127.0.0.1")
    wait_for(lambda: (value(late, "batches_total", query="early") or 0) > 0, "a further batch")
    query.stop()
    wait_for(lambda: value(late, "last_commit_timestamp_seconds", query="early") is None, "the gauges to go")
    late.close()


def test_monitored_session_keeps_its_monitor(spark, attached):
    assert monitor(spark, host="127.0.0.1") is attached
    assert monitor(spark, host="127.0.0.1", port=attached.port) is attached
    with pytest.raises(ConfigError, match=rf"served at 127.0.0.1:{attached.port}; close that monitor first"):
        monitor(spark, host="127.0.0.1", port=1)
    with pytest.raises(ConfigError, match="close that monitor first"):
        monitor(spark)


def test_sessions_have_their_own_monitors(spark, attached, start_query):
    other_session = spark.newSession()
    other = monitor(other_session, host="127.0.0.1")
    try:
        assert other is not attached
        start_query("steps", "first session", last="10")
        wait_for(lambda: value(attached, "rows_total", query="first session") == 10, "the batch")
        assert scrape(other) == []
    finally:
        other.close()


def test_taken_port_is_told_and_leaves_nothing_behind(spark, attached):
    other_session = spark.newSession()
    with pytest.raises(ConfigError, match=f"127.0.0.1:{attached.port}.*is taken; close the monitor"):
        monitor(other_session, host="127.0.0.1", port=attached.port)
    assert len(other_session._jsparkSession.streams().listListeners()) == 0


def test_closed_monitor_neither_serves_nor_listens(spark):
    listener_count = len(spark._jsparkSession.streams().listListeners())
    closed = monitor(spark, host="127.0.0.1")
    assert len(spark._jsparkSession.streams().listListeners()) == listener_count + 1
    closed.close()
    closed.close()
    with pytest.raises(urllib.error.URLError, match="Connection refused"):
        scrape(closed)
    assert len(spark._jsparkSession.streams().listListeners()) == listener_count
    again = monitor(spark, host="127.0.0.1", port=closed.port)
    assert again is not closed
    assert again.port == closed.port
    again.close()


def test_default_serves_all_addresses(spark):
    served = monitor(spark)
    try:
        assert served.host == "0.0.0.0"
        assert served.url == f"http://127.0.0.1:{served.port}/metrics"
        assert scrape(served) == []
    finally:
        served.close()


def test_app_may_add_metrics_of_its_own(attached):
    from prometheus_client import Counter

    Counter("dead_letter_records", "Rows that were set aside.", registry=attached.registry).inc(3)
    assert [s.value for s in scrape(attached) if s.name == "dead_letter_records_total"] == [3]
