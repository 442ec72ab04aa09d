"""The edge to Spark: data source, readers, planning, source offsets, and the driver's metrics.

The only room of `connector` that knows pyspark. `KafkaFollowerDataSource` is what Spark is given; `monitor` attaches
metrics to a driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connector.spark.data_source import KafkaFollowerDataSource
    from connector.spark.driver_metrics import monitor

__all__ = ["KafkaFollowerDataSource", "monitor"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    # On first use: executors unpickle readers out of this package and need neither of the two.
    if name == "KafkaFollowerDataSource":
        from connector.spark.data_source import KafkaFollowerDataSource

        return KafkaFollowerDataSource
    if name == "monitor":
        from connector.spark.driver_metrics import monitor

        return monitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
