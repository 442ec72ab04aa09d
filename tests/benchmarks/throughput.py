"""Rows per second of this source against Spark's own, side by side: ``make bench``.

One Spark in ``local[1]``, one topic per value size, batch reads into the noop sink. The two sources take turns within
each round, so that a machine whose speed drifts slows both; what is compared is the ratio of each round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import SparkSession

from connector.spark import KafkaFollowerDataSource
from streaming_app.local.artifacts import oracle_jars
from streaming_app.local.kafka import LocalKafka

OURS, SPARKS = "kafka_follower", "kafka"


@dataclass(frozen=True)
class Size:
    """One kind of record, and the ratio that is to be reached."""

    value_bytes: int
    record_count: int
    wanted_ratio: float


SIZES = (Size(100, 4_000_000, 3.0), Size(1_000, 800_000, 1.7))


def produce(bootstrap_servers: str, topic: str, size: Size) -> None:
    """Fill a topic: keys of 16 bytes, values that do not compress to nothing, no compression."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50, "batch.size": 262_144})
    filler = bytes(range(33, 127)) * 12
    for index in range(size.record_count):
        value = filler[index % 94 :][: size.value_bytes]
        while True:
            try:
                producer.produce(topic, value, f"{index:016d}".encode(), on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    if failures:
        raise SystemExit(f"{len(failures)} records were not produced: {failures[0]}")


def rows_per_second(spark: SparkSession, source: str, bootstrap_servers: str, topic: str, expected_rows: int) -> float:
    """Read a topic once into nothing."""
    reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap_servers).option("subscribe", topic)
    started_s = time.monotonic()
    reader.load().write.format("noop").mode("overwrite").save()
    return expected_rows / (time.monotonic() - started_s)


def compare(spark: SparkSession, cluster: LocalKafka, size: Size, rounds: int) -> float:
    """Print a line per round; return the median of the ratios."""
    topic = f"bench-{size.value_bytes}"
    cluster.create_topic(topic, 2)
    produce(cluster.bootstrap_servers, topic, size)
    for source in (OURS, SPARKS):
        found = (
            spark.read.format(source)
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("subscribe", topic)
            .load()
            .count()
        )
        if found != size.record_count:
            raise SystemExit(f"{source} read {found} rows of {size.record_count}")
    ratios = []
    for number in range(1, rounds + 1):
        rates = {
            source: rows_per_second(spark, source, cluster.bootstrap_servers, topic, size.record_count)
            for source in ((OURS, SPARKS) if number % 2 else (SPARKS, OURS))
        }
        ratios.append(rates[OURS] / rates[SPARKS])
        print(  # noqa: T201 - a program for the terminal
            f"{size.value_bytes:5} B  round {number}: ours {rates[OURS] / 1e6:5.2f} M rows/s, "
            f"Spark's own {rates[SPARKS] / 1e6:5.2f} M rows/s, ratio {ratios[-1]:4.2f}",
            flush=True,
        )
    return statistics.median(ratios)


def main() -> int:
    """Measure both sizes; exit with 1 when a ratio is not reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    is_reached = True
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with LocalKafka() as cluster:
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.jars", ",".join(map(str, oracle_jars())))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.warehouse.dir", str(Path(str(cluster.folder)) / "warehouse"))
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(KafkaFollowerDataSource)
        for size in SIZES:
            ratio = compare(spark, cluster, size, rounds)
            is_reached = is_reached and ratio >= size.wanted_ratio
            print(  # noqa: T201 - as above
                f"{size.value_bytes:5} B  median ratio {ratio:4.2f}, wanted {size.wanted_ratio}", flush=True
            )
        spark.stop()
    return 0 if is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
