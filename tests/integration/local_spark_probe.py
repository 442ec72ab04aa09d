"""A Spark driver: tells, as JSON, what each executor's Python finds in its environment (run by test_local_spark)."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

VARIABLES = ("KAFKA_CLIENT_RACK", "FOR_ALL", "FOR_ONE_RACK", "SPARK_LOCAL_DIRS")


def look(executor_count: int, flags: str) -> Iterator[dict[str, str | None]]:
    """Wait until as many executors run this at once, so that each runs it once."""
    Path(flags, os.environ["SPARK_LOCAL_DIRS"].replace("/", "_")).touch()
    deadline = time.monotonic() + 60
    while len(os.listdir(flags)) < executor_count and time.monotonic() < deadline:
        time.sleep(0.05)
    yield {**{name: os.environ.get(name) for name in VARIABLES}, "python": sys.executable}


def main(conf: dict[str, str], executor_count: int, flags: str) -> None:
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    slots = spark.sparkContext.parallelize(range(executor_count), executor_count)
    sys.stdout.write(json.dumps(slots.mapPartitions(lambda _: look(executor_count, flags)).collect()))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
