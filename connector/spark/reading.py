"""Reading on an executor, the same for batch and stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from connector.config import ConnectorConfig
from connector.spark.planning import KafkaInputPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_ranges"]


def read_ranges(config: ConnectorConfig, planned: KafkaInputPartition) -> Iterator[pa.RecordBatch]:
    """Read what one task was given. Any worker may be given it, cold or warm, and gives the same rows."""
    from connector.net.pool import borrow_fetcher  # the driver plans without it

    with borrow_fetcher(config.client) as fetcher:
        yield from fetcher.read(planned.ranges, planned.view, include_headers=config.include_headers)
