"""A job for tests: one micro-batch per input file, each of which lasts until a file `release-<name>` appears.

With a file `fail-<name>` there instead, the micro-batch fails.
"""

import argparse
import logging
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from streaming_app.lifecycle import GracefulStop
from streaming_app.settings import SinkConfig
from streaming_app.sinks import build_sink


def held_rows(spark: SparkSession, folder: Path) -> DataFrame:
    def hold(row: str, file: str) -> str:
        name = Path(file).stem
        (folder / f"started-{name}").touch()
        while not (folder / f"release-{name}").exists():
            if (folder / f"fail-{name}").exists():
                raise RuntimeError(f"{name} is to fail")
            time.sleep(0.02)
        return row

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "input"))
    held = sql.udf(hold, "string", useArrow=False)
    return lines.select(held("value", sql.col("_metadata.file_path")).alias("value"), sql.lit(1).alias("part"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--timeout-s", type=float, default=90)
    parser.add_argument("--available-now", action="store_true")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    logging.basicConfig(level=logging.INFO)
    spark = SparkSession.builder.appName("held").getOrCreate()
    checkpoint = str(folder / "checkpoint")
    sink = SinkConfig(format="parquet", path=str(folder / "output"), checkpoint=checkpoint, partition_by=("part",))
    with GracefulStop(spark, timeout_s=arguments.timeout_s) as lifecycle:
        writer = build_sink(sink).writer(held_rows(spark, folder)).option("checkpointLocation", checkpoint)
        writer = (
            writer.trigger(availableNow=True) if arguments.available_now else writer.trigger(processingTime="0 seconds")
        )
        lifecycle.await_end(writer.start())
        spark.stop()


if __name__ == "__main__":
    main()
