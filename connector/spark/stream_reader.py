"""The streaming side: which offsets make the next micro-batch, and reading them.

Spark holds one reader for planning, in a process of its own on the driver, and pickles another to the executors. A
reader's fields are therefore only for planning; `read` uses nothing but the configuration.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from connector.config import ConnectorConfig, WholeLog
from connector.errors import (
    ConfigError,
    ConfigProblem,
    ConnectorError,
    LocalViolation,
    LogTruncated,
    SourceOffsetError,
)
from connector.model import NO_EPOCH, TopicPartition
from connector.spark.latest_offsets import LatestOffsets, Poll
from connector.spark.planning import KafkaInputPartition, plan_input_partitions, plan_limited_end, plan_timestamps
from connector.spark.reading import read_ranges
from connector.spark.source_offset import (
    UNRESOLVED,
    SourceOffset,
    decode_source_offset,
    encode_offsets,
    encode_source_offset,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaFollowerStreamReader"]

_log = logging.getLogger(__name__)

_BACKWARDS_ATTEMPTS: Final = 3
_BACKWARDS_PAUSE_S: Final = 1.0
"""A leader that was just elected may show an older end for a moment (KAFKA-7703)."""


class KafkaFollowerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads their ranges.

    Parameters
    ----------
    config : ConnectorConfig
        The options of the query.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        if config.ending_offsets is not None:
            problem = ConfigProblem("endingOffsets", None, "a stream has no end; use it with spark.read only")
            raise ConfigError((problem,))
        self._config = config
        self._latest: LatestOffsets | None = None
        self._is_available_now = False
        self._target: Poll | None = None
        self._logged_losses: set[str] = set()

    def initialOffset(self) -> dict[str, Any]:
        """Return the same marker each time: Spark asks again after a restart, and gets what batch 0 was planned on."""
        return dict(UNRESOLVED)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that `maxOffsetsPerTrigger` sets."""
        limit = self._config.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the ends of the logs at the first `latestOffset` for the ends of the query."""
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends; `start` itself when there is nothing to read."""
        given = decode_source_offset(start)
        if given is None:
            begin = self._resolve_start()
            return encode_source_offset(SourceOffset(self._plan_end(begin, limit), start=begin))
        end_offsets = self._plan_end(given.offsets, limit)
        if end_offsets == given.offsets:
            return start
        return encode_source_offset(SourceOffset(end_offsets))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the ends of the logs, for the query's progress."""
        return encode_offsets(self._planner.poll().offsets)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of one micro-batch; the same for the same offsets, also after a restart."""
        given_end = decode_source_offset(end)
        if given_end is None:
            raise LocalViolation("a micro-batch can't end at a position that is not resolved")
        given_start = decode_source_offset(start)
        begin = given_end.start if given_start is None else given_start.offsets
        if begin is None:
            raise SourceOffsetError(
                "the checkpoint does not say where batch 0 starts; it was written by another source"
            )
        is_loss_fatal = self._config.client.is_data_loss_fatal
        return plan_input_partitions(begin, given_end.offsets, self._planner.view(), is_loss_fatal=is_loss_fatal)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task, on an executor."""
        if not isinstance(partition, KafkaInputPartition):
            raise LocalViolation(f"{partition!r} was not planned by this source")
        return read_ranges(self._config, partition)

    @property
    def _planner(self) -> LatestOffsets:
        if self._latest is None:
            self._latest = LatestOffsets(self._config)
        return self._latest

    def _resolve_start(self) -> dict[TopicPartition, int]:
        bound = self._config.starting_offsets or WholeLog.LATEST
        offsets, timestamps = plan_timestamps("startingOffsets", bound, self._planner.topic_partitions())
        return offsets | self._planner.ask(timestamps)

    def _plan_end(self, begin: Mapping[TopicPartition, int], limit: ReadLimit) -> dict[TopicPartition, int]:
        latest = self._poll_not_before(begin)
        if isinstance(limit, ReadMaxRows):
            return plan_limited_end(limit.max_rows, begin, latest)
        return latest

    def _poll_not_before(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of the logs; one that lies before the start is asked for again, and then is a loss."""
        poll = self._poll_or_target()
        for _ in range(_BACKWARDS_ATTEMPTS):
            if not _went_back(begin, poll.offsets):
                break
            time.sleep(_BACKWARDS_PAUSE_S)
            poll = self._planner.poll(is_fresh=True)
        for topic_partition in _went_back(begin, poll.offsets):
            node = poll.view.nodes[poll.view.partitions[topic_partition].leader_id]
            log_end_offset = poll.offsets[topic_partition]
            self._on_loss(
                LogTruncated(str(topic_partition), begin[topic_partition], log_end_offset, NO_EPOCH, str(node))
            )
        gone = sorted(begin.keys() - poll.offsets.keys())
        if gone:
            self._on_loss(
                SourceOffsetError(
                    f"{', '.join(map(str, gone))}: not in the cluster or the options any more, but the query read "
                    "there. Start again from a new checkpoint."
                )
            )
        return poll.offsets

    def _on_loss(self, error: ConnectorError) -> None:
        """Fail, or log once what the query goes on without (`failOnDataLoss`)."""
        if self._config.client.is_data_loss_fatal:
            raise error
        if str(error) not in self._logged_losses:
            self._logged_losses.add(str(error))
            _log.warning("going on, because failOnDataLoss is false: %s", error)

    def _poll_or_target(self) -> Poll:
        if not self._is_available_now:
            return self._planner.poll()
        if self._target is None:
            self._target = self._planner.poll(is_fresh=True)
        return self._target


def _went_back(begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return [each for each, begin_offset in begin.items() if latest.get(each, begin_offset) < begin_offset]
