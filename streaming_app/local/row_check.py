"""Is every record of a topic in the Parquet exactly once? Asked of files and brokers alone, without Spark.

A row is identified by topic, partition and offset, which the job keeps. What should be there is what brokers hold:
every offset from the log's start to the high watermark (no transactions are written here, so there are no gaps).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

__all__ = ["LogBounds", "RowCheck", "check_rows", "read_row_offsets"]

Int64s: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Offsets ``[log_start_offset, high_watermark)`` that brokers hold of one partition."""

    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class RowCheck:
    """What was found, over all partitions.

    Attributes
    ----------
    row_count
        Rows in the files.
    distinct_count
        Different topic-partition-offsets among them.
    expected_count
        Offsets that brokers hold.
    missing_count, stray_count
        Offsets that brokers hold and no row has; offsets of rows that brokers don't hold.
    """

    row_count: int = 0
    distinct_count: int = 0
    expected_count: int = 0
    missing_count: int = 0
    stray_count: int = 0

    @property
    def doubled_count(self) -> int:
        """Rows beyond the first of their topic-partition-offset."""
        return self.row_count - self.distinct_count

    @property
    def is_exact(self) -> bool:
        """Whether each record is there once, and nothing else."""
        return not (self.missing_count or self.stray_count or self.doubled_count)


def read_row_offsets(files: Iterable[Path], topic: str) -> dict[int, Int64s]:
    """Return the offsets of a topic's rows by partition, doubled ones doubled, in no particular order."""
    parts: dict[int, list[Int64s]] = {}
    for file in files:
        table = pq.ParquetFile(file).read(columns=["topic", "partition", "offset"])
        of_topic = table["topic"].to_numpy() == topic
        partitions = table["partition"].to_numpy()[of_topic]
        offsets = table["offset"].to_numpy()[of_topic]
        for partition in np.unique(partitions).tolist():
            parts.setdefault(partition, []).append(offsets[partitions == partition])
    return {partition: np.concatenate(arrays) for partition, arrays in parts.items()}


def check_rows(row_offsets: Mapping[int, Int64s], bounds: Mapping[int, LogBounds]) -> RowCheck:
    """Compare rows with what brokers hold.

    Parameters
    ----------
    row_offsets
        Of each partition, int64, any order.
    bounds
        Of each partition of the topic; rows of any other partition are stray.
    """
    return _sum(
        _check_partition(row_offsets.get(partition, np.empty(0, np.int64)), bounds.get(partition, LogBounds(0, 0)))
        for partition in sorted(row_offsets.keys() | bounds.keys())
    )


def _check_partition(offsets: Int64s, bounds: LogBounds) -> RowCheck:
    distinct = np.unique(offsets)
    is_held = (distinct >= bounds.log_start_offset) & (distinct < bounds.high_watermark)
    expected_count = bounds.high_watermark - bounds.log_start_offset
    held_count = int(is_held.sum())
    return RowCheck(
        row_count=offsets.size,
        distinct_count=distinct.size,
        expected_count=expected_count,
        missing_count=expected_count - held_count,
        stray_count=distinct.size - held_count,
    )


def _sum(checks: Iterable[RowCheck]) -> RowCheck:
    every: Sequence[RowCheck] = tuple(checks)
    return RowCheck(
        row_count=sum(check.row_count for check in every),
        distinct_count=sum(check.distinct_count for check in every),
        expected_count=sum(check.expected_count for check in every),
        missing_count=sum(check.missing_count for check in every),
        stray_count=sum(check.stray_count for check in every),
    )
