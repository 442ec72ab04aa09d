"""The batch side: from one set of offsets to another, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from connector.config import ConnectorConfig, OffsetBound, PartitionOffsets, WholeLog
from connector.errors import ConfigError, ConfigProblem, LocalViolation
from connector.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from connector.spark.latest_offsets import LatestOffsets
from connector.spark.planning import KafkaInputPartition, plan_input_partitions, plan_timestamps
from connector.spark.reading import read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaFollowerBatchReader"]


class KafkaFollowerBatchReader(DataSourceReader):
    """Plans one read of all offsets between `startingOffsets` and `endingOffsets`.

    Parameters
    ----------
    config : ConnectorConfig
        The options of the query.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self._start = config.starting_offsets or WholeLog.EARLIEST
        self._end = config.ending_offsets or WholeLog.LATEST
        if _holds(self._start, LATEST_TIMESTAMP):
            raise _refused("startingOffsets", "a batch query can't start at latest")
        if _holds(self._end, EARLIEST_TIMESTAMP):
            raise _refused("endingOffsets", "a batch query can't end at earliest")

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks; bounds that only the cluster knows are resolved here."""
        latest = LatestOffsets(self._config)
        wanted = latest.topic_partitions()
        start, start_timestamps = plan_timestamps("startingOffsets", self._start, wanted)
        end, end_timestamps = plan_timestamps("endingOffsets", self._end, wanted)
        start |= latest.ask(start_timestamps)
        end |= latest.ask(end_timestamps)
        # Without any partition Spark would run one task of its own making.
        is_loss_fatal = self._config.client.is_data_loss_fatal
        planned = plan_input_partitions(start, end, latest.view(), is_loss_fatal=is_loss_fatal)
        return planned or [KafkaInputPartition((), latest.view())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task, on an executor."""
        if not isinstance(partition, KafkaInputPartition):
            raise LocalViolation(f"{partition!r} was not planned by this source")
        return read_ranges(self._config, partition)


def _holds(bound: OffsetBound, timestamp: int) -> bool:
    if isinstance(bound, PartitionOffsets):
        return any(value == timestamp for _, value in bound.offsets)
    return bound.value == timestamp


def _refused(option: str, reason: str) -> ConfigError:
    return ConfigError((ConfigProblem(option, None, reason),))
