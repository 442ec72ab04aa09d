"""Read every Kafka partition from the replica nearest to the Spark executor that reads it (KIP-392).

Public names: `KafkaFollowerDataSource` (format ``kafka_follower``) and `monitor`. Both live in `connector.spark`
and are loaded on first use, so that the other rooms can be imported without pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connector.spark import KafkaFollowerDataSource, monitor

__all__ = ["KafkaFollowerDataSource", "monitor"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    if name in __all__:
        # By name: an import statement here would make every room depend on the topmost one.
        return getattr(import_module("connector.spark"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
