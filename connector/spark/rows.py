"""The rows of the source: exactly the columns of Spark's own ``kafka`` source, all nullable."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from connector.errors import ConfigError, ConfigProblem

__all__ = ["check_user_schema", "spark_schema"]

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS: Final[tuple[tuple[str, DataType], ...]] = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)


def spark_schema(*, include_headers: bool) -> StructType:
    """Return the columns; `headers` is null for a record that has none."""
    columns = [StructField(name, data_type) for name, data_type in _COLUMNS]
    if include_headers:
        columns.append(StructField("headers", ArrayType(_HEADER)))
    return StructType(columns)


def check_user_schema(schema: StructType, *, include_headers: bool) -> None:
    """Raise `ConfigError` when the query asked for other columns with ``.schema(...)``."""
    expected = spark_schema(include_headers=include_headers)
    if schema != expected:
        reason = f"the columns are fixed: {expected.simpleString()}; leave .schema(...) out and select what you need"
        raise ConfigError((ConfigProblem("schema", schema.simpleString(), reason),))
