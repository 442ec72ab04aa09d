"""Parquet folders, written by Spark's file sink: exactly once, by way of its manifest ``_spark_metadata``."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streaming_app.settings import SinkConfig

__all__ = ["ParquetSink"]


class ParquetSink:
    """Appends to partitioned Parquet under one path.

    Files of an attempt that did not commit may lie beside the others; readers that honour the manifest (Spark,
    `streaming_app.manifest`) never see them.
    """

    def __init__(self, config: SinkConfig) -> None:
        self._config = config

    def writer(self, rows: DataFrame) -> DataStreamWriter:
        """Return an appending writer, partitioned as configured."""
        writer = rows.writeStream.format("parquet").outputMode("append").option("path", self._config.path)
        return writer.partitionBy(*self._config.partition_by) if self._config.partition_by else writer
