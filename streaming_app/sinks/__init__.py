"""Where a job's rows go: one module for each kind of sink, all behind `Sink`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streaming_app.settings import SinkConfig
from streaming_app.sinks.parquet import ParquetSink

__all__ = ["SINKS", "Sink", "build_sink"]


class Sink(Protocol):
    """A place that a streaming DataFrame is written to."""

    def writer(self, rows: DataFrame) -> DataStreamWriter:
        """Return a writer for `rows` that lacks only its name, trigger and checkpoint."""
        ...


SINKS: Final[Mapping[str, Callable[[SinkConfig], Sink]]] = {"parquet": ParquetSink}
"""``sink.format`` of a job file → what builds the sink."""


def build_sink(config: SinkConfig) -> Sink:
    """Build the sink that a job file names; settings have checked that it exists."""
    return SINKS[config.format](config)
