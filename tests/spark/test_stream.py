"""Streams: restarts, limits and triggers on real brokers; what lands in Parquet is read back without our source."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined] # a C class its stubs leave out
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming_app.local.kafka import LocalKafka
from streaming_app.local.request_log import read_served_fetches
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]


def produce(cluster: LocalKafka, topic: str, first: int, count: int, partitions: int = 3) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(60) == 0


class Job:
    """A stream of one topic into Parquet, started and stopped as often as a test likes."""

    def __init__(self, spark: SparkSession, cluster: LocalKafka, topic: str, folder: Path) -> None:
        self.spark = spark
        self.cluster = cluster
        self.topic = topic
        self.output = folder / "out"
        self.checkpoint = folder / "checkpoint"

    def source(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format(options.pop("format", "kafka_follower"))
        reader = reader.option("kafka.bootstrap.servers", self.cluster.bootstrap_servers)
        given = {"subscribe": self.topic, "startingOffsets": "earliest"} | options
        for name, value in given.items():
            reader = reader.option(name, value)
        return reader.load()

    def start(self, *, trigger: dict[str, Any] | None = None, **options: str) -> StreamingQuery:
        writer = (
            self.source(**options)
            .selectExpr("CAST(CAST(value AS STRING) AS INT) AS number", "partition", "offset")
            .writeStream
        )
        writer = writer.format("parquet").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start(str(self.output))

    def run(self, **options: str) -> StreamingQuery:
        query = self.start(trigger=None, **options)
        assert query.awaitTermination(120)
        return query

    def numbers(self) -> list[int]:
        written = self.spark.read.schema("number INT").parquet(str(self.output))
        return sorted(row.number for row in written.collect())

    def logged_offsets(self, batch_id: int) -> Any:
        lines = (self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        return json.loads(lines[2])


@pytest.fixture
def job(spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> Job:
    name = topic()
    kafka_cluster.create_topic(name, 3)
    return Job(spark, kafka_cluster, name, tmp_path)


def test_available_now_and_restarts_read_everything_once(job: Job) -> None:
    produce(job.cluster, job.topic, 0, 100)
    job.run()
    assert job.numbers() == list(range(100))
    produce(job.cluster, job.topic, 100, 50)
    job.run()
    assert job.numbers() == list(range(150))
    batch_count = len(list((job.checkpoint / "commits").glob("[0-9]*")))
    job.run()
    assert job.numbers() == list(range(150))
    assert len(list((job.checkpoint / "commits").glob("[0-9]*"))) == batch_count, "nothing new makes no batch"


def test_max_offsets_per_trigger_makes_several_batches_of_available_now(job: Job) -> None:
    produce(job.cluster, job.topic, 0, 15)
    query = job.run(maxOffsetsPerTrigger="6")
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sizes == [6, 6, 3]
    assert job.numbers() == list(range(15))


def test_once_ignores_the_limit(job: Job) -> None:
    produce(job.cluster, job.topic, 0, 15)
    query = job.start(trigger={"once": True}, maxOffsetsPerTrigger="6")
    assert query.awaitTermination(120)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [15]


def test_a_continuing_stream_sees_new_records_and_new_partitions(job: Job) -> None:
    query = job.start(trigger={"processingTime": "0 seconds"}, startingOffsets="latest")
    try:
        wait_for(lambda: (job.checkpoint / "commits" / "0").exists(), "the commit of the first batch")
        assert job.numbers() == []
        produce(job.cluster, job.topic, 0, 30)
        wait_for(lambda: job.numbers() == list(range(30)), "the rows")
        add_partitions(job.cluster, job.topic, 5)
        produce(job.cluster, job.topic, 30, 50, partitions=5)
        wait_for(lambda: job.numbers() == list(range(80)), "rows of new partitions")
        wait_for(lambda: reported_offsets(query, job.topic) == 80, "the progress of the last batch")
    finally:
        query.stop()


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_batch_0_planned_but_not_committed_is_read_again_as_planned(job: Job, starting: str) -> None:
    """The initial offset is asked for again after the restart: resolved anew, "latest" would lose rows."""
    produce(job.cluster, job.topic, 0, 30)
    if starting == "latest":
        # The first batch of a "latest" stream is empty; give it something by limiting where it may start from.
        query = job.start(trigger={"processingTime": "0 seconds"}, startingOffsets="latest")
        wait_for(lambda: (job.checkpoint / "offsets" / "0").exists(), "the plan of batch 0")
        query.stop()
    else:
        job.run(startingOffsets="earliest")
    planned = job.logged_offsets(0)
    undo_commits(job)
    produce(job.cluster, job.topic, 30, 30)
    job.run(startingOffsets=starting)
    assert job.logged_offsets(0) == planned
    assert job.numbers() == list(range(30 if starting == "latest" else 0, 60))


def test_a_task_that_fails_in_batch_0_loses_nothing(job: Job) -> None:
    produce(job.cluster, job.topic, 0, 30)
    failing = job.source().selectExpr("raise_error('planned failure') AS number", "partition", "offset")
    writer = failing.writeStream.format("parquet").option("checkpointLocation", str(job.checkpoint))
    with pytest.raises(StreamingQueryException, match="planned failure"):
        writer.trigger(availableNow=True).start(str(job.output)).awaitTermination()
    assert not (job.checkpoint / "commits" / "0").exists()
    produce(job.cluster, job.topic, 30, 30)
    job.run()
    assert job.numbers() == list(range(60))


def test_the_checkpoint_of_sparks_own_source_is_taken_over(job: Job) -> None:
    produce(job.cluster, job.topic, 0, 40)
    job.run(format="kafka")
    assert job.logged_offsets(0) == {job.topic: {"0": 14, "1": 13, "2": 13}}
    produce(job.cluster, job.topic, 40, 40)
    job.run()
    assert job.numbers() == list(range(80))


def test_an_idle_stream_asks_the_brokers_at_most_every_100_ms(job: Job) -> None:
    produce(job.cluster, job.topic, 0, 3)
    client_id = f"idle-{job.topic}"
    query = job.start(trigger={"processingTime": "0 seconds"}, **{"kafka.client.id": client_id})
    try:
        wait_for(lambda: job.numbers() == [0, 1, 2], "the rows")
        before = count_list_offsets(job.cluster, client_id)
        time.sleep(3)  # the claim is about a span of time
        asked = count_list_offsets(job.cluster, client_id) - before
    finally:
        query.stop()
    assert 3 <= asked <= 3 * 31, f"{asked} ListOffsets requests to three leaders in 3 s"


def test_a_topic_created_again_with_fewer_records_fails_and_says_so(job: Job) -> None:
    produce(job.cluster, job.topic, 0, 90)
    job.run()
    admin = job.cluster.admin()
    admin.delete_topics([job.topic], operation_timeout=30)[job.topic].result(30)
    wait_for(lambda: job.topic not in job.cluster.admin().list_topics(timeout=10).topics, "the end of the topic")
    job.cluster.create_topic(job.topic, 3)
    produce(job.cluster, job.topic, 0, 9)
    with pytest.raises(StreamingQueryException, match=r"truncated before offset 30"):
        job.run()


def test_an_ending_offset_is_refused_for_a_stream(job: Job) -> None:
    with pytest.raises(StreamingQueryException, match="a stream has no end"):
        job.run(endingOffsets="latest")


def test_readers_in_one_task_do_not_disturb_each_other(job: Job) -> None:
    """A union that is coalesced reads two sources in one task."""
    produce(job.cluster, job.topic, 0, 300)

    def batch() -> DataFrame:
        reader = job.spark.read.format("kafka_follower").option("subscribe", job.topic)
        return reader.option("kafka.bootstrap.servers", job.cluster.bootstrap_servers).load()

    values = batch().union(batch()).coalesce(1).selectExpr("CAST(CAST(value AS STRING) AS INT) AS number").collect()
    assert sorted(row.number for row in values) == sorted([*range(300), *range(300)])


def undo_commits(job: Job) -> None:
    """Bring the checkpoint into the state after "batch 0 is planned": no commit, no later batch, no output."""
    for folder in ("commits", "offsets"):
        for path in (job.checkpoint / folder).iterdir():
            if folder == "commits" or path.name.lstrip(".").split(".")[0] != "0":
                path.unlink()
    if job.output.exists():
        for path in sorted(job.output.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()


def reported_offsets(query: StreamingQuery, topic: str) -> int:
    """Return the sum of a topic's newest offsets in the latest progress."""
    assert query.lastProgress is not None
    reported = query.lastProgress["sources"][0]["latestOffset"]
    return sum((json.loads(reported) if isinstance(reported, str) else reported)[topic].values())


def add_partitions(cluster: LocalKafka, topic: str, count: int) -> None:
    admin = cluster.admin()  # it must outlive the request
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    cluster.wait_for_leaders(topic, count)


def count_list_offsets(cluster: LocalKafka, client_id: str) -> int:
    """Count ListOffsets requests of one client in the brokers' own request logs."""
    return sum(
        '"LIST_OFFSETS"' in line and f'"clientId":"{client_id}"' in line
        for broker in cluster.brokers
        for line in broker.request_log_path.read_text().splitlines()
    )


def test_an_executors_own_rack_decides_who_is_read(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(job.cluster, job.topic, 0, 300)
    client_id = f"rack-{job.topic}"
    job.run(rack="az-c", **{"kafka.client.id": client_id})
    by_node = {
        each.node_id
        for each in read_served_fetches(job.cluster)
        if each.client_id == client_id and each.record_bytes > 0
    }
    assert by_node == {3}
