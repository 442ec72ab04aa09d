"""Batch reads: the same rows, the same schema and the same refusals as Spark's own kafka source."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streaming_app.local.kafka import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

assert TIMESTAMP_CREATE_TIME == 1
KEEP = {"retention.ms": "-1"}  # the records carry old timestamps, and retention goes by them
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]] | None]] = [
    (b"key", b"value", None),
    (None, b"no key", None),
    (b"no value", None, None),
    (None, None, None),
    (b"", b"", None),
    (b"k", b"one header", [("a", b"1")]),
    (b"k", b"headers", [("a", b"1"), ("a", b"2"), ("b", None), ("", b""), ("\u00e9\u4e16", b"\xff\x00")]),
    (b"k", b"empty headers", []),
    (b"k" * 300, b"long" * 50_000, [("long", b"x" * 20_000)]),
]


def produce(cluster: LocalKafka, topic: str, codec: str, repetitions: int = 15) -> int:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "compression.type": codec,
            "linger.ms": 20,
            "message.max.bytes": 2_000_000,
        }
    )
    for number in range(repetitions):
        for index, (key, value, headers) in enumerate(RECORDS):
            timestamp = 1_700_000_000_000 + number * 1_000 + index
            producer.produce(topic, value, key, partition=number % 3, headers=headers, timestamp=timestamp)
        producer.poll(0)
    assert producer.flush(60) == 0
    return repetitions * len(RECORDS)


def read(spark: SparkSession, source: str, cluster: LocalKafka, **options: str) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def sorted_rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.orderBy("topic", "partition", "offset").collect()]


@pytest.mark.parametrize(("codec", "headers"), [*((codec, "true") for codec in CODECS), ("lz4", "false")])
def test_rows_equal_sparks_own_for_codecs_headers_and_nulls(
    spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str], codec: str, headers: str
) -> None:
    name = topic(codec)
    kafka_cluster.create_topic(name, 3, config=KEEP)
    count = produce(kafka_cluster, name, codec)
    ours = read(spark, "kafka_follower", kafka_cluster, subscribe=name, includeHeaders=headers, rack="az-b")
    theirs = read(spark, "kafka", kafka_cluster, subscribe=name, includeHeaders=headers)
    assert ours.schema == theirs.schema
    rows = sorted_rows(theirs)
    assert len(rows) == count
    assert sorted_rows(ours) == rows


def test_log_append_time_rows_equal_sparks_own(
    spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, 3, config=KEEP | {"message.timestamp.type": "LogAppendTime"})
    produce(kafka_cluster, name, "lz4")
    rows = sorted_rows(read(spark, "kafka", kafka_cluster, subscribe=name))
    assert {row[6] for row in rows} == {1}
    assert sorted_rows(read(spark, "kafka_follower", kafka_cluster, subscribe=name)) == rows


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "earliest", "endingOffsets": "latest"},
        {"startingOffsets": '{"T":{"0":10,"1":-2,"2":33}}', "endingOffsets": '{"T":{"0":40,"1":-1,"2":33}}'},
    ],
    ids=["words", "JSON with -1, -2, numbers and an empty range"],
)
def test_offset_bounds_mean_what_they_mean_in_sparks_own(
    spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str], options: dict[str, str]
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, 3, config=KEEP)
    produce(kafka_cluster, name, "none")
    given = {option: value.replace('"T"', f'"{name}"') for option, value in options.items()}
    rows = sorted_rows(read(spark, "kafka", kafka_cluster, subscribe=name, **given))
    assert rows
    assert sorted_rows(read(spark, "kafka_follower", kafka_cluster, subscribe=name, **given)) == rows


def test_assign_reads_only_what_is_assigned_and_skips_what_does_not_exist(
    spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, 3, config=KEEP)
    produce(kafka_cluster, name, "none")
    assign = f'{{"{name}":[0,2,7]}}'
    rows = sorted_rows(read(spark, "kafka", kafka_cluster, assign=assign))
    assert {row[3] for row in rows} == {0, 2}
    assert sorted_rows(read(spark, "kafka_follower", kafka_cluster, assign=assign)) == rows


def test_an_empty_topic_gives_no_rows(
    spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, 2)
    assert read(spark, "kafka_follower", kafka_cluster, subscribe=name).count() == 0


def test_control_batches_give_no_rows_and_aborted_records_none_under_read_committed(
    spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for number, is_committed in enumerate([True, False, True]):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(name, str(number))
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    rows = sorted_rows(read(spark, "kafka", kafka_cluster, subscribe=name))
    assert [row[4] for row in rows] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16]
    assert sorted_rows(read(spark, "kafka_follower", kafka_cluster, subscribe=name)) == rows
    committed = {"subscribe": name, "kafka.isolation.level": "read_committed"}
    rows = sorted_rows(read(spark, "kafka", kafka_cluster, **committed))
    assert [row[4] for row in rows] == [0, 1, 2, 3, 4, 12, 13, 14, 15, 16]
    assert sorted_rows(read(spark, "kafka_follower", kafka_cluster, **committed)) == rows


def test_bad_options_fail_at_load_with_all_problems(spark: SparkSession, kafka_cluster: LocalKafka) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, "kafka_follower", kafka_cluster, subscibe="t", maxOffsetsPerTrigger="many")
    text = str(raised.value)
    for part in ("did you mean subscribe?", "maxOffsetsPerTrigger", "one of subscribe and assign"):
        assert part in text


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"startingOffsets": "latest"}, "can't start at latest"),
        ({"endingOffsets": "earliest"}, "can't end at earliest"),
        ({"startingOffsets": '{"T":{"0":1}}'}, "must name exactly the topic-partitions"),
        ({"startingOffsets": '{"T":{"0":5,"1":0}}', "endingOffsets": '{"T":{"0":4,"1":0}}'}, "before its start 5"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(
    spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str], options: dict[str, str], part: str
) -> None:
    name = topic()
    kafka_cluster.create_topic(name, 2)
    given = {option: value.replace('"T"', f'"{name}"') for option, value in options.items()}
    with pytest.raises(PySparkException, match=part):
        read(spark, "kafka_follower", kafka_cluster, subscribe=name, **given).count()


def test_a_missing_topic_says_what_to_do(spark: SparkSession, kafka_cluster: LocalKafka) -> None:
    with pytest.raises(PySparkException, match=r"topic no-such-topic.*Create the topic"):
        read(spark, "kafka_follower", kafka_cluster, subscribe="no-such-topic").count()


def test_a_user_schema_is_refused(spark: SparkSession, kafka_cluster: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic()
    kafka_cluster.create_topic(name, 1)
    reader = spark.read.format("kafka_follower").schema("value STRING")
    reader = reader.option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers).option("subscribe", name)
    with pytest.raises(PySparkException, match="the columns are fixed"):
        reader.load().count()
