"""What Spark is given: the format ``kafka_follower``."""

from __future__ import annotations

import logging

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from connector.config import parse_options
from connector.spark.batch_reader import KafkaFollowerBatchReader
from connector.spark.rows import check_user_schema, spark_schema
from connector.spark.stream_reader import KafkaFollowerStreamReader

__all__ = ["KafkaFollowerDataSource"]

_log = logging.getLogger(__name__)


class KafkaFollowerDataSource(DataSource):
    """Kafka as a Spark source, each partition read from the replica nearest to the executor.

    Options, columns and semantics are those of Spark's own ``kafka`` source. An executor's rack is its environment
    variable ``KAFKA_CLIENT_RACK``; brokers need ``broker.rack`` and a ``replica.selector.class``.

    Examples
    --------
    >>> spark.dataSource.register(KafkaFollowerDataSource)  # not needed where the wheel is installed
    >>> orders = (
    ...     spark.readStream.format("kafka_follower")
    ...     .option("kafka.bootstrap.servers", "broker-1:9092")
    ...     .option("subscribe", "orders")
    ...     .load()
    ... )

    Raises
    ------
    ConfigError
        At ``load()``, with every problem of the options.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._config = parse_options(options)
        for warning in self._config.warnings:
            _log.warning("%s", warning)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafka_follower"

    def schema(self) -> StructType:
        """Return the columns."""
        return spark_schema(include_headers=self._config.include_headers)

    def reader(self, schema: StructType) -> KafkaFollowerBatchReader:
        """Return what reads a batch."""
        check_user_schema(schema, include_headers=self._config.include_headers)
        return KafkaFollowerBatchReader(self._config)

    def streamReader(self, schema: StructType) -> KafkaFollowerStreamReader:
        """Return what reads a stream."""
        check_user_schema(schema, include_headers=self._config.include_headers)
        return KafkaFollowerStreamReader(self._config)
