"""What Spark finds: installed as the top-level module ``pyspark_kafka_follower``.

Spark looks into modules named ``pyspark_*`` for a class `DefaultSource`; with the wheel installed,
``format("kafka_follower")`` needs no registration.
"""

from __future__ import annotations

from connector.spark.data_source import KafkaFollowerDataSource as DefaultSource

__all__ = ["DefaultSource"]
