"""DataFrame → DataFrame, without I/O: raw Kafka rows become typed orders, and no row is lost.

A value is a well-formed order when it is valid UTF-8 and exactly one JSON object whose required members all have their
declared type. Anything else (no value, broken JSON, two objects in one value, a missing member, a string where a number
belongs) keeps its row: ``malformed`` is true, ``malformed_value`` holds the bytes as they were, and the order's own
columns are null. Members that the declaration does not name are not read.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from streaming_app.orders import KAFKA_COLUMNS, ORDER_FIELDS, OUTPUT_COLUMNS

__all__ = ["parse_orders"]

_ORDER_SCHEMA = ", ".join(f"{field.name} {field.sql_type}" for field in ORDER_FIELDS)


def parse_orders(records: DataFrame) -> DataFrame:
    """Turn rows of a Kafka source into orders.

    Parameters
    ----------
    records : DataFrame
        With the columns ``value`` (binary), ``topic``, ``partition``, ``offset`` and ``timestamp``, as the sources
        ``kafka`` and ``kafka_follower`` give them. Batch or streaming.

    Returns
    -------
    DataFrame
        One row for each given row, with `OUTPUT_COLUMNS`. ``arrival_date`` is the day of Kafka's timestamp in the
        session's time zone: every row has one, so that it can partition a table.
    """
    parsed = records.select(*KAFKA_COLUMNS, "value", _parsed_order("value").alias("order"))
    is_order = reduce(and_, (parsed.order[field.name].isNotNull() for field in ORDER_FIELDS if field.is_required))
    judged = parsed.withColumn("malformed", ~sql.coalesce(is_order, sql.lit(False)))
    return judged.select(
        *(sql.when(~sql.col("malformed"), judged.order[field.name]).alias(field.name) for field in ORDER_FIELDS),
        *KAFKA_COLUMNS,
        sql.when(sql.col("malformed"), sql.col("value")).alias("malformed_value"),
        "malformed",
        sql.to_date("timestamp").alias("arrival_date"),
    ).select(*OUTPUT_COLUMNS)


def _parsed_order(column: str) -> Column:
    """Parse a value as the only element of a JSON array; null where it is not.

    On its own, ``from_json`` reads the first object of a text and ignores whatever follows it. Inside brackets
    anything that follows is either a syntax error or a second element.
    """
    text = sql.col(column).cast("string")
    bracketed = sql.concat(sql.lit("["), text, sql.lit("]"))
    elements = sql.from_json(bracketed, f"array<struct<{_ORDER_SCHEMA}>>", {"allowSingleQuotes": "false"})
    return sql.when(sql.is_valid_utf8(text) & (sql.size(elements) == 1), sql.get(elements, sql.lit(0)))
