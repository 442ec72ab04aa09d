"""Start brokers and Spark, keep every executor busy, and wait to be ended (run by test_local_cluster_ends)."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from streaming_app.local.kafka import LocalKafka
from streaming_app.local.spark import LocalSpark

RACKS = ("az-a", "az-b")


def hold(flags: str) -> Iterator[int]:
    Path(flags, str(os.getpid())).touch()
    time.sleep(600)
    yield 0


def main(flags: str) -> None:
    with LocalKafka(RACKS, request_log=True) as kafka, LocalSpark(RACKS) as spark:
        os.environ.update(spark.driver_environment)
        builder = SparkSession.builder.config("spark.ui.enabled", "false")
        for key, value in spark.driver_conf.items():
            builder = builder.config(key, value)
        context = builder.getOrCreate().sparkContext
        tasks = context.parallelize(RACKS, len(RACKS)).mapPartitions(lambda _: hold(flags))
        threading.Thread(target=tasks.count, daemon=True).start()
        while len(os.listdir(flags)) < len(RACKS):
            time.sleep(0.05)
        facts = f"{kafka.folder} {spark.folder} {kafka.bootstrap_servers} {spark.master_url}"
        Path(flags, "facts").write_text(facts, encoding="utf-8")
        Path(flags, "facts").rename(Path(flags, "ready"))
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1])
