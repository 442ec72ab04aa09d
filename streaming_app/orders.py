"""The order event: its fields, declared once, and the columns that an order becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["KAFKA_COLUMNS", "ORDER_FIELDS", "OUTPUT_COLUMNS", "OrderField"]


@dataclass(frozen=True, slots=True)
class OrderField:
    """One member of the JSON object: its name, its Spark SQL type, and whether an order is malformed without it."""

    name: str
    sql_type: str
    is_required: bool = True


ORDER_FIELDS: Final = (
    OrderField("order_id", "string"),
    OrderField("customer_id", "string"),
    OrderField("sku", "string"),
    OrderField("quantity", "int"),
    OrderField("price_cents", "bigint"),
    OrderField("currency", "string"),
    OrderField("channel", "string"),
    OrderField("placed_at", "timestamp"),
    OrderField("coupon", "string", is_required=False),
)

KAFKA_COLUMNS: Final = ("topic", "partition", "offset", "timestamp")
"""Columns of the source that stay: with them a row is found again in Kafka."""

OUTPUT_COLUMNS: Final = (
    *(field.name for field in ORDER_FIELDS),
    *KAFKA_COLUMNS,
    "malformed_value",
    "malformed",
    "arrival_date",
)
"""What `pipeline.parse_orders` gives, in this order."""
