"""A job, from its file to its end: session, query, metrics, graceful stop."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connector.spark import KafkaFollowerDataSource, monitor
from streaming_app.lifecycle import GracefulStop
from streaming_app.pipeline import parse_orders
from streaming_app.settings import AppConfig, SettingsError, TriggerMode, load_settings
from streaming_app.sinks import build_sink

__all__ = ["run_file"]

_log = logging.getLogger("streaming_app")


def start_query(spark: SparkSession, config: AppConfig) -> StreamingQuery:
    """Build the query that `config` describes, and start it."""
    if config.source.format == KafkaFollowerDataSource.name():
        spark.dataSource.register(KafkaFollowerDataSource)
    records = spark.readStream.format(config.source.format).options(**config.source.options).load()
    writer = build_sink(config.sink).writer(parse_orders(records)).queryName(config.name)
    if config.trigger.mode is TriggerMode.AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{config.trigger.interval_ms} milliseconds")
    return writer.option("checkpointLocation", config.sink.checkpoint).start()


def run_job(config: AppConfig) -> None:
    """Run a job until its query ends, or until this process is asked to end."""
    spark = SparkSession.builder.appName(config.name).config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with GracefulStop(spark, timeout_s=config.stop.timeout_ms / 1000) as lifecycle, ExitStack() as opened:
        opened.callback(spark.stop)
        metrics = opened.enter_context(closing(monitor(spark, host=config.metrics.host, port=config.metrics.port)))
        _log.info("Driver metrics: %s", metrics.url)
        lifecycle.await_end(start_query(spark, config))


def run_file(path: Path) -> int:
    """Run the job that a file describes; the exit code is 2 when the file can't be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every connection
    try:
        config = load_settings(path, os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    run_job(config)
    return 0
